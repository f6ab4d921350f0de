/* cli/write_file.c - see write_file.h. */
#include "config.h"

#include "write_file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "rsh/util/mem.h"

static int write_all(int fd, const uint8_t *data, size_t len)
{
	while (len) {
		ssize_t n = write(fd, data, len);

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return -errno;
		data += n;
		len -= (size_t)n;
	}
	return fsync(fd) ? -errno : 0;
}

static int write_new(const char *path, const void *data, size_t len)
{
	int fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
	int rc;

	if (fd < 0)
		return -errno;
	rc = write_all(fd, data, len);
	if (close(fd) && !rc)
		rc = -errno;
	return rc;
}

int rsh_write_file(const char *path, const void *data, size_t len,
		   struct rsh_error *err)
{
	cleanup_free char *temporary = NULL;
	int rc;

	if (asprintf(&temporary, "%s.tmp-%ld", path, (long)getpid()) < 0) {
		temporary = NULL;
		return rsh_error_nomem(err);
	}
	rc = write_new(temporary, data, len);
	if (rc == 0 && rename(temporary, path))
		rc = -errno;
	if (rc == 0)
		return 0;
	if (rc != -EEXIST)
		unlink(temporary);
	return rsh_error_set(err, -rc, "%s: %s", path, strerror(-rc));
}
