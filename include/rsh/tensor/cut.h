/* SPDX-License-Identifier: Apache-2.0 */
/* tensor/cut.h - how a tensor is divided into cells, and which rank holds which
 * cell.
 *
 * There are two forms behind one interface: an even grid (tensor/grid.h), which
 * knows ratios only and is shared by tensors of any size, and a list of boxes,
 * one a rank, which fit tensors of one size.  Ranks are numbered from 0 as the
 * source or the destination counts them; ranks with the same cell are its
 * replicas.  A cell of a grid is numbered in row-major order of the cells, one
 * of a list in the order in which
 * the boxes lie in the tensor.
 *
 *   a grid of 2 x 2 over 8 ranks        boxes of a [6,4]
 *   +----+----+                         +--------+  cell 0: rows 0 and 1
 *   | 0  | 1  |  each with two          +---+----+  cell 1: [4,1] from (2,0)
 *   +----+----+  replicas               | 1 | 2  |  cell 2: [4,3] from (2,1)
 *   | 2  | 3  |                         |   |    |
 *   +----+----+                         +---+----+
 *
 * This is arithmetic, which knows no file and no framework.  A cut is immutable
 * once made; any thread may ask.  `dims` is the size of the whole tensor in each
 * dimension.
 */
#ifndef RSH_TENSOR_CUT_H
#define RSH_TENSOR_CUT_H

#include "rsh/tensor/grid.h"
#include "rsh/util/error.h"

struct rsh_cut;

/* Takes the grid over, also on failure.  NULL: out of memory. */
struct rsh_cut *rsh_cut_of_grid(struct rsh_grid *grid);
/* boxes[r] is what rank r holds; they are copied.  0 and *out, -ENOMEM, or
 * -EINVAL with a sentence: a box leaves the tensor, or the boxes of two ranks
 * have some elements in common and not all.  Elements may be in no box. */
int rsh_cut_of_boxes(const uint64_t *dims, uint32_t n_dims,
		     const struct rsh_box *boxes, uint32_t n_ranks,
		     struct rsh_cut **out, struct rsh_error *err);
void rsh_cut_free(struct rsh_cut *c);

/* The grid behind a cut; NULL: it is a list of boxes. */
const struct rsh_grid *rsh_cut_grid(const struct rsh_cut *c);

uint32_t rsh_cut_n_dims(const struct rsh_cut *c);
uint32_t rsh_cut_n_ranks(const struct rsh_cut *c);
uint32_t rsh_cut_n_cells(const struct rsh_cut *c);
/* Is dimension d the same in all cells, from 0 to dims[d]? */
bool rsh_cut_is_whole(const struct rsh_cut *c, const uint64_t *dims,
		      uint32_t d);

/* The cell that a rank holds, and the ranks that hold a cell.  A rank beyond
 * those of the mesh of a grid is one modulo their number. */
uint32_t rsh_cut_cell(const struct rsh_cut *c, uint32_t rank);
uint32_t rsh_cut_n_replicas(const struct rsh_cut *c, uint32_t cell);
uint32_t rsh_cut_member(const struct rsh_cut *c, uint32_t cell,
			uint32_t replica);
/* Which of the ranks that hold a cell is preferred by rank `like` of the other
 * side: of a grid the one that stands where `like` stands on the axes that do
 * not split the tensor, which is the copy that MindSpore's converter reads; of a
 * list the first. */
uint32_t rsh_cut_replica(const struct rsh_cut *c, uint32_t like);

/* Numbers the ranks so that those of a cell follow each other, in the order of
 * their replica numbers, and says where a cell begins. */
uint32_t rsh_cut_place(const struct rsh_cut *c, uint32_t rank);
uint32_t rsh_cut_first_place(const struct rsh_cut *c, uint32_t cell);

/* The box of a cell. */
void rsh_cut_box(const struct rsh_cut *c, const uint64_t *dims, uint32_t cell,
		 struct rsh_box *out);
/* The cell that has the element at these indexes, and its box.  False: none has
 * (of a list). */
bool rsh_cut_find(const struct rsh_cut *c, const uint64_t *dims,
		  const uint64_t *at, uint32_t *cell, struct rsh_box *box);
/* How many cells have elements of `box`; `each`, unless it is NULL, is told
 * them in ascending order. */
typedef void rsh_cell_fn(void *ctx, uint32_t cell);
uint64_t rsh_cut_overlap(const struct rsh_cut *c, const uint64_t *dims,
			 const struct rsh_box *box, rsh_cell_fn *each,
			 void *ctx);

/* True if both cut the same way and put every cell on the same ranks. */
bool rsh_cut_equal(const struct rsh_cut *a, const struct rsh_cut *b);

#endif
