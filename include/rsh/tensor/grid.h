/* SPDX-License-Identifier: Apache-2.0 */
/* tensor/grid.h - a grid: a tensor cut into equal slices over the ranks of a
 * mesh.
 *
 * The mesh is row-major over its ranks; the last axis is the fastest.
 * Dimension d of the tensor is split over an ordered list of mesh axes, the
 * most significant first.  An optimizer shard splits dimension 0 once more,
 * over the ranks that would otherwise hold the same slice.  All slices have the
 * same shape: a cell has one number for each dimension, and the ranks that hold
 * it are its replicas.  A grid stores ratios only, so that tensors of any size
 * share it.
 *
 * This is arithmetic.  A grid is immutable, so any thread may read it; the
 * caller that made it frees it.  Ranks count modulo n_ranks.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "rsh/tensor/box.h"
#include "rsh/util/mem.h"

/* A mesh of fewer than 2^31 ranks has at most 30 axes of more than one rank;
 * MindSpore's converter may add two. */
#define RSH_GRID_MAX_AXES 32

struct rsh_grid_axis {
	uint32_t size;   /* >= 2 */
	uint32_t stride; /* difference in rank of two neighbours on it */
};

/* The product of the sizes of all axes is n_ranks.  Unused bytes are zero, so
 * that equal grids are equal byte for byte. */
struct rsh_grid {
	uint32_t n_ranks;
	uint32_t n_dims;
	uint32_t split[RSH_MAX_DIMS]; /* slices of a dimension, including
				       * those of the optimizer shard */
	/* The axes that split dimension d, most significant first, are
	 * axes[first[d]] .. axes[first[d + 1] - 1]. */
	uint8_t first[RSH_MAX_DIMS + 1];
	struct rsh_grid_axis axes[RSH_GRID_MAX_AXES];
	/* The axes that split nothing, in mesh order.  A rank's position on
	 * them is replica * shard + (position in the optimizer shard). */
	uint32_t n_free;
	struct rsh_grid_axis free[RSH_GRID_MAX_AXES];
	uint32_t shard; /* optimizer shard size; 1: none */
};

/* Makes a copy of a grid.  NULL means out of memory. */
struct rsh_grid *rsh_grid_make(const struct rsh_grid *g);
/* Makes the grid of one rank that holds the whole tensor; n_dims <=
 * RSH_MAX_DIMS.  NULL means out of memory. */
struct rsh_grid *rsh_grid_make_whole(uint32_t n_dims);
void rsh_grid_free(struct rsh_grid *g);
RSH_GUARD(rsh_grid_guard_, struct rsh_grid, rsh_grid_free)
#define cleanup_grid __attribute__((cleanup(rsh_grid_guard_)))

/* Returns the size of the optimizer shard.  1 means that there is none, or that
 * it is an axis. */
static inline uint32_t rsh_grid_shard(const struct rsh_grid *g)
{
	return g->shard;
}

static inline uint32_t rsh_grid_n_dims(const struct rsh_grid *g)
{
	return g->n_dims;
}

static inline uint32_t rsh_grid_n_ranks(const struct rsh_grid *g)
{
	return g->n_ranks;
}

static inline uint32_t rsh_grid_split(const struct rsh_grid *g, uint32_t d)
{
	return g->split[d];
}

/* Sets `cell`, one number for each dimension, to the cell that a rank holds. */
void rsh_grid_cell(const struct rsh_grid *g, uint32_t rank, uint32_t *cell);

/* Return how many ranks hold each cell, and a rank's replica number.  The ranks
 * with one replica number together hold every cell once. */
uint32_t rsh_grid_n_replicas(const struct rsh_grid *g);
uint32_t rsh_grid_replica(const struct rsh_grid *g, uint32_t rank);
/* Returns the rank that holds `cell` as replica number `replica`. */
uint32_t rsh_grid_member(const struct rsh_grid *g, const uint32_t *cell,
			 uint32_t replica);

/* Numbers the ranks so that those that hold a cell are consecutive, in the
 * order of their replica numbers; place / n_replicas is the number of the
 * cell. */
uint32_t rsh_grid_place(const struct rsh_grid *g, uint32_t rank);

/* Returns whether both grids have the same axes and put every slice on the same
 * ranks. */
bool rsh_grid_equal(const struct rsh_grid *a, const struct rsh_grid *b);
/* Orders grids; 0 for equal ones. */
int rsh_grid_compare(const struct rsh_grid *a, const struct rsh_grid *b);
/* Returns whether both grids put the same slices on the same ranks, whatever
 * their axes. */
bool rsh_grid_same_slices(const struct rsh_grid *a, const struct rsh_grid *b);
