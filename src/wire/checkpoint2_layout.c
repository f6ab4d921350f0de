/* SPDX-License-Identifier: Apache-2.0 */
/* wire/checkpoint2_layout.c reads the layouts of a metadata.json.  The file
 * repeats a few layouts for every parameter; each is kept once. */
#include "checkpoint2_i.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "rsh/util/mem.h"
#include "strategy_build_i.h"

/* Layouts are compared by a text that has mesh and map.  It has at most 32
 * lists of 32 numbers. */
#define LAYOUT_TEXT_BYTES 16384

int rsh_ckpt2_layouts_init(struct ckpt2_layouts *l, struct rsh_arena *arena,
			   const char *path)
{
	*l = (struct ckpt2_layouts){ .arena = arena };
	l->texts = rsh_names_new();
	l->items = rsh_strategy_builder_new(path, true);
	if (l->texts && l->items)
		return 0;
	rsh_ckpt2_layouts_clear(l);
	return -ENOMEM;
}

void rsh_ckpt2_layouts_clear(struct ckpt2_layouts *l)
{
	if (l->texts)
		rsh_names_free(l->texts);
	rsh_strategy_builder_free(l->items);
	free(l->kept);
	free(l->ranks.v);
	free(l->text);
}

/* Returns where to keep the object with the key l->text.  Returns NULL if out
 * of memory. */
static const void **ck2_kept(struct ckpt2_layouts *l, size_t len)
{
	uint32_t n = rsh_names_count(l->texts);
	uint32_t id = rsh_names_add(l->texts, l->text, len);

	if (id == RSH_NAME_NONE || rsh_room(l->kept, l->cap, (size_t)id + 1))
		return NULL;
	if (id == n)
		l->kept[id] = NULL;
	return &l->kept[id];
}

/* ---- ranks ---- */

bool rsh_ckpt2_ranks_read(struct json_scan *s, struct ckpt2_numbers *out)
{
	int64_t rank;

	rsh_json_begin(s, '[');
	while (rsh_json_element(s) &&
	       rsh_json_int(s, 0, CKPT2_MAX_RANKS - 1, &rank)) {
		if (rsh_push(out->v, out->n, out->cap, (uint32_t)rank))
			return rsh_json_nomem(s);
	}
	return s->rc == 0;
}

RSH_ORDER(ck2_by_rank, struct ckpt2_place, rsh_compare_u64(x->rank, y->rank))

static const struct ckpt2_list *ck2_list_new(struct ckpt2_layouts *l,
					     const struct ckpt2_numbers *ranks)
{
	struct ckpt2_list *list = rsh_arena_array(l->arena, struct ckpt2_list,
						  1);
	uint32_t *v = rsh_arena_array(l->arena, uint32_t, ranks->n);
	struct ckpt2_place *places;
	bool contiguous = true;

	if (!list || !v)
		return NULL;
	for (uint32_t i = 0; i < ranks->n; i++) {
		v[i] = ranks->v[i];
		contiguous = contiguous && v[i] == v[0] + i;
		if (v[i] >= l->n_ranks)
			l->n_ranks = v[i] + 1;
	}
	list->pub = (struct rsh_ckpt2_ranks){ ranks->n, v };
	if (contiguous)
		return list;
	places = rsh_arena_array(l->arena, struct ckpt2_place, ranks->n);
	if (!places)
		return NULL;
	for (uint32_t i = 0; i < ranks->n; i++)
		places[i] = (struct ckpt2_place){ v[i], i };
	rsh_sort(places, ranks->n, ck2_by_rank);
	list->places = places;
	return list;
}

const struct ckpt2_list *rsh_ckpt2_list_keep(struct ckpt2_layouts *l,
					     const struct ckpt2_numbers *ranks)
{
	const void **kept;
	size_t len = 0;

	if (rsh_grow(&l->text, &l->cap_text, (size_t)ranks->n * 4 + 1, 1))
		return NULL;
	/* A key must not contain a NUL, so each character has six bits of the
	 * number. */
	for (uint32_t i = 0; i < ranks->n; i++)
		for (int shift = 18; shift >= 0; shift -= 6)
			l->text[len++] =
				(char)(0x40 | (ranks->v[i] >> shift & 0x3f));
	kept = ck2_kept(l, len);
	if (kept && !*kept)
		*kept = ck2_list_new(l, ranks);
	return kept ? *kept : NULL;
}

