/* SPDX-License-Identifier: Apache-2.0 */
/* storage/cache/cache.c makes and frees a cache, and tells its figures. */
#include "config.h"

#include "cache_i.h"

#include <errno.h>
#include <stdlib.h>
#include <unistd.h>

#include "rsh/util/checked.h"
#include "rsh/util/thread.h"

#define MIN_HEADS 64
#define MAX_HEADS (UINT32_C(1) << 26)

/* Address space is taken for up to this many times the bound, since frames are
 * not always full. */
#define SPREAD 16

/* Works out the sizes that follow from the bound.  A bound becomes 0 if it
 * cannot hold one block and what finds the blocks. */
static void cache_measure(struct rsh_cache *c,
			  const struct rsh_cache_options *opts)
{
	const uint64_t n = c->bound / c->block_bytes;
	uint64_t fixed;

	c->n_heads = MIN_HEADS;
	while (c->n_heads < 2 * n && c->n_heads < MAX_HEADS)
		c->n_heads *= 2;
	c->max_slabs = (uint32_t)(n * SPREAD / RSH_SLAB_BLOCKS + 1);
	if (opts->map_bytes)
		c->max_slabs = (uint32_t)rsh_min_u64(c->max_slabs,
			opts->map_bytes / ((uint64_t)RSH_SLAB_BLOCKS *
					   c->block_bytes));
	fixed = sizeof(*c) + c->n_heads * (sizeof(struct rsh_cache_block *) +
					   sizeof(struct rsh_verdict)) +
		(opts->dir ? sizeof(struct rsh_disk) : 0) +
		(opts->servers.list ? sizeof(struct rsh_shared) +
				      c->block_bytes : 0);
	if (c->bound < fixed + c->block_bytes || c->max_slabs == 0)
		c->bound = 0;
	else
		c->used = c->bookkeeping = fixed;
}

int rsh_cache_new(const struct rsh_cache_options *opts, struct rsh_cache **out,
		  struct rsh_error *err)
{
	const uint32_t page = (uint32_t)sysconf(_SC_PAGESIZE);
	const uint32_t block = opts->block_bytes ? opts->block_bytes :
						   RSH_CACHE_BLOCK_DEFAULT;
	struct rsh_cache *c;
	int rc;

	if (block < page || block > RSH_BLOCK_MAX || (block & (block - 1)))
		return rsh_error_set(err, EINVAL,
				     "%u: not a size of cache blocks; use a "
				     "power of two from %u to %u", block, page,
				     RSH_BLOCK_MAX);
	if (opts->memory_bytes > (UINT64_C(1) << 50))
		return rsh_error_set(err, EINVAL,
				     "%llu bytes: too large for a cache",
				     (unsigned long long)opts->memory_bytes);
	c = calloc(1, sizeof(*c));
	rc = c ? pthread_mutex_init(&c->lock, NULL) : ENOMEM;
	for (unsigned i = 0; rc == 0 && i < RSH_WAIT_CONDITIONS; i++)
		rc = pthread_cond_init(&c->loaded[i], NULL);
	if (rc) {
		free(c);
		return rsh_error_nomem(err);
	}
	c->bound = opts->memory_bytes;
	c->block_bytes = block;
	c->block_shift = (unsigned)__builtin_ctz(block);
	c->page_bytes = page;
	c->compress = opts->compress == RSH_COMPRESS_AUTO;
	c->kind = opts->kind;
	rsh_lists_init(c);
	cache_measure(c, opts);
	c->stats.memory_peak = c->used;
	c->heads = calloc(c->n_heads, sizeof(*c->heads));
	c->verdicts = calloc(c->n_heads, sizeof(*c->verdicts));
	if (!c->heads || !c->verdicts)
		rc = rsh_error_nomem(err);
	if (rc == 0 && opts->dir)
		rc = rsh_disk_open(c, opts, err);
	if (rc == 0 && opts->servers.list)
		rc = rsh_shared_open(c, opts, err);
	if (rc) {
		rsh_cache_free(c);
		return rc;
	}
	*out = c;
	return 0;
}

void rsh_cache_free(struct rsh_cache *c)
{
	if (!c)
		return;
	rsh_shared_close(c);
	rsh_disk_close(c);
	rsh_memory_clear(c);
	rsh_file_table_clear(&c->files);
	free(c->heads);
	free(c->verdicts);
	for (unsigned i = 0; i < RSH_WAIT_CONDITIONS; i++)
		pthread_cond_destroy(&c->loaded[i]);
	pthread_mutex_destroy(&c->lock);
	free(c);
}

void rsh_cache_settle(struct rsh_cache *c)
{
	rsh_hold_lock(&c->lock);
	if (c->disk)
		rsh_worker_settle(&c->disk->writer);
	if (c->shared)
		rsh_worker_settle(&c->shared->writer);
}

void rsh_cache_stats_get(struct rsh_cache *c, struct rsh_cache_stats *out)
{
	rsh_hold_lock(&c->lock);
	*out = c->stats;
	out->memory_bytes = c->used;
	out->plain_bytes = c->plain_bytes;
	out->bookkeeping_bytes = c->bookkeeping;
	out->spare_bytes = c->used - c->bookkeeping - c->plain_bytes;
	out->held_bytes = c->held_bytes;
	out->n_packed = c->n_packed;
	out->n_plain = c->plain.n;
	out->n_spent = c->spent.n;
	out->n_in_use = c->n_in_use;
	out->n_files = c->files.n;
}
