/* SPDX-License-Identifier: Apache-2.0 */
/* tensor/box.h - a box: a part of a tensor with an offset and a size in each
 * dimension.  This is arithmetic; any thread may call it. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

/* MindSpore allows 8 dimensions; a record with more than 32 counts as
 * damaged. */
#define RSH_MAX_DIMS 32

struct rsh_box {
	uint32_t n_dims;
	uint64_t from[RSH_MAX_DIMS];
	uint64_t size[RSH_MAX_DIMS];
};

/* Returns the box of a whole tensor. */
struct rsh_box rsh_box_whole(const uint64_t *dims, uint32_t n_dims);
/* Puts the intersection of two boxes of a tensor into *out.  Returns false, and
 * *out is undefined, if it is empty. */
bool rsh_box_meet(const struct rsh_box *a, const struct rsh_box *b,
		  struct rsh_box *out);
/* Returns the number of elements, which must fit. */
uint64_t rsh_box_elements(const struct rsh_box *b);
/* Returns whether two tensors have the same dimensions. */
static inline bool rsh_dims_equal(const uint64_t *a, uint32_t n_a,
				  const uint64_t *b, uint32_t n_b)
{
	return n_a == n_b &&
	       (n_a == 0 || memcmp(a, b, n_a * sizeof(*a)) == 0);
}
/* Formats sizes or indexes for messages, "[4,2]"; cut if too long.  Returns
 * text. */
const char *rsh_dims_text(const uint64_t *dims, uint32_t n, char *text,
			  size_t size);
/* Formats a box for messages as a slice of numpy: "[4:8,0:4]", "[]" for a
 * scalar; cut if too long.  Returns text. */
const char *rsh_box_text(const struct rsh_box *b, char *text, size_t size);
