/* SPDX-License-Identifier: Apache-2.0 */
/* cache/read.c hands out blocks, and loads those that are missing.
 *
 * Whoever misses a block puts it into the table as LOADING, loads it without
 * the lock (fill.c), and settles it; others who come to it meanwhile wait for
 * that.  A thread that has blocks LOADING never waits for another one of this
 * process, so no circle of threads can wait for each other.  It may wait for
 * another node, but not for long (shared_i.h). */
#include "config.h"

#include "fill_i.h"

#include <errno.h>
#include <string.h>

#include "rsh/util/checked.h"
#include "rsh/util/pack.h"

/* Functions return this besides 0 and -errno: the block has no memory, and is
 * to be read without. */
enum { NO_ROOM = 1 };

static uint32_t request_block_len(const struct rsh_request *rq, uint64_t number)
{
	return (uint32_t)rsh_min_u64(rq->c->block_bytes, rq->size -
				     (number << rq->c->block_shift));
}

static unsigned run_max(const struct rsh_cache *c)
{
	const uint64_t n = (RSH_CACHE_LOAD_MAX >> c->block_shift) + 1;

	return (unsigned)rsh_min_u64(n, RSH_CACHE_LOAD_IOV);
}

/* ---- claiming ---- */

/* Puts block `first` and its next neighbours, up to n, into the table as
 * LOADING, and stops at one that is there or has no room.  The lock is held,
 * and may be given up. */
static void run_claim(struct rsh_request *rq, uint64_t first, uint64_t n,
		      struct rsh_block_run *run)
{
	struct rsh_cache *c = rq->c;

	n = rsh_min_u64(n, run_max(c));
	while (run->n < n) {
		const uint64_t number = first + run->n;
		const uint32_t len = request_block_len(rq, number);
		struct rsh_cache_block *b;

		if (rsh_block_find(c, rq->file, number))
			return;
		b = rsh_block_take(c, len);
		if (!b)
			return;
		if (rsh_block_find(c, rq->file, number)) {
			rsh_block_give(c, b);
			return;
		}
		rsh_block_insert(c, b, rq->file, number, len);
		run->blocks[run->n++] = b;
		rsh_block_fit(c, b, len);
	}
}

/* Waits for a load.  Returns 0, and the block has one user more; or -errno if
 * the load failed.  The lock is held, and given up meanwhile. */
static int block_wait(struct rsh_cache *c, struct rsh_cache_block *b)
{
	int rc;

	c->stats.waits++;
	rsh_block_ref(c, b);
	while (b->state == RSH_BLOCK_LOADING)
		pthread_cond_wait(&c->loaded[b->number % RSH_WAIT_CONDITIONS],
				  &c->lock);
	if (b->state != RSH_BLOCK_FAILED)
		return 0;
	rc = -b->error;
	rsh_block_unref(c, b, 0);
	return rc;
}

/* ---- finding ---- */

/* Takes blocks that are there from `first` on, up to n; the lock is held. */
static void run_take_plain(struct rsh_request *rq, uint64_t first, uint64_t n,
			   struct rsh_block_run *run)
{
	n = rsh_min_u64(n, RSH_CACHE_LOAD_IOV);
	while (run->n < n) {
		struct rsh_cache_block *b =
			rsh_block_find(rq->c, rq->file, first + run->n);

		if (!b || b->state != RSH_BLOCK_PLAIN)
			return;
		rsh_block_ref(rq->c, b);
		if (rq->n_behind)
			rq->n_behind--;
		else
			rq->c->stats.hits_plain++;
		run->blocks[run->n++] = b;
	}
}

/* Claims blocks from `first` on, up to n, and loads them.  Returns 0 with the run
 * held, which may be none, or -errno.  The lock is held, and may be given up. */
static int run_load_missing(struct rsh_request *rq, uint64_t first, uint64_t n,
			    struct rsh_block_run *run)
{
	struct rsh_cache *c = rq->c;
	struct rsh_found found;
	int rc;

	run_claim(rq, first, n, run);
	if (run->n == 0)
		return 0;
	n = run->n;
	rc = rsh_run_fill(rq, run, &found);
	c->stats.hits_disk += found.disk;
	c->stats.hits_shared += found.shared;
	c->stats.misses += n - found.disk - found.shared;
	return rc;
}

/* Loads what a request wants of blocks [number, end) and nobody else does, as much
 * as one load takes: another thread loads a block before them, and to wait for it
 * first would be to wait twice.  Returns 0 or -errno.  The lock is held, and may
 * be given up. */
