/* SPDX-License-Identifier: Apache-2.0 */
/* cache/cache_i.h has the parts of a cache, for this room only. */
#ifndef RSH_CACHE_CACHE_I_H
#define RSH_CACHE_CACHE_I_H

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/queue.h>

#include "block_file_i.h"
#include "rsh/cache/cache.h"

/* Address space for blocks is taken for so many at a time. */
#define RSH_SLAB_BLOCKS 16

/* ---- blocks (memory.c) ---- */

enum rsh_block_state {
	RSH_BLOCK_FREE,    /* of no place in any file */
	RSH_BLOCK_LOADING, /* its content is on its way; wait or go by */
	RSH_BLOCK_PLAIN,
	RSH_BLOCK_FAILED,  /* the load went wrong; no longer to be found */
};

/* A frame of memory and what it holds.  Guarded by the cache's lock, but for
 * the bytes at `mem`: these belong to whoever is loading the block while it is
 * LOADING, and do not change while it is PLAIN. */
struct rsh_cache_block {
	struct rsh_cache_block *hash_next;
	TAILQ_ENTRY(rsh_cache_block) list; /* of its kind */
	uint8_t *mem;      /* block_bytes of address space */
	uint64_t number;   /* of the block in the file */
	uint64_t last_use; /* the cache's clock when it was last let go */
	rsh_cache_file file;
	uint32_t refs;     /* users; in a list only if there are none */
	uint32_t resident; /* bytes at mem that count as memory */
	uint32_t len;      /* of the content */
	uint32_t handed;   /* bytes handed out, at most len */
	int error;         /* FAILED: positive errno */
	uint8_t state;
	bool spent;
	bool untouched;    /* its memory counts, but is not there yet */
};

/* The oldest first. */
struct rsh_block_list {
	TAILQ_HEAD(rsh_block_queue, rsh_cache_block) blocks;
	uint32_t n;
};

/* All lists of a cache, empty. */
void rsh_lists_init(struct rsh_cache *c);

/* ---- files (files.c) ---- */

struct rsh_file_table {
	struct rsh_cache_file_id *files;
	uint32_t n, cap;
	uint32_t *slots; /* number of the file, plus 1; 0: empty */
	uint32_t n_slots;
};

void rsh_file_table_clear(struct rsh_file_table *t);

/* ---- the thread of the cache (worker.c) ---- */

/* It does one kind of work when it is told that there may be some.  Guarded by
 * the cache's lock. */
struct rsh_worker {
	struct rsh_cache *cache;
	/* Lock held, given up meanwhile: one piece of the work; false if there
	 * is none at present. */
	bool (*step)(struct rsh_cache *c);
	pthread_cond_t wake, idle;
	pthread_t thread;
	bool started, failed; /* failed: there will be no thread */
	bool pending;         /* there may be something to do */
	bool stop;
};

/* 0 or -errno. */
int rsh_worker_init(struct rsh_worker *w, struct rsh_cache *c,
		    bool (*step)(struct rsh_cache *c));
/* Lets it do what there is to do, and ends it.  Without the lock. */
void rsh_worker_destroy(struct rsh_worker *w);
/* Lock held: there may be something to do.  False: there is no thread. */
bool rsh_worker_kick(struct rsh_worker *w);
/* Lock held, given up meanwhile: waits until there is nothing to do. */
void rsh_worker_settle(struct rsh_worker *w);

/* ---- the cache ---- */

struct rsh_disk;

/* Threads that wait for loads, spread over a few conditions by block. */
#define RSH_WAIT_CONDITIONS 16

struct rsh_cache {
	/* Constant. */
	uint64_t bound;
	uint32_t block_bytes, page_bytes;
	unsigned block_shift;
	uint32_t n_heads; /* a power of two */
	uint32_t max_slabs;
	struct rsh_disk *disk; /* NULL: none */

	pthread_mutex_t lock; /* guards all below */
	pthread_cond_t loaded[RSH_WAIT_CONDITIONS];
	uint64_t clock;
	struct rsh_cache_block **heads;
	struct rsh_cache_slab *slabs;
	uint32_t n_slabs;
	struct rsh_block_list spent, plain;
	struct rsh_block_list warm; /* free, all of its memory resident */
	struct rsh_block_list cold; /* free, none of it */
	struct rsh_file_table files;

	uint32_t n_in_use;    /* blocks with users */
	uint64_t used;        /* bytes, <= bound */
	uint64_t bookkeeping; /* the part of it that is in no block */
	uint64_t plain_bytes; /* the part that is */
	struct rsh_cache_stats stats; /* the counters only */
};

/* Lock held for all of these. */

/* Counts `bytes` of bookkeeping, after throwing out blocks if need be: may give
 * the lock up meanwhile.  False if there is no room. */
bool rsh_cache_charge(struct rsh_cache *c, uint64_t bytes);
void rsh_cache_discharge(struct rsh_cache *c, uint64_t bytes);
/* A free block with memory for `len` bytes, in no list and without users; may
 * throw others out and give the lock up meanwhile.  NULL: no room. */
struct rsh_cache_block *rsh_block_take(struct rsh_cache *c, uint32_t len);
/* Back to the free ones.  Its memory stays if it is a whole frame. */
void rsh_block_give(struct rsh_cache *c, struct rsh_cache_block *b);
/* What the block is, wherever it is kept. */
struct rsh_block_key rsh_block_key_of(const struct rsh_cache *c,
				      const struct rsh_cache_block *b);
/* After rsh_block_take(): makes its memory what `len` bytes need; may give the
 * lock up. */
void rsh_block_fit(struct rsh_cache *c, struct rsh_cache_block *b,
		   uint32_t len);
/* The block of a place, or NULL. */
struct rsh_cache_block *rsh_block_find(struct rsh_cache *c,
				       rsh_cache_file file, uint64_t number);
void rsh_block_insert(struct rsh_cache *c, struct rsh_cache_block *b,
		      rsh_cache_file file, uint64_t number, uint32_t len);
void rsh_block_forget(struct rsh_cache *c, struct rsh_cache_block *b);
/* One user more, or one less that took `used` bytes. */
void rsh_block_ref(struct rsh_cache *c, struct rsh_cache_block *b);
void rsh_block_unref(struct rsh_cache *c, struct rsh_cache_block *b,
		     uint64_t used);
/* One user less that was none: the block stands where it stood. */
void rsh_block_unhold(struct rsh_cache *c, struct rsh_cache_block *b);
/* Its content has become this; who waits is woken.  The caller is a user. */
void rsh_block_settle(struct rsh_cache *c, struct rsh_cache_block *b,
		      enum rsh_block_state state);

/* Without users: */
void rsh_memory_clear(struct rsh_cache *c);

#endif
