/* SPDX-License-Identifier: Apache-2.0 */
/* daemon/mounted.h - what is mounted on a path, by the kernel's table: no mount
 * is touched, for its daemon may be gone or hang; and taking it down. */
#ifndef RSH_DAEMON_MOUNTED_H
#define RSH_DAEMON_MOUNTED_H

#include <limits.h>
#include <stdbool.h>

#include "rsh/util/error.h"

struct rsh_mounted {
	char path[PATH_MAX];   /* absolute and without links */
	unsigned n;            /* one on top of the other; 0: none */
	char type[128];        /* of the topmost, "" if there is none */
	char source[PATH_MAX]; /* what its file system says it is made of */
};

/* 0 or -errno. */
int rsh_mounted_find(const char *path, struct rsh_mounted *out);

/* ---- taking it down ---- */

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

/* ---- where its source or daemon hangs ---- */

/* Takes what is mounted on `path`, a mount of reshardfs, from the tree, lets all
 * who wait for it get errors, and ends its daemon.  0 or -errno with a sentence;
 * -ETIMEDOUT: all but the last. */
int rsh_unmount_force(const char *path, struct rsh_error *err);

#endif
