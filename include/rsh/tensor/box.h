/* SPDX-License-Identifier: Apache-2.0 */
/* tensor/box.h - a part of a tensor: in each dimension from where, and how
 * much.  Pure arithmetic. */
#ifndef RSH_TENSOR_BOX_H
#define RSH_TENSOR_BOX_H

#include <stdbool.h>
#include <stdint.h>

/* More dimensions than MindSpore allows (8) is a damaged record. */
#define RSH_MAX_DIMS 32

struct rsh_box {
	uint32_t n_dims;
	uint64_t from[RSH_MAX_DIMS];
	uint64_t size[RSH_MAX_DIMS];
};

/* What both have in common, of the same tensor; false: nothing.  A box without
 * elements has nothing in common with any other. */
bool rsh_box_meet(const struct rsh_box *a, const struct rsh_box *b,
		  struct rsh_box *out);
/* Is the element at these indexes inside? */
bool rsh_box_has(const struct rsh_box *b, const uint64_t *at);

#endif
