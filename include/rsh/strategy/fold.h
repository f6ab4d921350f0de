/* SPDX-License-Identifier: Apache-2.0 */
/* strategy/fold.h - which entries of a tensor map make up which dimension.  Pure
 * arithmetic. */
#ifndef RSH_STRATEGY_FOLD_H
#define RSH_STRATEGY_FOLD_H

#include "rsh/strategy/grid.h"

/* A mesh that a file lists has at most so many axes. */
#define RSH_MAX_AXES RSH_GRID_MAX_AXES

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

#endif
