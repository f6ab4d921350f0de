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
#include <strings.h>

#include "rsh/util/mem.h"
#include "strategy_build_i.h"

/* ---- state_dict_metadata: type, shape, layout, chunks ---- */

/* Keeps r->holders as the ranks of a parameter without a layout. */
static void ck2_keep_holders(struct ckpt2_reader *r, struct ckpt2_param *p)
{
	struct ckpt2_numbers *h = &r->holders;
	const struct ckpt2_list *list;

	h->n = (uint32_t)rsh_sort_distinct(h->v, h->n);
	list = rsh_ckpt2_list_keep(&r->layouts, h);
	if (list)
		p->pub.ranks = &list->pub;
	else
		rsh_json_nomem(&r->scan);
}

static void ck2_properties(struct json_scan *s, struct rsh_ckpt2_param *p)
{
	struct json_string key, text;

	rsh_json_begin(s, '{');
	while (rsh_json_key(s, &key)) {
		if (!JSON_IS(&key, "dtype")) {
			rsh_json_skip(s);
			continue;
		}
		if (!rsh_json_string(s, &text))
			return;
		/* Graph mode writes "float32", PyNative mode "Float32". */
		for (int t = RSH_DTYPE_UNKNOWN + 1; t < RSH_DTYPE_COUNT; t++) {
			const char *name = rsh_dtype_name((enum rsh_dtype)t);

			if (strlen(name) == text.len &&
			    !strncasecmp(name, text.s, text.len))
				p->dtype = (enum rsh_dtype)t;
		}
	}
}

static void ck2_shape(struct ckpt2_reader *r, struct ckpt2_param *p)
{
	struct json_scan *s = &r->scan;
	int64_t dims[RSH_MAX_DIMS], *kept;
	uint32_t n = 0;

	rsh_json_begin(s, '[');
	while (rsh_json_element(s)) {
		if (n == RSH_MAX_DIMS) {
			rsh_json_fail(s, "more than %d dimensions",
				      RSH_MAX_DIMS);
			return;
		}
		if (!rsh_json_int(s, 0, INT64_MAX, &dims[n++]))
			return;
	}
	kept = rsh_arena_copy(&r->arena, dims, n);
	if (!kept) {
		rsh_json_nomem(s);
		return;
	}
	p->pub.n_dims = n;
	p->pub.dims = kept;
	p->has_shape = true;
}

/* A "global_offset" is a list of one number: the number of the slice. */
static void ck2_chunks(struct json_scan *s, struct ckpt2_param *p)
{
	struct json_string key;

	rsh_json_begin(s, '[');
	while (rsh_json_element(s)) {
		rsh_json_begin(s, '{');
		while (rsh_json_key(s, &key)) {
			int64_t slice = 0;
			uint32_t n = 0;

			if (!JSON_IS(&key, "global_offset")) {
				rsh_json_skip(s);
				continue;
			}
			rsh_json_begin(s, '[');
			while (rsh_json_element(s) &&
			       rsh_json_int(s, 0, UINT32_MAX, &slice))
				n++;
			if (n != 1)
				rsh_json_fail(s,
					      "a \"global_offset\" of %u "
					      "numbers, not one",
					      n);
			if (slice > p->top_chunk)
				p->top_chunk = slice;
		}
	}
}

static void ck2_layout(struct ckpt2_reader *r, struct ckpt2_param *p)
{
	struct json_scan *s = &r->scan;
	uint32_t last = rsh_names_count(r->names) - 1;
	int64_t i;

	if (p->has_layout) {
		rsh_json_fail(s, "a second layout");
		return;
	}
	p->has_layout = true;
	if (rsh_json_word(s, "null"))
		return;
	if (!r->kept || rsh_json_peek(s) == '{') {
		p->layout = rsh_ckpt2_layout_read(s, &r->layouts);
	} else if (rsh_json_int(s, 0, (int64_t)last - 1, &i)) {
		/* the number of an earlier parameter that has the layout */
		p->layout = r->params[i].layout;
		if (!p->layout)
			rsh_json_fail(s, "parameter %u has no layout",
				      (unsigned)i);
	}
	if (p->layout)
		p->pub.ranks = &p->layout->list->pub;
}

