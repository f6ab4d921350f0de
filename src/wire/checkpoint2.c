/* SPDX-License-Identifier: Apache-2.0 */
/* wire/checkpoint2.c reads a metadata.json: what its parameters are, and for
 * which slices storage_data names a file.
 *
 * The file says everything for every rank anew.  What is kept once is found
 * again by its text, and a rank_group that reads as the one before (in plain
 * saves most do) is compared and not parsed. */
#include "checkpoint2_i.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "rsh/util/mem.h"
#include "strategy_build_i.h"

#define METADATA "state_dict_metadata"
#define STORAGE "storage_data"
#define MAX_GROUP_BYTES ((size_t)256 * 1024) /* that is compared */

/* This is a parameter with what is needed of it while the file is read. */
struct ck2_param {
	struct rsh_ckpt2_param pub; /* its layout is set at the end */
	const struct ckpt2_layout *layout;
	uint8_t *stored;            /* a bit a slice */
	bool has_layout, has_shape; /* the file says so, "null" too */
	int64_t top_chunk;          /* -1: there is none */
};

struct ck2_reader {
	struct json_scan scan;
	bool kept; /* it is what rsh_ckpt2_keep() has written */
	struct rsh_arena arena;
	struct ckpt2_layouts layouts;
	struct rsh_names *names; /* numbers are those of params */
	struct ck2_param *params;
	size_t cap_params;
	struct rsh_names *file_names;
	struct rsh_ckpt2_file *files; /* by the number of their name */
	size_t cap_files;
	struct ckpt2_numbers holders; /* of the parameter at hand */
	char *group;                  /* the rank_group before, as it stands */
	size_t n_group, cap_group;
};

/* ---- parameters ---- */

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

static void ck2_shape(struct ck2_reader *r, struct ck2_param *p)
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
	kept = rsh_arena_array(&r->arena, int64_t, n);
	if (!kept) {
		rsh_json_nomem(s);
		return;
	}
	memcpy(kept, dims, n * sizeof(*dims));
	p->pub.n_dims = n;
	p->pub.dims = kept;
	p->has_shape = true;
}

/* What is called an offset is a list of one number, that of the slice. */
static void ck2_chunk_slice(struct json_scan *s, struct ck2_param *p)
{
	int64_t slice = 0;
	uint32_t n = 0;

	rsh_json_begin(s, '[');
	while (rsh_json_element(s)) {
		if (!rsh_json_int(s, 0, UINT32_MAX, &slice))
			return;
		n++;
	}
	if (n != 1)
		rsh_json_fail(s, "a \"global_offset\" of %u numbers, not one",
			      n);
	if (slice > p->top_chunk)
		p->top_chunk = slice;
}

static void ck2_chunks(struct json_scan *s, struct ck2_param *p)
{
	struct json_string key;

	rsh_json_begin(s, '[');
	while (rsh_json_element(s)) {
		rsh_json_begin(s, '{');
		while (rsh_json_key(s, &key)) {
			if (JSON_IS(&key, "global_offset"))
				ck2_chunk_slice(s, p);
			else
				rsh_json_skip(s);
		}
	}
}

/* Reads the number of an earlier parameter that has the same layout. */
static const struct ckpt2_layout *ck2_layout_again(struct ck2_reader *r)
{
	uint32_t last = rsh_names_count(r->names) - 1;
	int64_t i;

	if (!rsh_json_int(&r->scan, 0, (int64_t)last - 1, &i))
		return NULL;
	if (!r->params[i].layout)
		rsh_json_fail(&r->scan, "parameter %u has no layout",
			      (unsigned)i);
	return r->params[i].layout;
}

static void ck2_layout(struct ck2_reader *r, struct ck2_param *p)
{
	struct json_scan *s = &r->scan;

	if (p->has_layout) {
		rsh_json_fail(s, "a second layout");
		return;
	}
	p->has_layout = true;
	if (rsh_json_word(s, "null"))
		return;
	p->layout = r->kept && rsh_json_peek(s) != '{' ?
			    ck2_layout_again(r) :
			    rsh_ckpt2_layout_read(s, &r->layouts);
	if (p->layout)
		p->pub.ranks = &p->layout->list->pub;
}

