/* SPDX-License-Identifier: Apache-2.0 */
/* storage/cache/disk_i.h - the directory of a cache; for this layer only.
 *
 * Each block is a file (block_file_i.h) in this one directory.  Files are
 * created by rename and are not changed, except their mtime, which is the time
 * of the last use of the block.  So processes that share the directory need no
 * lock.  A process that is killed leaves at most a file with a temporary name.
 * A scan of the directory removes it when it is ten minutes old.
 *
 * Nothing in the directory is trusted.  A block file has its complete key and
 * hashes over all bytes, links are not followed, and files that do not match
 * are removed.  So there is no index and no fsync.  Written bytes are dropped
 * from the page cache, because data loaders count free memory without it.
 * Blocks that arrive faster than the disk can write are not written.
 */
#pragma once

#include <stdatomic.h>

#include "block_file_i.h"
#include "cache_i.h"

/* At most this many blocks wait to be written, and at most this part of the
 * memory, because they cannot be evicted meanwhile. */
#define RSH_DISK_QUEUE 32
#define RSH_DISK_QUEUE_PART 8

struct rsh_disk {
	/* These do not change. */
	char *path;
	int fd; /* the directory; disk_reopen() may replace it */
	uint64_t bound;
	uint64_t retry_ns;
	uint64_t (*clock_ns)(void);

	/* The directory is not used until these times of that clock. */
	_Atomic uint64_t reads_off_until, writes_off_until;
	atomic_bool complained; /* since the directory last worked */

	/* Only the writer uses these. */
	bool was_off;
	bool looked;         /* total is known */
	uint64_t total;      /* bytes of all files, as far as known */
	uint64_t since_look; /* bytes written since the last scan */
	uint64_t n_temp;

	/* The cache's lock guards these. */
	struct rsh_worker writer;
	pthread_cond_t taken; /* the writer has taken a block of the queue */
	struct rsh_cache_block *queue[RSH_DISK_QUEUE];
	uint32_t head, n, max;
	bool stuck; /* one has waited in vain since the writer took a block */
};

/* Opens or makes the directory of the options.  Returns 0, or -errno with a
 * sentence. */
int rsh_disk_open(struct rsh_cache *c, const struct rsh_cache_options *opts,
		  struct rsh_error *err);
/* Writes the blocks that wait, ends the writer and closes the directory. */
void rsh_disk_close(struct rsh_cache *c);

enum rsh_disk_found {
	RSH_DISK_MISS,
	RSH_DISK_HIT,
	RSH_DISK_REJECTED, /* there was a file, but it did not match */
	RSH_DISK_ERROR,
};

/* Reads a block into `content`, which is undefined unless it is a hit.  If the
 * file is compressed, *packed has its n compressed bytes; the caller frees
 * it. */
enum rsh_disk_found rsh_disk_read(struct rsh_disk *d,
				  const struct rsh_block_key *key,
				  uint8_t *content, uint8_t **packed,
				  uint32_t *n);
/* Queues the block, which has a user, for the writer.  Drops it if too many
 * blocks wait; `patient`: only if that lasts for a second.  While the directory
 * hangs, one thread waits once.  The lock is held, and given up meanwhile. */
void rsh_disk_enqueue(struct rsh_cache *c, struct rsh_cache_block *b,
		      bool patient);
