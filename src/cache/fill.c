/* SPDX-License-Identifier: Apache-2.0 */
/* cache/fill.c settles blocks that were claimed: from the directory, from
 * servers, and by loading the rest, neighbours together. */
#include "config.h"

#include "fill_i.h"

#include "disk_i.h"
#include "rsh/util/mem.h"
#include "shared_i.h"

void rsh_run_release(struct rsh_cache *c, struct rsh_block_run *run)
{
	for (unsigned i = 0; i < run->n; i++)
		rsh_block_unref(c, run->blocks[i], 0);
	run->n = 0;
}

/* Loads and settles n blocks.  Returns 0 or a positive errno.  The lock is
 * held, and given up for the load. */
static int run_load(struct rsh_request *rq, struct rsh_cache_block **blocks,
		    unsigned n)
{
	struct rsh_cache *c = rq->c;
	struct iovec iov[RSH_CACHE_LOAD_IOV];
	struct rsh_cache_kind kinds[RSH_CACHE_LOAD_IOV] = { 0 };
	uint64_t bytes = 0;
	int rc;

	for (unsigned i = 0; i < n; i++) {
		iov[i].iov_base = blocks[i]->mem;
		iov[i].iov_len = blocks[i]->len;
		bytes += blocks[i]->len;
	}
	pthread_mutex_unlock(&c->lock);
	rc = rq->load(rq->ctx, blocks[0]->number << c->block_shift, iov,
		      (int)n);
	for (unsigned i = 0; c->kind && rc == 0 && i < n; i++)
		c->kind(rq->ctx, blocks[i]->number << c->block_shift,
			blocks[i]->len, &kinds[i]);
	pthread_mutex_lock(&c->lock);

	c->stats.loads++;
	if (rc)
		c->stats.loads_failed++;
	else
		c->stats.bytes_loaded += bytes;
	for (unsigned i = 0; i < n; i++) {
		blocks[i]->error = rc;
		rsh_block_settle(c, blocks[i], rc ? RSH_BLOCK_FAILED :
						    RSH_BLOCK_PLAIN);
	}
	if (rc == 0)
		rsh_blocks_pack(c, blocks, kinds, n);
	for (unsigned i = 0; rc == 0 && c->disk && i < n; i++)
		rsh_disk_enqueue(c, blocks[i]);
	return rc;
}

/* Settles the block if it is in the directory, and tells whether it was.  The
 * lock is held, and given up meanwhile. */
static bool block_find_on_disk(struct rsh_cache *c, struct rsh_cache_block *b)
{
	const struct rsh_block_key key = rsh_block_key_of(c, b);
	cleanup_free uint8_t *packed = NULL;
	enum rsh_disk_found found;
	uint32_t n;

	pthread_mutex_unlock(&c->lock);
	found = rsh_disk_read(c->disk, &key, b->mem, &packed, &n);
	pthread_mutex_lock(&c->lock);
	if (found == RSH_DISK_HIT)
		rsh_block_settle(c, b, RSH_BLOCK_PLAIN);
	if (packed)
		rsh_block_keep_packed(c, b, packed, n);
	c->stats.disk_rejected += found == RSH_DISK_REJECTED;
	c->stats.disk_errors += found == RSH_DISK_ERROR;
	return found == RSH_DISK_HIT;
}

/* Loads what is still LOADING, but for what the hunt waits for.  Returns 0 or a
 * positive errno. */
static int run_load_rest(struct rsh_request *rq, struct rsh_block_run *run,
			 struct rsh_hunt *h)
{
	struct rsh_cache_block **const blocks = run->blocks;
	int rc = 0;

	for (unsigned at = 0, start = 0; start < run->n; start = at + 1) {
		int failed;

		for (at = start; at < run->n; at++)
			if (blocks[at]->state != RSH_BLOCK_LOADING ||
			    (h && !rsh_hunt_is_ours(h, blocks[at])))
				break;
		if (at == start)
			continue;
		failed = run_load(rq, blocks + start, at - start);
		for (unsigned i = start; h && i < at; i++)
			rsh_hunt_loaded(rq->c, h, blocks[i], failed == 0);
		rc = rc ? rc : failed;
	}
	return rc;
}

/* Does the same with servers. */
static int run_fill_shared(struct rsh_request *rq, struct rsh_block_run *run,
			   struct rsh_found *found)
{
	struct rsh_hunt h;
	int rc = 0, failed;

	rsh_hunt_begin(rq->c, run->blocks, run->n, &h);
	do {
		failed = run_load_rest(rq, run, &h);
		rc = rc ? rc : failed;
	} while (rsh_hunt_wait(rq->c, &h, rc != 0));
	found->shared = h.n_found;
	return rc;
}

int rsh_run_fill(struct rsh_request *rq, struct rsh_block_run *run,
		 struct rsh_found *found)
{
	struct rsh_cache *c = rq->c;
	int rc;

	*found = (struct rsh_found){ 0 };
	for (unsigned i = 0; c->disk && i < run->n; i++)
		found->disk += block_find_on_disk(c, run->blocks[i]);
	rc = c->shared ? run_fill_shared(rq, run, found) :
			 run_load_rest(rq, run, NULL);
	if (rc)
		rsh_run_release(c, run);
	return -rc;
}
