/* SPDX-License-Identifier: Apache-2.0 */
/* app/daemon/stack_i.h looks at a mount point that has a mount already: `mount -a`
 * and scripts that are run twice shall not put the same one on top of
 * itself. */
#ifndef RSH_APP_STACK_I_H
#define RSH_APP_STACK_I_H

#include <jansson.h>

#include "rsh/app/options.h"

/* ---- what tells one mount from another ---- */

/* Gives SOURCE and the options of a mount, each a text, in an order and with
 * paths that do not depend on how they were written, and without those that say
 * nothing of what is shown, such as where the log goes.  It is from jansson;
 * NULL: memory is out.  This looks up paths, so the directory must be that of
 * the command. */
json_t *rsh_identity(const struct rsh_options *o);

/* ---- what is mounted there ---- */

enum rsh_stack {
	RSH_STACK_FREE, /* nothing or something else is there: the log has a
			 * notice */
	RSH_STACK_SAME, /* what is to be mounted is there: the log says so */
};

/* Is called before the mount, in the directory of the command and
 * single-threaded.  Waits while another process is about to mount there; *lock,
 * -1 or a descriptor, lets others wait for this one until rsh_stack_unlock() or
 * the process ends.  Does not wait for a mount that hangs.  Returns 0 or -errno
 * with a sentence, also about a mount whose daemon is gone or does not
 * answer. */
int rsh_stack_look(const struct rsh_options *o, enum rsh_stack *found,
		   int *lock, struct rsh_error *err);
/* Unlocks also for the processes that have the lock from this one. */
void rsh_stack_unlock(int lock);

#endif
