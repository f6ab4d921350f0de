/* SPDX-License-Identifier: Apache-2.0 */
/* wire/ckpt_crc.c compares the checksum of a .ckpt with its CRC trailer. */
#include <errno.h>
#include <string.h>

#include <zlib.h>

#include "rsh/util/checked.h"
#include "rsh/util/mem.h"
#include "rsh/wire/ckpt.h"

#define STEP_BYTES (1024 * 1024)

int rsh_ckpt_check_crc(const struct rsh_byte_source *src,
		       const struct rsh_ckpt_index *index,
		       struct rsh_error *err)
{
	cleanup_free uint8_t *buf = NULL;
	uint64_t end, at = 0;
	uLong crc = crc32(0, NULL, 0);

	if (!index->has_crc)
		return 0;
	buf = rsh_alloc_array(STEP_BYTES, 1);
	if (!buf)
		return rsh_error_nomem(err);
	end = index->file_bytes - RSH_CRC_TRAILER_BYTES;
	while (at < end) {
		ssize_t n = src->pread_fn(src->ctx, buf,
					  rsh_min_u64(STEP_BYTES, end - at),
					  at);

		if (n <= 0)
			return rsh_error_set(err, n ? (int)-n : ESTALE,
					     "%s: offset %llu: %s", src->path,
					     (unsigned long long)at,
					     n ? strerror((int)-n) :
						 "the file became shorter");
		crc = crc32(crc, buf, (uInt)n);
		at += (uint64_t)n;
	}
	return crc == index->crc ? 0 :
	       rsh_error_set(err, EBADMSG, "%s: damaged: its CRC is %08x, the "
			     "file says %08x", src->path, (uint32_t)crc,
			     index->crc);
}
