/* SPDX-License-Identifier: Apache-2.0 */
/* store/load.c reads small files whole. */
#include "config.h"

#include "store_i.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "rsh/util/mem.h"

static int load_failed(struct rsh_error *err, const char *path)
{
	return rsh_error_set(err, errno, "%s: %s", path, strerror(errno));
}

static int load_bytes(int fd, const char *path, uint8_t *buf, size_t size,
		    size_t *got, struct rsh_error *err)
{
	*got = 0;
	while (*got < size) {
		ssize_t n = read(fd, buf + *got, size - *got);

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return load_failed(err, path);
		if (n == 0)
			break;
		*got += (size_t)n;
	}
	return 0;
}

static int load_open(int fd, const char *path, uint64_t max, const char *what,
		     uint8_t **out, size_t *len, struct rsh_error *err)
{
	cleanup_free uint8_t *data = NULL;
	struct stat st;
	int rc;

	if (fstat(fd, &st) != 0)
		return load_failed(err, path);
	if (!S_ISREG(st.st_mode))
		return rsh_error_set(err, EINVAL, "%s: not a regular file",
				     path);
	if ((uint64_t)st.st_size > max)
		return rsh_error_set(err, EFBIG, "%s: too large for a %s", path,
				     what);
	data = rsh_alloc_array((size_t)st.st_size + 1, 1);
	if (!data)
		return rsh_error_nomem(err);
	rc = load_bytes(fd, path, data, (size_t)st.st_size, len, err);
	if (rc == 0)
		*out = steal_pointer(&data);
	return rc;
}

int rsh_load_whole(const char *path, uint64_t max, const char *what,
		   uint8_t **out, size_t *len, struct rsh_error *err)
{
	cleanup_fd int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);

	if (fd < 0)
		return rsh_error_set(err, errno, "%s %s: %s", what, path,
				     strerror(errno));
	return load_open(fd, path, max, what, out, len, err);
}

int rsh_store_load(const struct rsh_store *s, const char *name, uint64_t max,
		   const char *what, uint8_t **out, size_t *len,
		   struct rsh_error *err)
{
	cleanup_fd int fd = rsh_store_openat(s, name, O_RDONLY | O_NONBLOCK);
	cleanup_free char *path = NULL;

	if (fd < 0)
		return rsh_store_open_error(s, name, fd, err);
	if (asprintf(&path, "%s/%s", s->path, name) < 0) {
		path = NULL;
		return rsh_error_nomem(err);
	}
	return load_open(fd, path, max, what, out, len, err);
}