/* Keeps who holds a parameter without a layout. */
static void ck2_keep_holders(struct ck2_reader *r, struct ck2_param *p)
{
	struct ckpt2_numbers *h = &r->holders;
	const struct ckpt2_list *list;
	uint32_t n = 0;

	if (h->n > 0)
		qsort(h->v, h->n, sizeof(*h->v), rsh_by_u32);
	for (uint32_t i = 0; i < h->n; i++)
		if (n == 0 || h->v[i] != h->v[n - 1])
			h->v[n++] = h->v[i];
	h->n = n;
	list = rsh_ckpt2_list_keep(&r->layouts, h);
	if (list)
		p->pub.ranks = &list->pub;
	else
		rsh_json_nomem(&r->scan);
}

/* Reads the fields that stand for what storage_data would say. */
static void ck2_kept_field(struct ck2_reader *r, struct ck2_param *p,
			   const struct json_string *key)
{
	struct json_scan *s = &r->scan;
	int64_t n;

	if (JSON_IS(key, "stored")) {
		if (rsh_json_int(s, 0, UINT32_MAX, &n))
			p->pub.n_stored = (uint32_t)n;
	} else if (JSON_IS(key, "holders")) {
		r->holders.n = 0;
		if (rsh_ckpt2_ranks_read(s, &r->holders))
			ck2_keep_holders(r, p);
	} else {
		rsh_json_skip(s);
	}
}

static bool ck2_param_fields(struct ck2_reader *r, struct ck2_param *p)
{
	struct json_scan *s = &r->scan;
	struct json_string key;

	rsh_json_begin(s, '{');
	while (rsh_json_key(s, &key)) {
		if (JSON_IS(&key, "properties"))
			ck2_properties(s, &p->pub);
		else if (JSON_IS(&key, "global_shape"))
			ck2_shape(r, p);
		else if (JSON_IS(&key, "layout"))
			ck2_layout(r, p);
		else if (JSON_IS(&key, "chunk"))
			ck2_chunks(s, p);
		else if (r->kept)
			ck2_kept_field(r, p, &key);
		else
			rsh_json_skip(s);
	}
	if (!p->has_shape)
		rsh_json_fail(s, "it has no \"global_shape\"");
	if (!p->has_layout)
		rsh_json_fail(s, "it has no \"layout\"");
	return s->rc == 0;
}

static bool ck2_check_param(struct json_scan *s, const struct ck2_param *p)
{
	const struct ckpt2_layout *l = p->layout;

	if (p->top_chunk >= p->pub.n_slices)
		return rsh_json_fail(s, "a chunk of slice %lld, but the layout "
				     "makes %u", (long long)p->top_chunk,
				     p->pub.n_slices);
	if (p->pub.n_stored > p->pub.n_slices)
		return rsh_json_fail(s, "more slices are stored than there "
				     "are");
	if (!l)
		return (p->pub.n_stored > 0) == (p->pub.ranks->n > 0) ||
		       rsh_json_fail(s, "it is stored, but no rank holds it");
	if (p->pub.ranks != &l->list->pub)
		return rsh_json_fail(s, "it has a layout, and holders");
	if (l->n_map != p->pub.n_dims)
		return rsh_json_fail(s, "%u dimensions, but %u in the tensor "
				     "map", p->pub.n_dims, l->n_map);
	for (uint32_t d = 0; d < l->n_map; d++)
		if (p->pub.dims[d] % l->splits[d])
			return rsh_json_fail(s, "dimension %lld cannot be cut "
					     "into %u slices",
					     (long long)p->pub.dims[d],
					     l->splits[d]);
	return true;
}

