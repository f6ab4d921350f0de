/* SPDX-License-Identifier: Apache-2.0 */
/* strategy/grid.h makes the grid or the cut of a layout, which says how one
 * parameter is cut over the ranks of a stage.
 *
 * tensor/grid.h defines grids, and has the function that frees one.  This is
 * arithmetic without I/O or state, so any thread may call it.  Functions return
 * 0 and *out, which the caller frees, or -EINVAL or -ENOMEM with a sentence.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "rsh/tensor/cut.h"
#include "rsh/tensor/grid.h"
#include "rsh/util/error.h"
#include "rsh/wire/strategy_file.h"

enum rsh_grid_rule {
	/* Slices are placed as the ranks of a training job hold them. */
	RSH_GRID_RUNTIME,
	/* Slices are placed as MindSpore's converter assumes.  The two rules
	 * differ for an optimizer shard whose only replicated mesh axis is the
	 * first one and whose tensor map lists two or more mesh axes in another
	 * order than the mesh: in this case the converter misplaces data
	 * without an error (releases 2.3 to 2.10). */
	RSH_GRID_CONVERTER,
};

/* The dimensions of a slice (local) or of the whole tensor. */
struct rsh_grid_sizes {
	const int64_t *dims;
	uint32_t n_dims;
	bool local;
};

/* Makes the grid of `item` for a tensor of these sizes.  An expanded map (with
 * more entries than dimensions, as in JSON files) is folded back onto the
 * dimensions with the item's shape.  -EINVAL means that map and dimensions do
 * not fit, a dimension of the whole tensor cannot be divided, the shard does
 * not fit the mesh, the strategy has another shape, or its rows are split by
 * hand. */
int rsh_grid_new(const struct rsh_strategy_item *item,
		 const struct rsh_grid_sizes *sizes, enum rsh_grid_rule rule,
		 struct rsh_grid **out, struct rsh_error *err);
/* Compares dimension d of the whole tensor with the shape in the strategy, if
 * it is known.  Returns 0, or -EINVAL with a sentence. */
int rsh_item_check_shape(const struct rsh_strategy_item *item, uint32_t n_dims,
			 uint32_t d, uint64_t whole, struct rsh_error *err);
/* Sets the sizes of the whole tensor from dimension `first` on, and compares
 * them with the strategy, given the slices of each dimension.  Returns 0, or
 * -EINVAL with a sentence. */
int rsh_item_check_dims(const struct rsh_strategy_item *item,
			const struct rsh_grid_sizes *sizes,
			const uint32_t *split, uint32_t first, uint64_t *whole,
			struct rsh_error *err);
/* Returns how the rows of `item` are split, given the slices of each dimension:
 * 0 if evenly, 1 if manually (param_split_shape of manual_split), or -EINVAL
 * with a sentence if param_split_shape is neither the rows of each slice nor
 * the shape of the tensor or of its slice. */
int rsh_item_rows(const struct rsh_strategy_item *item,
		  const struct rsh_grid_sizes *sizes, const uint32_t *split,
		  struct rsh_error *err);
/* Makes the cut of `item` for a tensor of these sizes: boxes if its rows are
 * split manually, else a grid as rsh_grid_new() does.  whole[d] becomes the
 * size of dimension d of the whole tensor. */
int rsh_item_cut(const struct rsh_strategy_item *item,
		 const struct rsh_grid_sizes *sizes, enum rsh_grid_rule rule,
		 struct rsh_cut **out, uint64_t *whole, struct rsh_error *err);
/* If the rows of `item` are split manually, makes the grid of the positions of
 * its slices, whose sizes may not be used.  Otherwise *out is NULL. */
int rsh_item_manual(const struct rsh_strategy_item *item,
		    const struct rsh_grid_sizes *sizes, struct rsh_grid **out,
		    struct rsh_error *err);
/* Returns how many rows a rank has.  `positions` are from rsh_item_manual(). */
int64_t rsh_item_rank_rows(const struct rsh_strategy_item *item,
			   const struct rsh_grid *positions, uint32_t rank);
/* Makes the grid of `item` for a tensor of unknown size.  Only the positions of
 * its slices may be used, not their sizes. */
int rsh_grid_new_unsized(const struct rsh_strategy_item *item,
			 struct rsh_grid **out, struct rsh_error *err);
/* Makes the grid of one rank that holds the whole tensor. */
int rsh_grid_new_whole(uint32_t n_dims, struct rsh_grid **out,
		       struct rsh_error *err);
/* These are the ranks that hold the same slice by the tensor map, and their
 * position in the mesh. */
struct rsh_repeated {
	uint32_t group;  /* ranks with the same slice */
	uint32_t n_axes; /* mesh axes of size > 1 that split nothing */
	uint32_t first;  /* the first of these axes, in the order of the file */
	uint32_t stride; /* distance of two neighbours on that axis, in ranks */
	uint32_t last;   /* distance of the last rank from the first */
};
struct rsh_repeated rsh_item_repeated(const struct rsh_strategy_item *item);
/* Returns whether the converter uses its "simple" method for this item if it is
 * sharded: it then builds its own mesh, as RSH_GRID_CONVERTER does. */
bool rsh_item_is_simple(const struct rsh_strategy_item *item);

/* ---- folding a tensor map ---- */

/* A mesh that a file lists has at most this many axes. */
#define RSH_MAX_AXES RSH_GRID_MAX_AXES

/* This says which map entries belong to each dimension. */
struct rsh_fold {
	uint32_t first[RSH_MAX_DIMS + 1]; /* dimension d has the entries
					   * first[d] .. first[d+1]-1 */
};

/* Folds an expanded map back onto the dimensions; a map with as many entries as
 * dimensions is not changed.  `shard` is the size of the optimizer shard, which
 * cuts dimension 0 again.  Returns 0, or -EINVAL with a sentence if the map
 * does not fit the dimensions, or fits them in several ways. */
int rsh_fold_map(const struct rsh_strategy_item *item,
		 const struct rsh_grid_sizes *sizes, uint32_t shard,
		 struct rsh_fold *out, struct rsh_error *err);
