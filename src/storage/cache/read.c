/* SPDX-License-Identifier: Apache-2.0 */
/* storage/cache/read.c reads blocks, and loads missing ones.
 *
 * A thread that misses a block puts it into the table as LOADING, loads it
 * without the lock, and settles it; other threads that need it wait for this.
 * A thread that has blocks LOADING never waits for another thread, so threads
 * cannot wait for each other in a circle.  It waits for another node
 * (cache_i.h), or until the directory takes a block, only for a short time. */
#include "config.h"

#include "cache_i.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "rsh/util/checked.h"
#include "rsh/util/mem.h"
#include "rsh/util/pack.h"
#include "rsh/util/thread.h"

/* ---- whether blocks are compressed ---- */

/* This is decided for each tensor.  A sample of a block shows whether
 * compression pays.  If the last samples of a tensor did not pay, only one
 * block in 32 is sampled: rows that no training step has changed may begin in
 * the middle of the tensor. */

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

/* Compresses those of n loaded blocks that are compressible.  They are PLAIN
 * and the caller uses them.  The lock is held, and released meanwhile. */
static void blocks_pack(struct rsh_cache *c, struct rsh_cache_block **blocks,
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

/* Functions return this besides 0 and -errno: there is no memory for the block,
 * so the read bypasses the cache. */
enum { NO_ROOM = 1 };

struct read_request {
	struct rsh_cache *c;
	rsh_cache_file file;
	uint64_t size; /* of the file */
	const struct rsh_cache_loader *loader;
	uint64_t n_behind; /* blocks that it loaded ahead: they count as misses,
			    * not as hits */
};

/* Neighbouring blocks in use by a thread. */
struct block_run {
	struct rsh_cache_block *blocks[RSH_CACHE_LOAD_IOV];
	unsigned n;
};

/* Numbers of blocks that were found elsewhere. */
struct found_blocks {
	unsigned disk, shared;
};

/* ---- claiming ---- */

/* Puts block `first` and its next neighbours, up to n, into the table as
 * LOADING.  It stops at a block that is in the table, or if memory is out.  The
 * lock is held, and may be given up. */
static void run_claim(struct read_request *rq, uint64_t first, uint64_t n,
		      struct block_run *run)
{
	struct rsh_cache *c = rq->c;
	const unsigned shift = c->block_shift;

	n = rsh_min_u64(n, rsh_min_u64((RSH_CACHE_LOAD_MAX >> shift) + 1,
				       RSH_CACHE_LOAD_IOV));
	while (run->n < n) {
		const uint64_t number = first + run->n;
		const uint32_t len = (uint32_t)rsh_min_u64(
			c->block_bytes, rq->size - (number << shift));
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

/* ---- filling ----
 *
 * Blocks that were claimed come from the directory, from servers, and from the
 * loader, neighbours together. */

/* Lets go of all blocks of a run; the lock is held. */
static void run_release(struct rsh_cache *c, struct block_run *run)
{
	for (unsigned i = 0; i < run->n; i++)
		rsh_block_unref(c, run->blocks[i], 0);
	run->n = 0;
}

/* Loads and settles n blocks.  Returns 0 or a positive errno.  The lock is
 * held, and given up for the load. */
static int run_load(struct read_request *rq, struct rsh_cache_block **blocks,
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
	rc = rq->loader->load(rq->loader->ctx,
			      blocks[0]->number << c->block_shift, iov, (int)n);
	for (unsigned i = 0; c->kind && rc == 0 && i < n; i++)
		c->kind(rq->loader->ctx, blocks[i]->number << c->block_shift,
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
		blocks_pack(c, blocks, kinds, n);
	for (unsigned i = 0; rc == 0 && rsh_file_is_on_disk(c, rq->file) &&
	     i < n; i++)
		rsh_disk_enqueue(c, blocks[i], rq->loader->costly);
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

/* Loads the blocks that are still LOADING, except those that another node
 * loads.  Returns 0 or a positive errno. */
static int run_load_rest(struct read_request *rq, struct block_run *run,
			 struct rsh_lookup *h)
{
	struct rsh_cache_block **const blocks = run->blocks;
	int rc = 0;

	for (unsigned at = 0, start = 0; start < run->n; start = at + 1) {
		int failed;

		for (at = start; at < run->n; at++)
			if (blocks[at]->state != RSH_BLOCK_LOADING ||
			    (h && !rsh_lookup_is_ours(h, blocks[at])))
				break;
		if (at == start)
			continue;
		failed = run_load(rq, blocks + start, at - start);
		for (unsigned i = start; h && i < at; i++)
			rsh_lookup_loaded(rq->c, h, blocks[i], failed == 0);
		rc = rc ?: failed;
	}
	return rc;
}

/* Settles the claimed blocks, and releases them if one of them failed.  Returns
 * 0 or -errno.  The lock is held, and given up meanwhile. */
static int run_fill(struct read_request *rq, struct block_run *run,
		    struct found_blocks *found)
{
	struct rsh_cache *c = rq->c;
	struct rsh_lookup h;
	int rc = 0, failed;

	*found = (struct found_blocks){ 0 };
	for (unsigned i = 0; rsh_file_is_on_disk(c, rq->file) && i < run->n;
	     i++)
		found->disk += block_find_on_disk(c, run->blocks[i]);
	if (!c->shared) {
		rc = run_load_rest(rq, run, NULL);
	} else {
		rsh_lookup_begin(c, run->blocks, run->n, &h);
		do {
			failed = run_load_rest(rq, run, &h);
			rc = rc ?: failed;
		} while (rsh_lookup_wait(c, &h, rc != 0));
		found->shared = h.n_found;
	}
	if (rc)
		run_release(c, run);
	return -rc;
}

/* ---- finding ---- */

/* Takes blocks that are there from `first` on, up to n; the lock is held. */
static void run_take_plain(struct read_request *rq, uint64_t first, uint64_t n,
			   struct block_run *run)
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

/* Claims blocks from `first` on, up to n, and loads them.  Returns 0 with the
 * run held, which may be none, or -errno.  The lock is held, and may be given
 * up. */
static int run_load_missing(struct read_request *rq, uint64_t first, uint64_t n,
			    struct block_run *run)
{
	struct rsh_cache *c = rq->c;
	struct found_blocks found;
	int rc;

	run_claim(rq, first, n, run);
	if (run->n == 0)
		return 0;
	n = run->n;
	rc = run_fill(rq, run, &found);
	c->stats.hits_disk += found.disk;
	c->stats.hits_shared += found.shared;
	c->stats.misses += n - found.disk - found.shared;
	return rc;
}

/* Loads missing blocks of [number, end), as many as one load takes, while
 * another thread loads a block before them: waiting for that first would take
 * twice as long.  Returns 0 or -errno.  The lock is held, and may be given
 * up. */
static int request_load_behind(struct read_request *rq, uint64_t number,
			       uint64_t end)
{
	struct block_run run = { .n = 0 };
	int rc;

	while (number < end && rsh_block_find(rq->c, rq->file, number))
		number++;
	if (number == end)
		return 0;
	rc = run_load_missing(rq, number, end - number, &run);
	if (rc)
		return rc;
	rq->n_behind += run.n;
	run_release(rq->c, &run);
	return 0;
}

/* Becomes a user of block `first`, and of the next ones if they are found or
 * loaded with it.  Returns 0, NO_ROOM or -errno.  The lock is held, and may be
 * given up. */
static int run_hold(struct read_request *rq, uint64_t first, uint64_t n,
		    struct block_run *run)
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
static int request_bypass(struct read_request *rq, uint64_t offset, void *buf,
			  size_t len)
{
	struct rsh_cache *c = rq->c;
	const struct iovec iov = { buf, len };
	int rc = rq->loader->load(rq->loader->ctx, offset, &iov, 1);

	rsh_hold_lock(&c->lock);
	c->stats.bypasses++;
	c->stats.loads++;
	if (rc) {
		c->stats.loads_failed++;
	} else {
		c->stats.bytes_loaded += len;
		c->stats.bytes_bypassed += len;
		c->stats.bytes_served += len;
	}
	return -rc;
}

/* Copies n bytes of a block that the caller uses, after the first `skip`;
 * `content` is what rsh_block_content() returned under the lock.  Returns false
 * if the block is compressed and damaged. */
static bool block_copy(const struct rsh_cache_block *b, const uint8_t *content,
		       size_t skip, uint8_t *buf, size_t n)
{
	if (!content)
		return rsh_unpack_part(b->mem, b->packed, b->len, skip, buf, n);
	memcpy(buf, content + skip, n);
	return true;
}

/* Copies from the run and releases it; *got is the number of bytes.  Returns 0,
 * or -EIO if a compressed block is damaged.  The lock is held, and given up for
 * the copy. */
static int run_copy_out(struct rsh_cache *c, struct block_run *run,
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
		good &= block_copy(b, contents[i], skip, buf + total, taken[i]);
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

/* Takes the lock if the range is within the file; else returns -EINVAL without
 * it. */
static int request_begin(struct read_request *rq, uint64_t offset, uint64_t len)
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
		   void *buf, size_t len, const struct rsh_cache_loader *loader)
{
	struct read_request rq = { c, file, 0, loader };
	struct block_run run;
	uint8_t *to = buf;
	int rc;

	if (file == RSH_CACHE_FILE_NONE)
		return len ? request_bypass(&rq, offset, buf, len) : 0;
	rc = request_begin(&rq, offset, len);
	if (rc)
		return rc;
	while (len && rc == 0) {
		const uint64_t first = offset >> c->block_shift;
		const uint64_t last = (offset + len - 1) >> c->block_shift;
		size_t got = 0;

		rc = run_hold(&rq, first, last - first + 1, &run);
		if (rc == NO_ROOM) {
			/* This bypasses the cache, up to the next block that is
			 * there. */
			uint64_t next = first + 1;

			while (next <= last && !rsh_block_find(c, file, next))
				next++;
			got = (size_t)rsh_min_u64(
				len, (next << c->block_shift) - offset);
			pthread_mutex_unlock(&c->lock);
			rc = request_bypass(&rq, offset, to, got);
			pthread_mutex_lock(&c->lock);
		} else if (rc == 0) {
			rc = run_copy_out(c, &run, offset, to, len, &got);
		}
		offset += got;
		to += got;
		len -= got;
	}
	pthread_mutex_unlock(&c->lock);
	return rc;
}

int rsh_cache_prefetch(struct rsh_cache *c, rsh_cache_file file,
		       uint64_t offset, uint64_t len,
		       const struct rsh_cache_loader *loader)
{
	struct read_request rq = { c, file, 0, loader };
	uint64_t number, end;
	struct found_blocks found;
	int rc = 0;

	if (file == RSH_CACHE_FILE_NONE || request_begin(&rq, offset, 0))
		return 0;
	len = rsh_min_u64(len, rq.size - offset);
	number = offset >> c->block_shift;
	end = len ? ((offset + len - 1) >> c->block_shift) + 1 : number;
	while (rc == 0 && number < end) {
		struct block_run run = { .n = 0 };

		run_claim(&rq, number, end - number, &run);
		number += run.n;
		if (run.n) {
			c->stats.prefetched += run.n;
			rc = run_fill(&rq, &run, &found);
			c->stats.prefetched_disk += found.disk;
			c->stats.prefetched_shared += found.shared;
			run_release(c, &run);
		} else if (rsh_block_find(c, file, number)) {
			number++;
		} else {
			break;
		}
	}
	pthread_mutex_unlock(&c->lock);
	return rc;
}

/* ---- what is there already ---- */

/* Copies a part of block `number`, from the directory by way of *room, which is
 * allocated if it is NULL. */
static bool block_peek(const struct read_request *rq, uint64_t number,
		       uint32_t skip, uint8_t *buf, size_t n, uint8_t **room)
{
	struct rsh_cache *c = rq->c;
	cleanup_free uint8_t *packed = NULL;
	struct rsh_cache_block *b;
	struct rsh_block_key key;
	uint32_t n_packed;
	bool on_disk, good = false;

	pthread_mutex_lock(&c->lock);
	b = rsh_block_find(c, rq->file, number);
	if (b && b->state == RSH_BLOCK_PLAIN) {
		const uint8_t *content;

		rsh_block_ref(c, b);
		content = rsh_block_content(b);
		pthread_mutex_unlock(&c->lock);
		good = block_copy(b, content, skip, buf, n);
		pthread_mutex_lock(&c->lock);
		rsh_block_unhold(c, b);
	}
	on_disk = !b && rsh_file_is_on_disk(c, rq->file);
	key = (struct rsh_block_key){
		.file = c->files.files[rq->file],
		.offset = number << c->block_shift,
	};
	pthread_mutex_unlock(&c->lock);
	if (!on_disk)
		return good;
	key.len = (uint32_t)rsh_min_u64(c->block_bytes, rq->size - key.offset);
	*room = *room ? *room : malloc(c->block_bytes);
	if (!*room || rsh_disk_read(c->disk, &key, *room, &packed, &n_packed) !=
		      RSH_DISK_HIT)
		return false;
	memcpy(buf, *room + skip, n);
	return true;
}

bool rsh_cache_peek(struct rsh_cache *c, rsh_cache_file file, uint64_t offset,
		    void *buf, size_t len)
{
	struct read_request rq = { .c = c, .file = file };
	cleanup_free uint8_t *room = NULL;
	uint8_t *to = buf;

	if (request_begin(&rq, offset, len))
		return false;
	pthread_mutex_unlock(&c->lock);
	for (size_t n; len > 0; len -= n) {
		const uint32_t skip = offset & (c->block_bytes - 1);

		n = (size_t)rsh_min_u64(c->block_bytes - skip, len);
		if (!block_peek(&rq, offset >> c->block_shift, skip, to, n,
				&room))
			return false;
		to += n;
		offset += n;
	}
	return true;
}
