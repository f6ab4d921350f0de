/* SPDX-License-Identifier: Apache-2.0 */
/* wire/tar_check.c finds out whether a tar archive reaches its end.  PyTorch
 * wrote such files before 0.1.10, and still reads them. */
#include "config.h"

#include "torch_legacy_i.h"

#include <string.h>

#include "rsh/wire/bytes.h"
#include "rsh/wire/intact.h"

#define TAR_BLOCK_BYTES 512u
#define TAR_SIZE_AT 124
#define TAR_SIZE_BYTES 12
#define TAR_MAGIC_AT 257
/* Zeros fill the last record of a tar archive, which has this many bytes. */
#define TAR_RECORD_BYTES 10240u

/* Reads a size: octal digits, or a binary number if they are too few for it. */
static uint64_t tar_size(const uint8_t *p)
{
	uint64_t size = 0;

	if (p[0] == 0x80)
		for (size_t i = 4; i < TAR_SIZE_BYTES; i++)
			size = size << 8 | p[i];
	else
		for (size_t i = 0; i < TAR_SIZE_BYTES; i++)
			if (p[i] >= '0' && p[i] <= '7')
				size = size * 8 + (uint64_t)(p[i] - '0');
	return size;
}

bool rsh_torch_is_tar(const uint8_t *start, size_t n)
{
	return n >= RSH_TORCH_START &&
	       memcmp(start + TAR_MAGIC_AT, "ustar", 5) == 0;
}

int rsh_torch_tar_check(const struct rsh_byte_source *src,
			struct rsh_error *err)
{
	static const uint8_t zeros[TAR_BLOCK_BYTES];
	uint8_t block[TAR_BLOCK_BYTES];
	unsigned n_zeros = 0;
	uint64_t at = 0;

	/* Two blocks of zeros end the archive. */
	while (n_zeros < 2) {
		uint64_t size = 0;
		int rc = rsh_bytes_read(src, block, sizeof(block), at, err);

		if (rc)
			return rc;
		at += sizeof(block);
		if (memcmp(block, zeros, sizeof(block)) == 0) {
			n_zeros++;
			continue;
		}
		n_zeros = 0;
		if (!rsh_torch_is_tar(block, sizeof(block)))
			return rsh_bytes_damaged(src, at - sizeof(block), "no "
						 "header of a tar archive",
						 err);
		size = tar_size(block + TAR_SIZE_AT);
		if (size > src->size - at)
			return rsh_bytes_damaged(src, at, "truncated: the file "
						 "ends within an entry", err);
		at += size + (TAR_BLOCK_BYTES - size % TAR_BLOCK_BYTES) %
			     TAR_BLOCK_BYTES;
	}
	/* Blocks that a crash of the machine kept from the disk may read as
	 * zeros, so more zeros than fill a tar record are suspicious. */
	return src->size - at < TAR_RECORD_BYTES ? 0 :
	       rsh_bytes_damaged(src, at, "the file goes on after its archive",
				 err);
}
