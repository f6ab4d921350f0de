/* SPDX-License-Identifier: Apache-2.0 */
/* storage/cache/shared_i.h - blocks that nodes share through servers; only this room
 * includes it.
 *
 * A block that neither memory nor the directory has is asked of its server.  If
 * that has not got it either, it is claimed there, and who has the claim loads
 * it and has it stored; others wait for that a bounded time and then load it
 * themselves.  A node waits for others only when it has loaded what it has
 * claimed, so no circle of nodes can wait for each other. */
#ifndef RSH_STORAGE_SHARED_I_H
#define RSH_STORAGE_SHARED_I_H

#include "cache_i.h"
#include "servers_i.h"

/* At most this many blocks wait to be stored, and at most this part of the
 * memory; as many claims wait to be given up. */
#define RSH_SHARED_QUEUE 64
#define RSH_SHARED_QUEUE_PART 8

struct rsh_shared_job {
	struct rsh_cache_block *block; /* NULL: its claim is given up */
	const uint8_t *bytes;          /* what is stored of it */
	struct rsh_item item;
};

struct rsh_shared {
	struct rsh_cache_servers *servers;
	bool is_mine; /* the servers go with the cache */
	uint8_t *value; /* only the worker touches it */

	/* The cache's lock guards these. */
	struct rsh_worker writer;
	struct rsh_shared_job queue[RSH_SHARED_QUEUE];
	uint32_t head, n, n_blocks, max_blocks;
	uint64_t wait_ns; /* how long a block is waited for */
	uint64_t cut_ns;  /* when that last became less */
};

/* Takes or opens the servers of the options.  Returns 0, or -errno with a
 * sentence. */
int rsh_shared_open(struct rsh_cache *c, const struct rsh_cache_options *opts,
		    struct rsh_error *err);
/* Stores what waits, and ends the writer. */
void rsh_shared_close(struct rsh_cache *c);

/* These are the blocks of one fill that servers may have. */
struct rsh_hunt {
	struct rsh_cache_block *blocks[RSH_CACHE_LOAD_IOV];
	struct rsh_item items[RSH_CACHE_LOAD_IOV];
	uint64_t file[2]; /* what all nodes call it */
	unsigned n, n_found;
	/* 0: nothing was waited for yet. */
	uint64_t since, until, pause;
};

/* The lock is held in all that follows, and given up meanwhile. */

/* Looks for those of the blocks that are LOADING, of one file, and settles what
 * is found; what is not is claimed where it can be. */
void rsh_hunt_begin(struct rsh_cache *c, struct rsh_cache_block **blocks,
		    unsigned n, struct rsh_hunt *h);
/* Is the block one that this thread is to load now? */
bool rsh_hunt_is_ours(const struct rsh_hunt *h,
		      const struct rsh_cache_block *b);
/* Says that the block was loaded, or failed to be, and has been settled. */
void rsh_hunt_loaded(struct rsh_cache *c, struct rsh_hunt *h,
		     struct rsh_cache_block *b, bool good);
/* Waits for a block that another node has claimed, when all others are loaded:
 * until it comes, and is settled, or is to be loaded.  Returns false if there is
 * none left.  With `hasten` nothing is waited for. */
bool rsh_hunt_wait(struct rsh_cache *c, struct rsh_hunt *h, bool hasten);

#endif
