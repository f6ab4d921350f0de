/* SPDX-License-Identifier: Apache-2.0 */
/* vfs/control.h - the directory with information about a mount:
 *
 *   /.reshardfs/stats, metrics, log, config
 *   /.reshardfs/plan/rank_N.json
 *   /.reshardfs/steps              of a mount of all steps
 *
 * It is a separate tree.  A lookup by name finds it, but the root does not list
 * it, so that programs that walk or copy the mount see only checkpoints.  The
 * text of a file is made when the file is opened; the size of the file is 0, as
 * in /proc.  Only the owner of the tree can read the files.
 *
 * Threads: the tree never changes, so any thread may use it.
 */
#pragma once

#include <stdbool.h>

#include "rsh/vfs/vfs.h"

#define RSH_CONTROL_NAME ".reshardfs"
/* The number of the directory. */
#define RSH_CONTROL_NODE (UINT64_C(1) << 40)

enum rsh_control_file {
	RSH_CONTROL_STATS,
	RSH_CONTROL_METRICS,
	RSH_CONTROL_LOG,
	RSH_CONTROL_CONFIG,
	RSH_CONTROL_STEPS,
	RSH_CONTROL_NO_PLAN, /* with several steps: which command prints one */
	RSH_CONTROL_PLAN, /* the plan of one rank */
};

struct rsh_control_options {
	/* The number of plans.  If it is 0 there is no directory `plan`. */
	uint32_t n_plans;
	bool steps; /* there is a file `steps`, and `plan` is a file */
	/* Makes the text of a file (from malloc).  Any thread may call it.
	 * Returns 0 or -errno. */
	int (*make)(void *ctx, enum rsh_control_file which, uint32_t rank,
		    char **text);
	void *ctx;
};

/* Adds the directory to the root.  Call it before any other thread uses the
 * tree.  Returns 0 or -ENOMEM. */
int rsh_control_add(struct rsh_vfs *v, const struct rsh_control_options *o);

/* Returns whether a node is the directory or is below it. */
bool rsh_control_owns(uint64_t node);
/* Makes the current text of a file of the directory (from malloc).  Returns 0,
 * -EISDIR, -ENOENT, or the error of rsh_control_options.make(). */
int rsh_control_make(const struct rsh_vfs *v, uint64_t node, char **text);