uint32_t rsh_ckpt2_slice_of(const struct ckpt2_layout *layout, uint32_t rank)
{
	const struct ckpt2_list *l = layout->list;
	const struct ckpt2_place key = { rank, 0 };
	const struct ckpt2_place *found =
		rsh_find(&key, l->places, l->places ? l->pub.n : 0, ck2_by_rank);
	const uint32_t begin = l->pub.ranks[0];

	return layout->slices[found ? found->place :
			      !l->places && rank >= begin &&
			      rank - begin < l->pub.n ? rank - begin :
			      rank % l->pub.n];
}

/* ---- layouts ---- */

/* An entry of several axes may contain -1, which splits nothing. */
static void ck2_map_entry(struct json_scan *s, struct raw_item *raw)
{
	struct raw_list *entry = rsh_raw_item_push_map(raw);
	int64_t v;

	if (rsh_json_peek(s) != '[') {
		if (rsh_json_int(s, -1, INT32_MAX, &v))
			rsh_raw_list_push(entry, v);
		return;
	}
	raw->nested = true;
	rsh_json_begin(s, '[');
	while (rsh_json_element(s) && rsh_json_int(s, -1, INT32_MAX, &v))
		if (v >= 0)
			rsh_raw_list_push(entry, v);
	if (!entry->n)
		rsh_raw_list_push(entry, -1);
}

static bool ck2_layout_fields(struct json_scan *s, struct raw_item *raw,
			      struct ckpt2_numbers *ranks)
{
	struct json_string key;

	rsh_raw_item_reset(raw);
	raw->name = s->name;
	raw->name_len = strlen(s->name);
	ranks->n = 0;
	rsh_json_begin(s, '{');
	while (!s->rc && rsh_json_key(s, &key)) {
		if (JSON_IS(&key, "device_matrix")) {
			int64_t v;

			raw->mesh.n = 0;
			rsh_json_begin(s, '[');
			while (rsh_json_element(s) &&
			       rsh_json_int(s, 1, INT32_MAX, &v))
				rsh_raw_list_push(&raw->mesh, v);
		} else if (JSON_IS(&key, "tensor_map")) {
			raw->has_map = true;
			raw->n_map = 0;
			rsh_json_begin(s, '[');
			while (rsh_json_element(s))
				ck2_map_entry(s, raw);
		} else if (JSON_IS(&key, "rank_list")) {
			ranks->n = 0;
			rsh_ckpt2_ranks_read(s, ranks);
		} else if (JSON_IS(&key, "interleaved_parallel") &&
			   rsh_json_word(s, "true")) {
			rsh_json_stop(s, rsh_error_set(
				s->err, ENOTSUP, "%s: parameter \"%s\" has an "
				"interleaved layout, which is not supported",
				s->src->path, s->name));
		} else {
			rsh_json_skip(s);
		}
	}
	return s->rc == 0;
}

/* Writes the text by which the layout is compared.  Returns 0 if the layout is
 * not valid. */
static size_t ck2_layout_text(struct ckpt2_layouts *l,
			      const struct raw_item *raw,
			      const struct ckpt2_list *list)
{
	char *to = l->text, *end = l->text + LAYOUT_TEXT_BYTES;

	if (raw->mesh.n > RSH_STRATEGY_MAX_DIMS ||
	    raw->n_map > RSH_STRATEGY_MAX_DIMS)
		return 0;
	to += snprintf(to, (size_t)(end - to), "%p %d", (const void *)list,
		       raw->nested);
	for (uint32_t i = 0; i < raw->mesh.n; i++)
		to += snprintf(to, (size_t)(end - to), ",%d",
			       (int)raw->mesh.v[i]);
	for (uint32_t i = 0; i < raw->n_map; i++) {
		const struct raw_list *entry = &raw->map[i];

		*to++ = ' ';
		if (entry->n > RSH_STRATEGY_MAX_DIMS)
			return 0;
		for (uint32_t k = 0; k < entry->n; k++)
			to += snprintf(to, (size_t)(end - to), ",%d",
				       (int)entry->v[k]);
	}
	return (size_t)(to - l->text);
}

