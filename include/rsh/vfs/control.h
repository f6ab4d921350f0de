/* SPDX-License-Identifier: Apache-2.0 */
/* vfs/control.h - the directory in which a mount tells about itself:
 *
 *   /.reshardfs/stats, metrics, log, config
 *   /.reshardfs/plan/rank_N.json
 *
 * It is a tree beside that of the checkpoints, found by name and never listed in
 * the root, so that whoever walks the mount or copies it sees checkpoints alone.  What a
 * file says is made anew whenever it is opened, by whoever knows; its size is 0,
 * as in /proc.  Only the owner of the tree may look in.
 *
 * Immutable: any thread.
 */
#ifndef RSH_VFS_CONTROL_H
#define RSH_VFS_CONTROL_H

#include <stdbool.h>

#include "rsh/vfs/vfs.h"

#define RSH_CONTROL_NAME ".reshardfs"

enum rsh_control_file {
	RSH_CONTROL_STATS,
	RSH_CONTROL_METRICS,
	RSH_CONTROL_LOG,
	RSH_CONTROL_CONFIG,
	RSH_CONTROL_PLAN, /* of one rank */
};

struct rsh_control_options {
	/* How many plans there are; 0: and no directory of them. */
	uint32_t n_plans;
	/* Makes what a file says (from malloc); any thread.  0 or -errno. */
	int (*make)(void *ctx, enum rsh_control_file which, uint32_t rank,
		    char **text);
	void *ctx;
};

/* Puts the directory into the root, before anybody else uses the tree.  0 or
 * -ENOMEM. */
int rsh_control_add(struct rsh_vfs *v, const struct rsh_control_options *o);

/* Whether a node is the directory or below it. */
bool rsh_control_owns(uint64_t node);
/* What a file of the directory says now (from malloc).  0, -EISDIR, -ENOENT or
 * what making it has failed with. */
int rsh_control_make(const struct rsh_vfs *v, uint64_t node, char **text);

#endif
