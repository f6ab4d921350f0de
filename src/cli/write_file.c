/* SPDX-License-Identifier: Apache-2.0 */
/* cli/write_file.c hands a buffer to rsh_file_replace(), which writes it under
 * another name, and turns what fails into a sentence. */
#include "config.h"

#include "write_file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
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

int rsh_write_file(const char *path, const void *data, size_t len,
		   struct rsh_error *err)
{
	struct content content = { data, len };
	cleanup_free char *temporary = NULL;
	int rc;

	if (asprintf(&temporary, "%s.tmp-%ld", path, (long)getpid()) < 0) {
		temporary = NULL;
		return rsh_error_nomem(err);
	}
	rc = rsh_file_replace(AT_FDCWD, path, temporary, 0666, write_buffer,
			      &content);
	return rc ? rsh_error_set(err, -rc, "%s: %s", path, strerror(-rc)) : 0;
}
