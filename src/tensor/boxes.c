/* SPDX-License-Identifier: Apache-2.0 */
/* tensor/boxes.c searches a list of up to 100,000 boxes and more.
 *
 * Boxes are sorted by their begin along Morton's curve, which keeps neighbours
 * close.  A binary tree divides the sorted boxes.  Node 0 has all boxes, and
 * nodes 2i + 1 and 2i + 2 each have one half of the boxes of node i.  A node
 * with few boxes is a leaf.  A search visits only nodes whose bounds overlap
 * the box that is searched for. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "boxes_i.h"
#include "rsh/util/checked.h"
#include "rsh/util/mem.h"

#define LEAF_CELLS 8u

/* ---- edges ---- */

static uint64_t *boxes_edges(const struct rsh_boxes *b, uint32_t cell)
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

void rsh_boxes_get(const struct rsh_boxes *b, uint32_t cell,
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
static void boxes_bound(const struct rsh_boxes *b, uint32_t node, uint32_t from,
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
	const struct rsh_boxes *b;
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

uint64_t rsh_boxes_overlap(const struct rsh_boxes *b, const struct rsh_box *box,
			   rsh_cell_fn *each, void *ctx)
{
	const struct boxes_query q = { b, box, each, ctx };

	return b->n_cells ? boxes_visit(&q, 0, 0, b->n_cells) : 0;
}

static void boxes_take(void *ctx, uint32_t cell)
{
	*(uint32_t *)ctx = cell;
}

bool rsh_boxes_find(const struct rsh_boxes *b, const uint64_t *at,
		    uint32_t *cell, struct rsh_box *box)
{
	box->n_dims = b->n_dims;
	for (uint32_t d = 0; d < b->n_dims; d++) {
		box->from[d] = at[d];
		box->size[d] = 1;
	}
	if (!rsh_boxes_overlap(b, box, boxes_take, cell))
		return false;
	rsh_boxes_get(b, *cell, box);
	return true;
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
static void boxes_fill(struct rsh_boxes *b, const struct boxes_order *o)
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

static int boxes_check_apart(const struct rsh_boxes *b, struct rsh_error *err)
{
	struct rsh_box box;

	for (uint32_t i = 0; i < b->n_cells; i++) {
		struct boxes_neighbour n = { i, i };
		uint32_t x, y;

		rsh_boxes_get(b, i, &box);
		rsh_boxes_overlap(b, &box, boxes_take_other, &n);
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
static bool boxes_have_all(const struct rsh_boxes *b, const uint64_t *dims)
{
	uint64_t all = 1, have = 0;
	struct rsh_box box;

	for (uint32_t d = 0; d < b->n_dims; d++)
		if (!rsh_mul_u64(all, dims[d], &all))
			return false;
	for (uint32_t i = 0; i < b->n_cells; i++) {
		rsh_boxes_get(b, i, &box);
		have += rsh_box_elements(&box);
	}
	return have == all;
}

static struct rsh_boxes *boxes_new(size_t n, uint32_t n_dims)
{
	struct rsh_boxes *b;
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

int rsh_boxes_make(const uint64_t *dims, uint32_t n_dims,
		   const struct rsh_box *boxes, uint32_t n_ranks,
		   struct rsh_boxes **out, struct rsh_error *err)
{
	cleanup_free struct boxes_order *o = rsh_alloc_array(n_ranks,
							     sizeof(*o));
	struct rsh_boxes *b;
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
	qsort(o, n_ranks, sizeof(*o), boxes_by_curve);
	boxes_fill(b, o);
	if (b->n_cells)
		boxes_bound(b, 0, 0, b->n_cells);
	rc = boxes_check_apart(b, err);
	b->complete = rc == 0 && boxes_have_all(b, dims);
	if (rc)
		rsh_boxes_free(b);
	else
		*out = b;
	return rc;
}

void rsh_boxes_free(struct rsh_boxes *b)
{
	free(b);
}

/* ---- properties ---- */

bool rsh_boxes_is_whole(const struct rsh_boxes *b, const uint64_t *dims,
			uint32_t d)
{
	for (uint32_t i = 0; i < b->n_cells; i++) {
		const uint64_t *e = boxes_edges(b, i);

		if (e[b->n_dims + d] - e[d] != dims[d])
			return false;
	}
	return true;
}

int rsh_boxes_compare(const struct rsh_boxes *a, const struct rsh_boxes *b)
{
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
	const struct rsh_boxes *b;
	const struct rsh_box *box;
	uint64_t have;         /* elements */
	uint32_t n;            /* overlapping cells */
	struct rsh_box common; /* the overlap with the last of them */
};

static void boxes_add_filled(void *ctx, uint32_t cell)
{
	struct boxes_filled *f = ctx;
	struct rsh_box box;

	rsh_boxes_get(f->b, cell, &box);
	rsh_box_meet(&box, f->box, &f->common);
	f->have += rsh_box_elements(&f->common);
	f->n++;
}

/* Returns whether cells contain all of the box. */
static bool boxes_fill_box(const struct rsh_boxes *b, const struct rsh_box *box,
			   struct boxes_filled *f)
{
	*f = (struct boxes_filled){ .b = b, .box = box };
	rsh_boxes_overlap(b, box, boxes_add_filled, f);
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

bool rsh_boxes_gap(const struct rsh_boxes *b, const struct rsh_box *box,
		   struct rsh_box *gap)
{
	struct boxes_filled f;

	if (b->complete || boxes_fill_box(b, box, &f))
		return false;
	*gap = *box;
	while (f.n > 0)
		boxes_narrow(gap, &f);
	return true;
}
