/* SPDX-License-Identifier: Apache-2.0 */
/* tensor/cut.c cuts by a grid, or searches a list of up to 100,000 boxes and
 * more.
 *
 * Boxes are sorted by their begin along Morton's curve, which keeps neighbours
 * close.  A binary tree divides the sorted boxes.  Node 0 has all boxes, and
 * nodes 2i + 1 and 2i + 2 each have one half of the boxes of node i.  A node
 * with few boxes is a leaf.  A search visits only nodes whose bounds overlap
 * the box that is searched for. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "rsh/tensor/cut.h"
#include "rsh/util/checked.h"
#include "rsh/util/mem.h"

/* Edges of a box: its begin in each dimension, then its end in each
 * dimension. */
struct rsh_cut {
	struct rsh_grid *grid; /* NULL: it is a list of boxes, with all below,
				* whose arrays are in the same memory */
	uint32_t n_dims;
	uint32_t n_ranks;
	uint32_t n_cells;
	bool complete;        /* every element is in a cell */
	uint64_t *edges;      /* [cell] */
	uint64_t *bounds;     /* [node]: edges around its cells */
	uint32_t *first_rank; /* [n_cells + 1]: index in `ranks` */
	uint32_t *ranks;      /* by cell, ascending */
	uint32_t *cell_of;    /* [rank] */
	uint32_t *place_of;   /* [rank]: its index in `ranks` */
};

#define LEAF_CELLS 8u

/* ---- edges ---- */

static uint64_t *boxes_edges(const struct rsh_cut *b, uint32_t cell)
{
	return b->edges + (size_t)cell * 2 * b->n_dims;
}

static bool boxes_meet(const uint64_t *edges, const struct rsh_box *box)
{
	const uint32_t n = box->n_dims;

	for (uint32_t d = 0; d < n; d++)
		if (rsh_max_u64(edges[d], box->from[d]) >=
		    rsh_min_u64(edges[n + d], box->from[d] + box->size[d]))
			return false;
	return true;
}

static void boxes_get(const struct rsh_cut *b, uint32_t cell,
		      struct rsh_box *out)
{
	const uint64_t *e = boxes_edges(b, cell);

	out->n_dims = b->n_dims;
	for (uint32_t d = 0; d < b->n_dims; d++) {
		out->from[d] = e[d];
		out->size[d] = e[b->n_dims + d] - e[d];
	}
}

/* ---- the tree ---- */

static uint32_t boxes_middle(uint32_t from, uint32_t to)
{
	return from + (to - from) / 2;
}

/* Sets the bounds of a node with cells [from, to). */
static void boxes_bound(const struct rsh_cut *b, uint32_t node, uint32_t from,
			uint32_t to)
{
	const uint32_t n = b->n_dims, mid = boxes_middle(from, to);
	uint64_t *out = b->bounds + (size_t)node * 2 * n;
	const uint64_t *in = boxes_edges(b, from);
	uint32_t n_in = to - from;

	if (n_in > LEAF_CELLS) {
		boxes_bound(b, 2 * node + 1, from, mid);
		boxes_bound(b, 2 * node + 2, mid, to);
		in = b->bounds + (size_t)(2 * node + 1) * 2 * n;
		n_in = 2;
	}
	for (uint32_t d = 0; d < n; d++) {
		out[d] = in[d];
		out[n + d] = in[n + d];
		for (uint32_t i = 1; i < n_in; i++) {
			const uint64_t *e = in + (size_t)i * 2 * n;

			out[d] = rsh_min_u64(out[d], e[d]);
			out[n + d] = rsh_max_u64(out[n + d], e[n + d]);
		}
	}
}

struct boxes_query {
	const struct rsh_cut *b;
	const struct rsh_box *box;
	rsh_cell_fn *each;
	void *ctx;
};

static uint64_t boxes_visit(const struct boxes_query *q, uint32_t node,
			    uint32_t from, uint32_t to)
{
	const uint32_t mid = boxes_middle(from, to);
	uint64_t n = 0;

	if (!boxes_meet(q->b->bounds + (size_t)node * 2 * q->b->n_dims, q->box))
		return 0;
	if (to - from > LEAF_CELLS)
		return boxes_visit(q, 2 * node + 1, from, mid) +
		       boxes_visit(q, 2 * node + 2, mid, to);
	for (uint32_t i = from; i < to; i++) {
		if (!boxes_meet(boxes_edges(q->b, i), q->box))
			continue;
		n++;
		if (q->each)
			q->each(q->ctx, i);
	}
	return n;
}

