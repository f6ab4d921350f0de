/* SPDX-License-Identifier: Apache-2.0 */
/* daemon/sandbox_i.h - what the daemon gives up before it reads what others
 * have written. */
#ifndef RSH_DAEMON_SANDBOX_I_H
#define RSH_DAEMON_SANDBOX_I_H

#include "rsh/options/options.h"

/* For this thread and all that it starts; for good.  New privileges; all files
 * but those that the options name; system calls that serving does not take; its
 * memory for debuggers and in core dumps, if other users are served.  What the
 * kernel does not know stays.  0, or -errno with a sentence about a file of the
 * options that has to be read for this. */
int rsh_sandbox_enter(const struct rsh_options *o, struct rsh_error *err);

#endif
