/* SPDX-License-Identifier: Apache-2.0 */
/* tensor/grid.c computes which rank of a grid holds which cell. */
#include <stdlib.h>
#include <string.h>

#include "rsh/tensor/grid.h"

struct rsh_grid *rsh_grid_make(const struct rsh_grid *g)
{
	struct rsh_grid *copy = malloc(sizeof(*copy));

	if (copy)
		memcpy(copy, g, sizeof(*copy));
	return copy;
}

struct rsh_grid *rsh_grid_make_whole(uint32_t n_dims)
{
	struct rsh_grid *g = calloc(1, sizeof(*g));

	if (!g)
		return NULL;
	g->n_ranks = 1;
	g->n_dims = n_dims;
	g->shard = 1;
	for (uint32_t d = 0; d < n_dims; d++)
		g->split[d] = 1;
	return g;
}

void rsh_grid_free(struct rsh_grid *g)
{
	free(g);
}

/* Returns a rank's position on n axes, of which the first is the most
 * significant. */
static uint32_t grid_place_on(const struct rsh_grid_axis *axes, uint32_t n,
			      uint32_t rank)
{
	uint32_t place = 0;

	for (uint32_t i = 0; i < n; i++)
		place = place * axes[i].size +
			rank / axes[i].stride % axes[i].size;
	return place;
}

/* Returns the rank with this position on these axes and 0 on all others. */
static uint32_t grid_rank_at(const struct rsh_grid_axis *axes, uint32_t n,
			     uint32_t place)
{
	uint32_t rank = 0;

	while (n-- > 0) {
		rank += place % axes[n].size * axes[n].stride;
		place /= axes[n].size;
	}
	return rank;
}

static uint32_t grid_n_axes(const struct rsh_grid *g, uint32_t d)
{
	return g->first[d + 1] - g->first[d];
}

void rsh_grid_cell(const struct rsh_grid *g, uint32_t rank, uint32_t *cell)
{
	rank %= g->n_ranks;
	for (uint32_t d = 0; d < g->n_dims; d++)
		cell[d] = grid_place_on(g->axes + g->first[d],
					grid_n_axes(g, d), rank);
	if (g->shard > 1)
		cell[0] = cell[0] * g->shard +
			  grid_place_on(g->free, g->n_free, rank) %
				  g->shard;
}

uint32_t rsh_grid_replica(const struct rsh_grid *g, uint32_t rank)
{
	return grid_place_on(g->free, g->n_free, rank % g->n_ranks) /
	       g->shard;
}

uint32_t rsh_grid_member(const struct rsh_grid *g, const uint32_t *cell,
			 uint32_t replica)
{
	uint32_t place = replica * g->shard;
	uint32_t rank = 0;

	for (uint32_t d = 0; d < g->n_dims; d++) {
		uint32_t c = cell[d];

		if (d == 0 && g->shard > 1) {
			place += c % g->shard;
			c /= g->shard;
		}
		rank += grid_rank_at(g->axes + g->first[d],
				     grid_n_axes(g, d), c);
	}
	return rank + grid_rank_at(g->free, g->n_free, place);
}

uint32_t rsh_grid_n_replicas(const struct rsh_grid *g)
{
	uint32_t cells = 1;

	for (uint32_t d = 0; d < g->n_dims; d++)
		cells *= g->split[d];
	return g->n_ranks / cells;
}

uint32_t rsh_grid_place(const struct rsh_grid *g, uint32_t rank)
{
	uint32_t cell[RSH_MAX_DIMS], place = 0;

	rsh_grid_cell(g, rank, cell);
	for (uint32_t d = 0; d < g->n_dims; d++)
		place = place * g->split[d] + cell[d];
	return place * rsh_grid_n_replicas(g) + rsh_grid_replica(g, rank);
}

int rsh_grid_compare(const struct rsh_grid *a, const struct rsh_grid *b)
{
	/* All fields are numbers, and unused bytes are zero
	 * (rsh_grid_make()). */
	return memcmp(a, b, sizeof(*a));
}

bool rsh_grid_equal(const struct rsh_grid *a, const struct rsh_grid *b)
{
	return rsh_grid_compare(a, b) == 0;
}

bool rsh_grid_same_slices(const struct rsh_grid *a, const struct rsh_grid *b)
{
	const size_t bytes = a->n_dims * sizeof(*a->split);

	if (rsh_grid_equal(a, b))
		return true;
	if (a->n_ranks != b->n_ranks || a->n_dims != b->n_dims ||
	    memcmp(a->split, b->split, bytes) != 0)
		return false;
	for (uint32_t r = 0; r < a->n_ranks; r++) {
		uint32_t x[RSH_MAX_DIMS], y[RSH_MAX_DIMS];

		rsh_grid_cell(a, r, x);
		rsh_grid_cell(b, r, y);
		if (memcmp(x, y, bytes) != 0)
			return false;
	}
	return true;
}
