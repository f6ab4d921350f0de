/* SPDX-License-Identifier: Apache-2.0 */
/* storage/cache/shared_i.h - blocks that nodes share by servers; only this room includes
 * it.
 *
 * A block that is neither in memory nor in the directory is looked up on its server.  If
 * the server does not have it, the node claims it there, loads it and stores it; other
 * nodes wait for this a bounded time and then load it themselves.  A node waits for
 * others only when it has loaded all that it has claimed, so nodes cannot wait for each
 * other in a circle. */
#ifndef RSH_STORAGE_SHARED_I_H
#define RSH_STORAGE_SHARED_I_H

#include "cache_i.h"
#include "servers_i.h"

/* At most this many blocks wait to be stored, and at most this part of the
 * memory; as many claims wait to be given up. */
#define RSH_SHARED_QUEUE 64
#define RSH_SHARED_QUEUE_PART 8

struct rsh_shared_job {
	struct rsh_cache_block *block; /* NULL: the claim is removed */
	const uint8_t *bytes;          /* its stored form */
	struct rsh_item item;
};

struct rsh_shared {
	struct rsh_cache_servers *servers;
	bool is_mine; /* the servers are freed with the cache */
	uint8_t *value; /* for the worker only */

	/* The cache's lock guards these. */
	struct rsh_worker writer;
	struct rsh_shared_job queue[RSH_SHARED_QUEUE];
	uint32_t head, n, n_blocks, max_blocks;
	uint64_t wait_ns; /* how long to wait for a block */
	uint64_t cut_ns;  /* when this was last reduced */
};

/* Takes or opens the servers of the options.  Returns 0, or -errno with a
 * sentence. */
int rsh_shared_open(struct rsh_cache *c, const struct rsh_cache_options *opts,
		    struct rsh_error *err);
/* Stores what waits, and ends the writer. */
void rsh_shared_close(struct rsh_cache *c);

/* The lookup of the blocks of one fill on servers. */
struct rsh_lookup {
	struct rsh_cache_block *blocks[RSH_CACHE_LOAD_IOV];
	struct rsh_item items[RSH_CACHE_LOAD_IOV];
	uint64_t file[2]; /* name of the file on all nodes */
	unsigned n, n_found;
	uint64_t since, until, pause; /* of the wait; 0: it has not begun */
};

/* The lock is held in all that follows, and given up meanwhile. */

/* Looks up those of the blocks of one file that are LOADING, and settles those that are
 * found; claims the others if possible. */
void rsh_lookup_begin(struct rsh_cache *c, struct rsh_cache_block **blocks,
		    unsigned n, struct rsh_lookup *h);
/* Returns whether this thread has to load the block now. */
bool rsh_lookup_is_ours(const struct rsh_lookup *h,
		      const struct rsh_cache_block *b);
/* Called when the block has been settled after a load, good or failed. */
void rsh_lookup_loaded(struct rsh_cache *c, struct rsh_lookup *h,
		     struct rsh_cache_block *b, bool good);
/* Waits for a block that another node has claimed, when all others are loaded, until it
 * is stored, and is settled, or has to be loaded.  Returns false if there is none left.
 * With `hasten` it does not wait. */
bool rsh_lookup_wait(struct rsh_cache *c, struct rsh_lookup *h, bool hasten);

#endif
