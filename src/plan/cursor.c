/* SPDX-License-Identifier: Apache-2.0 */
/* plan/cursor.c finds the place of an element of a shown tensor in a cell of
 * the catalogue's tensor.
 *
 * An example: the source has a Float32 tensor [6,4,10] in 3 cells of 2 rows.
 * It is shown in 2 files of 3 rows each.  Dimensions 1 and 2 are not cut, so
 * there is one span, of 4 * 10 * 4 = 160 bytes a row:
 *
 *   cells of the source   |   0   |   1   |   2   |    320 bytes each
 *   rows                  |---|---|---|---|---|---|
 *   files                 |     0     |     1     |    480 bytes each
 *
 * Byte 300 of the slice in file 1 is unit 480 + 300 = 780 of the whole tensor.
 * This is byte 780 % 320 = 140 of cell 780 / 320 = 2.  From it on, 180 bytes
 * are contiguous on both sides.
 */
#include "factored_i.h"
#include "rsh/util/checked.h"

void rsh_cursor_enter(const struct rsh_mapping *w, uint32_t member,
		      struct rsh_cursor *s)
{
	const struct rsh_grid *g = rsh_cut_grid(w->cut);
	struct rsh_box box;

	s->member = member;
	s->part = NULL;
	s->factored = NULL;
	if (g)
		rsh_grid_cell(g, member, s->shown_at);
	else
		rsh_cut_box(w->cut, w->dims, rsh_cut_cell(w->cut, member),
			    &box);
	for (uint32_t i = 0; i < w->n_spans; i++) {
		const struct rsh_span *span = &w->spans[i];

		if (g) {
			s->len[i] = span->len;
			s->from[i] = s->shown_at[span->lead] * span->len;
		} else {
			s->len[i] = box.size[span->lead] * span->inner;
			s->from[i] = box.from[span->lead] * span->inner;
		}
	}
}

static bool part_has(const struct rsh_mapping *w,
		     const struct rsh_mapping_part *part, const uint64_t *at)
{
	for (uint32_t g = 0; g < w->n_spans; g++)
		if (at[g] < part->from[g] || at[g] >= part->to[g])
			return false;
	return true;
}

/* Finds the part that has the element; every element is in one part. */
static uint32_t part_of(const struct rsh_mapping *w, const uint64_t *at)
{
	uint64_t in[RSH_MAX_DIMS] = { 0 };
	uint32_t cell = 0;
	struct rsh_box box;

	if (!w->part_cut)
		return 0;
	for (uint32_t g = 0; g < w->n_spans; g++)
		in[w->spans[g].lead] = at[g] / w->spans[g].inner;
	rsh_cut_find(w->part_cut, w->dims, in, &cell, &box);
	return rsh_cut_member(w->part_cut, cell, 0);
}

static void cursor_in_part(const struct rsh_mapping *w, const uint64_t *at,
			   struct rsh_cursor *s)
{
	const struct rsh_mapping_part *part;

	if (s->part && (w->n_parts == 1 || part_has(w, s->part, at)))
		return;
	part = &w->parts[part_of(w, at)];
	s->part = part;
	s->tensor = part->tensor;
	s->replica = rsh_cut_replica(part->tensor->cut, s->member);
	s->cell_base = 0;
	for (uint32_t i = 0; i < part->n_alike; i++)
		s->cell_base += s->shown_at[part->alike[i].dim] *
				part->alike[i].weight;
}

/* A place in the catalogue's tensor. */
struct in_place {
	uint64_t left[RSH_MAX_DIMS];   /* [in-span]: units to the end of the
					* cell */
	uint64_t stride[RSH_MAX_DIMS]; /* [in-span] */
};

static uint64_t in_place_of(const struct rsh_mapping_part *part,
			    const struct rsh_in_span *in, const uint64_t *at)
{
	return in->axis == RSH_FIXED ? in->base :
		in->base + at[in->axis] - part->from[in->axis];
}

static void find_in_grid(const uint64_t *at, struct rsh_cursor *s,
			 struct in_place *out)
{
	const struct rsh_mapping_part *part = s->part;

	s->cell = s->cell_base;
	s->src = 0;
	for (uint32_t h = 0; h < part->n_in; h++) {
		const struct rsh_in_span *in = &part->in[h];
		uint64_t v = in_place_of(part, in, at);
		uint64_t cell = v / in->len, y = v - cell * in->len;

		s->cell += (uint32_t)cell * in->weight;
		s->src += y * in->stride;
		out->left[h] = in->len - y;
		out->stride[h] = in->stride;
	}
}

static bool find_in_boxes(const uint64_t *at, struct rsh_cursor *s,
			  struct in_place *out)
{
	const struct rsh_mapping_part *part = s->part;
	uint64_t in_at[RSH_MAX_DIMS] = { 0 }, stride = 1;
	struct rsh_box box;

	for (uint32_t h = 0; h < part->n_in; h++)
		in_at[part->in[h].lead] =
			in_place_of(part, &part->in[h], at) / part->in[h].inner;
	if (!rsh_cut_find(part->tensor->cut, part->tensor->dims, in_at,
			  &s->cell, &box))
		return false;
	s->src = 0;
	for (uint32_t h = part->n_in; h-- > 0;) {
		const struct rsh_in_span *in = &part->in[h];
		uint64_t len = box.size[in->lead] * in->inner;
		uint64_t y = in_place_of(part, in, at) -
			     box.from[in->lead] * in->inner;

		s->src += y * stride;
		out->left[h] = len - y;
		out->stride[h] = stride;
		stride *= len;
	}
	return true;
}

/* Returns how many units are left along shown span g, with `left` units left in
 * the cell along the corresponding in-span. */
static uint64_t cursor_units_left(const struct rsh_cursor *s,
				  const uint64_t *at, uint32_t g, uint64_t left)
{
	return rsh_min_u64(left, rsh_min_u64(s->from[g] + s->len[g],
					     s->part->to[g]) - at[g]);
}

static void find_run(const struct rsh_mapping *w, const uint64_t *at,
		     struct rsh_cursor *s, const struct in_place *in)
{
	const uint32_t h = s->part->n_in - 1, row = s->part->row_in;

	s->run = cursor_units_left(s, at, w->n_spans - 1, in->left[h]);
	s->rows = 0;
	if (row == s->part->n_in)
		return;
	s->rows =
		cursor_units_left(s, at, s->part->in[row].axis, in->left[row]) -
		1;
	s->stride = in->stride[row];
}

bool rsh_cursor_find(const struct rsh_mapping *w, uint64_t unit,
		     struct rsh_cursor *s)
{
	uint64_t at[RSH_MAX_DIMS];
	struct in_place in;

	for (uint32_t g = w->n_spans; g-- > 0;) {
		uint64_t next = g ? unit / s->len[g] : 0;

		at[g] = s->from[g] + unit - next * s->len[g];
		unit = next;
	}
	if (w->is_factored)
		return rsh_factored_find(w, at, s);
	cursor_in_part(w, at, s);
	if (w->n_spans == 0) { /* a scalar */
		s->cell = 0;
		s->src = unit;
		s->run = *w->slice_bytes / w->unit_out - unit;
		s->rows = 0;
		return true;
	}
	if (rsh_cut_grid(s->part->tensor->cut))
		find_in_grid(at, s, &in);
	else if (!find_in_boxes(at, s, &in))
		return false;
	find_run(w, at, s, &in);
	return true;
}
