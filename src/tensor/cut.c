/* SPDX-License-Identifier: Apache-2.0 */
/* tensor/cut.c answers for both forms of a cut: it asks the grid, or searches
 * the boxes, which are sorted along one dimension. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "rsh/tensor/cut.h"
#include "rsh/util/checked.h"
#include "rsh/util/mem.h"

/* This is a cell of a list; its ranks begin at rsh_cut.ranks[first_rank]. */
struct cut_cell {
	struct rsh_box box;
	uint32_t first_rank;
};

struct rsh_cut {
	struct rsh_grid *grid; /* NULL: the cut is a list */

	/* The rest is of a list.  Its cells are sorted by where they begin
	 * along `axis`. */
	uint32_t n_dims;
	uint32_t n_ranks;
	uint32_t n_cells;
	struct cut_cell *cells; /* with one more, where the ranks end */
	uint32_t *cell_of;      /* [rank] */
	uint32_t *ranks;        /* by cell, ascending */
	uint32_t axis;          /* the dimension that tells most cells apart */
	uint64_t longest;       /* the longest cell along that dimension */
	bool complete;          /* every element is in a cell */
};

/* ---- making ---- */

struct rsh_cut *rsh_cut_of_grid(struct rsh_grid *grid)
{
	struct rsh_cut *c = calloc(1, sizeof(*c));

	if (!c) {
		rsh_grid_free(grid);
		return NULL;
	}
	c->grid = grid;
	return c;
}

void rsh_cut_free(struct rsh_cut *c)
{
	if (!c)
		return;
	rsh_grid_free(c->grid);
	free(c->cells);
	free(c->cell_of);
	free(c->ranks);
	free(c);
}

static int cut_check_box(const struct rsh_box *b, const uint64_t *dims,
			 uint32_t n_dims, uint32_t rank, struct rsh_error *err)
{
	if (b->n_dims != n_dims)
		return rsh_error_set(err, EINVAL, "the box of rank %u has %u "
				     "dimensions, the tensor has %u", rank,
				     b->n_dims, n_dims);
	for (uint32_t d = 0; d < n_dims; d++)
		if (b->from[d] > dims[d] || b->size[d] > dims[d] - b->from[d])
			return rsh_error_set(err, EINVAL, "the box of rank %u "
					     "leaves dimension %u of size %llu",
					     rank, d,
					     (unsigned long long)dims[d]);
	return 0;
}

static bool cut_same_box(const struct rsh_box *a, const struct rsh_box *b)
{
	const size_t bytes = a->n_dims * sizeof(a->from[0]);

	return memcmp(a->from, b->from, bytes) == 0 &&
	       memcmp(a->size, b->size, bytes) == 0;
}

struct cut_order {
	const struct rsh_box *box;
	uint64_t from; /* along the axis */
	uint32_t rank;
};

static int cut_by_box(const void *a, const void *b)
{
	const struct cut_order *x = a, *y = b;
	const size_t n = x->box->n_dims;

	if (x->from != y->from)
		return x->from < y->from ? -1 : 1;
	for (size_t d = 0; d < n; d++)
		if (x->box->from[d] != y->box->from[d])
			return x->box->from[d] < y->box->from[d] ? -1 : 1;
	for (size_t d = 0; d < n; d++)
		if (x->box->size[d] != y->box->size[d])
			return x->box->size[d] < y->box->size[d] ? -1 : 1;
	return x->rank < y->rank ? -1 : x->rank > y->rank;
}

static int cut_by_from(const void *a, const void *b)
{
	const struct cut_order *x = a, *y = b;

	return x->from < y->from ? -1 : x->from > y->from;
}

/* Sorts by the dimension in which the boxes begin at the most places: a search
 * along it has the fewest boxes to look at. */
static uint32_t cut_sort(struct cut_order *o, uint32_t n, uint32_t n_dims)
{
	uint32_t axis = 0, most = 0;

	for (uint32_t d = 0; d < n_dims; d++) {
		uint32_t places = 0;

		for (uint32_t i = 0; i < n; i++)
			o[i].from = o[i].box->from[d];
		qsort(o, n, sizeof(*o), cut_by_from);
		for (uint32_t i = 0; i < n; i++)
			places += i == 0 || o[i].from != o[i - 1].from;
		if (places > most) {
			most = places;
			axis = d;
		}
	}
	for (uint32_t i = 0; i < n; i++)
		o[i].from = n_dims ? o[i].box->from[axis] : 0;
	qsort(o, n, sizeof(*o), cut_by_box);
	return axis;
}

/* Only boxes of which one begins within the other along the axis can have
 * elements in common. */
