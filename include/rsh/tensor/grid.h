/* SPDX-License-Identifier: Apache-2.0 */
/* tensor/grid.h - an even grid: a tensor cut into equal slices over the ranks
 * of a mesh.
 *
 * The mesh is row-major over its ranks, last axis fastest.  Dimension d of the
 * tensor is split over an ordered list of mesh axes, most significant first;
 * an optimizer shard splits dimension 0 once more, over the ranks that these
 * leave equal.  All slices have the same shape, so a slice is named by one
 * number a dimension ("cell"), and the ranks that hold one cell are its
 * replicas.  A grid knows ratios only: tensors of any size share it.
 *
 * Pure arithmetic; immutable after creation, so any thread may read.
 */
#ifndef RSH_TENSOR_GRID_H
#define RSH_TENSOR_GRID_H

#include <stdbool.h>
#include <stdint.h>

#include "rsh/tensor/box.h"

struct rsh_grid;

/* Is told a rank of the mesh. */
typedef void rsh_key_fn(void *ctx, uint32_t key);

/* A mesh of fewer than 2^31 ranks has at most 30 axes of more than one rank;
 * the rule of MindSpore's converter adds two. */
#define RSH_GRID_MAX_AXES 32

struct rsh_grid_axis {
	uint32_t size;   /* >= 2 */
	uint32_t stride; /* ranks between two neighbours on this axis */
};

/* What a grid is made of.  The product of all sizes is n_ranks. */
struct rsh_grid_spec {
	uint32_t n_ranks;
	uint32_t n_dims;
	uint32_t split[RSH_MAX_DIMS]; /* slices a dimension, shard included */
	/* Axes that split dimension d, most significant first:
	 * axes[first[d]] .. axes[first[d + 1] - 1]. */
	uint8_t first[RSH_MAX_DIMS + 1];
	struct rsh_grid_axis axes[RSH_GRID_MAX_AXES];
	/* Axes that split nothing, in mesh order; a rank's position among them
	 * is replica * shard + (place in the optimizer shard). */
	uint32_t n_free;
	struct rsh_grid_axis free[RSH_GRID_MAX_AXES];
	uint32_t shard; /* optimizer shard size; 1: none */
};

/* The spec comes from calloc or an initializer, so that equal ones are equal
 * byte for byte; it is copied.  NULL: out of memory. */
struct rsh_grid *rsh_grid_make(const struct rsh_grid_spec *spec);
/* One device that holds the whole tensor; n_dims <= RSH_MAX_DIMS. */
struct rsh_grid *rsh_grid_make_whole(uint32_t n_dims);
void rsh_grid_free(struct rsh_grid *g);

/* Size of the optimizer shard; 1: none, or one that is cut like any axis. */
uint32_t rsh_grid_shard(const struct rsh_grid *g);
uint32_t rsh_grid_n_dims(const struct rsh_grid *g);
/* Number of ranks of the mesh. */
uint32_t rsh_grid_n_ranks(const struct rsh_grid *g);
/* Into how many slices dimension d is cut, optimizer shard included. */
uint32_t rsh_grid_split(const struct rsh_grid *g, uint32_t d);

/* The cell that local rank `rank` holds, one number a dimension. */
void rsh_grid_cell(const struct rsh_grid *g, uint32_t rank, uint32_t *cell);

/* A rank that holds `cell`: of its replicas the one whose coordinates on the
 * mesh axes that do not split the tensor are those of rank `like`.  (That is
 * the copy MindSpore's converter reads for its destination rank `like` modulo
 * the number of source ranks.) */
uint32_t rsh_grid_holder(const struct rsh_grid *g, const uint32_t *cell,
			 uint32_t like);

/* How many ranks hold each cell, and which of these a rank is: ranks of one
 * replica number together hold every cell once. */
uint32_t rsh_grid_n_replicas(const struct rsh_grid *g);
uint32_t rsh_grid_replica(const struct rsh_grid *g, uint32_t rank);
/* The rank that holds `cell` as replica number `replica`. */
uint32_t rsh_grid_member(const struct rsh_grid *g, const uint32_t *cell,
			 uint32_t replica);

/* Numbers the ranks so that those which hold one cell follow each other, in the
 * order of their replica numbers: place / n_replicas numbers the cells. */
uint32_t rsh_grid_place(const struct rsh_grid *g, uint32_t rank);

/* True if both cut the same way and put every slice on the same ranks, by the
 * same axes. */
bool rsh_grid_equal(const struct rsh_grid *a, const struct rsh_grid *b);
/* The same whatever the axes: one mesh may be drawn in several ways. */
bool rsh_grid_same_slices(const struct rsh_grid *a, const struct rsh_grid *b);

#endif
