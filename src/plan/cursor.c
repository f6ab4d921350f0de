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
 *
 * Factor x has step 1 in the shown tensor, and factor y has step 1 in the
 * source.  If neighbours in the shown tensor are not neighbours in the source,
 * x and y are two different factors.  Their digits are the rows and columns of
 * a matrix, which is the element's tile. */
#include "parts_i.h"
#include "rsh/util/checked.h"
#include "rsh/util/mem.h"

/* A smaller matrix is read faster element by element than as a tile. */
#define TILE_LEAST 64
/* A tile has at most so many elements of a row, or rows, at both ends that only
 * complete units. */
#define UNIT_SPARE 14

/* Where an element is in the source. */
struct place {
	uint64_t digit[RSH_MAX_FACTORS];
	uint64_t at[RSH_MAX_DIMS];
	uint64_t from[RSH_MAX_DIMS], to[RSH_MAX_DIMS]; /* of the cell */
	uint64_t stride[RSH_MAX_DIMS];                 /* in the cell */
};

void rsh_cursor_enter(const struct rsh_mapping *w, uint32_t member,
		      struct rsh_cursor *s)
{
	const struct rsh_grid *g = rsh_cut_grid(w->cut);
	struct rsh_box box;

	s->member = member;
	s->part = NULL;
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
		     const struct rsh_part *f, const uint64_t *at,
		     uint64_t *digit)
{
	for (uint32_t g = 0; g < w->n_spans; g++) {
		uint64_t left = at[g] - f->from[g];

		if (at[g] < f->from[g] || at[g] >= f->to[g])
			return false;
		for (uint32_t i = f->first[g]; i < f->first[g + 1]; i++) {
			const struct rsh_factor *x = &f->factors[i];

			digit[i] = x->shown_step == 1 ? left :
				   left / x->shown_step;
			if (digit[i] >= x->size)
				return false;
			left -= digit[i] * x->shown_step;
		}
		if (left)
			return false;
	}
	return true;
}

/* Finds the part of an element by the span by which parts are sorted. */
static const struct rsh_part *part_search(const struct rsh_mapping *w,
					  const uint64_t *at,
					  uint64_t *digit)
{
	const uint64_t v = w->n_spans ? at[w->by] : 0;
	uint32_t n = !w->n_spans ? w->n_parts :
		rsh_first(i, w->n_parts, w->parts[i].from[w->by] <= v);

	while (n-- > 0 && (!w->n_spans || w->reach[n] > v))
		if (part_has(w, &w->parts[n], at, digit))
			return &w->parts[n];
	return NULL;
}

/* Finds the part of an element.  Mostly this is the part that was found last,
 * or a neighbour of it, so these are tried first. */
static bool cursor_part(const struct rsh_mapping *w, const uint64_t *at,
			struct rsh_cursor *s, uint64_t *digit)
{
	const struct rsh_part *last = s->part, *f = last;
	const struct rsh_part *end = w->parts + w->n_parts;
	/* The only part has all elements. */
	const bool only = w->n_parts == 1 && w->parts->is_plain;

	if (last && (only || part_has(w, last, at, digit)))
		return true;
	if (only)
		f = w->parts;
	else if (last && last + 1 < end && part_has(w, last + 1, at, digit))
		f = last + 1;
	else if (last > w->parts && part_has(w, last - 1, at, digit))
		f = last - 1;
	else
		f = part_search(w, at, digit);
	if (!f)
		return false;
	s->part = f;
	s->tensor = f->tensor;
	s->replica = rsh_cut_replica(f->tensor->cut, s->member);
	s->cell_base = 0;
	for (uint32_t i = 0; i < f->n_alike; i++)
		s->cell_base += s->shown_at[f->alike[i].dim] *
				f->alike[i].weight;
	return true;
}

/* ---- the cell of the source ---- */

static void find_in_grid(struct rsh_cursor *s, struct place *p)
{
	const struct rsh_part *f = s->part;

	s->cell = s->cell_base;
	s->src = 0;
	for (uint32_t h = 0; h < f->n_in; h++) {
		const struct rsh_in_span *in = &f->in[h];
		const uint64_t cell = p->at[h] / in->len;

		p->from[h] = cell * in->len;
		p->to[h] = p->from[h] + in->len;
		p->stride[h] = in->stride;
		s->cell += (uint32_t)cell * in->weight;
		s->src += (p->at[h] - p->from[h]) * in->stride;
	}
}

