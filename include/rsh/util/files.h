/* SPDX-License-Identifier: Apache-2.0 */
/* util/files.h - names of files, and files that are written. */
#ifndef RSH_UTIL_FILES_H
#define RSH_UTIL_FILES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

/* True if the name ends in the suffix and has something before it. */
bool rsh_has_suffix(const char *name, const char *suffix);

/* Writes all of it at the offset, whatever number of calls that takes: 0 or
 * -errno.  Threads may write different stretches of one file. */
int rsh_write_all(int fd, const void *data, size_t len, uint64_t offset);

/* Writes the content of a file that is empty; 0 or -errno. */
typedef int rsh_file_fill(void *ctx, int fd);

/* Makes the file `temporary` in a directory, which must not have one of that
 * name (-EEXIST), lets it be filled and gives it the name `name`: whoever opens
 * that finds what was there before or all of the new content, whatever happens.
 * Where it has to outlast a power cut `fill` syncs the file, and the caller the
 * directory.  0 or -errno; then `temporary` is gone. */
int rsh_file_replace(int dirfd, const char *name, const char *temporary,
		     mode_t mode, rsh_file_fill *fill, void *ctx);

#endif
