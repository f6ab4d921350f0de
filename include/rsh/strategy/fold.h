/* SPDX-License-Identifier: Apache-2.0 */
/* strategy/fold.h - which entries of a tensor map make up which dimension of a
 * tensor.  This is arithmetic; any thread may call it. */
#ifndef RSH_STRATEGY_FOLD_H
#define RSH_STRATEGY_FOLD_H

#include "rsh/strategy/grid.h"

/* A mesh that a file lists has at most this many axes. */
#define RSH_MAX_AXES RSH_GRID_MAX_AXES

/* This says which map entries make up each dimension. */
struct rsh_fold {
	uint32_t first[RSH_MAX_DIMS + 1]; /* d has first[d] .. first[d+1]-1 */
};

/* Folds an expanded map back onto n_dims dimensions; a map with as many entries
 * as dimensions stays as it is.  `dims` and `dims_are_local` are as in
 * rsh_grid_new(); `shard` is the size of the optimizer shard, which cuts
 * dimension 0 once more.  Returns 0, or -EINVAL with a sentence if the map does
 * not fit the dimensions, or fits them in several ways. */
int rsh_fold_map(const struct rsh_strategy_item *item, const int64_t *dims,
		 uint32_t n_dims, bool dims_are_local, uint32_t shard,
		 struct rsh_fold *out, struct rsh_error *err);

/* Returns how many slices one map entry makes. */
uint32_t rsh_map_entry_split(const struct rsh_strategy_item *item,
			     const struct rsh_map_entry *e);

#endif
