/* SPDX-License-Identifier: Apache-2.0 */
/* formats/ckpt/encrypted.c checks the blocks of an encrypted .ckpt.
 *
 * A block is: its cipher's magic number; for AES-GCM a tag; the length of what
 * follows; the length of the initialization vector; the vector; the length of
 * the cipher text; the cipher text. */
#include "config.h"

#include "ckpt_i.h"

#include <errno.h>

#include "rsh/wire/bytes.h"

#define MAGIC_AES_GCM 0x7f3a5ed8u
#define MAGIC_AES_CBC 0x7f3a5ed9u
#define MAGIC_SM4_CBC 0x7f3a5edau
#define TAG_BYTES 16
#define VECTOR_BYTES 16
#define LENGTH_BYTES 4
/* A block has these bytes between its length and its cipher text. */
#define INNER_BYTES (LENGTH_BYTES + VECTOR_BYTES + LENGTH_BYTES)

/* Moves *at past the block. */
static int encrypted_skip_block(const struct rsh_byte_source *src,
				uint32_t magic, uint64_t *at,
				struct rsh_error *err)
{
	uint8_t h[LENGTH_BYTES + INNER_BYTES];
	uint64_t start = *at, bytes;
	int rc;

	start += LENGTH_BYTES + (magic == MAGIC_AES_GCM ? TAG_BYTES : 0);
	rc = rsh_bytes_read(src, h, sizeof(h), start, err);
	if (rc)
		return rc;
	bytes = rsh_le32(h);
	if (rsh_le32(h + LENGTH_BYTES) != VECTOR_BYTES ||
	    bytes != (uint64_t)INNER_BYTES +
		     rsh_le32(h + 2 * LENGTH_BYTES + VECTOR_BYTES))
		return rsh_bytes_damaged(src, start, "no block of an encrypted "
					 "checkpoint", err);
	start += LENGTH_BYTES;
	if (bytes > src->size - start)
		return rsh_bytes_damaged(src, src->size, "truncated within an "
					 "encrypted block", err);
	*at = start + bytes;
	return 0;
}

int rsh_encrypted_check(const struct rsh_byte_source *src,
			struct rsh_error *err)
{
	uint8_t start[LENGTH_BYTES];
	uint32_t magic;
	uint64_t at = 0;
	int rc;

	if (src->size < sizeof(start))
		return -ENOTSUP;
	do {
		rc = rsh_bytes_read(src, start, sizeof(start), at, err);
		if (rc)
			return rc;
		magic = rsh_le32(start);
		if (!(magic == MAGIC_AES_GCM || magic == MAGIC_AES_CBC ||
		      magic == MAGIC_SM4_CBC))
			return at == 0 ? -ENOTSUP :
			       rsh_bytes_damaged(src, at, "no block of an "
						 "encrypted checkpoint", err);
		rc = encrypted_skip_block(src, magic, &at, err);
	} while (rc == 0 && at < src->size);
	return rc;
}