static bool ck2_param_fields(struct ckpt2_reader *r, struct ckpt2_param *p)
{
	struct json_scan *s = &r->scan;
	struct json_string key;
	int64_t n;

	rsh_json_begin(s, '{');
	while (rsh_json_key(s, &key)) {
		if (JSON_IS(&key, "properties")) {
			ck2_properties(s, &p->pub);
		} else if (JSON_IS(&key, "global_shape")) {
			ck2_shape(r, p);
		} else if (JSON_IS(&key, "layout")) {
			ck2_layout(r, p);
		} else if (JSON_IS(&key, "chunk")) {
			ck2_chunks(s, p);
		} else if (r->kept && JSON_IS(&key, "stored")) {
			/* In a kept text this and the holders replace
			 * storage_data. */
			if (rsh_json_int(s, 0, UINT32_MAX, &n))
				p->pub.n_stored = (uint32_t)n;
		} else if (r->kept && JSON_IS(&key, "holders")) {
			r->holders.n = 0;
			if (rsh_ckpt2_ranks_read(s, &r->holders))
				ck2_keep_holders(r, p);
		} else {
			rsh_json_skip(s);
		}
	}
	if (!p->has_shape)
		rsh_json_fail(s, "it has no \"global_shape\"");
	if (!p->has_layout)
		rsh_json_fail(s, "it has no \"layout\"");
	return s->rc == 0;
}

static bool ck2_check_param(struct json_scan *s, const struct ckpt2_param *p)
{
	const struct ckpt2_layout *l = p->layout;

	if (p->top_chunk >= p->pub.n_slices)
		return rsh_json_fail(s,
				     "a chunk of slice %lld, but the layout "
				     "makes %u",
				     (long long)p->top_chunk, p->pub.n_slices);
	if (p->pub.n_stored > p->pub.n_slices)
		return rsh_json_fail(s, "more slices are stored than there "
					"are");
	if (!l)
		return (p->pub.n_stored > 0) == (p->pub.ranks->n > 0) ||
		       rsh_json_fail(s, "it is stored, but no rank holds it");
	if (p->pub.ranks != &l->list->pub)
		return rsh_json_fail(s, "it has a layout, and holders");
	if (l->n_map != p->pub.n_dims)
		return rsh_json_fail(s,
				     "%u dimensions, but %u in the tensor "
				     "map",
				     p->pub.n_dims, l->n_map);
	for (uint32_t d = 0; d < l->n_map; d++)
		if (p->pub.dims[d] % l->splits[d])
			return rsh_json_fail(s,
					     "dimension %lld cannot be cut "
					     "into %u slices",
					     (long long)p->pub.dims[d],
					     l->splits[d]);
	return true;
}

/* Keeps the name and makes the next parameter of it; NULL is a failure. */
static struct ckpt2_param *ck2_param_new(struct ckpt2_reader *r,
					 const struct json_string *name)
{
	struct json_scan *s = &r->scan;
	uint32_t n = rsh_names_count(r->names);
	uint32_t id = name->len ? rsh_names_add(r->names, name->s, name->len) :
				  RSH_NAME_NONE;

	if (!name->len)
		rsh_json_fail(s, "a parameter without a name");
	else if (id == RSH_NAME_NONE ||
		 rsh_room(r->params, r->cap_params, (size_t)id + 1))
		rsh_json_nomem(s);
	if (s->rc)
		return NULL;
	s->name = rsh_names_text(r->names, id);
	if (id != n) {
		rsh_json_fail(s, "it is described twice");
		return NULL;
	}
	r->params[id] = (struct ckpt2_param){ .top_chunk = -1 };
	return &r->params[id];
}

