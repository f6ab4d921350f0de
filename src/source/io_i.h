/* SPDX-License-Identifier: Apache-2.0 */
/* source/io_i.h - reads of source files, for this layer only. */
#ifndef RSH_SOURCE_IO_I_H
#define RSH_SOURCE_IO_I_H

#include <stddef.h>
#include <sys/types.h>

#include "rsh/source/io.h"

struct rsh_source;
struct rsh_source_file;

/* Of a source: RSH_WAY_OPEN until its first read tells. */
enum rsh_way { RSH_WAY_OPEN, RSH_WAY_STRAIGHT, RSH_WAY_CACHE };

/* ---- faults (fault.c) ---- */

struct rsh_faults;

/* 0, or -EINVAL with a sentence that names the fault. */
int rsh_faults_new(const char *text, struct rsh_faults **out,
		   struct rsh_error *err);
void rsh_faults_free(struct rsh_faults *f);

/* Before a read of [offset, offset + *len) of the file: waits as long as it has
 * to, may shorten *len (to 0: the file ends here).  0 or a positive errno. */
int rsh_faults_apply(struct rsh_faults *f, const char *name, uint64_t offset,
		     size_t *len);

/* After a read of [offset, offset + len): turns over what is to be, the same
 * bits of a file each time. */
void rsh_faults_flip(const struct rsh_faults *f, const char *name,
		     uint64_t offset, void *buf, size_t len);
bool rsh_faults_flip_any(const struct rsh_faults *f);

/* ---- reads (io.c) ---- */

/* To be called once the files of a source have their identity.  Reads nothing:
 * where that decides whether they are cached, the first reads will tell. */
void rsh_source_io_attach(struct rsh_source *s);

/* For a struct rsh_byte_source: what is read before that, headers and checksums,
 * which of all faults meet the flipped bytes alone. */
struct rsh_scan_file {
	const struct rsh_source_io *io; /* NULL: of no source */
	const char *name;               /* below the source */
	int fd;
};
ssize_t rsh_scan_pread(void *scan_file, void *buf, size_t len, uint64_t offset);
/* As pread(), of content and past any cache: all faults meet it, and it is
 * counted.  `io` may be NULL. */
ssize_t rsh_source_io_pread(struct rsh_source_io *io, const char *name, int fd,
			    void *buf, size_t len, uint64_t offset);
/* False if what is scanned may not be what the file holds. */
bool rsh_source_io_is_true(const struct rsh_source_io *io);

/* Reads what could not be read last, past any cache, to see whether it can be
 * now.  0, or a positive errno or RSH_CHANGED. */
int rsh_file_read_again(struct rsh_source *s, struct rsh_source_file *f,
			int fd);
/* The object outlives rsh_source_io_free(). */
void rsh_source_io_keep(struct rsh_source_io *io);

/* That of linux/fuse.h is for servers. */
#define RSH_FUSE_MAGIC 0x65735546

/* True if reads of the file give its bytes as they are and keep nothing.  May
 * read a little of it to find out. */
bool rsh_file_is_straight(struct rsh_source *s, struct rsh_source_file *f);

#endif
