/* SPDX-License-Identifier: Apache-2.0 */
/* util/files.h - suffixes of file names, complete reads and writes, atomic
 * replacement of files, and lists of buffers.  No function keeps state: any
 * thread may call them. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/types.h>
#include <sys/uio.h>

/* Returns whether the name is longer than the suffix and ends in it. */
bool rsh_has_suffix(const char *name, const char *suffix);
/* Returns the part of a path behind its last slash. */
const char *rsh_path_name(const char *path);
/* Returns the directory of a path, from malloc: "." if it has no slash; NULL
 * means out of memory. */
char *rsh_path_directory(const char *path);
/* Returns whether a path has only plain names: it is not absolute, has no empty
 * part, "." or "..", and is not empty. */
bool rsh_path_is_plain(const char *path);
/* Returns false for NULL, for a directory, and if stat(2) fails. */
bool rsh_is_file(const char *path);

/* Copies what follows `key` in the first line of a file that begins with it.
 * Returns whether there is such a line. */
bool rsh_file_line(const char *path, const char *key, char *value, size_t size);

static inline void rsh_file_guard_(FILE **f)
{
	if (*f)
		fclose(*f);
}
#define cleanup_file __attribute__((cleanup(rsh_file_guard_)))

/* Writes all `len` bytes at the offset.  Returns 0 or -errno.  Threads may
 * write different parts of one file. */
int rsh_write_all(int fd, const void *data, size_t len, uint64_t offset);

/* Reads `max` bytes, or fewer if the file ends before.  Returns their number or
 * -errno. */
ssize_t rsh_read_all(int fd, void *buf, size_t max);
/* Does the same at an offset; the file position stays. */
ssize_t rsh_pread_all(int fd, void *buf, size_t max, uint64_t offset);

/* Writes the content of an empty file to fd.  Returns 0 or -errno. */
typedef int rsh_file_fill(void *ctx, int fd);

/* Creates or replaces the file `name` of a directory: creates the file
 * `temporary` there (-EEXIST if it exists), calls `fill` to write it and
 * renames it to `name`.  A reader of `name` gets either the old or all of the
 * new content.  If the content must survive a power failure, `fill` syncs the
 * file and the caller the directory.  Returns 0, or -errno after `temporary`
 * was removed (unless it existed before). */
int rsh_file_replace(int dirfd, const char *name, const char *temporary,
		     mode_t mode, rsh_file_fill *fill, void *ctx);

/* Removes n bytes, which were read or written, from the front of the *count
 * buffers at *v, and the buffers that are empty then. */
static inline void rsh_iov_advance(struct iovec **v, size_t *count, size_t n)
{
	while (*count && n >= (*v)->iov_len) {
		n -= (*v)->iov_len;
		++*v;
		--*count;
	}
	if (!*count)
		return;
	(*v)->iov_base = (char *)(*v)->iov_base + n;
	(*v)->iov_len -= n;
}
