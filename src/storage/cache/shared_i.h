/* SPDX-License-Identifier: Apache-2.0 */
/* storage/cache/shared_i.h - blocks that nodes share by servers; for this layer
 * only.
 *
 * A block that is neither in memory nor in the directory is looked up on its
 * server.  If the server does not have it, the node claims it there, loads it
 * and stores it.  Other nodes wait for this a bounded time and then load the
 * block themselves.  A node waits for other nodes only when it has loaded all
 * that it has claimed, so nodes cannot wait for each other in a circle.
 */
#pragma once

#include "cache_i.h"
#include "servers_i.h"

/* At most this many blocks wait to be stored, and at most this part of the
 * memory; at most this many claims wait to be removed. */
#define RSH_SHARED_QUEUE 64
#define RSH_SHARED_QUEUE_PART 8

struct rsh_shared_job {
	struct rsh_cache_block *block; /* NULL: the claim is removed */
	const uint8_t *bytes;          /* the stored form of the block */
	struct rsh_item item;
};

struct rsh_shared {
	struct rsh_cache_servers *servers;
	bool is_mine; /* the servers are freed with the cache */
	uint8_t *value; /* only the worker uses it */

	/* The cache's lock guards these. */
	struct rsh_worker writer;
	struct rsh_shared_job queue[RSH_SHARED_QUEUE];
	uint32_t head, n, n_blocks, max_blocks;
	uint64_t wait_ns; /* how long to wait for a block */
	uint64_t cut_ns;  /* when this was last reduced */
};

/* Opens the servers of the options, or uses those that are open.  Returns 0, or
 * -errno with a sentence. */
int rsh_shared_open(struct rsh_cache *c, const struct rsh_cache_options *opts,
		    struct rsh_error *err);
/* Stores the blocks that wait, and ends the writer. */
void rsh_shared_close(struct rsh_cache *c);

/* The lookup of the blocks of one fill on servers. */
struct rsh_lookup {
	struct rsh_cache_block *blocks[RSH_CACHE_LOAD_IOV];
	struct rsh_item items[RSH_CACHE_LOAD_IOV];
	uint64_t file[2]; /* name of the file on all nodes */
	unsigned n, n_found;
	uint64_t since, until, pause; /* times of the wait; 0: it has not
				       * begun */
};

/* The lock is held in all functions below, and released meanwhile. */

/* Looks up those of the blocks of one file that are LOADING, and settles those
 * that are found; claims the others if possible. */
void rsh_lookup_begin(struct rsh_cache *c, struct rsh_cache_block **blocks,
		    unsigned n, struct rsh_lookup *h);
/* Returns whether this thread has to load the block now. */
bool rsh_lookup_is_ours(const struct rsh_lookup *h,
		      const struct rsh_cache_block *b);
/* Called when the block has been settled after a load that succeeded (good) or
 * failed. */
void rsh_lookup_loaded(struct rsh_cache *c, struct rsh_lookup *h,
		     struct rsh_cache_block *b, bool good);
/* When all other blocks are loaded, waits for a block that another node has
 * claimed, until it is stored, and then settled, or has to be loaded here.
 * Returns false if there is none left.  With `hasten` it does not wait. */
bool rsh_lookup_wait(struct rsh_cache *c, struct rsh_lookup *h, bool hasten);
