/* SPDX-License-Identifier: Apache-2.0 */
/* app/cli/write_file.c passes a buffer to rsh_file_replace(), which writes it
 * under another name, and makes sentences of errors.  A path that is not a
 * regular file, such as /dev/null or a pipe, is written directly, because a
 * rename would replace it by a file. */
#include "config.h"

#include "write_file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "rsh/util/files.h"
#include "rsh/util/mem.h"

struct content {
	const void *data;
	size_t len;
};

static int write_buffer(void *ctx, int fd)
{
	const struct content *c = ctx;
	int rc = rsh_write_all(fd, c->data, c->len, 0);

	if (rc == 0 && fsync(fd) != 0)
		rc = -errno;
	return rc;
}

static int write_into(const char *path, const struct content *c)
{
	cleanup_fd int fd = open(path, O_WRONLY | O_NOCTTY | O_CLOEXEC);
	const char *rest = c->data;
	size_t left = c->len;

	if (fd < 0)
		return -errno;
	while (left) {
		ssize_t n = write(fd, rest, left);

		if (n < 0 && errno != EINTR)
			return -errno;
		rest += n < 0 ? 0 : n;
		left -= n < 0 ? 0 : (size_t)n;
	}
	return 0;
}

static int replace(const char *path, struct content *c)
{
	cleanup_free char *temporary = NULL;

	if (asprintf(&temporary, "%s.tmp-%ld", path, (long)getpid()) < 0) {
		temporary = NULL;
		return -ENOMEM;
	}
	return rsh_file_replace(AT_FDCWD, path, temporary, 0666, write_buffer,
				c);
}

int rsh_write_file(const char *path, const void *data, size_t len,
		   struct rsh_error *err)
{
	struct content content = { data, len };
	cleanup_free char *file = realpath(path, NULL);
	struct stat st;
	int rc;

	if (file && stat(file, &st) == 0 && !S_ISREG(st.st_mode))
		rc = write_into(file, &content);
	else
		rc = replace(file ? file : path, &content);
	return rc ? rsh_error_set(err, -rc, "%s: %s", path, strerror(-rc)) : 0;
}
