/* SPDX-License-Identifier: Apache-2.0 */
/* app/mount.h runs a mount from beginning to end, which is all that the command
 * `mount` does. */
#pragma once

#include "rsh/app/options.h"
#include "rsh/vfs/inspect.h"

/* Makes the plan of the file of `rank` as `plan --json` prints it, but on
 * several lines; the text is from malloc.  Returns 0 or -ENOMEM.  Any thread
 * may call it. */
typedef int rsh_mount_planner(const struct rsh_options *o,
			      const struct rsh_vfs_view *view, uint32_t rank,
			      char **text);

/* Returns the version of landlock that the kernel has; 0 or less: it has
 * none, or forbids it. */
int rsh_sandbox_landlock(void);

/* Mounts.  It returns when the daemon serves or, in the foreground, when the
 * mount is unmounted.  In the daemon process it returns as in the foreground.
 * It must be called before any thread is started. */
enum rsh_exit rsh_mount(const struct rsh_options *o, rsh_mount_planner *plan);
