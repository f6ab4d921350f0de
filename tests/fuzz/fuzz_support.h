/* SPDX-License-Identifier: Apache-2.0 */
/* fuzz/fuzz_support.h - what the targets share: a demand, and bytes that are
 * read as a file is. */
#ifndef FUZZ_SUPPORT_H
#define FUZZ_SUPPORT_H

#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/types.h>

static inline void require(bool condition)
{
	if (!condition)
		abort();
}

struct fuzz_bytes {
	const uint8_t *data;
	size_t size;
};

/* Reads what there is. */
static inline ssize_t fuzz_pread(void *ctx, void *buf, size_t len,
				 uint64_t offset)
{
	const struct fuzz_bytes *b = ctx;

	if (offset >= b->size)
		return 0;
	if (len > b->size - offset)
		len = b->size - offset;
	if (len)
		memcpy(buf, b->data + offset, len);
	return (ssize_t)len;
}

/* Reads for one who knows the size: whoever reads beyond the end did not look
 * at it. */
static inline ssize_t fuzz_pread_within(void *ctx, void *buf, size_t len,
					uint64_t offset)
{
	const struct fuzz_bytes *b = ctx;

	require(offset <= b->size && len <= b->size - offset);
	return fuzz_pread(ctx, buf, len, offset);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#endif
