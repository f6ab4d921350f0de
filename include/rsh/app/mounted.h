/* SPDX-License-Identifier: Apache-2.0 */
/* app/mounted.h tells what is mounted on a path, and takes it down.  It goes
 * by the kernel's table and touches no mount, for the daemon of a mount may be
 * gone or hang.
 *
 * Threads: any thread may look what is mounted; what unmounts starts processes,
 * and is for commands with one thread.  Errors are -errno.
 */
#ifndef RSH_APP_MOUNTED_H
#define RSH_APP_MOUNTED_H

#include <limits.h>
#include <stdbool.h>

#include "rsh/util/error.h"

struct rsh_mounted {
	char path[PATH_MAX];   /* absolute and without links */
	unsigned n;            /* mounts on top of one another; 0: none */
	char type[128];        /* that of the topmost, "" if there is none */
	char source[PATH_MAX]; /* the source of the topmost */
};

#define RSH_MOUNTED_TYPE "fuse.reshardfs"

/* Returns 0 or -errno. */
int rsh_mounted_find(const char *path, struct rsh_mounted *out);

/* Finds the mount of reshardfs that `path` is in, or is. */
bool rsh_mounted_holds(const char *path, struct rsh_mounted *out);

/* ---- taking it down ---- */

/* Unmounts what is mounted on `path`, an absolute one without links in it, as
 * root or by fusermount3; with `lazy` also what is in use.  Returns 0 or -errno
 * with a sentence. */
int rsh_unmount(const char *path, bool lazy, struct rsh_error *err);

/* Before it mounts, the daemon takes a mark on the directory that it will
 * cover, which lasts as long as the process does: a shared flock(2), on what it
 * has opened while it still could.  The mark may fail: without it `umount` does
 * not wait. */
int rsh_unmount_mark_open(const char *mountpoint);
void rsh_unmount_mark(int fd);

/* Waits until what has covered `path` has no daemon that holds such a mark.
 * Returns false if a daemon still holds one after so many seconds. */
bool rsh_unmount_wait(const char *path, unsigned seconds);

/* ---- where its source or daemon hangs ---- */

/* Takes what is mounted on `path`, a mount of reshardfs, from the tree, lets
 * all who wait for it get errors, and ends its daemon.  Returns 0 or -errno
 * with a sentence; with -ETIMEDOUT all was done but for the last. */
int rsh_unmount_force(const char *path, struct rsh_error *err);

#endif
