/* SPDX-License-Identifier: Apache-2.0 */
/* app/daemon/unmount.c unmounts with umount2(2) as root and with fusermount3
 * otherwise, and waits until the daemon's lock on the directory is gone. */
#include "config.h"

#include "rsh/app/mounted.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mount.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "rsh/util/log.h"
#include "rsh/util/mem.h"

/* ---- unmounting ---- */

/* Reads the message of fusermount3, without the program's name and the
 * newline. */
static void read_complaint(int fd, char *text, size_t size)
{
	char *colon, *end;
	size_t have = 0;
	ssize_t n;

	while (have + 1 < size && (n = read(fd, text + have,
					    size - 1 - have)) != 0) {
		if (n > 0)
			have += (size_t)n;
		else if (errno != EINTR)
			break;
	}
	text[have] = '\0';
	end = strchr(text, '\n');
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
	int ends[2], status = -1;
	pid_t pid;

	if (pipe2(ends, O_CLOEXEC))
		return rsh_error_set(err, errno, "%s", strerror(errno));
	pid = fork();
	if (pid == 0) {
		/* LC_ALL is set because the program searches the messages. */
		setenv("LC_ALL", "C", 1);
		dup2(ends[1], STDERR_FILENO);
		if (lazy)
			execlp("fusermount3", "fusermount3", "-u", "-z", "--",
			       path, (char *)NULL);
		else
			execlp("fusermount3", "fusermount3", "-u", "--", path,
			       (char *)NULL);
		dprintf(STDERR_FILENO, "fusermount3: %s\n", strerror(errno));
		_exit(1);
	}
	close(ends[1]);
	if (pid > 0)
		read_complaint(ends[0], complaint, sizeof(complaint));
	close(ends[0]);
	while (pid > 0 && waitpid(pid, &status, 0) < 0 && errno == EINTR)
		;
	if (pid > 0 && status == 0)
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
	return rsh_error_set(err, errno, "%s: %s", path, strerror(errno));
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