static int cut_check_apart(const struct cut_order *o, uint32_t n,
			   uint32_t axis, struct rsh_error *err)
{
	struct rsh_box common;

	for (uint32_t i = 0; i < n; i++)
		for (uint32_t k = i + 1; k < n; k++) {
			const struct rsh_box *a = o[i].box, *b = o[k].box;

			if (a->n_dims && o[k].from - o[i].from >= a->size[axis])
				break;
			if (cut_same_box(a, b) || !rsh_box_meet(a, b, &common))
				continue;
			return rsh_error_set(err, EINVAL, "the boxes of ranks "
					     "%u and %u have some elements in "
					     "common and not all", o[i].rank,
					     o[k].rank);
		}
	return 0;
}

/* Makes the cells of the sorted boxes, in which ranks with the same box follow
 * each other. */
static int cut_fill(struct rsh_cut *c, const struct cut_order *o)
{
	uint32_t n = 0;

	c->cells = rsh_alloc_array((size_t)c->n_ranks + 1, sizeof(*c->cells));
	c->cell_of = rsh_alloc_array(c->n_ranks, sizeof(*c->cell_of));
	c->ranks = rsh_alloc_array(c->n_ranks, sizeof(*c->ranks));
	if (!c->cells || !c->cell_of || !c->ranks)
		return -ENOMEM;
	for (uint32_t i = 0; i < c->n_ranks; i++) {
		if (i == 0 || !cut_same_box(o[i].box, o[i - 1].box)) {
			c->cells[n].box = *o[i].box;
			c->cells[n].first_rank = i;
			n++;
			if (c->n_dims)
				c->longest = rsh_max_u64(
					c->longest, o[i].box->size[c->axis]);
		}
		c->ranks[i] = o[i].rank;
		c->cell_of[o[i].rank] = n - 1;
	}
	c->cells[n].first_rank = c->n_ranks;
	c->n_cells = n;
	return 0;
}

static uint64_t cut_volume(const struct rsh_box *b)
{
	uint64_t n = 1;

	for (uint32_t d = 0; d < b->n_dims; d++)
		n *= b->size[d];
	return n;
}

/* Cells have nothing in common, so their elements can be counted. */
static bool cut_has_all(const struct rsh_cut *c, const uint64_t *dims)
{
	uint64_t all = 1, have = 0;

	for (uint32_t d = 0; d < c->n_dims; d++)
		if (!rsh_mul_u64(all, dims[d], &all))
			return false;
	for (uint32_t i = 0; i < c->n_cells; i++)
		have += cut_volume(&c->cells[i].box);
	return have == all;
}

int rsh_cut_of_boxes(const uint64_t *dims, uint32_t n_dims,
		     const struct rsh_box *boxes, uint32_t n_ranks,
		     struct rsh_cut **out, struct rsh_error *err)
{
	cleanup_free struct cut_order *o = rsh_alloc_array(n_ranks, sizeof(*o));
	struct rsh_cut *c;
	uint32_t axis;
	int rc = 0;

	if (!o)
		return rsh_error_nomem(err);
	if (n_dims > RSH_MAX_DIMS)
		return rsh_error_set(err, EINVAL, "too many dimensions");
	for (uint32_t r = 0; r < n_ranks && rc == 0; r++) {
		rc = cut_check_box(&boxes[r], dims, n_dims, r, err);
		o[r] = (struct cut_order){ .box = &boxes[r], .rank = r };
	}
	if (rc)
		return rc;
	axis = cut_sort(o, n_ranks, n_dims);
	rc = cut_check_apart(o, n_ranks, axis, err);
	if (rc)
		return rc;
	c = calloc(1, sizeof(*c));
	if (!c)
		return rsh_error_nomem(err);
	c->n_dims = n_dims;
	c->n_ranks = n_ranks;
	c->axis = axis;
	if (cut_fill(c, o)) {
		rsh_cut_free(c);
		return rsh_error_nomem(err);
	}
	c->complete = cut_has_all(c, dims);
	*out = c;
	return 0;
}

/* ---- asking ---- */

const struct rsh_grid *rsh_cut_grid(const struct rsh_cut *c)
{
	return c->grid;
}

uint32_t rsh_cut_n_ranks(const struct rsh_cut *c)
{
	return c->grid ? rsh_grid_n_ranks(c->grid) : c->n_ranks;
}

uint32_t rsh_cut_n_cells(const struct rsh_cut *c)
{
	return c->grid ? rsh_grid_n_ranks(c->grid) /
				 rsh_grid_n_replicas(c->grid) : c->n_cells;
}

bool rsh_cut_is_whole(const struct rsh_cut *c, const uint64_t *dims, uint32_t d)
{
	if (c->grid)
		return rsh_grid_split(c->grid, d) == 1;
	for (uint32_t i = 0; i < c->n_cells; i++)
		if (c->cells[i].box.size[d] != dims[d])
			return false;
	return true;
}

/* Tells the coordinates of a grid's cell by its number; cut_number() is the way
 * back. */
