/* SPDX-License-Identifier: Apache-2.0 */
/* vfs/control.h - the directory with information about a mount:
 *
 *   /.reshardfs/stats, metrics, log, config
 *   /.reshardfs/plan/rank_N.json
 *
 * It is a tree of its own, found by name and never listed in the root, so that
 * programs that walk or copy the mount see checkpoints only.  The text of a
 * file is made when it is opened; its size is 0, as in /proc.  Only the owner
 * of the tree can read it.
 *
 * Threads: the tree never changes, so any thread may use it.
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
	RSH_CONTROL_PLAN, /* the plan of one rank */
};

struct rsh_control_options {
	/* There are so many plans; with 0 there is no directory of them
	 * either. */
	uint32_t n_plans;
	/* Makes what a file says (from malloc); any thread may call it.
	 * Returns 0 or -errno. */
	int (*make)(void *ctx, enum rsh_control_file which, uint32_t rank,
		    char **text);
	void *ctx;
};

/* Puts the directory into the root, before anybody else uses the tree.  Returns
 * 0 or -ENOMEM. */
int rsh_control_add(struct rsh_vfs *v, const struct rsh_control_options *o);

/* True if a node is the directory or lies below it. */
bool rsh_control_owns(uint64_t node);
/* Makes what a file of the directory says now (from malloc).  Returns 0,
 * -EISDIR, -ENOENT or what making it has failed with. */
int rsh_control_make(const struct rsh_vfs *v, uint64_t node, char **text);

#endif
