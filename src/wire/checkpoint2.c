/* SPDX-License-Identifier: Apache-2.0 */
/* wire/checkpoint2.c reads a metadata.json.
 *
 * The file repeats everything for every rank.  Each layout and each list of
 * ranks is kept once, with its text as the key.  In plain saves most
 * rank_groups have the same text as the one before; such a rank_group is
 * compared and not parsed. */
#include "checkpoint2_i.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "rsh/util/mem.h"
#include "strategy_build_i.h"

/* Reads the parameters first, regardless of their place in the file. */
static void ck2_read_root(struct ckpt2_reader *r)
{
	const char *const storage = r->kept ? "files" : CKPT2_STORAGE;
	struct json_scan *s = &r->scan;
	uint64_t later = 0;
	struct json_string key;
	bool described = false, stored = false;

	if (rsh_json_peek(s) != '{')
		rsh_json_fail(s, "not a metadata.json: not a JSON object");
	rsh_json_begin(s, '{');
	while (rsh_json_key(s, &key)) {
		bool stores = rsh_json_is(&key, storage, strlen(storage));

		if (JSON_IS(&key, CKPT2_METADATA) && !described) {
			rsh_ckpt2_read_params(r);
			described = true;
		} else if (stores && !stored) {
			stored = true;
			if (described) {
				rsh_ckpt2_read_stored(r);
				continue;
			}
			later = rsh_json_offset(s);
			rsh_json_skip(s);
		} else if (JSON_IS(&key, CKPT2_METADATA) || stores) {
			rsh_json_fail(s, "\"%.*s\" is there twice",
				      (int)key.len, key.s);
		} else {
			rsh_json_skip(s);
		}
	}
	rsh_json_finish(s);
	if (!described || !stored)
		rsh_json_fail(s, "not a metadata.json: it has no \"%s\"",
			      described ? storage : CKPT2_METADATA);
	if (later) {
		rsh_json_seek(s, later);
		rsh_ckpt2_read_stored(r);
	}
}

static int ck2_by_file_name(const void *a, const void *b)
{
	const struct rsh_ckpt2_file *x = a, *y = b;

	return strcmp(x->name, y->name);
}

static int ck2_finish(struct ckpt2_reader *r, struct rsh_ckpt2 **out,
		      struct rsh_error *err)
{
	const uint32_t n_files = rsh_names_count(r->file_names);
	const uint32_t n_params = rsh_names_count(r->names);
	struct rsh_ckpt2_file *files =
		rsh_arena_array(&r->arena, struct rsh_ckpt2_file, n_files);
	struct rsh_ckpt2_param *params =
		rsh_arena_array(&r->arena, struct rsh_ckpt2_param, n_params);
	struct ckpt2_owned *c = calloc(1, sizeof(*c));
	bool failed = !c || !files || !params ||
		      rsh_strategy_builder_finish(r->layouts.items,
						  &c->layouts, err);

	for (uint32_t i = 0; !failed && i < n_files; i++) {
		const char *name = r->files[i].name;

		files[i] = (struct rsh_ckpt2_file){
			rsh_arena_strndup(&r->arena, name, strlen(name)),
			r->files[i].rank,
		};
		failed = !files[i].name;
	}
	if (failed) {
		rsh_ckpt2_free(c ? &c->pub : NULL);
		return rsh_error_nomem(err);
	}
	qsort(files, n_files, sizeof(*files), ck2_by_file_name);
	for (uint32_t i = 0; i < n_params; i++) {
		const struct ckpt2_layout *l = r->params[i].layout;

		params[i] = r->params[i].pub;
		if (l)
			params[i].layout = &c->layouts->items[l->item];
	}
	c->pub.n_files = n_files;
	c->pub.files = files;
	c->pub.n_params = n_params;
	c->pub.params = params;
	c->pub.n_ranks = r->layouts.n_ranks;
	c->arena = r->arena;
	r->arena = (struct rsh_arena){ 0 };
	*out = &c->pub;
	return 0;
}

static void ck2_clear(struct ckpt2_reader *r)
{
	if (r->names)
		rsh_names_free(r->names);
	if (r->file_names)
		rsh_names_free(r->file_names);
	rsh_arena_clear(&r->arena);
	free(r->params);
	free(r->files);
	free(r->holders.v);
	free(r->group);
}

static int ck2_parse(const struct rsh_byte_source *src, bool kept,
		     struct rsh_ckpt2 **out, struct rsh_error *err)
{
	struct ckpt2_reader r = { .kept = kept, .names = rsh_names_new(),
				.file_names = rsh_names_new() };
	int rc = -ENOMEM;

	if (!r.names || !r.file_names ||
	    rsh_ckpt2_layouts_init(&r.layouts, &r.arena, src->path)) {
		ck2_clear(&r);
		return rsh_error_nomem(err);
	}
	if (rsh_json_open(&r.scan, src, err)) {
		ck2_read_root(&r);
		rc = r.scan.rc ? r.scan.rc : ck2_finish(&r, out, err);
		rsh_json_close(&r.scan);
	} else {
		rsh_error_nomem(err);
	}
	rsh_ckpt2_layouts_clear(&r.layouts);
	ck2_clear(&r);
	return rc;
}

int rsh_ckpt2_parse(const struct rsh_byte_source *src, struct rsh_ckpt2 **out,
		    struct rsh_error *err)
{
	return ck2_parse(src, false, out, err);
}

int rsh_ckpt2_parse_kept(const struct rsh_byte_source *src,
			 struct rsh_ckpt2 **out, struct rsh_error *err)
{
	return ck2_parse(src, true, out, err);
}

void rsh_ckpt2_free(struct rsh_ckpt2 *pub)
{
	struct ckpt2_owned *c = (struct ckpt2_owned *)pub;

	if (!c)
		return;
	rsh_arena_clear(&c->arena);
	rsh_strategy_file_free(c->layouts);
	free(c);
}
