/* SPDX-License-Identifier: Apache-2.0 */
/* tensor/grid.c computes which rank of a grid holds which cell. */
#include <stdlib.h>
#include <string.h>

#include "rsh/tensor/grid.h"

struct rsh_grid {
	struct rsh_grid_spec s;
};

struct rsh_grid *rsh_grid_make(const struct rsh_grid_spec *spec)
{
	struct rsh_grid *g = malloc(sizeof(*g));

	if (g)
		memcpy(&g->s, spec, sizeof(g->s));
	return g;
}

struct rsh_grid *rsh_grid_make_whole(uint32_t n_dims)
{
	struct rsh_grid *g = calloc(1, sizeof(*g));

	if (!g)
		return NULL;
	g->s.n_ranks = 1;
	g->s.n_dims = n_dims;
	g->s.shard = 1;
	for (uint32_t d = 0; d < n_dims; d++)
		g->s.split[d] = 1;
	return g;
}

void rsh_grid_free(struct rsh_grid *g)
{
	free(g);
}

const struct rsh_grid_spec *rsh_grid_spec(const struct rsh_grid *g)
{
	return &g->s;
}

uint32_t rsh_grid_shard(const struct rsh_grid *g)
{
	return g->s.shard;
}

uint32_t rsh_grid_n_dims(const struct rsh_grid *g)
{
	return g->s.n_dims;
}

uint32_t rsh_grid_n_ranks(const struct rsh_grid *g)
{
	return g->s.n_ranks;
}

uint32_t rsh_grid_split(const struct rsh_grid *g, uint32_t d)
{
	return g->s.split[d];
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
	return g->s.first[d + 1] - g->s.first[d];
}

void rsh_grid_cell(const struct rsh_grid *g, uint32_t rank, uint32_t *cell)
{
	rank %= g->s.n_ranks;
	for (uint32_t d = 0; d < g->s.n_dims; d++)
		cell[d] = grid_place_on(g->s.axes + g->s.first[d],
					grid_n_axes(g, d), rank);
	if (g->s.shard > 1)
		cell[0] = cell[0] * g->s.shard +
			  grid_place_on(g->s.free, g->s.n_free, rank) %
				  g->s.shard;
}

uint32_t rsh_grid_replica(const struct rsh_grid *g, uint32_t rank)
{
	return grid_place_on(g->s.free, g->s.n_free, rank % g->s.n_ranks) /
	       g->s.shard;
}

uint32_t rsh_grid_member(const struct rsh_grid *g, const uint32_t *cell,
			 uint32_t replica)
{
	uint32_t place = replica * g->s.shard;
	uint32_t rank = 0;

	for (uint32_t d = 0; d < g->s.n_dims; d++) {
		uint32_t c = cell[d];

		if (d == 0 && g->s.shard > 1) {
			place += c % g->s.shard;
			c /= g->s.shard;
		}
		rank += grid_rank_at(g->s.axes + g->s.first[d],
				     grid_n_axes(g, d), c);
	}
	return rank + grid_rank_at(g->s.free, g->s.n_free, place);
}

uint32_t rsh_grid_n_replicas(const struct rsh_grid *g)
{
	uint32_t cells = 1;

	for (uint32_t d = 0; d < g->s.n_dims; d++)
		cells *= g->s.split[d];
	return g->s.n_ranks / cells;
}

uint32_t rsh_grid_place(const struct rsh_grid *g, uint32_t rank)
{
	uint32_t cell[RSH_MAX_DIMS], place = 0;

	rsh_grid_cell(g, rank, cell);
	for (uint32_t d = 0; d < g->s.n_dims; d++)
		place = place * g->s.split[d] + cell[d];
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
	const size_t bytes = a->s.n_dims * sizeof(*a->s.split);

	if (rsh_grid_equal(a, b))
		return true;
	if (a->s.n_ranks != b->s.n_ranks || a->s.n_dims != b->s.n_dims ||
	    memcmp(a->s.split, b->s.split, bytes) != 0)
		return false;
	for (uint32_t r = 0; r < a->s.n_ranks; r++) {
		uint32_t x[RSH_MAX_DIMS], y[RSH_MAX_DIMS];

		rsh_grid_cell(a, r, x);
		rsh_grid_cell(b, r, y);
		if (memcmp(x, y, bytes) != 0)
			return false;
	}
	return true;
}
