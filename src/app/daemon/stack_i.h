/* SPDX-License-Identifier: Apache-2.0 */
/* app/daemon/stack_i.h checks a mount point that already has a mount.  `mount
 * -a` and scripts that run twice must not mount the same source twice on one
 * directory. */
#ifndef RSH_APP_STACK_I_H
#define RSH_APP_STACK_I_H

#include <jansson.h>

#include "rsh/app/options.h"

/* ---- the identity of a mount ---- */

/* Returns SOURCE and the options of a mount as texts.  Their order and paths do
 * not depend on how they were written, and options that do not change what a
 * mount shows are omitted, such as the destination of the log.  The value is
 * from jansson; NULL: memory is out.  Paths are resolved, so the working
 * directory must still be that of the command. */
json_t *rsh_identity(const struct rsh_options *o);

/* ---- the mount that is there ---- */

enum rsh_stack {
	RSH_STACK_FREE, /* nothing, or another mount, is there; another mount is
			 * logged as a notice */
	RSH_STACK_SAME, /* a mount with the same source and options is there;
			 * this is logged */
};

/* This must be called before the mount, in the directory of the command and in
 * a process with one thread.  It waits while another process mounts there.
 * *lock is -1 or a descriptor; other processes wait for this one until
 * rsh_stack_unlock() or until the process ends.  The call does not wait for a
 * mount that hangs.  Returns 0 or -errno with a sentence, also for a mount
 * whose daemon is gone or does not answer. */
int rsh_stack_look(const struct rsh_options *o, enum rsh_stack *found,
		   int *lock, struct rsh_error *err);
/* Unlocks also for processes that have inherited the lock. */
void rsh_stack_unlock(int lock);

#endif
