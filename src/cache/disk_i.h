/* SPDX-License-Identifier: Apache-2.0 */
/* cache/disk_i.h is about the directory of a cache; for this room only.
 *
 * One file a block (block_file_i.h), all in the one directory.  Files appear by
 * rename and are never changed but for their mtime, which says when the block
 * was last used; so processes that share the directory need no lock, and one
 * that is killed leaves at most a file with a temporary name behind, which the
 * next look at the directory removes. */
#ifndef RSH_CACHE_DISK_I_H
#define RSH_CACHE_DISK_I_H

#include <stdatomic.h>

#include "block_file_i.h"
#include "cache_i.h"

/* Blocks that wait to be written: at most so many, and at most this part of
 * the memory, because they cannot be thrown out meanwhile. */
#define RSH_DISK_QUEUE 32
#define RSH_DISK_QUEUE_PART 8

struct rsh_disk {
	/* Constant. */
	char *path;
	int fd; /* of the directory; what it is open on may be exchanged */
	uint64_t bound;
	uint64_t retry_ns;
	uint64_t (*clock_ns)(void);

	/* Until when, on that clock, it is left alone: */
	_Atomic uint64_t reads_off_until, writes_off_until;
	atomic_bool complained; /* since it last worked */

	/* The writer's own. */
	bool was_off;
	bool looked;         /* total is known */
	uint64_t total;      /* bytes of all files, as far as known */
	uint64_t since_look; /* bytes written since it was counted */
	uint64_t n_temp;

	/* Guarded by the cache's lock. */
	struct rsh_worker writer;
	struct rsh_cache_block *queue[RSH_DISK_QUEUE];
	uint32_t head, n, max;
};

/* Opens or makes the directory of the options.  0 or -errno with a sentence. */
int rsh_disk_open(struct rsh_cache *c, const struct rsh_cache_options *opts,
		  struct rsh_error *err);
/* Writes what waits, and ends the writer. */
void rsh_disk_close(struct rsh_cache *c);

enum rsh_disk_found {
	RSH_DISK_MISS,
	RSH_DISK_HIT,
	RSH_DISK_REJECTED, /* there was a file, but not the right one */
	RSH_DISK_ERROR,
};

/* Reads a block into `content`, which is undefined if it is no hit. */
enum rsh_disk_found rsh_disk_read(struct rsh_disk *d,
				  const struct rsh_block_key *key,
				  uint8_t *content);
/* Lock held: the block, which has a user, is to be written some time. */
void rsh_disk_enqueue(struct rsh_cache *c, struct rsh_cache_block *b);

/* ---- keeping to the bound (disk_trim.c) ---- */

/* What a file of so many bytes takes on disk. */
uint64_t rsh_disk_cost(uint64_t bytes);

struct rsh_disk_look {
	uint64_t total;   /* what the files take */
	uint64_t removed; /* files */
};

/* Counts the files of the directory; if they take more than `limit`, removes
 * those used longest ago until they take `target` or less.  Files that were
 * left behind half-written go in any case.  0 or a positive errno. */
int rsh_disk_look(int dirfd, uint64_t limit, uint64_t target,
		  struct rsh_disk_look *out);

#endif
