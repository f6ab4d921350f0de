/* SPDX-License-Identifier: Apache-2.0 */
/* daemon/unmount.h - taking a mount down. */
#ifndef RSH_DAEMON_UNMOUNT_H
#define RSH_DAEMON_UNMOUNT_H

#include <stdbool.h>

#include "rsh/util/error.h"

/* Unmounts what is mounted on `path`, an absolute one without links in it, as
 * root or by fusermount3; `lazy`: also what is in use.  0 or -errno with a
 * sentence. */
int rsh_unmount(const char *path, bool lazy, struct rsh_error *err);

/* Before it mounts, the daemon takes a mark on the directory that it will
 * cover, which lasts as long as the process does: a shared flock(2), on what it
 * has opened while it still could.  Best effort: without it `umount` does not
 * wait. */
int rsh_unmount_mark_open(const char *mountpoint);
void rsh_unmount_mark(int fd);

/* Waits until what has covered `path` has no daemon that holds such a mark.
 * False if one does after so many seconds. */
bool rsh_unmount_wait(const char *path, unsigned seconds);

#endif