/* Keeps the name and makes the next parameter of it; NULL is a failure. */
static struct ck2_param *ck2_param_new(struct ck2_reader *r,
				       const struct json_string *name)
{
	struct json_scan *s = &r->scan;
	uint32_t n = rsh_names_count(r->names);
	uint32_t id = name->len ? rsh_names_add(r->names, name->s, name->len) :
				  RSH_NAME_NONE;

	if (!name->len)
		rsh_json_fail(s, "a parameter without a name");
	else if (id == RSH_NAME_NONE ||
		 rsh_grow(&r->params, &r->cap_params, (size_t)id + 1,
			  sizeof(*r->params)))
		rsh_json_nomem(s);
	if (s->rc)
		return NULL;
	s->name = rsh_names_text(r->names, id);
	if (id != n) {
		rsh_json_fail(s, "it is described twice");
		return NULL;
	}
	r->params[id] = (struct ck2_param){ .top_chunk = -1 };
	return &r->params[id];
}

static void ck2_read_params(struct ck2_reader *r)
{
	static const struct rsh_ckpt2_ranks none;
	struct json_scan *s = &r->scan;
	struct json_string name;

	rsh_json_begin(s, '{');
	while (rsh_json_key(s, &name)) {
		struct ck2_param *p = ck2_param_new(r, &name);

		if (!p || !ck2_param_fields(r, p))
			return;
		p->pub.n_slices = p->layout ? p->layout->n_slices : 1;
		if (!p->pub.ranks)
			p->pub.ranks = &none;
		if (!ck2_check_param(s, p))
			return;
		p->stored = rsh_arena_array(&r->arena, uint8_t,
					    (size_t)p->pub.n_slices / 8 + 1);
		p->pub.name = rsh_arena_strndup(&r->arena, s->name,
						strlen(s->name));
		if (!p->stored || !p->pub.name)
			rsh_json_nomem(s);
		s->name = NULL;
	}
	if (!s->rc && !rsh_names_count(r->names))
		rsh_json_fail(s, "it describes no parameter");
}

/* ---- what is stored ---- */

/* This is an element of storage_data. */
struct ck2_stored {
	uint32_t file; /* RSH_NAME_NONE: not said */
	int64_t rank;  /* -1: not said */
};

static uint32_t ck2_file(struct ck2_reader *r, const struct json_string *name)
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
	    rsh_grow(&r->files, &r->cap_files, (size_t)id + 1,
		     sizeof(*r->files))) {
		rsh_json_nomem(s);
		return RSH_NAME_NONE;
	}
	if (id == n)
		r->files[id].name = NULL;
	return id;
}

/* Of a parameter without a layout it tells who holds it. */
static void ck2_group(struct ck2_reader *r)
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

static struct ck2_stored ck2_stored_fields(struct ck2_reader *r)
{
	struct ck2_stored out = { RSH_NAME_NONE, -1 };
	struct json_scan *s = &r->scan;
	struct json_string key, name;

	rsh_json_begin(s, '{');
	while (rsh_json_key(s, &key)) {
		if (JSON_IS(&key, "file_name") && out.file != RSH_NAME_NONE)
			rsh_json_fail(s, "a second \"file_name\"");
		else if (JSON_IS(&key, "file_name"))
			out.file = rsh_json_string(s, &name) ?
					   ck2_file(r, &name) :
					   RSH_NAME_NONE;
		else if (JSON_IS(&key, "storage_rank"))
			rsh_json_int(s, 0, CKPT2_MAX_RANKS - 1, &out.rank);
		else if (JSON_IS(&key, "rank_group"))
			ck2_group(r);
		else
			rsh_json_skip(s);
	}
	return out;
}

/* Takes in whose file it is. */
static void ck2_take_file(struct ck2_reader *r, uint32_t file, uint32_t rank)
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

