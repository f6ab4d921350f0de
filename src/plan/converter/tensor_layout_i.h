/* SPDX-License-Identifier: Apache-2.0 */
/* plan/converter/tensor_layout_i.h - a layout as MindSpore's converter
 * describes it.  It has a mesh and dimensions.  Each dimension is cut over one
 * mesh axis or none.  There are no axes or dimensions of size 1. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

/* A mesh of fewer than 2^31 ranks refines to at most 31 prime axes; shapes
 * have RSH_MAX_DIMS dimensions of at most 62 prime factors, far more than the
 * few that occur.  A layout that does not fit counts as not plannable. */
#define RSH_LAYOUT_AXES 40
#define RSH_LAYOUT_DIMS 256
#define RSH_NO_AXIS (-1)

struct rsh_layout_dim {
	uint64_t size;
	int axis; /* index in mesh, or RSH_NO_AXIS */
};

struct rsh_tensor_layout {
	uint32_t n_mesh;
	uint32_t n_dims;
	uint64_t mesh[RSH_LAYOUT_AXES];
	struct rsh_layout_dim dims[RSH_LAYOUT_DIMS];
};

/* Refines both layouts until they have the same mesh and the same shape. False,
 * and the layouts are undefined, if there is no such refinement. */
bool rsh_layout_unify(struct rsh_tensor_layout *a, struct rsh_tensor_layout *b);

/* Appends a dimension.  False: there is no room. */
static inline bool rsh_layout_add_dim(struct rsh_tensor_layout *p,
				      uint64_t size, int axis)
{
	if (p->n_dims == RSH_LAYOUT_DIMS)
		return false;
	p->dims[p->n_dims++] = (struct rsh_layout_dim){ size, axis };
	return true;
}

/* Removes axes and dimensions of size 1. */
void rsh_layout_trim(struct rsh_tensor_layout *p);
