/* SPDX-License-Identifier: Apache-2.0 */
/* app/daemon/control_client.c reads files of a mount's control directory
 * completely and parses the JSON in them. */
#include "config.h"

#include "rsh/app/control_client.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "rsh/util/clock.h"
#include "rsh/util/files.h"
#include "rsh/util/mem.h"
#include "rsh/vfs/control.h"

/* The files of a mount are much shorter, but the directory may belong to any
 * user, so the length is limited. */
#define MAX_BYTES (1024 * 1024)

int rsh_control_refuse(const char *path, struct rsh_error *err)
{
	return rsh_error_set(err, EINVAL, "%s: reshardfs is not mounted there",
			     path);
}

static int open_answer(const char *path, const char *name,
		       struct rsh_error *err)
{
	cleanup_fd int dir = open(path, O_PATH | O_DIRECTORY | O_CLOEXEC);
	char file[64];
	int fd;

	if (dir < 0)
		return rsh_error_set(err, errno, "mount point %s: %s", path,
				     strerror(errno));
	/* O_NONBLOCK is needed because a directory of another user may have a
	 * pipe of that name. */
	snprintf(file, sizeof(file), RSH_CONTROL_NAME "/%s", name);
	fd = openat(dir, file, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
	if (fd < 0 && errno == ENOENT && strcmp(name, "steps") == 0 &&
	    faccessat(dir, RSH_CONTROL_NAME "/stats", F_OK, 0) == 0)
		return rsh_error_set(err, EINVAL, "%s: this mount shows one "
				     "step: `reshardfs mount --steps all` "
				     "shows each", path);
	if (fd < 0 && rsh_errno_is_absent(errno))
		return rsh_control_refuse(path, err);
	if (fd < 0 && errno == EACCES)
		return rsh_error_set(err, EACCES, "%s: access denied: only "
				     "the user that mounted it can read its "
				     "statistics, and root if it was mounted "
				     "with -o allow_other", path);
	if (fd < 0 && errno == ENOTCONN)
		return rsh_error_set(err, ENOTCONN, "%s: its daemon has ended; "
				     "unmount it with `reshardfs umount %s`",
				     path, path);
	return fd < 0 ? rsh_error_file(err, errno, path) : fd;
}

int rsh_control_query(const char *path, const char *name, json_t **out,
		      struct rsh_error *err)
{
	cleanup_free char *text = malloc(MAX_BYTES);
	cleanup_fd int fd = -1;
	ssize_t n;

	if (!text)
		return rsh_error_nomem(err);
	fd = open_answer(path, name, err);
	if (fd < 0)
		return fd;
	n = rsh_read_all(fd, text, MAX_BYTES);
	if (n < 0 && n != -EISDIR)
		return rsh_error_file(err, (int)-n, path);
	*out = n < 0 || n == MAX_BYTES ? NULL :
	       json_loadb(text, (size_t)n, 0, NULL);
	return *out ? 0 : rsh_control_refuse(path, err);
}

/* Writes an array of the error number and the files. */
__attribute__((noreturn))
static void answer_by_pipe(int pipe, const struct rsh_mounted *m, bool as_user,
			   const char *const *names, size_t n)
{
	cleanup_fd int none = open("/", O_PATH | O_CLOEXEC);
	json_t *all = json_pack("[i]", 0);
	int rc = all ? 0 : -ENOMEM;

	/* The process leaves the standard streams: a program that waits for the
	 * end of this command's output must not wait for the process. */
	for (int fd = 0; fd <= STDERR_FILENO && none >= 0; fd++)
		dup2(none, fd);
	/* The kernel refuses a mount without -o allow_other to all but its
	 * user, root included. */
	if (as_user && geteuid() == 0 &&
	    (setresgid(m->group, m->group, m->group) ||
	     setresuid(m->user, m->user, m->user)))
		rc = -EPERM;
	for (size_t i = 0; rc == 0 && i < n; i++) {
		json_t *file = NULL;

		rc = rsh_control_query(m->path, names[i], &file, NULL);
		json_array_append_new(all, file);
	}
	json_array_set_new(all, 0, json_integer(rc));
	_exit(json_dumpfd(all, pipe, JSON_COMPACT) != 0);
}

int rsh_control_ask(const struct rsh_mounted *m, bool as_user,
		    const char *const *names, size_t n, int ms, json_t **out)
{
	const uint64_t begun = rsh_clock_ns();
	cleanup_free char *text = NULL;
	struct pollfd p = { .events = POLLIN };
	const pid_t pid = rsh_fork_with_pipe(&p.fd);
	size_t len = 0, cap = 0;
	ssize_t got = 1;
	int rc = 0;

	*out = NULL;
	if (pid < 0)
		return pid;
	if (pid == 0)
		answer_by_pipe(p.fd, m, as_user, names, n);
	while (rc == 0 && got > 0) {
		const int left = ms - (int)(rsh_clock_since(begun) * 1000);

		if (len >= n * MAX_BYTES)
			rc = -EIO;
		else if (left <= 0 || poll(&p, 1, left) <= 0)
			rc = -ETIMEDOUT;
		else if (rsh_room(text, cap, len + 4096))
			rc = -ENOMEM;
		else
			got = read(p.fd, text + len, 4096);
		len += rc == 0 && got > 0 ? (size_t)got : 0;
	}
	close(p.fd);
	rsh_mounted_kill_child(pid);
	if (rc)
		return rc;
	*out = len ? json_loadb(text, len, 0, NULL) : NULL;
	rc = json_is_array(*out) ?
	     (int)json_integer_value(json_array_get(*out, 0)) : -EIO;
	if (rc) {
		json_decref(*out);
		*out = NULL;
	}
	return rc;
}
