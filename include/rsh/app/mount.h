/* SPDX-License-Identifier: Apache-2.0 */
/* app/mount.h offers the life of a mount, which is all that the command
 * `mount` does. */
#ifndef RSH_APP_MOUNT_H
#define RSH_APP_MOUNT_H

#include <jansson.h>

#include "rsh/app/exit.h"
#include "rsh/app/options.h"
#include "rsh/vfs/inspect.h"

/* Says what the file of `rank` reads from where, as `plan --json` does; the
 * value is the caller's.  Returns 0 or -ENOMEM.  Any thread may call it. */
typedef int rsh_mount_planner(const struct rsh_options *o,
			      const struct rsh_vfs_view *view, uint32_t rank,
			      json_t **out);

/* Mounts, and returns when a daemon serves or, in the foreground, when it is
 * unmounted.  In the daemon itself it returns as in the foreground.  It has to
 * be called before any thread is started. */
enum rsh_exit rsh_mount(const struct rsh_options *o, rsh_mount_planner *plan);

#endif