static int request_load_behind(struct rsh_request *rq, uint64_t number,
			       uint64_t end)
{
	struct rsh_block_run run = { .n = 0 };
	int rc;

	while (number < end && rsh_block_find(rq->c, rq->file, number))
		number++;
	if (number == end)
		return 0;
	rc = run_load_missing(rq, number, end - number, &run);
	if (rc)
		return rc;
	rq->n_behind += run.n;
	rsh_run_release(rq->c, &run);
	return 0;
}

/* Gets hold of the block `first`, and of the next ones as far as that is the
 * same work.  Returns 0, NO_ROOM or -errno.  The lock is held, and may be given
 * up. */
static int run_hold(struct rsh_request *rq, uint64_t first, uint64_t n,
		    struct rsh_block_run *run)
{
	struct rsh_cache *c = rq->c;
	struct rsh_cache_block *b;
	bool looked = false;
	int rc;

	run->n = 0;
	for (;;) {
		run_take_plain(rq, first, n, run);
		if (run->n)
			return 0;
		b = rsh_block_find(c, rq->file, first);
		if (b && !looked) {
			looked = true;
			rc = request_load_behind(rq, first + 1, first + n);
			if (rc)
				return rc;
			continue;
		}
		if (b) {
			rc = block_wait(c, b);
			run->blocks[0] = b;
			run->n = rc == 0;
			return rc;
		}
		rc = run_load_missing(rq, first, n, run);
		if (rc || run->n)
			return rc;
		if (!rsh_block_find(c, rq->file, first))
			return NO_ROOM;
	}
}

/* ---- requests ---- */

/* Reads without the cache; the lock is not held. */
static int request_bypass(struct rsh_request *rq, uint64_t offset, void *buf,
			  size_t len)
{
	struct rsh_cache *c = rq->c;
	const struct iovec iov = { buf, len };
	int rc = rq->load(rq->ctx, offset, &iov, 1);

	pthread_mutex_lock(&c->lock);
	c->stats.bypasses++;
	c->stats.loads++;
	if (rc) {
		c->stats.loads_failed++;
	} else {
		c->stats.bytes_loaded += len;
		c->stats.bytes_bypassed += len;
		c->stats.bytes_served += len;
	}
	pthread_mutex_unlock(&c->lock);
	return -rc;
}

/* Returns how much of the read bypasses the cache because its first block has
 * no room: up to the next block that is there.  The lock is held. */
static size_t request_bypass_len(struct rsh_request *rq, uint64_t offset,
				 size_t len)
{
	const unsigned shift = rq->c->block_shift;
	uint64_t number = offset >> shift;
	const uint64_t last = (offset + len - 1) >> shift;

	do
		number++;
	while (number <= last && !rsh_block_find(rq->c, rq->file, number));
	return (size_t)rsh_min_u64(len, (number << shift) - offset);
}

/* Copies a part of a block, or unpacks it where there is no content. */
static bool block_copy_part(const struct rsh_cache_block *b,
			    const uint8_t *content, size_t skip, uint8_t *buf,
			    size_t n)
{
	if (!content)
		return rsh_unpack_part(b->mem, b->packed, b->len, skip, buf, n);
	memcpy(buf, content + skip, n);
	return true;
}

/* Copies from the run, lets go of it and says how many bytes that were.  Returns
 * 0, or -EIO if a compressed block is damaged.  The lock is held, and given up
 * for the copy. */
static int run_copy_out(struct rsh_cache *c, struct rsh_block_run *run,
			uint64_t offset, uint8_t *buf, size_t len, size_t *got)
{
	size_t skip = offset & (c->block_bytes - 1);
	size_t taken[RSH_CACHE_LOAD_IOV], total = 0;
	const uint8_t *contents[RSH_CACHE_LOAD_IOV];
	bool good = true;

	for (unsigned i = 0; i < run->n; i++)
		contents[i] = rsh_block_content(run->blocks[i]);
	pthread_mutex_unlock(&c->lock);
	for (unsigned i = 0; i < run->n; i++) {
		const struct rsh_cache_block *b = run->blocks[i];

		taken[i] = (size_t)rsh_min_u64(b->len - skip, len - total);
		good &= block_copy_part(b, contents[i], skip, buf + total,
					taken[i]);
		total += taken[i];
		skip = 0;
	}
	pthread_mutex_lock(&c->lock);
	c->stats.bytes_served += total;
	for (unsigned i = 0; i < run->n; i++) {
		c->stats.unpacked += !contents[i];
		c->stats.unpacked_bytes += contents[i] ? 0 : taken[i];
		rsh_block_unref(c, run->blocks[i], taken[i]);
	}
	*got = total;
	return good ? 0 : -EIO;
}

