/* SPDX-License-Identifier: Apache-2.0 */
/* strategy/grid.h - how one parameter is cut into equal slices over the ranks
 * of a pipeline stage.
 *
 * The mesh (dev_matrix) is row-major over the stage's local ranks, last axis
 * fastest.  Dimension d of the tensor is split over an ordered list of mesh
 * axes, most significant first; an optimizer shard splits dimension 0 once
 * more, over the ranks that the tensor map leaves equal.  All slices have the
 * same shape, so a slice is named by one number a dimension ("cell"), and the
 * ranks that hold one cell are its replicas.
 *
 * Pure arithmetic, no I/O; immutable after creation, so any thread may read.
 */
#ifndef RSH_STRATEGY_GRID_H
#define RSH_STRATEGY_GRID_H

#include <stdbool.h>
#include <stdint.h>

#include "rsh/util/error.h"
#include "rsh/wire/ckpt.h"
#include "rsh/wire/strategy_file.h"

struct rsh_grid;

/* Is told the key of a source file: its rank within its stage. */
typedef void rsh_key_fn(void *ctx, uint32_t key);

enum rsh_grid_rule {
	/* As the ranks of a training job really hold the slices. */
	RSH_GRID_RUNTIME,
	/* As MindSpore's converter believes they do.  The two differ for an
	 * optimizer shard whose only replicated mesh axis is the first one and
	 * whose tensor map lists two or more mesh axes out of mesh order: there
	 * the converter silently misplaces data (releases 2.3 to 2.10). */
	RSH_GRID_CONVERTER,
};

/* The grid of `item` for a tensor whose dimensions are known on one side:
 * `dims` are those of a slice if `dims_are_local`, else those of the whole
 * tensor.  An expanded map (more entries than dimensions, as JSON files hold
 * it) is folded back onto the dimensions with the help of the item's shape.
 * 0 and *out, or -EINVAL with a sentence: map and dimensions do not fit, a
 * whole dimension does not divide, the shard does not fit the mesh, the shape
 * written in the strategy is another one. */
int rsh_grid_new(const struct rsh_strategy_item *item, const int64_t *dims,
		 uint32_t n_dims, bool dims_are_local, enum rsh_grid_rule rule,
		 struct rsh_grid **out, struct rsh_error *err);
/* The grid of `item` for a tensor of which nothing is known: only where its
 * slices lie may be asked of it, not how large they are. */
int rsh_grid_new_unsized(const struct rsh_strategy_item *item,
			 struct rsh_grid **out, struct rsh_error *err);
/* One device that holds the whole tensor. */
int rsh_grid_new_whole(uint32_t n_dims, struct rsh_grid **out,
		       struct rsh_error *err);
void rsh_grid_free(struct rsh_grid *g);

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