/* The builder has checked all numbers, so there are at most as many slices as
 * ranks. */
static struct ckpt2_layout *ck2_layout_new(struct ckpt2_layouts *l,
					   const struct raw_item *raw,
					   const struct ckpt2_list *list)
{
	struct ckpt2_layout *out = rsh_arena_array(l->arena,
						   struct ckpt2_layout, 1);
	uint32_t *slices = rsh_arena_array(l->arena, uint32_t, list->pub.n);
	uint32_t *splits = rsh_arena_array(l->arena, uint32_t, raw->n_map);
	int64_t stride[RSH_STRATEGY_MAX_DIMS] = { 1 };

	if (!out || !slices || !splits)
		return NULL;
	for (uint32_t m = 1; m < raw->mesh.n; m++)
		stride[m] = stride[m - 1] * raw->mesh.v[raw->mesh.n - m];
	for (uint32_t p = 0; p < list->pub.n; p++) {
		uint32_t slice = 0;

		for (uint32_t d = 0; d < raw->n_map; d++)
			for (uint32_t k = 0; k < raw->map[d].n; k++) {
				int64_t m = raw->map[d].v[k], size;

				if (m < 0)
					continue;
				size = raw->mesh.v[raw->mesh.n - 1 - m];
				slice = slice * (uint32_t)size +
					(uint32_t)(p / stride[m] % size);
			}
		slices[p] = slice;
	}
	*out = (struct ckpt2_layout){ .list = list, .item = l->n_items,
				      .slices = slices, .n_map = raw->n_map,
				      .splits = splits };
	out->n_slices = 1;
	for (uint32_t d = 0; d < raw->n_map; d++) {
		splits[d] = 1;
		for (uint32_t k = 0; k < raw->map[d].n; k++)
			if (raw->map[d].v[k] >= 0)
				splits[d] *= (uint32_t)raw->mesh.v
					[raw->mesh.n - 1 - raw->map[d].v[k]];
		out->n_slices *= splits[d];
	}
	return out;
}

static const struct ckpt2_layout *ck2_layout_add(struct json_scan *s,
						 struct ckpt2_layouts *l,
						 const struct raw_item *raw,
						 const struct ckpt2_list *list)
{
	struct ckpt2_layout *out;
	uint64_t n = 1;
	int rc = rsh_strategy_builder_item(l->items, raw, s->err);

	if (rc) {
		rsh_json_stop(s, rc);
		return NULL;
	}
	for (uint32_t i = 0; i < raw->mesh.n; i++)
		n *= (uint64_t)raw->mesh.v[i];
	if (n != list->pub.n) {
		rsh_json_fail(s, "a mesh of %llu ranks, but %u in its list",
			      (unsigned long long)n, list->pub.n);
		return NULL;
	}
	out = ck2_layout_new(l, raw, list);
	if (!out)
		rsh_json_nomem(s);
	l->n_items++;
	return out;
}

const struct ckpt2_layout *rsh_ckpt2_layout_read(struct json_scan *s,
						 struct ckpt2_layouts *l)
{
	const struct ckpt2_list *list;
	const void **kept;
	struct raw_item raw;
	size_t len;

	if (!ck2_layout_fields(s, &raw, &l->ranks))
		return NULL;
	list = rsh_ckpt2_list_keep(l, &l->ranks);
	if (!list ||
	    rsh_grow(&l->text, &l->cap_text, LAYOUT_TEXT_BYTES, 1)) {
		rsh_json_nomem(s);
		return NULL;
	}
	for (uint32_t i = 1; list->places && i < list->pub.n; i++)
		if (list->places[i].rank == list->places[i - 1].rank) {
			rsh_json_fail(s, "a rank is twice in its list");
			return NULL;
		}
	len = ck2_layout_text(l, &raw, list);
	kept = len ? ck2_kept(l, len) : NULL;
	if (len && !kept)
		rsh_json_nomem(s);
	else if (!len)
		ck2_layout_add(s, l, &raw, list);
	else if (!*kept)
		*kept = ck2_layout_add(s, l, &raw, list);
	return kept && !s->rc ? *kept : NULL;
}
