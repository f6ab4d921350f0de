/* SPDX-License-Identifier: Apache-2.0 */
/* cache/pack.c - the compressed tier.
 *
 * While memory is short the packer compresses what was not used for longest,
 * into a buffer of its own, during which the block stays readable; if nobody
 * came, the result takes the place of the content and the pages behind it go
 * back.  So packing needs no memory at the very moment when there is none. */
#include "config.h"

#include "cache_i.h"

#include <errno.h>
#include <lz4.h>
#include <stdlib.h>
#include <string.h>

/* The packer starts when less than this part of the memory is free or about to
 * be, and leaves this part plain: what is used again and again must not be
 * unpacked again and again. */
#define FREE_PART 16
#define PLAIN_PART 4

/* How many blocks it looks at to find one that is worth trying. */
#define LOOK_AT 64

/* After so many failures with blocks of one file, one after another, so many
 * are passed over before the next attempt. */
#define VAIN_MAX 4
#define VAIN_SKIP 64

/* A block must get smaller than this, in whole pages, to stay packed. */
static uint32_t packed_max(const struct rsh_cache *c, uint32_t len)
{
	return (len / 4 * 3) & ~(c->page_bytes - 1);
}

uint64_t rsh_pack_bytes(const struct rsh_cache *c)
{
	if (c->compress == RSH_CACHE_COMPRESS_OFF)
		return 0;
	return packed_max(c, c->block_bytes) + (uint64_t)LZ4_sizeofState();
}

int rsh_pack_init(struct rsh_cache *c)
{
	if (c->compress == RSH_CACHE_COMPRESS_OFF)
		return 0;
	c->pack_buf = malloc(packed_max(c, c->block_bytes) + 1);
	c->pack_state = malloc((size_t)LZ4_sizeofState());
	return c->pack_buf && c->pack_state ? 0 : -ENOMEM;
}

/* ---- what to pack ---- */

static bool is_short(const struct rsh_cache *c)
{
	const uint64_t part = c->bound / FREE_PART;
	const uint64_t want = part > 2 * c->block_bytes ? part :
							  2 * c->block_bytes;
	const uint64_t soon = (uint64_t)(c->warm.n + c->spent.n) *
			      c->block_bytes;

	return c->bound - c->used + soon < want &&
	       c->plain_bytes > c->bound / PLAIN_PART;
}

static bool worth_trying(struct rsh_cache *c, struct rsh_cache_block *b)
{
	struct rsh_cache_file_info *f = &c->files.files[b->file];

	if (b->unpackable)
		return false;
	if (packed_max(c, b->len) && !f->skip)
		return true;
	b->unpackable = true;
	if (f->skip)
		f->skip--;
	return false;
}

static struct rsh_cache_block *choose(struct rsh_cache *c)
{
	struct rsh_cache_block *b = TAILQ_FIRST(&c->plain.blocks);

	for (unsigned i = 0; b && i < LOOK_AT; i++, b = TAILQ_NEXT(b, list))
		if (worth_trying(c, b))
			return b;
	return NULL;
}

static void note_result(struct rsh_cache *c, const struct rsh_cache_block *b,
			uint32_t packed)
{
	struct rsh_cache_file_info *f = &c->files.files[b->file];

	if (packed) {
		f->vain = 0;
		return;
	}
	c->stats.incompressible++;
	if (c->compress == RSH_CACHE_COMPRESS_AUTO && ++f->vain >= VAIN_MAX)
		f->skip = VAIN_SKIP;
}

/* ---- packing ---- */

/* Lock held, given up meanwhile.  The caller is the block's only user. */
static void replace(struct rsh_cache *c, struct rsh_cache_block *b,
		    uint32_t packed)
{
	rsh_block_settle(c, b, RSH_BLOCK_LOADING);
	pthread_mutex_unlock(&c->lock);
	memcpy(b->mem, c->pack_buf, packed);
	pthread_mutex_lock(&c->lock);
	b->packed_len = packed;
	rsh_block_trim(c, b, packed);
	rsh_block_settle(c, b, RSH_BLOCK_PACKED);
	c->stats.compressed++;
	c->stats.compress_in += b->len;
	c->stats.compress_out += packed;
}

bool rsh_pack_step(struct rsh_cache *c)
{
	struct rsh_cache_block *b = NULL;
	uint64_t last_use;
	uint32_t packed;

	if (!c->packer.stop && is_short(c))
		b = choose(c);
	if (!b)
		return false;
	last_use = b->last_use;
	rsh_block_ref(c, b);
	pthread_mutex_unlock(&c->lock);
	packed = (uint32_t)LZ4_compress_fast_extState(
		c->pack_state, (const char *)b->mem, (char *)c->pack_buf,
		(int)b->len, (int)packed_max(c, b->len), 1);
	pthread_mutex_lock(&c->lock);

	note_result(c, b, packed);
	if (!packed)
		b->unpackable = true;
	else if (b->refs == 1 && b->last_use == last_use)
		replace(c, b, packed);
	rsh_block_unhold(c, b);
	return true;
}

void rsh_pack_kick(struct rsh_cache *c)
{
	if (c->compress != RSH_CACHE_COMPRESS_OFF && is_short(c))
		rsh_worker_kick(&c->packer);
}

/* ---- unpacking ---- */

bool rsh_unpack(struct rsh_cache *c, struct rsh_cache_block *b)
{
	struct rsh_cache_block *frame;
	int n;

	rsh_block_ref(c, b);
	rsh_block_settle(c, b, RSH_BLOCK_LOADING);
	frame = rsh_block_take(c, b->len);
	if (!frame) {
		rsh_block_settle(c, b, RSH_BLOCK_PACKED);
		rsh_block_unref(c, b, 0);
		return false;
	}
	rsh_block_fit(c, frame, b->len);
	pthread_mutex_unlock(&c->lock);
	n = LZ4_decompress_safe((const char *)b->mem, (char *)frame->mem,
				(int)b->packed_len, (int)b->len);
	pthread_mutex_lock(&c->lock);
	if (n != (int)b->len)
		abort(); /* somebody wrote to memory that is not his */
	rsh_block_swap(c, b, frame);
	rsh_block_settle(c, b, RSH_BLOCK_PLAIN);
	rsh_block_give(c, frame);
	return true;
}
