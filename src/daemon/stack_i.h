/* SPDX-License-Identifier: Apache-2.0 */
/* daemon/stack_i.h - a mount point that has a mount already: `mount -a` and
 * scripts that are run twice shall not put the same one on top of itself. */
#ifndef RSH_DAEMON_STACK_I_H
#define RSH_DAEMON_STACK_I_H

#include <jansson.h>

#include "rsh/options/options.h"

/* ---- what tells one mount from another ---- */

/* SOURCE and the options of a mount, each a text, in an order and with paths
 * that do not depend on how they were written; without those that say nothing
 * of what is shown, such as where the log goes.  From jansson; NULL: out of
 * memory.  Looks up paths, so the directory must be that of the command. */
json_t *rsh_identity(const struct rsh_options *o);

/* ---- what is mounted there ---- */

enum rsh_stack {
	RSH_STACK_FREE, /* nothing, or something else: the log has a notice */
	RSH_STACK_SAME, /* what is to be mounted; so has it */
};

/* Before the mount, in the directory of the command and single-threaded.  Waits
 * while another process is about to mount there; *lock, -1 or a descriptor, lets
 * others wait for this one until rsh_stack_unlock() or the process ends.  Does
 * not wait for a mount that hangs.  0 or -errno with a sentence, of a mount whose
 * daemon is gone or does not answer as well. */
int rsh_stack_look(const struct rsh_options *o, enum rsh_stack *found,
		   int *lock, struct rsh_error *err);
/* Also for the processes that have it from this one. */
void rsh_stack_unlock(int lock);

#endif
