/* SPDX-License-Identifier: Apache-2.0 */
/* tensor/cut.c forwards to the grid or to the list of boxes. */
#include <stdlib.h>

#include "boxes_i.h"

/* One of the two is NULL. */
struct rsh_cut {
	struct rsh_grid *grid;
	struct rsh_boxes *boxes;
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

int rsh_cut_of_boxes(const uint64_t *dims, uint32_t n_dims,
		     const struct rsh_box *boxes, uint32_t n_ranks,
		     struct rsh_cut **out, struct rsh_error *err)
{
	struct rsh_cut *c = calloc(1, sizeof(*c));
	int rc = c ? rsh_boxes_make(dims, n_dims, boxes, n_ranks, &c->boxes,
				    err) : rsh_error_nomem(err);

	if (rc)
		free(c);
	else
		*out = c;
	return rc;
}

void rsh_cut_free(struct rsh_cut *c)
{
	if (!c)
		return;
	rsh_grid_free(c->grid);
	rsh_boxes_free(c->boxes);
	free(c);
}

/* ---- queries ---- */

const struct rsh_grid *rsh_cut_grid(const struct rsh_cut *c)
{
	return c->grid;
}

uint32_t rsh_cut_n_ranks(const struct rsh_cut *c)
{
	return c->grid ? rsh_grid_n_ranks(c->grid) :
			 c->boxes->n_ranks;
}

uint32_t rsh_cut_n_cells(const struct rsh_cut *c)
{
	return c->grid ? rsh_grid_n_ranks(c->grid) /
				 rsh_grid_n_replicas(c->grid) :
			 c->boxes->n_cells;
}

bool rsh_cut_is_whole(const struct rsh_cut *c, const uint64_t *dims, uint32_t d)
{
	return c->grid ? rsh_grid_split(c->grid, d) == 1 :
			 rsh_boxes_is_whole(c->boxes, dims, d);
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
		return c->boxes->cell_of[rank];
	rsh_grid_cell(c->grid, rank, at);
	return cut_number(c->grid, at);
}

uint32_t rsh_cut_n_replicas(const struct rsh_cut *c, uint32_t cell)
{
	return c->grid ? rsh_grid_n_replicas(c->grid) :
			 c->boxes->first_rank[cell + 1] -
				 c->boxes->first_rank[cell];
}

uint32_t rsh_cut_member(const struct rsh_cut *c, uint32_t cell,
			uint32_t replica)
{
	uint32_t at[RSH_MAX_DIMS];

	if (!c->grid)
		return c->boxes->ranks[c->boxes->first_rank[cell] + replica];
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
			 c->boxes->place_of[rank];
}

uint32_t rsh_cut_first_place(const struct rsh_cut *c, uint32_t cell)
{
	return c->grid ? cell * rsh_grid_n_replicas(c->grid) :
			 c->boxes->first_rank[cell];
}

void rsh_cut_box(const struct rsh_cut *c, const uint64_t *dims, uint32_t cell,
		 struct rsh_box *out)
{
	uint32_t at[RSH_MAX_DIMS];

	if (!c->grid) {
		rsh_boxes_get(c->boxes, cell, out);
		return;
	}
	cut_coordinates(c->grid, cell, at);
	out->n_dims = rsh_grid_n_dims(c->grid);
	for (uint32_t d = 0; d < out->n_dims; d++) {
		out->size[d] = dims[d] / rsh_grid_split(c->grid, d);
		out->from[d] = at[d] * out->size[d];
	}
}

bool rsh_cut_find(const struct rsh_cut *c, const uint64_t *dims,
		  const uint64_t *at, uint32_t *cell, struct rsh_box *box)
{
	uint32_t n;

	if (!c->grid)
		return rsh_boxes_find(c->boxes, at, cell, box);
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

uint64_t rsh_cut_overlap(const struct rsh_cut *c, const uint64_t *dims,
			 const struct rsh_box *box, rsh_cell_fn *each,
			 void *ctx)
{
	uint32_t from[RSH_MAX_DIMS], to[RSH_MAX_DIMS], at[RSH_MAX_DIMS], d;
	uint64_t n = 1;

	if (!c->grid)
		return rsh_boxes_overlap(c->boxes, box, each, ctx);
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

bool rsh_cut_gap(const struct rsh_cut *c, const struct rsh_box *box,
		 struct rsh_box *gap)
{
	return c->boxes && rsh_boxes_gap(c->boxes, box, gap);
}

int rsh_cut_compare(const struct rsh_cut *a, const struct rsh_cut *b)
{
	if (!a->grid != !b->grid)
		return a->grid ? -1 : 1;
	return a->grid ? rsh_grid_compare(a->grid, b->grid) :
			 rsh_boxes_compare(a->boxes, b->boxes);
}
