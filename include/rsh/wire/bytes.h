/* SPDX-License-Identifier: Apache-2.0 */
/* wire/bytes.h - little-endian numbers and exact reads. */
#pragma once

#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include "rsh/util/error.h"
#include "rsh/wire/ckpt.h"

static inline uint16_t rsh_le16(const uint8_t *p)
{
	return (uint16_t)(p[0] | p[1] << 8);
}

static inline uint32_t rsh_le32(const uint8_t *p)
{
	return rsh_le16(p) | (uint32_t)rsh_le16(p + 2) << 16;
}

static inline uint64_t rsh_le64(const uint8_t *p)
{
	return rsh_le32(p) | (uint64_t)rsh_le32(p + 4) << 32;
}

/* Reads at most len bytes at offset.  *got is the number of bytes that were
 * read; it is less than len only at the end of the file. */
int rsh_bytes_read_some(const struct rsh_byte_source *src, void *buf,
			size_t len, uint64_t offset, size_t *got,
			struct rsh_error *err);
/* Reads exactly len bytes at offset.  Returns -EBADMSG if the file ends
 * before. */
int rsh_bytes_read(const struct rsh_byte_source *src, void *buf, size_t len,
		   uint64_t offset, struct rsh_error *err);

/* A checksum function continues the checksum `crc` with n bytes. */
typedef uint32_t rsh_crc_fn(uint32_t crc, const uint8_t *p, size_t n);
/* Computes the CRC-32 of zip archives. */
uint32_t rsh_crc32(uint32_t crc, const uint8_t *p, size_t n);
/* Computes the checksum of the len bytes at offset, which it reads piece by
 * piece. */
int rsh_bytes_crc(const struct rsh_byte_source *src, uint64_t offset,
		  uint64_t len, rsh_crc_fn *fn, uint32_t *crc,
		  struct rsh_error *err);

/* Sets the sentence "<path>: damaged at offset <offset>: <what>" and returns
 * -EBADMSG. */
int rsh_bytes_damaged(const struct rsh_byte_source *src, uint64_t offset,
		      const char *what, struct rsh_error *err);
/* Sets the same sentence with a formatted reason.  If `name` is not NULL, the
 * sentence is "<path>: parameter "<name>" is damaged at offset <offset>:
 * <reason>".  Returns -EBADMSG. */
int rsh_bytes_vdamaged(const struct rsh_byte_source *src, const char *name,
		       uint64_t offset, struct rsh_error *err, const char *fmt,
		       va_list ap) __attribute__((format(printf, 5, 0)));

/* The ctx of rsh_memory_pread() is this struct.  It describes bytes in
 * memory. */
struct rsh_memory {
	const void *data;
	size_t len;
};
ssize_t rsh_memory_pread(void *ctx, void *buf, size_t len, uint64_t offset);
