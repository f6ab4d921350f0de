/* SPDX-License-Identifier: Apache-2.0 */
/* tensor/box.h - a box: the part of a tensor that begins at an index and has a
 * size in each dimension.  This is arithmetic; any thread may call it. */
#ifndef RSH_TENSOR_BOX_H
#define RSH_TENSOR_BOX_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* MindSpore allows 8 dimensions; a record of more than 32 is taken for
 * damaged. */
#define RSH_MAX_DIMS 32

struct rsh_box {
	uint32_t n_dims;
	uint64_t from[RSH_MAX_DIMS];
	uint64_t size[RSH_MAX_DIMS];
};

/* Puts into *out what two boxes of the same tensor have in common.  Returns
 * false if that is nothing; *out is then undefined.  A box without elements has
 * nothing in common with any other. */
bool rsh_box_meet(const struct rsh_box *a, const struct rsh_box *b,
		  struct rsh_box *out);
/* Tells whether the element at these indexes, one for each dimension, is
 * inside. */
bool rsh_box_has(const struct rsh_box *b, const uint64_t *at);
/* Counts its elements, where it is known that they can be. */
uint64_t rsh_box_elements(const struct rsh_box *b);
/* Writes sizes or an index for messages, "[4,2]"; cut if it does not fit.
 * Returns text. */
const char *rsh_dims_text(const uint64_t *dims, uint32_t n, char *text,
			  size_t size);
/* Writes a box for messages, as numpy writes a slice: "[4:8,0:4]", "[]" of a
 * scalar; cut if it does not fit.  Returns text. */
const char *rsh_box_text(const struct rsh_box *b, char *text, size_t size);

#endif
