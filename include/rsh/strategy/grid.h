/* SPDX-License-Identifier: Apache-2.0 */
/* strategy/grid.h - the grid that a layout makes: how one parameter is cut over
 * the ranks of a pipeline stage.
 *
 * tensor/grid.h says what a grid is.
 *
 * Pure arithmetic, no I/O; immutable after creation, so any thread may read.
 */
#ifndef RSH_STRATEGY_GRID_H
#define RSH_STRATEGY_GRID_H

#include <stdbool.h>
#include <stdint.h>

#include "rsh/tensor/grid.h"
#include "rsh/util/error.h"
#include "rsh/wire/strategy_file.h"

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
/* Does the converter take its "simple" way for this item, if it is sharded? */
bool rsh_item_is_simple(const struct rsh_strategy_item *item);

#endif
