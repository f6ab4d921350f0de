/* SPDX-License-Identifier: Apache-2.0 */
/* app/daemon/control_client.c reads a file of a mount's control directory
 * completely and parses the JSON in it. */
#include "config.h"

#include "rsh/app/control_client.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

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
	if (fd < 0 && (errno == ENOENT || errno == ENOTDIR))
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
