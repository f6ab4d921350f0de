/* SPDX-License-Identifier: Apache-2.0 */
/* strategy/grid_i.h - inside of a grid, for the files of strategy/ only. */
#ifndef RSH_STRATEGY_GRID_I_H
#define RSH_STRATEGY_GRID_I_H

#include "rsh/strategy/grid.h"

/* Mesh axes of size 1 are dropped, so a mesh of fewer than 2^31 ranks has at
 * most 30 axes; the converter's rule adds two. */
#define RSH_MAX_AXES 32

struct rsh_axis {
	uint32_t size;   /* >= 2 */
	uint32_t stride; /* ranks between two neighbours on this axis */
};

struct rsh_grid {
	uint32_t n_ranks;
	uint32_t n_dims;
	uint32_t split[RSH_MAX_DIMS]; /* slices a dimension, shard included */
	/* Axes that split dimension d, most significant first:
	 * axes[first[d]] .. axes[first[d + 1] - 1]. */
	uint8_t first[RSH_MAX_DIMS + 1];
	struct rsh_axis axes[RSH_MAX_AXES];
	/* Axes that split nothing, in mesh order; a rank's position among them
	 * is replica * shard + (place in the optimizer shard). */
	uint32_t n_free;
	struct rsh_axis free[RSH_MAX_AXES];
	uint32_t shard; /* optimizer shard size; 1: none */
};

/* Which map entries make up each dimension. */
struct rsh_fold {
	uint32_t first[RSH_MAX_DIMS + 1]; /* entries first[d]..first[d+1]-1 */
};

/* Folds an expanded map back onto n_dims dimensions; with as many entries as
 * dimensions that is the identity.  `dims` and `dims_are_local` as in
 * rsh_grid_new(); `shard` is the optimizer shard size that divides dimension 0
 * of a local shape.  0 or -EINVAL with a sentence. */
int rsh_fold_map(const struct rsh_strategy_item *item, const int64_t *dims,
		 uint32_t n_dims, bool dims_are_local, uint32_t shard,
		 struct rsh_fold *out, struct rsh_error *err);

/* Slices that one map entry makes. */
uint32_t rsh_map_entry_split(const struct rsh_strategy_item *item,
			     const struct rsh_map_entry *e);

/* Does the converter take its "simple" way for this item, if it is sharded? */
bool rsh_item_is_simple(const struct rsh_strategy_item *item);

#endif
