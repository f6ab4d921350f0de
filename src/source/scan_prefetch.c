/* SPDX-License-Identifier: Apache-2.0 */
/* source/scan_prefetch.c predicts which bytes a scan reads next, and reads them
 * in advance. */
#include "config.h"

#include "scan_prefetch_i.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "rsh/util/checked.h"
#include "rsh/util/mem.h"
#include "rsh/util/thread.h"

/* At most so many reads of a file run at the same time. */
#define MOST 64
/* A longer read is not a header. */
#define LONGEST_BYTES ((size_t)64 * 1024)
/* The numbers in names become longer, so a header may be so many bytes beside
 * the predicted offset. */
#define BESIDE_BYTES 512
/* Distances that differ by at most so much are those of similar layers. */
#define ALIKE_BYTES 64
/* So many earlier reads are searched, and so many are compared. */
#define LOOK_BACK 4096
#define COMPARED 64

struct guess_read {
	uint64_t offset;
	size_t len;
};

/* These bytes were read in advance. */
struct guess_block {
	uint64_t offset;
	size_t len;
	uint8_t *bytes; /* NULL: the bytes could not be read */
};

struct rsh_scan_prefetch {
	const struct rsh_byte_source *file;
	unsigned most; /* limit of predictions at a time */

	struct guess_read *past; /* what the scan has read */
	size_t n_past, cap;

	struct guess_block blocks[MOST];
	unsigned n_blocks;
	unsigned n_right; /* reads that were answered from the blocks */
};

/* ---- predicting the next reads ---- */

/* The distance of read i from the one before it, modulo 2^64. */
static uint64_t guess_step(const struct rsh_scan_prefetch *g, size_t i)
{
	return g->past[i].offset - g->past[i - 1].offset;
}

/* Finds the earlier read whose preceding reads are most similar to those of the
 * last one.  Returns its number, at least 1; 0 if there is none. */
static size_t guess_find_like(const struct rsh_scan_prefetch *g)
{
	const size_t last = g->n_past - 1;
	const size_t first = last > LOOK_BACK ? last - LOOK_BACK : 1;
	size_t best = 0, most = 0;

	for (size_t i = last; i-- > first;) {
		/* Reads up to read i that are similar to those up to the last
		 * one. */
		size_t n = 0;

		for (; n < COMPARED && n < i; n++) {
			const size_t x = i - n, y = last - n;
			const uint64_t apart = guess_step(g, x) -
					       guess_step(g, y);

			if (g->past[x].len != g->past[y].len ||
			    apart + ALIKE_BYTES > 2 * ALIKE_BYTES)
				break;
		}
		if (n > most) {
			most = n;
			best = i;
		}
	}
	return best;
}

/* Adds a block around a predicted read.  Returns false if the offset is outside
 * the file, or if memory is out. */
static bool guess_add(struct rsh_scan_prefetch *g, const struct guess_read *r)
{
	const uint64_t size = g->file->size;
	struct guess_block *b = &g->blocks[g->n_blocks];

	if (r->offset >= size)
		return false;
	b->offset = r->offset - rsh_min_u64(r->offset, BESIDE_BYTES);
	b->len = (size_t)rsh_min_u64(r->offset - b->offset + r->len +
				     BESIDE_BYTES, size - b->offset);
	b->bytes = malloc(b->len);
	if (!b->bytes)
		return false;
	g->n_blocks++;
	return true;
}

/* Adds blocks for the reads that followed the similar read.  If the last read
 * is reached, it continues again after the similar read. */
static void guess_add_next(struct rsh_scan_prefetch *g, unsigned n)
{
	const size_t like = g->n_past > 2 ? guess_find_like(g) : 0;
	struct guess_read r;
	size_t i = like;

	if (!like)
		return;
	r = g->past[g->n_past - 1];
	while (n--) {
		i = i + 1 < g->n_past ? i + 1 : like + 1;
		r.offset += guess_step(g, i);
		r.len = g->past[i].len;
		if (!guess_add(g, &r))
			return;
	}
}