static void ck2_read_params(struct ckpt2_reader *r)
{
	static const struct rsh_ckpt2_ranks none;
	struct json_scan *s = &r->scan;
	struct json_string name;

	rsh_json_begin(s, '{');
	while (rsh_json_key(s, &name)) {
		struct ckpt2_param *p = ck2_param_new(r, &name);

		if (!p || !ck2_param_fields(r, p))
			return;
		p->pub.n_slices = p->layout ? p->layout->n_slices : 1;
		if (!p->pub.ranks)
			p->pub.ranks = &none;
		if (!ck2_check_param(s, p))
			return;
		p->stored = rsh_arena_array(&r->arena, uint8_t,
					    (size_t)p->pub.n_slices / 8 + 1);
		p->pub.name = rsh_arena_strdup(&r->arena, s->name);
		if (!p->stored || !p->pub.name)
			rsh_json_nomem(s);
		s->name = NULL;
	}
	if (!s->rc && !rsh_names_count(r->names))
		rsh_json_fail(s, "it describes no parameter");
}

/* ---- storage_data: the slices that have a file, and its rank ---- */

/* longer groups are not compared */
#define MAX_GROUP_BYTES ((size_t)256 * 1024)

static uint32_t ck2_file(struct ckpt2_reader *r, const struct json_string *name)
{
	struct json_scan *s = &r->scan;
	uint32_t n = rsh_names_count(r->file_names), id;

	if (!name->len || JSON_IS(name, ".") || JSON_IS(name, "..") ||
	    memchr(name->s, '/', name->len)) {
		rsh_json_fail(s, "\"%.*s\" is not a file name",
			      (int)name->len, name->s);
		return RSH_NAME_NONE;
	}
	id = rsh_names_add(r->file_names, name->s, name->len);
	if (id == RSH_NAME_NONE ||
	    rsh_room(r->files, r->cap_files, (size_t)id + 1)) {
		rsh_json_nomem(s);
		return RSH_NAME_NONE;
	}
	if (id == n)
		r->files[id].name = NULL;
	return id;
}

/* Reads a rank_group, which is used for parameters without a layout. */
static void ck2_group(struct ckpt2_reader *r)
{
	struct json_scan *s = &r->scan;
	const char *text;
	uint64_t start;
	size_t len;

	rsh_json_peek(s);
	start = rsh_json_offset(s);
	if (rsh_json_same(s, r->group, r->n_group) ||
	    !rsh_ckpt2_ranks_read(s, &r->holders))
		return;
	r->n_group = 0;
	text = rsh_json_since(s, start, &len);
	if (!text || len > MAX_GROUP_BYTES)
		return;
	if (rsh_grow(&r->group, &r->cap_group, len, 1)) {
		rsh_json_nomem(s);
		return;
	}
	memcpy(r->group, text, len);
	r->n_group = len;
}

/* Stores the rank of the file. */
static void ck2_take_file(struct ckpt2_reader *r, uint32_t file, uint32_t rank)
{
	struct rsh_ckpt2_file *f = &r->files[file];

	if (f->name && f->rank != rank) {
		rsh_json_fail(&r->scan, "the file %s is of rank %u, and of %u",
			      f->name, f->rank, rank);
		return;
	}
	f->name = rsh_names_text(r->file_names, file);
	f->rank = rank;
	if (rank >= r->layouts.n_ranks)
		r->layouts.n_ranks = rank + 1;
}

