/* SPDX-License-Identifier: Apache-2.0 */
/* tensor/cut.h - how a tensor is divided into cells, and which rank holds which
 * cell.
 *
 * A cut has one of two forms behind one interface.  A grid (tensor/grid.h) is
 * even, knows ratios only and is shared by tensors of any size.  A list of
 * boxes, one for each rank, fits tensors of one size.  Ranks are numbered from
 * 0 as the source or the destination counts them; ranks with the same cell are
 * its replicas.  Cells of a grid are numbered in row-major order, those of a
 * list so that near ones have near numbers.
 *
 *   a grid of 2 x 2 over 8 ranks        boxes of a [6,4]
 *   +----+----+                         +--------+  cell 0: rows 0 and 1
 *   | 0  | 1  |  each with two          +---+----+  cell 1: [4,1] from (2,0)
 *   +----+----+  replicas               | 1 | 2  |  cell 2: [4,3] from (2,1)
 *   | 2  | 3  |                         |   |    |
 *   +----+----+                         +---+----+
 *
 * This is arithmetic, which knows no file and no framework.  A cut does not
 * change once it is made, so any thread may ask; whoever made it frees it.
 * `dims` is everywhere the size of the whole tensor in each dimension, and
 * `box`, `at` and cells are of that tensor.  Asking does not fail.
 */
#ifndef RSH_TENSOR_CUT_H
#define RSH_TENSOR_CUT_H

#include "rsh/tensor/grid.h"
#include "rsh/util/error.h"

struct rsh_cut;

/* Makes a cut of a grid, which it takes over, also on failure.  NULL means out
 * of memory. */
struct rsh_cut *rsh_cut_of_grid(struct rsh_grid *grid);
/* Makes a cut of boxes, which are copied; boxes[r] is what rank r holds.
 * Returns 0 and *out, -ENOMEM, or -EINVAL, with a sentence.  -EINVAL means that
 * a box does not have n_dims dimensions or leaves the tensor, or that the boxes
 * of two ranks have some elements in common and not all.  Elements may be in no
 * box. */
int rsh_cut_of_boxes(const uint64_t *dims, uint32_t n_dims,
		     const struct rsh_box *boxes, uint32_t n_ranks,
		     struct rsh_cut **out, struct rsh_error *err);
void rsh_cut_free(struct rsh_cut *c);

/* Returns the grid behind a cut, which the cut owns; NULL means that it is a
 * list of boxes. */
const struct rsh_grid *rsh_cut_grid(const struct rsh_cut *c);

uint32_t rsh_cut_n_ranks(const struct rsh_cut *c);
uint32_t rsh_cut_n_cells(const struct rsh_cut *c);
/* Tells whether all cells have all of dimension d, from 0 to dims[d]. */
bool rsh_cut_is_whole(const struct rsh_cut *c, const uint64_t *dims,
		      uint32_t d);

/* These tell the cell that a rank holds, how many ranks hold a cell, and which
 * of the ranks is its replica number `replica`.  Of a grid, a rank beyond the
 * mesh counts as the rank modulo the size of the mesh; a list has no such
 * rank. */
uint32_t rsh_cut_cell(const struct rsh_cut *c, uint32_t rank);
uint32_t rsh_cut_n_replicas(const struct rsh_cut *c, uint32_t cell);
uint32_t rsh_cut_member(const struct rsh_cut *c, uint32_t cell,
			uint32_t replica);
/* Returns the number of the replica that rank `like` of the other side prefers,
 * of any cell.  Of a grid it is the replica that stands where `like` stands on
 * the axes that do not split the tensor, which is the copy that MindSpore's
 * converter reads; of a list it is the first one. */
uint32_t rsh_cut_replica(const struct rsh_cut *c, uint32_t like);

/* Numbers the ranks so that those of a cell follow each other, in the order of
 * their replica numbers.  The first function tells a rank's number, the second
 * where the ranks of a cell begin. */
uint32_t rsh_cut_place(const struct rsh_cut *c, uint32_t rank);
uint32_t rsh_cut_first_place(const struct rsh_cut *c, uint32_t cell);

/* Puts the box of a cell into *out. */
void rsh_cut_box(const struct rsh_cut *c, const uint64_t *dims, uint32_t cell,
		 struct rsh_box *out);
/* Finds the cell that has the element at these indexes, and its box.  Returns
 * false if no cell has it, which only happens with a list. */
bool rsh_cut_find(const struct rsh_cut *c, const uint64_t *dims,
		  const uint64_t *at, uint32_t *cell, struct rsh_box *box);
/* Returns how many cells have elements of `box`, and calls `each`, unless it is
 * NULL, with each of them in ascending order. */
typedef void rsh_cell_fn(void *ctx, uint32_t cell);
uint64_t rsh_cut_overlap(const struct rsh_cut *c, const uint64_t *dims,
			 const struct rsh_box *box, rsh_cell_fn *each,
			 void *ctx);
/* Tells whether some elements of `box` are in no cell, and if so puts a box of
 * such elements into *gap.  Only a list has gaps. */
bool rsh_cut_gap(const struct rsh_cut *c, const struct rsh_box *box,
		 struct rsh_box *gap);

/* Orders cuts, for those who look them up.  It is 0 if both have the same cells
 * and put each on the same ranks; a grid equals only a grid, and one over the
 * same axes, and a list with gaps no list that has none. */
int rsh_cut_compare(const struct rsh_cut *a, const struct rsh_cut *b);

#endif