/* Serves a read block by block.  The lock is held, and given up meanwhile. */
static int request_read(struct rsh_request *rq, uint64_t offset, uint8_t *buf,
			size_t len)
{
	struct rsh_cache *c = rq->c;
	struct rsh_block_run run;
	size_t got;
	int rc;

	while (len) {
		const uint64_t first = offset >> c->block_shift;
		const uint64_t last = (offset + len - 1) >> c->block_shift;

		rc = run_hold(rq, first, last - first + 1, &run);
		if (rc < 0)
			return rc;
		if (rc == NO_ROOM) {
			got = request_bypass_len(rq, offset, len);
			pthread_mutex_unlock(&c->lock);
			rc = request_bypass(rq, offset, buf, got);
			pthread_mutex_lock(&c->lock);
		} else {
			rc = run_copy_out(c, &run, offset, buf, len, &got);
		}
		if (rc)
			return rc;
		offset += got;
		buf += got;
		len -= got;
	}
	return 0;
}

/* Takes the lock if the range is within the file; else returns -EINVAL without
 * it. */
static int request_begin(struct rsh_request *rq, uint64_t offset, uint64_t len)
{
	struct rsh_cache *c = rq->c;

	pthread_mutex_lock(&c->lock);
	if (rq->file < c->files.n) {
		rq->size = c->files.files[rq->file].size;
		if (offset <= rq->size && len <= rq->size - offset)
			return 0;
	}
	pthread_mutex_unlock(&c->lock);
	return -EINVAL;
}

int rsh_cache_read(struct rsh_cache *c, rsh_cache_file file, uint64_t offset,
		   void *buf, size_t len, rsh_cache_load_fn load, void *ctx)
{
	struct rsh_request rq = { c, file, 0, load, ctx };
	int rc;

	if (file == RSH_CACHE_FILE_NONE)
		return len ? request_bypass(&rq, offset, buf, len) : 0;
	rc = request_begin(&rq, offset, len);
	if (rc)
		return rc;
	rc = request_read(&rq, offset, buf, len);
	pthread_mutex_unlock(&c->lock);
	return rc;
}

int rsh_cache_prefetch(struct rsh_cache *c, rsh_cache_file file,
		       uint64_t offset, uint64_t len, rsh_cache_load_fn load,
		       void *ctx)
{
	struct rsh_request rq = { c, file, 0, load, ctx };
	uint64_t number, end;
	struct rsh_found found;
	int rc = 0;

	if (file == RSH_CACHE_FILE_NONE || request_begin(&rq, offset, 0))
		return 0;
	len = rsh_min_u64(len, rq.size - offset);
	number = offset >> c->block_shift;
	end = len ? ((offset + len - 1) >> c->block_shift) + 1 : number;
	while (rc == 0 && number < end) {
		struct rsh_block_run run = { .n = 0 };

		run_claim(&rq, number, end - number, &run);
		number += run.n;
		if (run.n) {
			c->stats.prefetched += run.n;
			rc = rsh_run_fill(&rq, &run, &found);
			c->stats.prefetched_disk += found.disk;
			c->stats.prefetched_shared += found.shared;
			rsh_run_release(c, &run);
		} else if (rsh_block_find(c, file, number)) {
			number++;
		} else {
			break;
		}
	}
	pthread_mutex_unlock(&c->lock);
	return rc;
}

int rsh_cache_pin(struct rsh_cache *c, rsh_cache_file file, uint64_t offset,
		  rsh_cache_load_fn load, void *ctx, struct rsh_cache_pin *out)
{
	struct rsh_request rq = { c, file, 0, load, ctx };
	struct rsh_block_run run;
	int rc;

	if (file == RSH_CACHE_FILE_NONE)
		return -ENOBUFS;
	rc = request_begin(&rq, offset, 1);
	if (rc)
		return rc;
	rc = run_hold(&rq, offset >> c->block_shift, 1, &run);
	if (rc == 0) {
		rc = rsh_block_uncover(c, run.blocks[0]);
		if (rc)
			rsh_run_release(c, &run);
	}
	if (rc == 0)
		*out = (struct rsh_cache_pin){
			.data = rsh_block_content(run.blocks[0]),
			.len = run.blocks[0]->len,
			.offset = run.blocks[0]->number << c->block_shift,
			.block = run.blocks[0],
		};
	pthread_mutex_unlock(&c->lock);
	return rc == NO_ROOM ? -ENOBUFS : rc;
}

void rsh_cache_unpin(struct rsh_cache *c, struct rsh_cache_pin *pin,
		     size_t used)
{
	pthread_mutex_lock(&c->lock);
	c->stats.bytes_served += used;
	rsh_block_unref(c, pin->block, used);
	pthread_mutex_unlock(&c->lock);
}
