/* SPDX-License-Identifier: Apache-2.0 */
/* daemon/force.h - taking down a mount whose source or daemon hangs. */
#ifndef RSH_DAEMON_FORCE_H
#define RSH_DAEMON_FORCE_H

#include "rsh/util/error.h"

/* Takes what is mounted on `path`, a mount of reshardfs, from the tree, lets all
 * who wait for it get errors, and ends its daemon.  0 or -errno with a sentence;
 * -ETIMEDOUT: all but the last. */
int rsh_unmount_force(const char *path, struct rsh_error *err);

#endif
