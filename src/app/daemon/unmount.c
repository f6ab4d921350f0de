/* SPDX-License-Identifier: Apache-2.0 */
/* app/daemon/unmount.c unmounts with umount2(2) as root and with fusermount3
 * otherwise, and waits until the daemon's lock on the directory is gone.  By
 * force it aborts the connection of the mount and ends its daemon. */
#include "config.h"

#include "rsh/app/mounted.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "rsh/util/compat.h"
#include "rsh/util/files.h"
#include "rsh/util/log.h"
#include "rsh/util/mem.h"

/* ---- unmounting ---- */

/* Reads the message of fusermount3, without the program's name and the last
 * newline: a name in it may have others. */
static void read_complaint(int fd, char *text, size_t size)
{
	const ssize_t n = rsh_read_all(fd, text, size - 1);
	char *colon, *end;

	text[n > 0 ? n : 0] = '\0';
	end = strrchr(text, '\n');
	if (end)
		*end = '\0';
	colon = strstr(text, ": ");
	if (colon)
		memmove(text, colon + 2, strlen(colon + 2) + 1);
}

static int in_use(const char *path, struct rsh_error *err)
{
	return rsh_error_set(err, EBUSY, "%s: in use; --lazy detaches it and "
			     "lets open files be read, --force lets these "
			     "reads fail", path);
}

static int run_fusermount(const char *path, bool lazy, struct rsh_error *err)
{
	char complaint[256] = "";
	int pipe, status = -1;
	const pid_t pid = rsh_fork_with_pipe(&pipe);

	if (pid < 0)
		return rsh_error_set(err, -pid, "%s", strerror(-pid));
	if (pid == 0) {
		/* LC_ALL is set because the program searches the messages. */
		setenv("LC_ALL", "C", 1);
		dup2(pipe, STDERR_FILENO);
		if (lazy)
			execlp("fusermount3", "fusermount3", "-u", "-z", "--",
			       path, (char *)NULL);
		else
			execlp("fusermount3", "fusermount3", "-u", "--", path,
			       (char *)NULL);
		dprintf(STDERR_FILENO, "fusermount3: %s\n", strerror(errno));
		_exit(1);
	}
	read_complaint(pipe, complaint, sizeof(complaint));
	close(pipe);
	while (waitpid(pid, &status, 0) < 0 && errno == EINTR)
		;
	if (status == 0)
		return 0;
	if (strstr(complaint, "resource busy"))
		return in_use(path, err);
	return rsh_error_set(err, EPERM, "%s: cannot be unmounted: %s", path,
			     complaint);
}

int rsh_unmount(const char *path, bool lazy, struct rsh_error *err)
{
	if (umount2(path, UMOUNT_NOFOLLOW | (lazy ? MNT_DETACH : 0)) == 0)
		return 0;
	if (errno == EPERM)
		return run_fusermount(path, lazy, err);
	if (errno == EBUSY)
		return in_use(path, err);
	return rsh_error_file(err, errno, path);
}

/* ---- waiting for its daemon ---- */

int rsh_unmount_mark_open(const char *mountpoint)
{
	return open(mountpoint, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
}

void rsh_unmount_mark(int fd)
{
	/* The descriptor stays open, and the lock is held, until the process
	 * ends. */
	if (flock(fd, LOCK_SH | LOCK_NB) != 0)
		rsh_log_debug("umount does not wait for the daemon: %s",
			      strerror(errno));
}

/* The lock ends with the process that holds it.  If the file system has no
 * locks, there is nothing to wait for. */
static bool daemon_is_gone(const char *path)
{
	cleanup_fd int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);

	return fd < 0 || flock(fd, LOCK_EX | LOCK_NB) == 0 ||
	       errno != EWOULDBLOCK;
}

bool rsh_unmount_wait(const char *path, unsigned seconds)
{
	const struct timespec pause = { .tv_nsec = 10 * 1000 * 1000 };

	for (unsigned i = 0; i < seconds * 100; i++) {
		if (daemon_is_gone(path))
			return true;
		nanosleep(&pause, NULL);
	}
	return daemon_is_gone(path);
}

/* ---- by force ----
 *
 * The kernel aborts a FUSE connection if the user has the rights: every request
 * then fails with ECONNABORTED, and the daemon ends because it can read no more
 * requests.  The other steps are for a daemon that does not end, or whose
 * connection could not be aborted.  The daemon is the process that holds the
 * lock on the directory (mounted.h).
 */

/* A daemon ends without its blocked threads after a few of these seconds. */
#define PATIENCE_SECONDS 10
#define KILLED_SECONDS 5

/* ---- the connection ---- */