/* Reads an element of storage_data: a file has the slice. */
static void ck2_read_holder(struct ckpt2_reader *r, const struct ckpt2_param *p,
			    uint32_t slice)
{
	struct ckpt2_numbers *h = &r->holders;
	struct json_scan *s = &r->scan;
	struct json_string key, name;
	uint32_t file = RSH_NAME_NONE, wanted = 0;
	int64_t rank = -1;

	rsh_json_begin(s, '{');
	while (rsh_json_key(s, &key)) {
		if (JSON_IS(&key, "file_name") && file != RSH_NAME_NONE)
			rsh_json_fail(s, "a second \"file_name\"");
		else if (JSON_IS(&key, "file_name"))
			file = rsh_json_string(s, &name) ? ck2_file(r, &name) :
							   RSH_NAME_NONE;
		else if (JSON_IS(&key, "storage_rank"))
			rsh_json_int(s, 0, CKPT2_MAX_RANKS - 1, &rank);
		else if (JSON_IS(&key, "rank_group"))
			ck2_group(r);
		else
			rsh_json_skip(s);
	}
	if (file == RSH_NAME_NONE || rank < 0) {
		rsh_json_fail(s, "a slice without \"file_name\" or "
			      "\"storage_rank\"");
		return;
	}
	ck2_take_file(r, file, (uint32_t)rank);
	if (p->layout)
		wanted = rsh_ckpt2_slice_of(p->layout, (uint32_t)rank);
	else if (rsh_push(h->v, h->n, h->cap, (uint32_t)rank))
		rsh_json_nomem(s);
	if (wanted != slice)
		rsh_json_fail(s,
			      "slice %u was written by rank %lld, to which "
			      "the layout gives slice %u",
			      slice, (long long)rank, wanted);
}

static void ck2_read_slice(struct ckpt2_reader *r, struct ckpt2_param *p,
			   uint32_t slice)
{
	struct json_scan *s = &r->scan;
	uint8_t bit = (uint8_t)(1u << slice % 8);
	bool any = false;

	if (slice >= p->pub.n_slices) {
		rsh_json_fail(s, "slice %u is stored, but the layout makes %u",
			      slice, p->pub.n_slices);
		return;
	}
	if (p->stored[slice / 8] & bit) {
		rsh_json_fail(s, "slice %u is twice in \"" CKPT2_STORAGE "\"",
			      slice);
		return;
	}
	/* The layout gives the ranks that have a slice; without a layout the
	 * rank_group does. */
	r->holders.n = 0;
	if (!p->layout)
		r->n_group = 0;
	rsh_json_begin(s, '[');
	while (rsh_json_element(s)) {
		ck2_read_holder(r, p, slice);
		any = true;
	}
	if (s->rc || !any)
		return;
	p->stored[slice / 8] |= bit;
	p->pub.n_stored++;
	if (!p->layout)
		ck2_keep_holders(r, p);
}

/* Reads storage_data, or the "files" of a kept text. */
static void ck2_read_stored(struct ckpt2_reader *r)
{
	struct json_scan *s = &r->scan;
	struct json_string key, name;
	uint32_t slice, id;
	int64_t rank;

	rsh_json_begin(s, '{');
	while (rsh_json_key(s, &key)) {
		if (r->kept) {
			id = ck2_file(r, &key);
			if (rsh_json_int(s, 0, CKPT2_MAX_RANKS - 1, &rank))
				ck2_take_file(r, id, (uint32_t)rank);
			continue;
		}
		if (!rsh_ckpt2_key_parse(&key, &name, &slice)) {
			rsh_json_fail(s, "\"%.*s\" is not a name with the "
			      "number of a slice", (int)key.len, key.s);
			return;
		}
		id = rsh_names_find(r->names, name.s, name.len);
		if (id == RSH_NAME_NONE) {
			rsh_json_fail(s, "\"%.*s\" is stored, but not "
				      "described", (int)name.len, name.s);
			return;
		}
		s->name = r->params[id].pub.name;
		ck2_read_slice(r, &r->params[id], slice);
		s->name = NULL;
	}
}

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
			ck2_read_params(r);
			described = true;
		} else if (stores && !stored) {
			stored = true;
			if (described) {
				ck2_read_stored(r);
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
		ck2_read_stored(r);
	}
}

RSH_ORDER(ck2_by_file_name, struct rsh_ckpt2_file, strcmp(x->name, y->name))

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
			rsh_arena_strdup(&r->arena, name),
			r->files[i].rank,
		};
		failed = !files[i].name;
	}
	if (failed) {
		rsh_ckpt2_free(c ? &c->pub : NULL);
		return rsh_error_nomem(err);
	}
	rsh_sort(files, n_files, ck2_by_file_name);
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