static void cut_coordinates(const struct rsh_grid *g, uint32_t cell,
			    uint32_t *at)
{
	for (uint32_t d = rsh_grid_n_dims(g); d-- > 0;) {
		at[d] = cell % rsh_grid_split(g, d);
		cell /= rsh_grid_split(g, d);
	}
}

static uint32_t cut_number(const struct rsh_grid *g, const uint32_t *at)
{
	uint32_t cell = 0;

	for (uint32_t d = 0; d < rsh_grid_n_dims(g); d++)
		cell = cell * rsh_grid_split(g, d) + at[d];
	return cell;
}

uint32_t rsh_cut_cell(const struct rsh_cut *c, uint32_t rank)
{
	uint32_t at[RSH_MAX_DIMS];

	if (!c->grid)
		return c->cell_of[rank];
	rsh_grid_cell(c->grid, rank, at);
	return cut_number(c->grid, at);
}

uint32_t rsh_cut_n_replicas(const struct rsh_cut *c, uint32_t cell)
{
	return c->grid ? rsh_grid_n_replicas(c->grid) :
			 c->cells[cell + 1].first_rank -
				 c->cells[cell].first_rank;
}

uint32_t rsh_cut_member(const struct rsh_cut *c, uint32_t cell,
			uint32_t replica)
{
	uint32_t at[RSH_MAX_DIMS];

	if (!c->grid)
		return c->ranks[c->cells[cell].first_rank + replica];
	cut_coordinates(c->grid, cell, at);
	return rsh_grid_member(c->grid, at, replica);
}

uint32_t rsh_cut_replica(const struct rsh_cut *c, uint32_t like)
{
	return c->grid ? rsh_grid_replica(c->grid, like) : 0;
}

uint32_t rsh_cut_place(const struct rsh_cut *c, uint32_t rank)
{
	uint32_t place;

	if (c->grid)
		return rsh_grid_place(c->grid, rank);
	place = c->cells[c->cell_of[rank]].first_rank;
	while (c->ranks[place] != rank)
		place++;
	return place;
}

uint32_t rsh_cut_first_place(const struct rsh_cut *c, uint32_t cell)
{
	return c->grid ? cell * rsh_grid_n_replicas(c->grid) :
			 c->cells[cell].first_rank;
}

void rsh_cut_box(const struct rsh_cut *c, const uint64_t *dims, uint32_t cell,
		 struct rsh_box *out)
{
	uint32_t at[RSH_MAX_DIMS];

	if (!c->grid) {
		*out = c->cells[cell].box;
		return;
	}
	cut_coordinates(c->grid, cell, at);
	out->n_dims = rsh_grid_n_dims(c->grid);
	for (uint32_t d = 0; d < out->n_dims; d++) {
		out->size[d] = dims[d] / rsh_grid_split(c->grid, d);
		out->from[d] = at[d] * out->size[d];
	}
}

static uint64_t cut_from(const struct rsh_cut *c, const struct rsh_box *b)
{
	return c->n_dims ? b->from[c->axis] : 0;
}

/* Returns the first cell that may have elements at `from` along the axis. */
static uint32_t cut_first_near(const struct rsh_cut *c, uint64_t from)
{
	uint32_t lo = 0, hi = c->n_cells;

	while (lo < hi) {
		uint32_t mid = lo + (hi - lo) / 2;

		if (cut_from(c, &c->cells[mid].box) + c->longest <= from)
			lo = mid + 1;
		else
			hi = mid;
	}
	return lo;
}

static bool cut_find_listed(const struct rsh_cut *c, const uint64_t *at,
			    uint32_t *cell, struct rsh_box *box)
{
	const uint64_t from = c->n_dims ? at[c->axis] : 0;

	for (uint32_t i = cut_first_near(c, from); i < c->n_cells; i++) {
		const struct rsh_box *b = &c->cells[i].box;

		if (cut_from(c, b) > from)
			return false;
		if (!rsh_box_has(b, at))
			continue;
		*cell = i;
		*box = *b;
		return true;
	}
	return false;
}

bool rsh_cut_find(const struct rsh_cut *c, const uint64_t *dims,
		  const uint64_t *at, uint32_t *cell, struct rsh_box *box)
{
	uint32_t n;

	if (!c->grid)
		return cut_find_listed(c, at, cell, box);
	n = rsh_grid_n_dims(c->grid);
	*cell = 0;
	box->n_dims = n;
	for (uint32_t d = 0; d < n; d++) {
		uint32_t split = rsh_grid_split(c->grid, d), i;

		box->size[d] = dims[d] / split;
		i = (uint32_t)(at[d] / box->size[d]);
		box->from[d] = i * box->size[d];
		*cell = *cell * split + i;
	}
	return true;
}

