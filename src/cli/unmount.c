/* cli/unmount.c - see unmount.h. */
#include "config.h"

#include "unmount.h"

#include <errno.h>
#include <fcntl.h>
#include <libgen.h>
#include <limits.h>
#include <mntent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mount.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "force.h"
#include "rsh/util/log.h"
#include "rsh/util/mem.h"

#define OUR_TYPE "fuse.reshardfs"
#define WAIT_SECONDS 30

/* ---- taking it down ---- */

/* What fusermount3 says, without its name and the newline. */
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

static void exec_fusermount(const char *path, bool lazy, int out)
{
	/* Its sentences are looked into. */
	setenv("LC_ALL", "C", 1);
	dup2(out, STDERR_FILENO);
	if (lazy)
		execlp("fusermount3", "fusermount3", "-u", "-z", "--", path,
		       (char *)NULL);
	else
		execlp("fusermount3", "fusermount3", "-u", "--", path,
		       (char *)NULL);
	dprintf(STDERR_FILENO, "fusermount3: %s\n", strerror(errno));
	_exit(1);
}

static int in_use(const char *path, struct rsh_error *err)
{
	return rsh_error_set(err, EBUSY, "%s: it is in use; --lazy takes it "
			     "from the tree and lets who has files open read "
			     "on, --force does not", path);
}

static int run_fusermount(const char *path, bool lazy, struct rsh_error *err)
{
	char complaint[256] = "";
	int ends[2], status = -1;
	pid_t pid;

	if (pipe2(ends, O_CLOEXEC))
		return rsh_error_set(err, errno, "%s", strerror(errno));
	pid = fork();
	if (pid == 0)
		exec_fusermount(path, lazy, ends[1]);
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

/* ---- is it ours? ---- */

/* The type of what is mounted on `path`, the topmost if there are several; ""
 * if nothing is.  Does not touch the mount, whose daemon may be gone. */
static int find_type(const char *path, char *type, size_t size)
{
	FILE *f = setmntent("/proc/self/mounts", "re");
	char buf[2 * PATH_MAX + 1024];
	struct mntent m;

	*type = '\0';
	if (!f)
		return -errno;
	while (getmntent_r(f, &m, buf, sizeof(buf)))
		if (strcmp(m.mnt_dir, path) == 0)
			snprintf(type, size, "%s", m.mnt_type);
	endmntent(f);
	return 0;
}

/* `given` without links in what stands before its last part, which may be a
 * mount that does not answer. */
static int resolve_parent(const char *given, char *path, size_t size)
{
	cleanup_free char *a = strdup(given), *b = strdup(given);
	char parent[PATH_MAX];
	const char *base;

	if (!a || !b)
		return -ENOMEM;
	base = basename(b);
	if (strcmp(base, ".") == 0 || strcmp(base, "..") == 0 ||
	    strcmp(base, "/") == 0)
		return -EINVAL; /* only realpath(3) knows */
	if (!realpath(dirname(a), parent))
		return -errno;
	return snprintf(path, size, "%s/%s",
			strcmp(parent, "/") == 0 ? "" : parent, base) <
			(int)size ? 0 : -ENAMETOOLONG;
}

/* Finds the name under which the mount is known.  0 or -errno. */
static int find_mount(const char *given, char *path, char *type, size_t size)
{
	int rc = resolve_parent(given, path, PATH_MAX);

	*type = '\0';
	if (rc == 0)
		rc = find_type(path, type, size);
	if (rc == 0 && *type)
		return 0;
	if (!realpath(given, path))
		return -errno;
	return find_type(path, type, size);
}

/* ---- waiting for its daemon ---- */

int rsh_unmount_mark_open(const char *mountpoint)
{
	return open(mountpoint, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
}

void rsh_unmount_mark(int fd)
{
	/* Open until the process ends. */
	if (flock(fd, LOCK_SH | LOCK_NB) != 0)
		rsh_log_debug("umount will not wait: %s", strerror(errno));
}

/* The mark goes when the process does.  Where there cannot be one there is
 * nothing to wait for. */
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

static int wait_for_daemon(const char *path, struct rsh_error *err)
{
	if (rsh_unmount_wait(path, WAIT_SECONDS))
		return 0;
	return rsh_error_set(err, ETIMEDOUT, "%s: unmounted, but its daemon "
			     "has not ended in %d seconds", path,
			     WAIT_SECONDS);
}

static int take_down(const struct rsh_options *o, struct rsh_error *err)
{
	char path[PATH_MAX], type[128];
	int rc = find_mount(o->mountpoint, path, type, sizeof(type));

	if (rc)
		return rsh_error_set(err, -rc, "%s: %s", o->mountpoint,
				     strerror(-rc));
	if (!*type)
		return rsh_error_set(err, EINVAL, "%s: nothing is mounted "
				     "there", o->mountpoint);
	if (strcmp(type, OUR_TYPE) != 0)
		return rsh_error_set(err, EINVAL, "%s: a mount of type %s, "
				     "not of reshardfs", o->mountpoint, type);
	if (o->force)
		return rsh_unmount_force(path, err);
	rc = rsh_unmount(path, o->lazy, err);
	if (rc == 0 && !o->lazy)
		rc = wait_for_daemon(path, err);
	return rc;
}

enum rsh_exit rsh_umount(const struct rsh_options *o)
{
	struct rsh_error err = RSH_ERROR_INIT;
	int rc = take_down(o, &err);

	return rc ? rsh_exit_failed(o, rc, &err) : RSH_EXIT_GOOD;
}