/* Returns 0 or -errno; *aborted is true if all waiting requests were
 * aborted. */
static int detach(const char *path, bool *aborted, struct rsh_error *err)
{
	cleanup_fd int fd = -1;
	struct statx st;
	char abort[64];
	bool known;
	int rc;

	*aborted = umount2(path, MNT_FORCE | MNT_DETACH |
			   UMOUNT_NOFOLLOW) == 0;
	if (*aborted)
		return 0;
	/* The number of the connection is the minor number of the mount's
	 * device.  The kernel returns it without a request to the daemon. */
	known = rsh_statx(AT_FDCWD, path,
			  AT_STATX_DONT_SYNC | AT_SYMLINK_NOFOLLOW |
				  AT_NO_AUTOMOUNT, 0, &st) == 0;
	rc = rsh_unmount(path, true, err);
	if (rc || !known)
		return rc;
	/* The user that mounted has the right to do this; root may not have
	 * it. */
	snprintf(abort, sizeof(abort), "/sys/fs/fuse/connections/%u/abort",
		 st.stx_dev_minor);
	fd = open(abort, O_WRONLY | O_CLOEXEC);
	*aborted = fd >= 0 && write(fd, "1", 1) == 1;
	return 0;
}

/* ---- the daemon ---- */

static bool is_called_reshardfs(pid_t pid)
{
	char path[64], name[32];

	snprintf(path, sizeof(path), "/proc/%d/comm", (int)pid);
	return rsh_file_line(path, "", name, sizeof(name)) &&
	       strcmp(name, "reshardfs") == 0;
}

/* A process in another mount namespace may hold a lock on the same directory
 * because it has mounted there.  Such a process is not the daemon. */
static bool shares_our_tree(pid_t pid)
{
	char path[64];
	struct stat ours, theirs;

	snprintf(path, sizeof(path), "/proc/%d/ns/mnt", (int)pid);
	if (stat("/proc/self/ns/mnt", &ours) != 0 || stat(path, &theirs) != 0)
		return geteuid() != 0; /* a user may not read it */
	return ours.st_dev == theirs.st_dev && ours.st_ino == theirs.st_ino;
}

/* Returns a pidfd of the process that holds the lock on the directory.  Returns
 * -1 if there is none, or if more than one process may be it.  Devices are not
 * compared, because /proc/locks has other numbers than stat(2) for some file
 * systems. */
static int open_daemon(const char *path)
{
	cleanup_free char *line = NULL;
	int found = -1, pid;
	struct stat st;
	size_t cap = 0;
	uint64_t inode;
	unsigned n = 0;
	FILE *f;

	if (stat(path, &st) != 0)
		return -1;
	f = fopen("/proc/locks", "re");
	if (!f)
		return -1;
	while (getline(&line, &cap, f) > 0) {
		int fd = -1;

		/* The lock is a shared flock. */
		if (sscanf(line, "%*s FLOCK %*s READ %d %*x:%*x:%" SCNu64, &pid,
			   &inode) == 2 && pid > 0 && inode == st.st_ino)
			fd = rsh_pidfd_open(pid);
		if (fd < 0)
			continue;
		if (is_called_reshardfs(pid) && shares_our_tree(pid) &&
		    n++ == 0)
			found = fd;
		else
			close(fd);
	}
	fclose(f);
	if (n > 1) {
		close(found);
		return -1;
	}
	return found;
}

static bool ends_after(const char *path, int daemon, int signal,
		       unsigned seconds)
{
	if (signal && rsh_pidfd_send_signal(daemon, signal) != 0)
		rsh_log_debug("%s: cannot send signal %d to the daemon: %s",
			      path, signal, strerror(errno));
	return rsh_unmount_wait(path, seconds);
}

int rsh_unmount_force(const char *path, struct rsh_error *err)
{
	cleanup_fd int daemon = -1;
	bool aborted;
	int rc = detach(path, &aborted, err);

	if (rc)
		return rc;
	daemon = open_daemon(path);
	if (daemon < 0) {
		if (rsh_unmount_wait(path, aborted ? PATIENCE_SECONDS : 0))
			return 0;
		return rsh_error_set(err, ETIMEDOUT, "%s: unmounted, but its "
				     "daemon has not ended and could not be "
				     "identified", path);
	}
	if (ends_after(path, daemon, aborted ? 0 : SIGTERM, PATIENCE_SECONDS) ||
	    ends_after(path, daemon, SIGKILL, KILLED_SECONDS))
		return 0;
	return rsh_error_set(err, ETIMEDOUT, "%s: unmounted, but its daemon, "
			     "killed %d seconds ago, has not ended: it waits "
			     "for its source", path, KILLED_SECONDS);
}
