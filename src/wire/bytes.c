/* SPDX-License-Identifier: Apache-2.0 */
/* wire/bytes.c reads exact numbers of bytes, and computes checksums. */
#include "config.h"

#include "rsh/wire/bytes.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include <zlib.h>

#include "rsh/util/checked.h"
#include "rsh/util/mem.h"

#define PIECE_BYTES (1024 * 1024)

int rsh_bytes_damaged(const struct rsh_byte_source *src, uint64_t offset,
		      const char *what, struct rsh_error *err)
{
	return rsh_error_set(err, EBADMSG, "%s: damaged at offset %" PRIu64
			     ": %s", src->path, offset, what);
}

int rsh_bytes_vdamaged(const struct rsh_byte_source *src, const char *name,
		       uint64_t offset, struct rsh_error *err, const char *fmt,
		       va_list ap)
{
	rsh_error_vset(err, EBADMSG, fmt, ap);
	if (name)
		rsh_error_prefix(err, "%s: parameter \"%s\" is damaged at "
				 "offset %" PRIu64, src->path, name, offset);
	else
		rsh_error_prefix(err, "%s: damaged at offset %" PRIu64,
				 src->path, offset);
	return -EBADMSG;
}

int rsh_bytes_read_some(const struct rsh_byte_source *src, void *buf,
			size_t len, uint64_t offset, size_t *got,
			struct rsh_error *err)
{
	ssize_t n = src->pread_fn(src->ctx, buf, len, offset);

	if (n < 0 && rsh_error_kept(err, (int)-n, src->path))
		return (int)n;
	if (n < 0)
		return rsh_error_set(err, (int)-n, "%s: cannot read at offset %"
				     PRIu64 ": %s", src->path, offset,
				     strerror((int)-n));
	*got = (size_t)n;
	return 0;
}

int rsh_bytes_read(const struct rsh_byte_source *src, void *buf, size_t len,
		   uint64_t offset, struct rsh_error *err)
{
	size_t got;
	int rc;

	if (offset > src->size || len > src->size - offset)
		return rsh_error_set(err, EBADMSG, "%s: truncated: %zu bytes "
				     "at offset %" PRIu64 " are missing of a "
				     "file of %" PRIu64, src->path, len,
				     offset, src->size);
	rc = rsh_bytes_read_some(src, buf, len, offset, &got, err);
	if (rc)
		return rc;
	if (got < len)
		return rsh_bytes_damaged(src, offset, "the file became shorter",
					 err);
	return 0;
}

uint32_t rsh_crc32(uint32_t crc, const uint8_t *p, size_t n)
{
	return (uint32_t)crc32(crc, p, (uInt)n);
}

int rsh_bytes_crc(const struct rsh_byte_source *src, uint64_t offset,
		  uint64_t len, rsh_crc_fn *fn, uint32_t *crc,
		  struct rsh_error *err)
{
	cleanup_free uint8_t *buf = malloc(PIECE_BYTES);
	int rc = 0;

	if (!buf)
		return rsh_error_nomem(err);
	*crc = 0;
	while (len > 0 && rc == 0) {
		size_t n = (size_t)rsh_min_u64(len, PIECE_BYTES);

		rc = rsh_bytes_read(src, buf, n, offset, err);
		if (rc == 0)
			*crc = fn(*crc, buf, n);
		offset += n;
		len -= n;
	}
	return rc;
}

ssize_t rsh_memory_pread(void *ctx, void *buf, size_t len, uint64_t offset)
{
	const struct rsh_memory *m = ctx;

	if (offset >= m->len)
		return 0;
	len = (size_t)rsh_min_u64(len, m->len - offset);
	memcpy(buf, (const uint8_t *)m->data + offset, len);
	return (ssize_t)len;
}
