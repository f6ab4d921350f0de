/* SPDX-License-Identifier: Apache-2.0 */
/* app/mounted.h finds what is mounted on a path, and unmounts it.  It reads the
 * kernel's table and does not touch a mount, because the daemon of a mount may
 * be gone or hang.
 *
 * Threads: any thread may look what is mounted; the functions that unmount
 * start processes, and are for commands with one thread.  Errors are -errno.
 */
#pragma once

#include <limits.h>
#include <stdbool.h>
#include <sys/types.h>

#include "rsh/util/error.h"

struct rsh_mounted {
	char path[PATH_MAX];   /* absolute and without links */
	unsigned n;            /* mounts on top of one another; 0: none */
	char type[128];        /* type of the topmost mount, "" if there is
			        * none */
	char source[PATH_MAX]; /* the source of the topmost mount */
	uid_t user;            /* who mounted it, if its type is ours */
	gid_t group;           /* the group of that process */
};

#define RSH_MOUNTED_TYPE "fuse.reshardfs"

/* Returns 0 or -errno. */
int rsh_mounted_find(const char *path, struct rsh_mounted *out);

/* Finds the mount of reshardfs that `path` is, or is inside.  Returns whether
 * there is one. */
bool rsh_mounted_holds(const char *path, struct rsh_mounted *out);

/* Lists the paths whose topmost mount is of reshardfs, in the order in which
 * they were mounted.  *out is from malloc.  Returns 0, or -errno with a
 * sentence. */
int rsh_mounted_list(struct rsh_mounted **out, size_t *n,
		     struct rsh_error *err);

/* Forks.  The parent gets the end of a pipe to read from in *pipe, the child
 * the other end.  Returns as fork(2) does, or -errno. */
pid_t rsh_fork_with_pipe(int *pipe);
/* Kills a child process that may hang in a mount, and reaps it if it ends soon.
 * Otherwise init reaps it later. */
void rsh_mounted_kill_child(pid_t pid);

/* ---- unmounting ---- */

/* Unmounts what is mounted on `path`, which is absolute and without links, as
 * root or with fusermount3.  With `lazy` it also unmounts what is in use.
 * Returns 0 or -errno with a sentence. */
int rsh_unmount(const char *path, bool lazy, struct rsh_error *err);

/* Before it mounts, the daemon takes a shared flock(2) on the directory that it
 * will cover.  It opened the directory before the mount.  The lock lasts until
 * the process ends.  If the lock fails, `umount` does not wait for the
 * daemon. */
int rsh_unmount_mark_open(const char *mountpoint);
void rsh_unmount_mark(int fd);

/* Waits until no daemon holds such a lock on the directory `path`.  Returns
 * false if a daemon still holds one after so many seconds. */
bool rsh_unmount_wait(const char *path, unsigned seconds);

/* ---- unmounting when the source or the daemon hangs ---- */

/* Unmounts `path`, a mount of reshardfs, makes all requests that wait for it
 * fail, and ends its daemon.  Returns 0 or -errno with a sentence; with
 * -ETIMEDOUT everything was done except that the daemon has not ended. */
int rsh_unmount_force(const char *path, struct rsh_error *err);
