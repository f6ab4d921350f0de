/* SPDX-License-Identifier: Apache-2.0 */
/* formats/versions/frame.c inflates the tensors of a delta and applies them,
 * forwards, in memory that does not depend on their size.
 *
 * A frame of trainers has a window of 512 KiB at most.  One that needs more
 * than WINDOW_LOG_MAX is refused, since all deltas of a chain are inflated side
 * by side. */
#include "config.h"

#include "versions_i.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include <zlib.h>
#include <zstd.h>
#include <zstd_errors.h>

#include "rsh/util/checked.h"
#include "rsh/util/mem.h"
#include "rsh/util/text.h"
#include "rsh/util/xxh3.h"
#include "rsh/wire/bytes.h"

#define WINDOW_LOG_MAX 21
#define READY_BYTES 4096
/* A window, blocks before and after it, and the tables. */
#define FRAME_MEMORY ((size_t)1 << 20)
/* The header of a frame has so many bytes at most. */
#define HEADER_BYTES 18
/* An overwritten byte has a position and a value. */
#define POSITION_BYTES 4
#define OVERWRITTEN_BYTES 5

struct frame {
	struct rsh_frame_place at;
	ZSTD_DStream *z;
	uint64_t read; /* bytes of the file */
	ZSTD_inBuffer in;
	uint8_t *buf; /* [at.chunk] */
	bool ended;
	/* Inflated bytes that were not asked for yet: a call of the library for
	 * each position would take most of the time. */
	size_t at_ready, n_ready;
	uint8_t ready[READY_BYTES];
};

static void frame_close(struct frame *f)
{
	if (!f)
		return;
	ZSTD_freeDStream(f->z);
	free(f->buf);
	free(f);
}

/* Returns 0 and *out, which the caller closes, or -ENOMEM. */
static int frame_open(const struct rsh_frame_place *at, struct frame **out)
{
	struct frame *f = calloc(1, sizeof(*f));

	*out = f;
	if (!f)
		return -ENOMEM;
	f->at = *at;
	f->at.chunk = (size_t)rsh_min_u64(at->chunk, at->length);
	f->buf = malloc(f->at.chunk + 1);
	f->in.src = f->buf;
	f->z = ZSTD_createDStream();
	if (f->buf && f->z &&
	    !ZSTD_isError(ZSTD_initDStream(f->z)) &&
	    !ZSTD_isError(ZSTD_DCtx_setParameter(f->z, ZSTD_d_windowLogMax,
						 WINDOW_LOG_MAX)))
		return 0;
	frame_close(f);
	*out = NULL;
	return -ENOMEM;
}

size_t rsh_frame_memory(const struct rsh_frame_place *at)
{
	return FRAME_MEMORY + at->chunk;
}

/* Inflates some bytes.  *n is how many there may be, then how many there are;
 * 0: the frame has ended. */
static int frame_inflate(struct frame *f, uint8_t *buf, size_t *n)
{
	ZSTD_outBuffer out = { buf, *n, 0 };

	while (out.pos == 0 && !f->ended) {
		size_t left, used;

		/* Reads more of the file, if all that was read is used. */
		left = (size_t)rsh_min_u64(f->at.chunk,
					   f->at.length - f->read);
		if (f->in.pos == f->in.size && left > 0) {
			int rc = f->at.read(f->at.ctx, f->at.file,
					    f->at.offset + f->read, f->buf,
					    left);

			if (rc)
				return rc;
			f->read += left;
			f->in.pos = 0;
			f->in.size = left;
		}
		used = f->in.pos;
		left = ZSTD_decompressStream(f->z, &out, &f->in);
		if (ZSTD_isError(left))
			return ZSTD_getErrorCode(left) ==
			       ZSTD_error_memory_allocation ? -ENOMEM :
							      -EBADMSG;
		f->ended = left == 0;
		/* The frame is cut. */
		if (out.pos == 0 && f->in.pos == used && !f->ended &&
		    f->read == f->at.length)
			return -EBADMSG;
	}
	*n = out.pos;
	return 0;
}