static uint64_t boxes_overlap(const struct rsh_cut *b,
			      const struct rsh_box *box, rsh_cell_fn *each, void *ctx)
{
	const struct boxes_query q = { b, box, each, ctx };

	return b->n_cells ? boxes_visit(&q, 0, 0, b->n_cells) : 0;
}

/* ---- making ---- */

static int boxes_check_one(const struct rsh_box *b, const uint64_t *dims,
			   uint32_t n_dims, uint32_t rank,
			   struct rsh_error *err)
{
	if (b->n_dims != n_dims)
		return rsh_error_set(err, EINVAL, "the box of rank %u has %u "
				     "dimensions, the tensor has %u", rank,
				     b->n_dims, n_dims);
	for (uint32_t d = 0; d < n_dims; d++)
		if (b->from[d] > dims[d] || b->size[d] > dims[d] - b->from[d])
			return rsh_error_set(err, EINVAL, "the box of rank %u "
					     "exceeds dimension %u of size %llu",
					     rank, d,
					     (unsigned long long)dims[d]);
	return 0;
}

struct boxes_order {
	const struct rsh_box *box;
	uint32_t rank;
};

/* Morton's order: the dimension with the highest differing bit decides. */
static int boxes_by_curve(const void *a, const void *b)
{
	const struct boxes_order *x = a, *y = b;
	const uint32_t n = x->box->n_dims;
	uint64_t most = 0;
	uint32_t at = 0;

	for (uint32_t d = 0; d < n; d++) {
		uint64_t differ = x->box->from[d] ^ y->box->from[d];

		if (most < differ && most < (most ^ differ)) {
			most = differ;
			at = d;
		}
	}
	if (most)
		return x->box->from[at] < y->box->from[at] ? -1 : 1;
	for (uint32_t d = 0; d < n; d++)
		if (x->box->size[d] != y->box->size[d])
			return x->box->size[d] < y->box->size[d] ? -1 : 1;
	return x->rank < y->rank ? -1 : x->rank > y->rank;
}

static bool boxes_are_same(const struct rsh_box *a, const struct rsh_box *b)
{
	const size_t bytes = a->n_dims * sizeof(a->from[0]);

	return memcmp(a->from, b->from, bytes) == 0 &&
	       memcmp(a->size, b->size, bytes) == 0;
}

/* Makes cells of the sorted boxes, in which equal boxes are consecutive. */
static void boxes_fill(struct rsh_cut *b, const struct boxes_order *o)
{
	for (uint32_t i = 0; i < b->n_ranks; i++) {
		if (i == 0 || !boxes_are_same(o[i].box, o[i - 1].box)) {
			uint64_t *e = boxes_edges(b, b->n_cells);

			for (uint32_t d = 0; d < b->n_dims; d++) {
				e[d] = o[i].box->from[d];
				e[b->n_dims + d] = e[d] + o[i].box->size[d];
			}
			b->first_rank[b->n_cells++] = i;
		}
		b->ranks[i] = o[i].rank;
		b->place_of[o[i].rank] = i;
		b->cell_of[o[i].rank] = b->n_cells - 1;
	}
	b->first_rank[b->n_cells] = b->n_ranks;
}

struct boxes_neighbour {
	uint32_t cell, other;
};

static void boxes_take_other(void *ctx, uint32_t cell)
{
	struct boxes_neighbour *n = ctx;

	if (cell != n->cell)
		n->other = cell;
}

static int boxes_check_apart(const struct rsh_cut *b, struct rsh_error *err)
{
	struct rsh_box box;

	for (uint32_t i = 0; i < b->n_cells; i++) {
		struct boxes_neighbour n = { i, i };
		uint32_t x, y;

		boxes_get(b, i, &box);
		boxes_overlap(b, &box, boxes_take_other, &n);
		if (n.other == i)
			continue;
		x = b->ranks[b->first_rank[i]];
		y = b->ranks[b->first_rank[n.other]];
		return rsh_error_set(err, EINVAL, "the boxes of ranks %u and "
				     "%u overlap, but are not equal", x < y ? x : y, x < y ? y : x);
	}
	return 0;
}

/* Returns whether the cells, which do not overlap, contain all elements. */
static bool boxes_have_all(const struct rsh_cut *b, const uint64_t *dims)
{
	uint64_t all, have = 0;
	struct rsh_box box;

	if (!rsh_product_u64(dims, b->n_dims, &all))
		return false;
	for (uint32_t i = 0; i < b->n_cells; i++) {
		boxes_get(b, i, &box);
		have += rsh_box_elements(&box);
	}
	return have == all;
}

