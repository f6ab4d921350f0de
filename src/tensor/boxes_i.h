/* SPDX-License-Identifier: Apache-2.0 */
/* tensor/boxes_i.h - a cut as a list of boxes, for the files of tensor/
 * only. */
#pragma once

#include "rsh/tensor/cut.h"

/* Edges of a box: its begin in each dimension, then its end in each dimension.
 * The arrays are in the same piece of memory. */
struct rsh_boxes {
	uint32_t n_dims;
	uint32_t n_ranks;
	uint32_t n_cells;
	bool complete;        /* every element is in a cell */
	uint64_t *edges;      /* [cell] */
	uint64_t *bounds;     /* [node]: edges around its cells (boxes.c) */
	uint32_t *first_rank; /* [n_cells + 1]: index in `ranks` */
	uint32_t *ranks;      /* by cell, ascending */
	uint32_t *cell_of;    /* [rank] */
	uint32_t *place_of;   /* [rank]: its index in `ranks` */
};

/* These functions do what the functions of tensor/cut.h with similar names
 * do. */
int rsh_boxes_make(const uint64_t *dims, uint32_t n_dims,
		   const struct rsh_box *boxes, uint32_t n_ranks,
		   struct rsh_boxes **out, struct rsh_error *err);
void rsh_boxes_free(struct rsh_boxes *b);
void rsh_boxes_get(const struct rsh_boxes *b, uint32_t cell,
		   struct rsh_box *out);
bool rsh_boxes_is_whole(const struct rsh_boxes *b, const uint64_t *dims,
			uint32_t d);
bool rsh_boxes_find(const struct rsh_boxes *b, const uint64_t *at,
		    uint32_t *cell, struct rsh_box *box);
uint64_t rsh_boxes_overlap(const struct rsh_boxes *b, const struct rsh_box *box,
			   rsh_cell_fn *each, void *ctx);
bool rsh_boxes_gap(const struct rsh_boxes *b, const struct rsh_box *box,
		   struct rsh_box *gap);
int rsh_boxes_compare(const struct rsh_boxes *a, const struct rsh_boxes *b);