/* Reads exactly n bytes of the content.  Returns like rsh_change_apply(). */
static int frame_read(struct frame *f, uint8_t *buf, size_t n)
{
	int rc = 0;

	while (rc == 0 && n > 0) {
		size_t part = rsh_min_u64(n, f->n_ready - f->at_ready);

		if (part > 0) {
			memcpy(buf, f->ready + f->at_ready, part);
			f->at_ready += part;
		} else if (n >= READY_BYTES) {
			part = n;
			rc = frame_inflate(f, buf, &part);
		} else {
			f->at_ready = 0;
			f->n_ready = READY_BYTES;
			rc = frame_inflate(f, f->ready, &f->n_ready);
		}
		if (rc == 0 && part == 0 && f->at_ready == f->n_ready)
			return -EBADMSG;
		buf += part;
		n -= part;
	}
	return rc;
}

/* Checks that the content, and the bytes of the file, end here. */
static int frame_end(struct frame *f)
{
	uint8_t more;
	size_t n = 1;
	int rc = f->at_ready < f->n_ready ? -EBADMSG :
					    frame_inflate(f, &more, &n);

	return rc || (n == 0 && f->in.pos == f->in.size &&
		      f->read == f->at.length) ? rc : -EBADMSG;
}

int rsh_frame_size(const struct rsh_frame_place *at, uint64_t *size)
{
	uint8_t header[HEADER_BYTES];
	const size_t n = (size_t)rsh_min_u64(sizeof(header), at->length);
	unsigned long long says;
	int rc = at->read(at->ctx, at->file, at->offset, header, n);

	if (rc)
		return rc;
	says = ZSTD_getFrameContentSize(header, n);
	if (says == ZSTD_CONTENTSIZE_ERROR)
		return -EBADMSG;
	*size = says == ZSTD_CONTENTSIZE_UNKNOWN ? UINT64_MAX : says;
	return 0;
}

/* ---- applying ---- */

struct rsh_change {
	enum rsh_delta_form form;
	uint64_t bytes, at; /* of the tensor */
	struct frame *content; /* of xor; else the positions */
	/* Of overwrite: the values, which are after all positions in the same
	 * content, and how many positions are left, of which `next` is one. */
	struct frame *values;
	uint32_t count, left;
	uint64_t next;
	bool begun;
	uint8_t *buf; /* of xor */
	size_t cap;
};

uint64_t rsh_change_content_max(enum rsh_delta_form form, uint64_t bytes)
{
	uint64_t all;

	if (form == RSH_DELTA_XOR)
		return bytes;
	return rsh_mul_u64(bytes, OVERWRITTEN_BYTES, &all) &&
	       rsh_add_u64(all, POSITION_BYTES, &all) ? all : UINT64_MAX;
}

int rsh_change_open(const struct rsh_frame_place *at, enum rsh_delta_form form,
		    uint64_t bytes, struct rsh_change **out)
{
	struct rsh_change *c = calloc(1, sizeof(*c));
	int rc = c ? frame_open(at, &c->content) : -ENOMEM;

	if (rc == 0 && form == RSH_DELTA_OVERWRITE)
		rc = frame_open(at, &c->values);
	if (rc) {
		rsh_change_close(c);
		return rc;
	}
	c->form = form;
	c->bytes = bytes;
	*out = c;
	return 0;
}

void rsh_change_close(struct rsh_change *c)
{
	if (!c)
		return;
	frame_close(c->content);
	frame_close(c->values);
	free(c->buf);
	free(c);
}

/* Reads the next position, which is greater than the last one. */
static int next_position(struct rsh_change *c, uint64_t least)
{
	uint8_t at[POSITION_BYTES];
	int rc = frame_read(c->content, at, sizeof(at));

	if (rc)
		return rc;
	c->next = rsh_le32(at);
	c->left--;
	return c->next < least || c->next >= c->bytes ? -EBADMSG : 0;
}

