/* SPDX-License-Identifier: Apache-2.0 */
/* util/files.c compares suffixes, reads and writes completely, and replaces
 * files atomically. */
#include "config.h"

#include "rsh/util/files.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

bool rsh_has_suffix(const char *name, const char *suffix)
{
	const size_t n = strlen(name), k = strlen(suffix);

	return n > k && memcmp(name + n - k, suffix, k) == 0;
}

const char *rsh_path_name(const char *path)
{
	const char *slash = strrchr(path, '/');

	return slash ? slash + 1 : path;
}

bool rsh_path_is_plain(const char *path)
{
	for (;; path++) {
		const size_t n = strcspn(path, "/");

		if (n == 0 || (n <= 2 && strspn(path, ".") == n))
			return false;
		path += n;
		if (!*path)
			return true;
	}
}

char *rsh_path_directory(const char *path)
{
	const char *slash = strrchr(path, '/');

	return !slash ? strdup(".") :
	       strndup(path, slash == path ? 1 : (size_t)(slash - path));
}

bool rsh_is_file(const char *path)
{
	struct stat st;

	return path && stat(path, &st) == 0 && !S_ISDIR(st.st_mode);
}

bool rsh_file_line(const char *path, const char *key, char *value, size_t size)
{
	const size_t n = strlen(key);
	cleanup_file FILE *f = fopen(path, "re");
	char line[1024];
	bool found = false;

	while (f && !found && fgets(line, sizeof(line), f))
		found = strncmp(line, key, n) == 0;
	if (found)
		snprintf(value, size, "%.*s", (int)strcspn(line + n, "\n"),
			 line + n);
	return found;
}

int rsh_write_all(int fd, const void *data, size_t len, uint64_t offset)
{
	const char *at = data;

	while (len) {
		ssize_t n = pwrite(fd, at, len, (off_t)offset);

		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0)
			return n ? -errno : -EIO;
		at += n;
		len -= (size_t)n;
		offset += (uint64_t)n;
	}
	return 0;
}

/* Reads at the offset, or if it is -1 at the file position. */
static ssize_t files_read(int fd, char *buf, size_t max, off_t offset)
{
	size_t have = 0;

	while (have < max) {
		ssize_t n = offset < 0 ?
			    read(fd, buf + have, max - have) :
			    pread(fd, buf + have, max - have,
				  offset + (off_t)have);

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return -errno;
		if (n == 0)
			break;
		have += (size_t)n;
	}
	return (ssize_t)have;
}

ssize_t rsh_read_all(int fd, void *buf, size_t max)
{
	return files_read(fd, buf, max, -1);
}

ssize_t rsh_pread_all(int fd, void *buf, size_t max, uint64_t offset)
{
	return offset > INT64_MAX ? -EINVAL :
				    files_read(fd, buf, max, (off_t)offset);
}

int rsh_file_replace(int dirfd, const char *name, const char *temporary,
		     mode_t mode, rsh_file_fill *fill, void *ctx)
{
	int fd = openat(dirfd, temporary,
			O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, mode);
	int rc;

	if (fd < 0)
		return -errno;
	rc = fill(ctx, fd);
	if (close(fd) != 0 && rc == 0)
		rc = -errno;
	if (rc == 0 && renameat(dirfd, temporary, dirfd, name) != 0)
		rc = -errno;
	if (rc)
		unlinkat(dirfd, temporary, 0);
	return rc;
}
