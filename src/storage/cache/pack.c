/* SPDX-License-Identifier: Apache-2.0 */
/* storage/cache/pack.c decides for each tensor whether its blocks are
 * compressed.
 *
 * A sample of a block shows whether compression pays.  If the last samples of a
 * tensor did not pay, only one block in 32 is sampled: rows that no training
 * step has changed may begin in the middle of the tensor. */
#include "config.h"

#include "cache_i.h"

#include <stdlib.h>

#include "rsh/util/mem.h"
#include "rsh/util/pack.h"

/* This many blocks are not sampled after one sample that did not pay, which may
 * be an exception, and after the second in a row. */
#define WAIT_FIRST 1
#define WAIT_AGAIN 31

/* Compressible content of an unknown type is mostly fp32. */
#define LIKELY_UNIT 4

/* Returns the verdict of a tensor; a new one is empty. */
static struct rsh_verdict *verdict_find(struct rsh_cache *c,
					rsh_cache_file file,
					const struct rsh_cache_kind *kind)
{
	const uint64_t h = (kind->tensor + 1 +
			    file * UINT64_C(0xc2b2ae3d27d4eb4f)) *
			   UINT64_C(0x9e3779b97f4a7c15);
	struct rsh_verdict *v = &c->verdicts[(h >> 32) & (c->n_heads - 1)];
	const uint32_t tag = (uint32_t)(h >> 8) | 1;

	if (v->tag != tag)
		*v = (struct rsh_verdict){ .tag = tag };
	return v;
}

/* Compresses the content to `room` if that pays; `room` is allocated for this
 * length if it is NULL.  Returns the compressed size, or 0. */
static uint32_t content_pack(const uint8_t *content, uint32_t len,
			     unsigned unit, uint8_t **room)
{
	const size_t max = (size_t)len * RSH_PACK_NUMERATOR /
			   RSH_PACK_DENOMINATOR;

	if (!unit && rsh_pack_pays(content, len, LIKELY_UNIT))
		unit = LIKELY_UNIT;
	else if (!rsh_pack_pays(content, len, unit))
		return 0;
	if (!*room)
		*room = malloc(max);
	return *room ? (uint32_t)rsh_pack(content, len, unit, *room, max) : 0;
}

void rsh_blocks_pack(struct rsh_cache *c, struct rsh_cache_block **blocks,
		     const struct rsh_cache_kind *kinds, unsigned n)
{
	cleanup_free uint8_t *room = NULL;

	/* The first one is the longest: only the last of a file is short. */
	for (unsigned i = 0; c->compress && i < n; i++) {
		struct rsh_cache_block *b = blocks[i];
		struct rsh_verdict *v = verdict_find(c, b->file, &kinds[i]);
		uint32_t size = 0;

		if (v->left) {
			v->left--;
		} else {
			pthread_mutex_unlock(&c->lock);
			size = content_pack(b->mem, b->len, kinds[i].unit,
					    &room);
			pthread_mutex_lock(&c->lock);
			v = verdict_find(c, b->file, &kinds[i]);
			v->left = size ? 0 : v->missed ? WAIT_AGAIN : WAIT_FIRST;
			v->missed = !size;
		}
		if (!size) {
			c->stats.left++;
			c->stats.left_bytes += b->len;
			continue;
		}
		c->stats.packed++;
		c->stats.packed_from += b->len;
		c->stats.packed_to += size;
		rsh_block_keep_packed(c, b, room, size);
	}
}
