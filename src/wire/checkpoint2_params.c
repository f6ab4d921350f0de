/* SPDX-License-Identifier: Apache-2.0 */
/* wire/checkpoint2_params.c reads the parameters of a metadata.json: type,
 * shape, layout, chunks. */
#include "checkpoint2_i.h"

#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "rsh/util/mem.h"

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

/* A "global_offset" is a list of one number: the number of the slice. */
static void ck2_chunk_slice(struct json_scan *s, struct ckpt2_param *p)
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

static void ck2_chunks(struct json_scan *s, struct ckpt2_param *p)
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
static const struct ckpt2_layout *ck2_layout_again(struct ckpt2_reader *r)
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

static void ck2_layout(struct ckpt2_reader *r, struct ckpt2_param *p)
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

void rsh_ckpt2_keep_holders(struct ckpt2_reader *r, struct ckpt2_param *p)
{
	struct ckpt2_numbers *h = &r->holders;
	const struct ckpt2_list *list;
	uint32_t n = 0;

	rsh_sort(h->v, h->n, rsh_by_u32);
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
				rsh_ckpt2_keep_holders(r, p);
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

void rsh_ckpt2_read_params(struct ckpt2_reader *r)
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