static uint64_t cut_overlap_listed(const struct rsh_cut *c,
				   const struct rsh_box *box,
				   rsh_cell_fn *each, void *ctx)
{
	const uint64_t end = c->n_dims ?
		box->from[c->axis] + box->size[c->axis] : 1;
	struct rsh_box common;
	uint64_t n = 0;

	for (uint32_t i = cut_first_near(c, cut_from(c, box)); i < c->n_cells;
	     i++) {
		const struct rsh_box *b = &c->cells[i].box;

		if (cut_from(c, b) >= end)
			break;
		if (!rsh_box_meet(b, box, &common))
			continue;
		n++;
		if (each)
			each(ctx, i);
	}
	return n;
}

uint64_t rsh_cut_overlap(const struct rsh_cut *c, const uint64_t *dims,
			 const struct rsh_box *box, rsh_cell_fn *each,
			 void *ctx)
{
	uint32_t from[RSH_MAX_DIMS], to[RSH_MAX_DIMS], at[RSH_MAX_DIMS], d;
	uint64_t n = 1;

	if (!c->grid)
		return cut_overlap_listed(c, box, each, ctx);
	for (d = 0; d < box->n_dims; d++) {
		uint64_t size = dims[d] / rsh_grid_split(c->grid, d);

		if (box->size[d] == 0 || size == 0)
			return 0;
		from[d] = at[d] = (uint32_t)(box->from[d] / size);
		to[d] = (uint32_t)((box->from[d] + box->size[d] - 1) / size) +
			1;
		n *= to[d] - from[d];
	}
	while (each) {
		each(ctx, cut_number(c->grid, at));
		for (d = box->n_dims; d > 0; d--) {
			if (++at[d - 1] < to[d - 1])
				break;
			at[d - 1] = from[d - 1];
		}
		if (d == 0)
			break;
	}
	return n;
}

/* ---- gaps ---- */

/* What the cells have of a box. */
struct cut_filled {
	const struct rsh_cut *cut;
	const struct rsh_box *box;
	uint64_t have;         /* elements */
	uint32_t n;            /* cells that have some */
	struct rsh_box common; /* with the last one */
};

static void cut_add_filled(void *ctx, uint32_t cell)
{
	struct cut_filled *f = ctx;

	if (!rsh_box_meet(&f->cut->cells[cell].box, f->box, &f->common))
		return;
	f->have += cut_volume(&f->common);
	f->n++;
}

/* Is all of the box in cells? */
static bool cut_fill_box(const struct rsh_cut *c, const struct rsh_box *box,
			 struct cut_filled *f)
{
	*f = (struct cut_filled){ .cut = c, .box = box };
	cut_overlap_listed(c, box, cut_add_filled, f);
	return f->have == cut_volume(box);
}

/* Goes to a part of the box that is not all in cells either: beside its common
 * box with a cell or, where cells are many, to a half. */
static void cut_narrow(const struct rsh_cut *c, struct rsh_box *box,
		       struct cut_filled *f)
{
	const struct rsh_box common = f->common;
	const bool halve = f->n > 8;
	struct rsh_box rest = *box;
	uint32_t d = 0;

	for (uint32_t i = 1; halve && i < box->n_dims; i++)
		if (box->size[i] > box->size[d])
			d = i;
	for (; d < box->n_dims; d++) {
		const uint64_t end = box->from[d] + box->size[d];
		uint64_t from = common.from[d], to = from + common.size[d];

		if (halve)
			from = to = box->from[d] + box->size[d] / 2;
		rest.size[d] = from - rest.from[d];
		if (rest.size[d] && !cut_fill_box(c, &rest, f))
			break;
		rest.from[d] = to;
		rest.size[d] = end - to;
		if (rest.size[d] && !cut_fill_box(c, &rest, f))
			break;
		rest.from[d] = from;
		rest.size[d] = to - from;
	}
	*box = rest;
}

bool rsh_cut_gap(const struct rsh_cut *c, const uint64_t *dims,
		 const struct rsh_box *box, struct rsh_box *gap)
{
	struct cut_filled f;

	(void)dims;
	if (c->grid || c->complete || cut_fill_box(c, box, &f))
		return false;
	*gap = *box;
	while (f.n > 0)
		cut_narrow(c, gap, &f);
	return true;
}

bool rsh_cut_equal(const struct rsh_cut *a, const struct rsh_cut *b)
{
	if (a->grid || b->grid)
		return a->grid && b->grid && rsh_grid_equal(a->grid, b->grid);
	if (a->n_dims != b->n_dims || a->n_ranks != b->n_ranks ||
	    a->n_cells != b->n_cells ||
	    memcmp(a->cell_of, b->cell_of,
		   a->n_ranks * sizeof(*a->cell_of)) != 0)
		return false;
	for (uint32_t i = 0; i < a->n_cells; i++)
		if (!cut_same_box(&a->cells[i].box, &b->cells[i].box))
			return false;
	return true;
}
