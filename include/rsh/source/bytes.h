/* SPDX-License-Identifier: Apache-2.0 */
/* source/bytes.h - the files of a source one by one, for who reads many runs
 * of a file at a time.
 *
 * Any thread may use all of it. */
#ifndef RSH_SOURCE_BYTES_H
#define RSH_SOURCE_BYTES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct rsh_source;
struct rsh_source_file;

/* The file of a rank that holds the byte at *offset of its index, which becomes
 * the offset in that file; NULL if the rank has none. */
struct rsh_source_file *rsh_source_file_at(const struct rsh_source *s,
					   uint32_t rank, uint64_t *offset);

/* What is done with a descriptor of the file: 0 or a positive errno. */
typedef int rsh_file_use_fn(void *ctx, int fd);
/* Opens the file where it is not, calls fn, and sees to it that the file has
 * stayed the same; nothing that was read may be used otherwise.  Begins anew,
 * and calls fn again, where the file could not be reached and may be by now;
 * `wait`: for as long as rsh_source_read() does.  0, or what the reader is to
 * see: -ESTALE, -ENOMEM or -EIO. */
int rsh_file_use(struct rsh_source *s, struct rsh_source_file *f, bool wait,
		 rsh_file_use_fn *fn, void *ctx);

/* Reads all of [offset, offset+len) of the file, of which fd is an open
 * descriptor: 0, or a positive number for rsh_file_use_fn to return. */
int rsh_file_pread(struct rsh_source *s, struct rsh_source_file *f, int fd,
		   void *buf, size_t len, uint64_t offset);
/* The range was read and its pages will not be missed: `partly`, for the sake
 * of some of its bytes. */
void rsh_file_spent(const struct rsh_source *s, int fd, uint64_t offset,
		    uint64_t len, bool partly);

/* As rsh_source_read(), which waits. */
int rsh_source_read_at(struct rsh_source *s, uint32_t rank, uint64_t offset,
		       void *buf, size_t len, bool wait);

#endif