static bool find_in_boxes(struct rsh_cursor *s, struct place *p)
{
	const struct rsh_part *f = s->part;
	uint64_t at[RSH_MAX_DIMS] = { 0 }, stride = 1;
	struct rsh_box box;

	for (uint32_t h = 0; h < f->n_in; h++)
		at[f->in[h].lead] = p->at[h] / f->in[h].inner;
	if (!rsh_cut_find(f->tensor->cut, f->tensor->dims, at, &s->cell, &box))
		return false;
	s->src = 0;
	for (uint32_t h = f->n_in; h-- > 0;) {
		const struct rsh_in_span *in = &f->in[h];

		p->from[h] = box.from[in->lead] * in->inner;
		p->to[h] = p->from[h] + box.size[in->lead] * in->inner;
		p->stride[h] = stride;
		s->src += (p->at[h] - p->from[h]) * stride;
		stride *= p->to[h] - p->from[h];
	}
	return true;
}

/* ---- what follows ---- */

/* A range of a factor's digits that includes the element's digit. */
struct digit_range {
	uint64_t from, to;
	uint64_t digit;
};

/* A slice or cell covers the indexes from <= i < to along one dimension.  The
 * element has index `at`. */
struct stretch {
	uint64_t at, from, to;
};

/* Keeps the digits that are in the stretch.  Neighbouring digits are `step`
 * apart. */
static void range_cut(struct digit_range *r, uint64_t step,
		      const struct stretch *s)
{
	const uint64_t before = (s->at - s->from) / step;

	if (r->digit > before)
		r->from = rsh_max_u64(r->from, r->digit - before);
	r->to = rsh_min_u64(r->to, r->digit + (s->to - 1 - s->at) / step + 1);
}

/* Cuts both ranges to a stretch of one dimension along which `inner` has steps
 * of 1.  False: the stretch begins or ends between the digits of `inner`. */
static bool ranges_cut(struct digit_range *outer, uint64_t step,
		       const struct digit_range *inner, const struct stretch *s)
{
	const uint64_t rest = inner->to - inner->from - 1;
	const uint64_t before = inner->digit - inner->from;
	struct stretch first;

	if (s->at - s->from < before || s->to - 1 - s->at < rest - before)
		return false;
	first = (struct stretch){ s->at - before, s->from, s->to - rest };
	range_cut(outer, step, &first);
	return true;
}

static struct stretch slice_along(const struct rsh_cursor *s,
				  const uint64_t *at, uint32_t g)
{
	return (struct stretch){ at[g], s->from[g], s->from[g] + s->len[g] };
}

static struct stretch cell_along(const struct place *p, uint32_t h)
{
	return (struct stretch){ p->at[h], p->from[h], p->to[h] };
}

/* Finds the ranges of both factors in the slice and the cell.  False: they are
 * not a matrix. */
static bool find_matrix(const struct rsh_cursor *s,
			const struct place *p, const uint64_t *at,
			struct digit_range *xs, struct digit_range *ys)
{
	const struct rsh_part *f = s->part;
	const struct rsh_factor *x = &f->factors[f->x], *y = &f->factors[f->y];
	const struct stretch slice_x = slice_along(s, at, x->shown_dim);
	const struct stretch slice_y = slice_along(s, at, y->shown_dim);
	const struct stretch cell_x = cell_along(p, x->dim);
	const struct stretch cell_y = cell_along(p, y->dim);

	*xs = (struct digit_range){ 0, x->size, p->digit[f->x] };
	*ys = (struct digit_range){ 0, y->size, p->digit[f->y] };
	if (x->shown_dim != y->shown_dim) {
		range_cut(xs, 1, &slice_x);
		range_cut(ys, y->shown_step, &slice_y);
	} else if (!ranges_cut(ys, y->shown_step, xs, &slice_y)) {
		return false;
	}
	if (x->dim == y->dim)
		return ranges_cut(xs, x->step, ys, &cell_x);
	range_cut(xs, x->step, &cell_x);
	range_cut(ys, 1, &cell_y);
	return true;
}

/* Divides a range into blocks of at most `most` digits, as equal as possible,
 * and keeps the block of the element. */
static void range_block(struct digit_range *r, uint64_t most)
{
	const uint64_t all = r->to - r->from;
	const uint64_t n = (all + most - 1) / most, size = (all + n - 1) / n;

	r->from += (r->digit - r->from) / size * size;
	r->to = rsh_min_u64(r->to, r->from + size);
}

