/* SPDX-License-Identifier: Apache-2.0 */
/* source/header.c reads headers of safetensors files, and their hashes. */
#include "config.h"

#define XXH_INLINE_ALL
#include "header_i.h"

#include <stdlib.h>
#include <string.h>

#include "rsh/util/mem.h"
#include "rsh/wire/safetensors.h"

#define LENGTH_BYTES 8

static bool header_read_all(const struct rsh_byte_source *file, uint8_t *buf,
			    size_t len)
{
	for (size_t at = 0; at < len;) {
		ssize_t n = file->pread_fn(file->ctx, buf + at, len - at, at);

		if (n <= 0)
			return false;
		at += (size_t)n;
	}
	return true;
}

static uint64_t header_length(const uint8_t bytes[LENGTH_BYTES])
{
	uint64_t n = 0;

	for (unsigned i = LENGTH_BYTES; i-- > 0;)
		n = n << 8 | bytes[i];
	return n;
}

void rsh_header_read(const struct rsh_byte_source *file,
		     struct rsh_header *out)
{
	uint8_t length[LENGTH_BYTES];
	cleanup_free uint8_t *bytes = NULL;
	uint64_t n;

	*out = (struct rsh_header){ .file = file };
	if (file->size < LENGTH_BYTES ||
	    !header_read_all(file, length, sizeof(length)))
		return;
	n = header_length(length);
	if (n > RSH_SAFETENSORS_HEADER_MAX || n > file->size - LENGTH_BYTES)
		return;
	bytes = rsh_alloc_array((size_t)n + LENGTH_BYTES, 1);
	if (!bytes || !header_read_all(file, bytes, (size_t)n + LENGTH_BYTES))
		return;
	out->n = (size_t)n + LENGTH_BYTES;
	/* The size decides what of the header is right. */
	out->hash = XXH3_128bits_withSeed(bytes, out->n, file->size);
	out->bytes = steal_pointer(&bytes);
}

void rsh_header_clear(struct rsh_header *h)
{
	free(h->bytes);
	h->bytes = NULL;
}

static ssize_t header_pread(void *ctx, void *buf, size_t len, uint64_t offset)
{
	const struct rsh_header *h = ctx;

	if (offset >= h->n || len > h->n - offset)
		return h->file->pread_fn(h->file->ctx, buf, len, offset);
	memcpy(buf, h->bytes + offset, len);
	return (ssize_t)len;
}

struct rsh_byte_source rsh_header_source(struct rsh_header *h)
{
	struct rsh_byte_source s = *h->file;

	if (h->bytes) {
		s.pread_fn = header_pread;
		s.ctx = h;
	}
	return s;
}
