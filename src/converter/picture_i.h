/* SPDX-License-Identifier: Apache-2.0 */
/* converter/picture_i.h - the converter's picture of a layout: a mesh, and
 * dimensions of which each lies on one mesh axis or on none.  Axes and
 * dimensions of size 1 do not exist in it. */
#ifndef RSH_CONVERTER_PICTURE_I_H
#define RSH_CONVERTER_PICTURE_I_H

#include <stdbool.h>
#include <stdint.h>

/* A mesh of fewer than 2^31 ranks refines to at most 31 prime axes; shapes
 * have RSH_MAX_DIMS dimensions of at most 62 prime factors, far more than the
 * handful that occur.  What does not fit counts as not plannable. */
#define RSH_PICTURE_AXES 40
#define RSH_PICTURE_DIMS 256
#define RSH_NO_AXIS (-1)

struct rsh_picture_dim {
	uint64_t size;
	int axis; /* index into mesh, or RSH_NO_AXIS */
};

struct rsh_picture {
	uint32_t n_mesh;
	uint32_t n_dims;
	uint64_t mesh[RSH_PICTURE_AXES];
	struct rsh_picture_dim dims[RSH_PICTURE_DIMS];
};

/* Refines both pictures until they share one mesh and one shape.  False, and
 * the pictures undefined, where there is no such refinement. */
bool rsh_picture_unify(struct rsh_picture *a, struct rsh_picture *b);

/* Drops axes and dimensions of size 1. */
void rsh_picture_trim(struct rsh_picture *p);

#endif