static struct rsh_cut *boxes_new(size_t n, uint32_t n_dims)
{
	struct rsh_cut *b;
	size_t n_nodes = 1;

	/* The depth follows from halving the larger half each time. */
	for (size_t left = n; left > LEAF_CELLS; left -= left / 2)
		n_nodes = 2 * n_nodes + 1;
	b = calloc(1, sizeof(*b) +
		   (n + n_nodes) * 2 * n_dims * sizeof(*b->edges) +
		   (4 * n + 1) * sizeof(*b->ranks));
	if (!b)
		return NULL;
	b->n_dims = n_dims;
	b->n_ranks = (uint32_t)n;
	b->edges = (uint64_t *)(b + 1);
	b->bounds = b->edges + n * 2 * n_dims;
	b->ranks = (uint32_t *)(b->bounds + n_nodes * 2 * n_dims);
	b->cell_of = b->ranks + n;
	b->place_of = b->cell_of + n;
	b->first_rank = b->place_of + n;
	return b;
}

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

int rsh_cut_of_boxes(const uint64_t *dims, uint32_t n_dims,
		     const struct rsh_box *boxes, uint32_t n_ranks,
		     struct rsh_cut **out, struct rsh_error *err)
{
	cleanup_free struct boxes_order *o = rsh_alloc_array(n_ranks,
							     sizeof(*o));
	struct rsh_cut *b;
	int rc = 0;

	if (!o)
		return rsh_error_nomem(err);
	if (n_dims > RSH_MAX_DIMS)
		return rsh_error_set(err, EINVAL, "too many dimensions");
	for (uint32_t r = 0; r < n_ranks && rc == 0; r++) {
		rc = boxes_check_one(&boxes[r], dims, n_dims, r, err);
		o[r] = (struct boxes_order){ &boxes[r], r };
	}
	if (rc)
		return rc;
	b = boxes_new(n_ranks, n_dims);
	if (!b)
		return rsh_error_nomem(err);
	rsh_sort(o, n_ranks, boxes_by_curve);
	boxes_fill(b, o);
	if (b->n_cells)
		boxes_bound(b, 0, 0, b->n_cells);
	rc = boxes_check_apart(b, err);
	b->complete = rc == 0 && boxes_have_all(b, dims);
	if (rc)
		rsh_cut_free(b);
	else
		*out = b;
	return rc;
}

void rsh_cut_free(struct rsh_cut *c)
{
	if (c)
		rsh_grid_free(c->grid);
	free(c);
}

/* ---- queries ---- */

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
				 rsh_grid_n_replicas(c->grid) :
			 c->n_cells;
}

bool rsh_cut_is_whole(const struct rsh_cut *c, const uint64_t *dims, uint32_t d)
{
	bool whole = !c->grid || rsh_grid_split(c->grid, d) == 1;

	for (uint32_t i = 0; !c->grid && whole && i < c->n_cells; i++) {
		const uint64_t *e = boxes_edges(c, i);

		whole = e[c->n_dims + d] - e[d] == dims[d];
	}
	return whole;
}

/* Computes the coordinates of a grid's cell from its number; cut_number() is
 * the inverse. */
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
			 c->first_rank[cell + 1] -
				 c->first_rank[cell];
}

uint32_t rsh_cut_member(const struct rsh_cut *c, uint32_t cell,
			uint32_t replica)
{
	uint32_t at[RSH_MAX_DIMS];

	if (!c->grid)
		return c->ranks[c->first_rank[cell] + replica];
	cut_coordinates(c->grid, cell, at);
	return rsh_grid_member(c->grid, at, replica);
}

uint32_t rsh_cut_replica(const struct rsh_cut *c, uint32_t like)
{
	return c->grid ? rsh_grid_replica(c->grid, like) : 0;
}

uint32_t rsh_cut_place(const struct rsh_cut *c, uint32_t rank)
{
	return c->grid ? rsh_grid_place(c->grid, rank) :
			 c->place_of[rank];
}

uint32_t rsh_cut_first_place(const struct rsh_cut *c, uint32_t cell)
{
	return c->grid ? cell * rsh_grid_n_replicas(c->grid) :
			 c->first_rank[cell];
}

