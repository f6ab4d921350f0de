/* SPDX-License-Identifier: Apache-2.0 */
/* util/files.h - ends of file names, files that are read to their end, files
 * that are written whole, and lists of buffers.  No function keeps anything between calls, so any
 * thread may call. */
#ifndef RSH_UTIL_FILES_H
#define RSH_UTIL_FILES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>
#include <sys/uio.h>

/* Tells whether the name ends in the suffix and has something before it. */
bool rsh_has_suffix(const char *name, const char *suffix);

/* Writes all `len` bytes at the offset, with as many calls as that takes.
 * Returns 0 or -errno.  Threads may write different stretches of one file. */
int rsh_write_all(int fd, const void *data, size_t len, uint64_t offset);

/* Reads up to `max` bytes, fewer only where the file ends, with as many calls as
 * that takes.  Returns how many, or -errno. */
ssize_t rsh_read_all(int fd, void *buf, size_t max);
/* Does so from the offset on, and leaves the descriptor where it is. */
ssize_t rsh_pread_all(int fd, void *buf, size_t max, uint64_t offset);

/* Writes the content of an empty file to fd.  Returns 0 or -errno. */
typedef int rsh_file_fill(void *ctx, int fd);

/* Replaces the file `name` of a directory, or makes it.  It makes the file
 * `temporary` there (-EEXIST if there is one), has `fill` write it and renames
 * it to `name`.  Whoever opens `name` finds either what was there before or all
 * of the new content.  Where the content has to outlast a power cut, `fill`
 * syncs the file and the caller the directory.  Returns 0, or -errno after
 * `temporary` was removed (unless it was there before). */
int rsh_file_replace(int dirfd, const char *name, const char *temporary,
		     mode_t mode, rsh_file_fill *fill, void *ctx);

/* Takes n bytes, which were read or written, off the front of the *count buffers
 * at *v, and those buffers that are empty then. */
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

#endif
