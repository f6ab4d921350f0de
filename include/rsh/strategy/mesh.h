/* SPDX-License-Identifier: Apache-2.0 */
/* strategy/mesh.h parses a mesh in the form in which users write it:
 * "dp=2,mp=4,pp=2".
 *
 * The product of dp (data parallel), cp (context parallel) and mp (model or
 * tensor parallel, also written tp) is the number of ranks of a stage, and pp
 * is the number of stages.  Any other name, such as ep (expert parallel), is
 * another way to group the same ranks.  A mesh is a plain value; the functions
 * have no state, so any thread may call them.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "rsh/util/error.h"

#define RSH_MESH_MAX_AXES 12
#define RSH_MESH_NAME_SIZE 16

struct rsh_mesh_axis {
	char name[RSH_MESH_NAME_SIZE];
	uint32_t size; /* >= 1 */
};

struct rsh_mesh {
	uint32_t n;
	struct rsh_mesh_axis axes[RSH_MESH_MAX_AXES]; /* in the order of the
						       * text */
};

/* Parses a mesh.  Returns 0 and *out, or -EINVAL with a sentence: the text is
 * not NAME=NUMBER,..., a name occurs twice, a size is 0, or there are too many
 * axes or more than 2^20 ranks. */
int rsh_mesh_parse(const char *text, struct rsh_mesh *out,
		   struct rsh_error *err);
/* Parses the `len` bytes of an axis name: a letter, then letters, digits and
 * '_'.  "tp" becomes "mp".  Returns false if the name is not valid or too
 * long. */
bool rsh_mesh_name(const char *text, size_t len, char out[RSH_MESH_NAME_SIZE]);

/* Returns the size of the axis, 1 if the mesh does not have it. */
uint32_t rsh_mesh_size(const struct rsh_mesh *m, const char *name);
bool rsh_mesh_has(const struct rsh_mesh *m, const char *name);
/* Returns the ranks of a stage, dp * cp * mp. */
uint32_t rsh_mesh_stage_ranks(const struct rsh_mesh *m);
