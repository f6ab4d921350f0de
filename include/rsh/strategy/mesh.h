/* SPDX-License-Identifier: Apache-2.0 */
/* strategy/mesh.h - a mesh as people write it: "dp=2,mp=4,pp=2".
 *
 * dp (data parallel), cp (context parallel) and mp (model or tensor parallel,
 * also written tp) multiply to the ranks of a stage, pp is the number of
 * stages.  Any other name, ep (expert parallel) among them, stands for another
 * way to group the same ranks.
 */
#ifndef RSH_STRATEGY_MESH_H
#define RSH_STRATEGY_MESH_H

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
	struct rsh_mesh_axis axes[RSH_MESH_MAX_AXES]; /* as written */
};

/* 0, or -EINVAL with a sentence: not NAME=NUMBER,..., a name twice, a size of
 * 0, more than 2^20 ranks. */
int rsh_mesh_parse(const char *text, struct rsh_mesh *out,
		   struct rsh_error *err);
/* A name of a letter and letters, digits, '_'; `len` bytes.  "tp" becomes
 * "mp". */
bool rsh_mesh_name(const char *text, size_t len,
		   char out[RSH_MESH_NAME_SIZE]);

/* 1 for an axis that is not there. */
uint32_t rsh_mesh_size(const struct rsh_mesh *m, const char *name);
bool rsh_mesh_has(const struct rsh_mesh *m, const char *name);
/* dp * cp * mp. */
uint32_t rsh_mesh_stage_ranks(const struct rsh_mesh *m);

#endif
