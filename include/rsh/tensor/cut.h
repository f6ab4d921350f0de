/* SPDX-License-Identifier: Apache-2.0 */
/* tensor/cut.h - a cut: how a tensor is divided into cells, and which rank
 * holds which cell.
 *
 * A cut is a grid or a list of boxes.  A grid (tensor/grid.h) is even and
 * stores ratios only, so that tensors of any size share it.  A list of boxes,
 * one for each rank, fits tensors of one size.  Ranks are numbered from 0 as in
 * the source or the destination; ranks with the same cell are its replicas.
 * Cells of a grid are numbered in row-major order, cells of a list along a
 * curve that keeps neighbours close.
 *
 *   a grid of 2 x 2 over 8 ranks        boxes of a [6,4]
 *   +----+----+                         +--------+  cell 0: rows 0 and 1
 *   | 0  | 1  |  each with two          +---+----+  cell 1: [4,1] from (2,0)
 *   +----+----+  replicas               | 1 | 2  |  cell 2: [4,3] from (2,1)
 *   | 2  | 3  |                         |   |    |
 *   +----+----+                         +---+----+
 *
 * This is arithmetic.  A cut is immutable, so any thread may use it; the caller
 * that made it frees it.  `dims` is always the size of the whole tensor in each
 * dimension; `box`, `at` and cells are of that tensor.  Only functions that
 * make a cut can fail.
 */
#pragma once

#include "rsh/tensor/grid.h"
#include "rsh/util/error.h"

struct rsh_cut;

/* Makes a cut of a grid, and takes ownership of the grid even on failure.  NULL
 * means out of memory. */
struct rsh_cut *rsh_cut_of_grid(struct rsh_grid *grid);
/* Makes a cut of boxes, which are copied; boxes[r] is what rank r holds.
 * Returns 0 and *out, -ENOMEM, or -EINVAL, with a sentence.  -EINVAL: a box
 * does not have n_dims dimensions or exceeds the tensor, or two different boxes
 * overlap.  An element may be in no box. */
int rsh_cut_of_boxes(const uint64_t *dims, uint32_t n_dims,
		     const struct rsh_box *boxes, uint32_t n_ranks,
		     struct rsh_cut **out, struct rsh_error *err);
void rsh_cut_free(struct rsh_cut *c);

/* Returns the grid, which the cut owns; NULL if the cut is a list of boxes. */
const struct rsh_grid *rsh_cut_grid(const struct rsh_cut *c);

uint32_t rsh_cut_n_ranks(const struct rsh_cut *c);
uint32_t rsh_cut_n_cells(const struct rsh_cut *c);
/* Returns whether no cell is cut in dimension d. */
bool rsh_cut_is_whole(const struct rsh_cut *c, const uint64_t *dims,
		      uint32_t d);

/* Return the cell that a rank holds, how many ranks hold a cell, and the rank
 * that holds its replica number `replica`.  In a grid, ranks count modulo the
 * size of the mesh; in a list `rank` must exist. */
uint32_t rsh_cut_cell(const struct rsh_cut *c, uint32_t rank);
uint32_t rsh_cut_n_replicas(const struct rsh_cut *c, uint32_t cell);
uint32_t rsh_cut_member(const struct rsh_cut *c, uint32_t cell,
			uint32_t replica);
/* Returns the number of the replica (of any cell) that rank `like` of the
 * destination reads.  In a grid it is the replica with the coordinates of
 * `like` on the axes that do not split the tensor, as in MindSpore's converter;
 * in a list it is the first one. */
uint32_t rsh_cut_replica(const struct rsh_cut *c, uint32_t like);

/* Number the ranks so that those of a cell are consecutive, in the order of
 * their replica numbers.  The first function returns a rank's number, the
 * second the lowest number of a cell. */
uint32_t rsh_cut_place(const struct rsh_cut *c, uint32_t rank);
uint32_t rsh_cut_first_place(const struct rsh_cut *c, uint32_t cell);

/* Puts the box of a cell into *out. */
void rsh_cut_box(const struct rsh_cut *c, const uint64_t *dims, uint32_t cell,
		 struct rsh_box *out);
/* Finds the cell that contains the element at these indexes, and its box.
 * Returns false if there is none, which only happens in a list. */
bool rsh_cut_find(const struct rsh_cut *c, const uint64_t *dims,
		  const uint64_t *at, uint32_t *cell, struct rsh_box *box);
/* Returns how many cells overlap `box`, and calls `each`, unless it is NULL,
 * for each of them in ascending order. */
typedef void rsh_cell_fn(void *ctx, uint32_t cell);
uint64_t rsh_cut_overlap(const struct rsh_cut *c, const uint64_t *dims,
			 const struct rsh_box *box, rsh_cell_fn *each,
			 void *ctx);
/* Returns whether some elements of `box` are in no cell, and if so puts a box
 * of such elements into *gap.  Only a list has gaps. */
bool rsh_cut_gap(const struct rsh_cut *c, const struct rsh_box *box,
		 struct rsh_box *gap);

/* Orders cuts.  Returns 0 if both have the same cells on the same ranks.  A
 * grid only equals a grid over the same axes; a list with gaps does not equal
 * one without. */
int rsh_cut_compare(const struct rsh_cut *a, const struct rsh_cut *b);