/* Takes in that a file holds a slice. */
static void ck2_take_stored(struct ck2_reader *r, const struct ck2_param *p,
			    uint32_t slice, const struct ck2_stored *st)
{
	struct json_scan *s = &r->scan;
	struct ckpt2_numbers *h = &r->holders;
	uint32_t rank = (uint32_t)st->rank, wanted = 0;

	if (st->file == RSH_NAME_NONE || st->rank < 0) {
		rsh_json_fail(s, "a slice without \"file_name\" or "
			      "\"storage_rank\"");
		return;
	}
	ck2_take_file(r, st->file, rank);
	if (p->layout)
		wanted = rsh_ckpt2_slice_of(p->layout, rank);
	else if (rsh_grow(&h->v, &h->cap, (size_t)h->n + 1, sizeof(*h->v)))
		rsh_json_nomem(s);
	else
		h->v[h->n++] = rank;
	if (wanted != slice)
		rsh_json_fail(s, "slice %u was written by rank %u, to which "
			      "the layout gives slice %u", slice, rank, wanted);
}

static void ck2_read_slice(struct ck2_reader *r, struct ck2_param *p,
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
		rsh_json_fail(s, "slice %u is twice in \"" STORAGE "\"",
			      slice);
		return;
	}
	/* Who holds it is asked only where no layout says so. */
	r->holders.n = 0;
	if (!p->layout)
		r->n_group = 0;
	rsh_json_begin(s, '[');
	while (rsh_json_element(s)) {
		struct ck2_stored st = ck2_stored_fields(r);

		ck2_take_stored(r, p, slice, &st);
		any = true;
	}
	if (s->rc || !any)
		return;
	p->stored[slice / 8] |= bit;
	p->pub.n_stored++;
	if (!p->layout)
		ck2_keep_holders(r, p);
}

static void ck2_read_files(struct ck2_reader *r)
{
	struct json_scan *s = &r->scan;
	struct json_string name;

	rsh_json_begin(s, '{');
	while (rsh_json_key(s, &name)) {
		uint32_t file = ck2_file(r, &name);
		int64_t rank;

		if (rsh_json_int(s, 0, CKPT2_MAX_RANKS - 1, &rank))
			ck2_take_file(r, file, (uint32_t)rank);
	}
}

static void ck2_read_storage(struct ck2_reader *r)
{
	struct json_scan *s = &r->scan;
	struct json_string key, name;

	rsh_json_begin(s, '{');
	while (rsh_json_key(s, &key)) {
		uint32_t slice, id;

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

/* ---- the file ---- */

static void ck2_read_stored(struct ck2_reader *r)
{
	if (r->kept)
		ck2_read_files(r);
	else
		ck2_read_storage(r);
}

/* Reads the parameters first, wherever they stand. */
static void ck2_read_root(struct ck2_reader *r)
{
	const char *const storage = r->kept ? "files" : STORAGE;
	struct json_scan *s = &r->scan;
	uint64_t later = 0;
	struct json_string key;
	bool described = false, stored = false;

	if (rsh_json_peek(s) != '{')
		rsh_json_fail(s, "not a metadata.json: not a JSON object");
	rsh_json_begin(s, '{');
	while (rsh_json_key(s, &key)) {
		bool stores = rsh_json_is(&key, storage, strlen(storage));

		if (JSON_IS(&key, METADATA) && !described) {
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
		} else if (JSON_IS(&key, METADATA) || stores) {
			rsh_json_fail(s, "\"%.*s\" is there twice",
				      (int)key.len, key.s);
		} else {
			rsh_json_skip(s);
		}
	}
	rsh_json_finish(s);
	if (!described || !stored)
		rsh_json_fail(s, "not a metadata.json: it has no \"%s\"",
			      described ? storage : METADATA);
	if (later) {
		rsh_json_seek(s, later);
		ck2_read_stored(r);
	}
}

static int ck2_by_file_name(const void *a, const void *b)
{
	const struct rsh_ckpt2_file *x = a, *y = b;

	return strcmp(x->name, y->name);
}

static int ck2_finish(struct ck2_reader *r, struct rsh_ckpt2 **out,
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

static void ck2_clear(struct ck2_reader *r)
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
	struct ck2_reader r = { .kept = kept, .names = rsh_names_new(),
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