/* ---- reading ---- */

static void guess_drop_blocks(struct rsh_scan_prefetch *g)
{
	while (g->n_blocks)
		free(g->blocks[--g->n_blocks].bytes);
	g->n_right = 0;
}

/* This is a round of reads: the one for which the scan waits, and the predicted
 * ones. */
struct guess_round {
	struct rsh_scan_prefetch *g;
	struct guess_read wanted;
	void *buf;
	ssize_t got;
	struct rsh_error why; /* the sentence that the reading thread kept */
};

/* This never fails: bytes that cannot be read in advance are read again if the
 * scan needs them. */
static int guess_work(void *ctx, size_t i, struct rsh_error *err)
{
	struct guess_round *r = ctx;
	const struct rsh_byte_source *file = r->g->file;
	struct guess_block *b = &r->g->blocks[i ? i - 1 : 0];

	(void)err;
	if (i == 0) {
		r->got = file->pread_fn(file->ctx, r->buf, r->wanted.len,
					r->wanted.offset);
		if (r->got < 0)
			rsh_error_kept(&r->why, (int)-r->got, file->path);
	} else if (file->pread_fn(file->ctx, b->bytes, b->len, b->offset) !=
		   (ssize_t)b->len) {
		free(b->bytes);
		b->bytes = NULL;
	}
	return 0;
}

static ssize_t guess_pread(void *ctx, void *buf, size_t len, uint64_t offset)
{
	struct rsh_scan_prefetch *g = ctx;
	struct guess_round round = {
		.g = g, .wanted = { offset, len }, .buf = buf, .got = -ENOMEM,
	};
	struct rsh_error err = RSH_ERROR_INIT;
	const struct guess_block *b = NULL;

	if (len > LONGEST_BYTES ||
	    rsh_push(g->past, g->n_past, g->cap, round.wanted))
		return g->file->pread_fn(g->file->ctx, buf, len, offset);
	for (unsigned i = 0; i < g->n_blocks && !b; i++) {
		const struct guess_block *at = &g->blocks[i];

		if (at->bytes && offset >= at->offset && len <= at->len &&
		    offset - at->offset <= at->len - len)
			b = at;
	}
	if (!b) {
		/* The number of predictions grows while they are right. */
		const unsigned n = (unsigned)rsh_min_u64(2 * g->n_right + 1,
							 g->most);

		guess_drop_blocks(g);
		guess_add_next(g, n);
		rsh_parallel_for(1 + g->n_blocks, 1 + g->n_blocks, guess_work,
				 &round, &err);
		if (round.why.code)
			rsh_error_keep(&round.why);
		return round.got;
	}
	g->n_right++;
	memcpy(buf, b->bytes + (offset - b->offset), len);
	return (ssize_t)len;
}

/* ---- the byte source ---- */

unsigned rsh_scan_prefetch_suited(unsigned far, size_t n_files)
{
	return (unsigned)rsh_max_u64(rsh_min_u64(far / n_files, MOST), 1);
}

struct rsh_scan_prefetch *
rsh_scan_prefetch_new(const struct rsh_byte_source *file, unsigned n)
{
	struct rsh_scan_prefetch *g = n > 1 ? calloc(1, sizeof(*g)) : NULL;

	if (!g)
		return NULL;
	g->file = file;
	g->most = (unsigned)rsh_min_u64(n, MOST) - 1;
	return g;
}

struct rsh_byte_source rsh_scan_prefetch_source(struct rsh_scan_prefetch *g,
					const struct rsh_byte_source *file)
{
	struct rsh_byte_source s = *file;

	if (g) {
		s.pread_fn = guess_pread;
		s.ctx = g;
	}
	return s;
}

void rsh_scan_prefetch_free(struct rsh_scan_prefetch *g)
{
	if (!g)
		return;
	guess_drop_blocks(g);
	free(g->past);
	free(g);
}
