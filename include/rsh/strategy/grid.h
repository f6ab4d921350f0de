/* SPDX-License-Identifier: Apache-2.0 */
/* strategy/grid.h - the grid that a layout makes: how one parameter is cut over
 * the ranks of a stage.
 *
 * tensor/grid.h says what a grid is; it also has the function that frees one.
 * This is arithmetic without I/O or state, so any thread may call it.
 * Functions return 0 and *out, which the caller frees, or -EINVAL or -ENOMEM
 * with a sentence.
 */
#ifndef RSH_STRATEGY_GRID_H
#define RSH_STRATEGY_GRID_H

#include <stdbool.h>
#include <stdint.h>

#include "rsh/tensor/grid.h"
#include "rsh/util/error.h"
#include "rsh/wire/strategy_file.h"

enum rsh_grid_rule {
	/* The slices lie as the ranks of a training job really hold them. */
	RSH_GRID_RUNTIME,
	/* The slices lie as MindSpore's converter believes.  The two rules
	 * differ for an optimizer shard whose only replicated mesh axis is the
	 * first one and whose tensor map lists two or more mesh axes out of
	 * mesh order: there the converter silently misplaces data (releases 2.3
	 * to 2.10). */
	RSH_GRID_CONVERTER,
};

/* Makes the grid of `item` for a tensor whose dimensions are known on one side:
 * `dims` are those of a slice if `dims_are_local`, else those of the whole
 * tensor.  An expanded map (with more entries than dimensions, as JSON files
 * hold it) is folded back onto the dimensions with the help of the item's
 * shape.  -EINVAL means that map and dimensions do not fit, a whole dimension
 * does not divide, the shard does not fit the mesh, or the strategy gives
 * another shape. */
int rsh_grid_new(const struct rsh_strategy_item *item, const int64_t *dims,
		 uint32_t n_dims, bool dims_are_local, enum rsh_grid_rule rule,
		 struct rsh_grid **out, struct rsh_error *err);
/* Makes the grid of `item` for a tensor of which nothing is known.  It may be
 * asked only where its slices lie, not how large they are. */
int rsh_grid_new_unsized(const struct rsh_strategy_item *item,
			 struct rsh_grid **out, struct rsh_error *err);
/* Makes the grid of one rank that holds the whole tensor. */
int rsh_grid_new_whole(uint32_t n_dims, struct rsh_grid **out,
		       struct rsh_error *err);
/* Tells whether the converter takes its "simple" way for this item, if it is
 * sharded: it then rebuilds the mesh, which RSH_GRID_CONVERTER follows. */
bool rsh_item_is_simple(const struct rsh_strategy_item *item);

/* ---- how entries of a tensor map make up dimensions ---- */

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