static int begin_overwrite(struct rsh_change *c)
{
	uint8_t count[POSITION_BYTES], unused[READY_BYTES];
	uint64_t before;
	int rc = frame_read(c->content, count, sizeof(count));

	c->begun = true;
	c->next = UINT64_MAX;
	if (rc)
		return rc;
	c->count = c->left = rsh_le32(count);
	if (c->count > c->bytes)
		return -EBADMSG;
	before = POSITION_BYTES + (uint64_t)c->count * POSITION_BYTES;
	for (size_t part; rc == 0 && before > 0; before -= part) {
		part = (size_t)rsh_min_u64(before, sizeof(unused));
		rc = frame_read(c->values, unused, part);
	}
	return rc || c->left == 0 ? rc : next_position(c, 0);
}

static int apply_overwrite(struct rsh_change *c, uint8_t *p, size_t n)
{
	int rc = c->begun ? 0 : begin_overwrite(c);

	while (rc == 0 && c->next < c->at + n) {
		const uint64_t here = c->next;

		rc = frame_read(c->values, &p[here - c->at], 1);
		c->next = UINT64_MAX;
		if (rc == 0 && c->left > 0)
			rc = next_position(c, here + 1);
	}
	return rc;
}

int rsh_change_apply(struct rsh_change *c, uint8_t *p, size_t n)
{
	const bool xor = c->form == RSH_DELTA_XOR;
	int rc = !xor ? apply_overwrite(c, p, n) :
		 rsh_room(c->buf, c->cap, n) ?: frame_read(c->content, c->buf,
							   n);

	for (size_t i = 0; xor && rc == 0 && i < n; i++)
		p[i] ^= c->buf[i];
	c->at += n;
	if (rc || c->at < c->bytes)
		return rc;
	/* The values end the content. */
	return frame_end(xor ? c->content : c->values);
}

/* ---- checksums ---- */

static size_t sum_digits(enum rsh_sum_form form)
{
	return form == RSH_SUM_ADLER32 ? 8 : form == RSH_SUM_XXH3 ? 32 : 64;
}

bool rsh_sum_is_valid(enum rsh_sum_form form, const char *text)
{
	return strlen(text) == sum_digits(form) &&
	       strspn(text, "0123456789abcdef") == strlen(text);
}

int rsh_summing_begin(struct rsh_summing *s, enum rsh_sum_form form)
{
	s->form = form;
	s->adler = 1;
	s->xxh3 = NULL;
	if (form == RSH_SUM_BLAKE3)
		rsh_blake3_init(&s->blake3);
	if (form != RSH_SUM_XXH3)
		return 0;
	s->xxh3 = XXH3_createState();
	return s->xxh3 && XXH3_128bits_reset(s->xxh3) == XXH_OK ? 0 : -ENOMEM;
}

void rsh_summing_add(struct rsh_summing *s, const void *p, size_t n)
{
	if (s->form == RSH_SUM_XXH3)
		XXH3_128bits_update(s->xxh3, p, n);
	else if (s->form == RSH_SUM_BLAKE3)
		rsh_blake3_add(&s->blake3, p, n);
	else
		s->adler = (uint32_t)adler32_z(s->adler, p, n);
}

void rsh_summing_end(struct rsh_summing *s, char text[RSH_SUM_TEXT])
{
	const size_t n = sum_digits(s->form) / 2;
	uint8_t sum[RSH_SUM_BYTES] = { 0 };

	if (s->form == RSH_SUM_BLAKE3)
		rsh_blake3_end(&s->blake3, sum);
	else if (s->form == RSH_SUM_XXH3 && s->xxh3)
		XXH128_canonicalFromHash((XXH128_canonical_t *)(void *)sum,
					 XXH3_128bits_digest(s->xxh3));
	for (unsigned i = 0; s->form == RSH_SUM_ADLER32 && i < 4; i++)
		sum[i] = (uint8_t)(s->adler >> (24 - 8 * i));
	XXH3_freeState(s->xxh3);
	s->xxh3 = NULL;
	rsh_text_hex(text, sum, n);
}