static void place_tile(const struct rsh_mapping *w,
		       const struct place *p, const uint64_t *at,
		       struct rsh_cursor *s)
{
	const struct rsh_part *f = s->part;
	const struct rsh_factor *x = &f->factors[f->x], *y = &f->factors[f->y];
	const uint64_t most = RSH_TILE_BYTES / w->unit_out;
	const uint64_t spare = f->tensor->quantised ? UNIT_SPARE : 0;
	struct rsh_cursor_tile *t = &s->tile;
	struct digit_range xs, ys;
	uint64_t rows;

	if (!find_matrix(s, p, at, &xs, &ys) ||
	    (xs.to - xs.from) * (ys.to - ys.from) < TILE_LEAST)
		return;
	range_block(&xs, most);
	/* The tile gets more rows and columns if it begins or ends in units. */
	rows = xs.to - xs.from + spare;
	range_block(&ys, rsh_max_u64(most / rows, spare + 1) - spare);
	t->row = xs.digit - xs.from;
	t->n_rows = xs.to - xs.from;
	t->column = ys.digit - ys.from;
	t->n_columns = ys.to - ys.from;
	t->stride = x->step * p->stride[x->dim];
	t->column_step = y->shown_step;
	for (uint32_t g = y->shown_dim + 1; g < w->n_spans; g++)
		t->column_step *= s->len[g];
}

/* Returns how many units of a plain part follow along a factor, from the
 * element on. */
static uint64_t units_left(const struct rsh_cursor *s, const struct place *p,
			   const uint64_t *at, const struct rsh_factor *x)
{
	const uint32_t g = x->shown_dim;
	const uint64_t end = rsh_min_u64(s->from[g] + s->len[g],
					 s->part->to[g]);

	return rsh_min_u64(end - at[g], p->to[x->dim] - p->at[x->dim]);
}

/* Finds the elements that follow along x: a run, which may repeat, or elements
 * that are not contiguous, which are rows of one element unless there is a
 * tile. */
static void find_run(const struct rsh_mapping *w, const struct place *p,
		     const uint64_t *at, struct rsh_cursor *s)
{
	const struct rsh_part *f = s->part;
	const struct rsh_factor *x = &f->factors[f->x];
	struct stretch slice, cell;
	struct digit_range xs;

	if (f->is_plain) {
		s->run = units_left(s, p, at, x);
		if (f->row == RSH_NO_FACTOR)
			return;
		x = &f->factors[f->row];
		s->rows = units_left(s, p, at, x) - 1;
		s->stride = p->stride[x->dim];
		return;
	}
	slice = slice_along(s, at, x->shown_dim);
	cell = cell_along(p, x->dim);
	xs = (struct digit_range){ 0, x->size, p->digit[f->x] };
	range_cut(&xs, 1, &slice);
	range_cut(&xs, x->step, &cell);
	if (f->x == f->y) {
		s->run = xs.to - xs.digit;
		return;
	}
	s->rows = xs.to - xs.digit - 1;
	s->stride = x->step * p->stride[x->dim];
	if (f->y != RSH_NO_FACTOR)
		place_tile(w, p, at, s);
}

bool rsh_cursor_find(const struct rsh_mapping *w, uint64_t unit,
		     struct rsh_cursor *s)
{
	uint64_t at[RSH_MAX_DIMS];
	const struct rsh_part *f;
	struct place p;

	for (uint32_t g = w->n_spans; g-- > 0;) {
		uint64_t next = g ? unit / s->len[g] : 0;

		at[g] = s->from[g] + unit - next * s->len[g];
		unit = next;
	}
	if (!cursor_part(w, at, s, p.digit))
		return false;
	f = s->part;
	for (uint32_t h = 0; h < f->n_in; h++)
		p.at[h] = f->in[h].base;
	for (uint32_t i = 0; i < f->n; i++) {
		const struct rsh_factor *x = &f->factors[i];

		p.at[x->dim] += f->is_plain ?
			at[x->shown_dim] - f->from[x->shown_dim] :
			p.digit[i] * x->step;
	}
	s->run = 1;
	s->rows = 0;
	s->tile.n_rows = 0;
	if (rsh_cut_grid(f->tensor->cut))
		find_in_grid(s, &p);
	else if (!find_in_boxes(s, &p))
		return false;
	if (f->x != RSH_NO_FACTOR)
		find_run(w, &p, at, s);
	return true;
}