void rsh_cut_box(const struct rsh_cut *c, const uint64_t *dims, uint32_t cell,
		 struct rsh_box *out)
{
	uint32_t at[RSH_MAX_DIMS];

	if (!c->grid) {
		boxes_get(c, cell, out);
		return;
	}
	cut_coordinates(c->grid, cell, at);
	out->n_dims = rsh_grid_n_dims(c->grid);
	for (uint32_t d = 0; d < out->n_dims; d++) {
		out->size[d] = dims[d] / rsh_grid_split(c->grid, d);
		out->from[d] = at[d] * out->size[d];
	}
}

static void boxes_take(void *ctx, uint32_t cell)
{
	*(uint32_t *)ctx = cell;
}

bool rsh_cut_find(const struct rsh_cut *c, const uint64_t *dims,
		  const uint64_t *at, uint32_t *cell, struct rsh_box *box)
{
	const uint32_t n = c->grid ? rsh_grid_n_dims(c->grid) : c->n_dims;

	if (!c->grid) {
		box->n_dims = n;
		for (uint32_t d = 0; d < n; d++) {
			box->from[d] = at[d];
			box->size[d] = 1;
		}
		if (!boxes_overlap(c, box, boxes_take, cell))
			return false;
		boxes_get(c, *cell, box);
		return true;
	}
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

uint64_t rsh_cut_overlap(const struct rsh_cut *c, const uint64_t *dims,
			 const struct rsh_box *box, rsh_cell_fn *each,
			 void *ctx)
{
	uint32_t from[RSH_MAX_DIMS], to[RSH_MAX_DIMS], at[RSH_MAX_DIMS], d;
	uint64_t n = 1;

	if (!c->grid)
		return boxes_overlap(c, box, each, ctx);
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

int rsh_cut_compare(const struct rsh_cut *a, const struct rsh_cut *b)
{
	if (!a->grid != !b->grid)
		return a->grid ? -1 : 1;
	if (a->grid)
		return rsh_grid_compare(a->grid, b->grid);
	/* Equal boxes may cover one tensor and leave gaps in another. */
	return rsh_compare_u64(a->n_dims, b->n_dims) ?:
	       rsh_compare_u64(a->n_ranks, b->n_ranks) ?:
	       rsh_compare_u64(a->n_cells, b->n_cells) ?:
	       rsh_compare_u64(b->complete, a->complete) ?:
	       memcmp(a->edges, b->edges, (size_t)a->n_cells * 2 * a->n_dims *
		      sizeof(*a->edges)) ?:
	       memcmp(a->cell_of, b->cell_of, a->n_ranks * sizeof(*a->cell_of));
}

/* ---- gaps ---- */

/* The overlap of the cells with a box. */
struct boxes_filled {
	const struct rsh_cut *b;
	const struct rsh_box *box;
	uint64_t have;         /* elements */
	uint32_t n;            /* overlapping cells */
	struct rsh_box common; /* the overlap with the last of them */
};

static void boxes_add_filled(void *ctx, uint32_t cell)
{
	struct boxes_filled *f = ctx;
	struct rsh_box box;

	boxes_get(f->b, cell, &box);
	rsh_box_meet(&box, f->box, &f->common);
	f->have += rsh_box_elements(&f->common);
	f->n++;
}

/* Returns whether cells contain all of the box. */
static bool boxes_fill_box(const struct rsh_cut *b, const struct rsh_box *box,
			   struct boxes_filled *f)
{
	*f = (struct boxes_filled){ .b = b, .box = box };
	boxes_overlap(b, box, boxes_add_filled, f);
	return f->have == rsh_box_elements(box);
}

/* Narrows the box to a part that cells do not fully contain either: beside the
 * overlap with a cell or, if there are many cells, one half. */
static void boxes_narrow(struct rsh_box *box, struct boxes_filled *f)
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
		if (rest.size[d] && !boxes_fill_box(f->b, &rest, f))
			break;
		rest.from[d] = to;
		rest.size[d] = end - to;
		if (rest.size[d] && !boxes_fill_box(f->b, &rest, f))
			break;
		rest.from[d] = from;
		rest.size[d] = to - from;
	}
	*box = rest;
}

bool rsh_cut_gap(const struct rsh_cut *c, const struct rsh_box *box,
		 struct rsh_box *gap)
{
	struct boxes_filled f;

	if (c->grid || c->complete || boxes_fill_box(c, box, &f))
		return false;
	*gap = *box;
	while (f.n > 0)
		boxes_narrow(gap, &f);
	return true;
}
