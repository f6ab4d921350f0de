/* SPDX-License-Identifier: Apache-2.0 */
/* storage/cache/cache_i.h - the parts of a cache; only this room includes it. */
#ifndef RSH_STORAGE_CACHE_I_H
#define RSH_STORAGE_CACHE_I_H

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/queue.h>

#include "block_file_i.h"
#include "rsh/storage/cache.h"

/* Address space is mapped for this many blocks at a time. */
#define RSH_SLAB_BLOCKS 16

/* ---- blocks (memory.c) ---- */

enum rsh_block_state {
	RSH_BLOCK_FREE,    /* it stands for no part of a file */
	RSH_BLOCK_LOADING, /* its content is on its way */
	RSH_BLOCK_PLAIN,
	RSH_BLOCK_FAILED,  /* the load went wrong; cannot be found any more */
};

/* This is a frame of memory with what it holds.  The cache's lock guards it,
 * but for the bytes at `mem`: these belong to whoever is loading the block
 * while it is LOADING, and do not change while it is PLAIN.
 *
 * The frame of a block may have its content compressed.  The content as it is
 * lies in another frame then, its copy, or nowhere: the copy of a block without
 * users stands in a list and goes when memory is needed.  When a block is
 * compressed the two exchange their memory, so that who has got a pointer to the
 * content before can go on. */
struct rsh_cache_block {
	struct rsh_cache_block *hash_next;
	TAILQ_ENTRY(rsh_cache_block) list; /* the list that it stands in */
	uint8_t *mem;      /* block_bytes of address space */
	uint64_t number;   /* place in the file, in blocks */
	uint64_t last_use; /* the cache's clock when it was last let go */
	rsh_cache_file file;
	uint32_t refs;     /* users; while there are any, it is in no list */
	uint32_t resident; /* bytes at mem that count as memory */
	uint32_t len;      /* of the content */
	uint32_t handed;   /* bytes handed out, at most len */
	uint32_t packed;   /* bytes at mem that the content was compressed to;
			    * 0: mem has the content.  Once it is not 0 it and
			    * mem do not change */
	struct rsh_cache_block *copy; /* a compressed block's, and the block of
				       * a copy; NULL: none */
	int error;         /* FAILED: positive errno */
	uint8_t state;
	bool spent;
	bool untouched;    /* its memory counts, but is not there yet */
};

/* A list has its oldest block first. */
struct rsh_block_list {
	TAILQ_HEAD(rsh_block_queue, rsh_cache_block) blocks;
	uint32_t n;
};

/* Makes all lists of a cache empty ones. */
void rsh_lists_init(struct rsh_cache *c);

/* ---- files (files.c) ---- */

struct rsh_file_table {
	struct rsh_cache_file_id *files;
	uint64_t (*shared)[2]; /* how other nodes call them; zeros: they do
				* not; NULL: there are no servers */
	uint32_t n, cap;
	uint32_t *slots; /* number of the file, plus 1; 0: empty */
	uint32_t n_slots;
};

void rsh_file_table_clear(struct rsh_file_table *t);

/* ---- the thread of the cache (cache.c) ---- */

/* A worker does one kind of work when it is told that there may be some.  The
 * cache's lock guards it. */
struct rsh_worker {
	struct rsh_cache *cache;
	/* Does one piece of the work and returns true, or returns false if
	 * there is none at present.  It is called with the lock held and gives
	 * it up meanwhile. */
	bool (*step)(struct rsh_cache *c);
	pthread_cond_t wake, idle;
	pthread_t thread;
	bool started, failed; /* failed: no thread could be started */
	bool pending;         /* there may be something to do */
	bool stop;
};

/* Prepares a worker without starting its thread.  Returns 0 or -errno. */
int rsh_worker_init(struct rsh_worker *w, struct rsh_cache *c,
		    bool (*step)(struct rsh_cache *c));
/* Lets the worker do what there is to do, and ends it.  It is called without
 * the lock. */
void rsh_worker_destroy(struct rsh_worker *w);
/* Tells the worker that there may be something to do, and starts its thread the
 * first time.  Returns false if there is no thread.  The lock is held. */
bool rsh_worker_kick(struct rsh_worker *w);
/* Waits until there is nothing to do.  The lock is held, and given up
 * meanwhile. */
void rsh_worker_settle(struct rsh_worker *w);

/* ---- what is compressed (pack.c) ---- */

/* A verdict is of a tensor.  Two tensors may come to have the same one, of which
 * the former is forgotten. */
struct rsh_verdict {
	uint32_t tag; /* tells the tensor, mostly */
	uint8_t left; /* so many blocks pass before the next sample */
	bool missed;  /* the last sample was worth nothing */
};

/* Compresses what pays of n blocks that were loaded, which are PLAIN and whose
 * user the caller is.  The lock is held, and given up meanwhile. */
void rsh_blocks_pack(struct rsh_cache *c, struct rsh_cache_block **blocks,
		     const struct rsh_cache_kind *kinds, unsigned n);

/* ---- the cache ---- */

struct rsh_disk;
struct rsh_shared;

/* Threads that wait for loads are spread over this many conditions, by
 * block. */
#define RSH_WAIT_CONDITIONS 16

struct rsh_cache {
	/* These do not change. */
	uint64_t bound;
	uint32_t block_bytes, page_bytes;
	unsigned block_shift;
	uint32_t n_heads; /* a power of two */
	uint32_t max_slabs;
	bool compress;
	rsh_cache_kind_fn kind;
	struct rsh_disk *disk; /* NULL: none */
	struct rsh_shared *shared; /* NULL: there are no servers */

	pthread_mutex_t lock; /* guards all that follows */
	pthread_cond_t loaded[RSH_WAIT_CONDITIONS];
	uint64_t clock;
	struct rsh_cache_block **heads;
	struct rsh_cache_slab *slabs;
	uint32_t n_slabs;
	struct rsh_block_list spent, plain;
	struct rsh_block_list warm; /* free blocks with all of their memory */
	struct rsh_block_list cold; /* free blocks without memory */
	struct rsh_block_list copies; /* of compressed blocks without users */
	struct rsh_verdict *verdicts; /* as many as heads */
	struct rsh_file_table files;

	uint32_t n_in_use;    /* blocks with users */
	uint64_t used;        /* bytes, <= bound */
	uint64_t bookkeeping; /* the part of it that is no block's */
	uint64_t plain_bytes; /* the part of it that is */
	uint64_t held_bytes;  /* content of blocks in the table */
	uint32_t n_packed;
	struct rsh_cache_stats stats; /* only the counters */
};

/* The lock is held in all of these but rsh_memory_clear(). */

/* Counts `bytes` of bookkeeping, and throws out blocks before if need be; it
 * may give the lock up meanwhile.  Returns false if there is no room. */
bool rsh_cache_charge(struct rsh_cache *c, uint64_t bytes);
void rsh_cache_discharge(struct rsh_cache *c, uint64_t bytes);
/* Returns a free block with memory for `len` bytes, in no list and without
 * users, or NULL if there is no room.  It may throw others out and give the
 * lock up meanwhile. */
struct rsh_cache_block *rsh_block_take(struct rsh_cache *c, uint32_t len);
/* Makes a block free.  It keeps its memory if that is a whole frame; else it
 * gives the lock up meanwhile. */
void rsh_block_give(struct rsh_cache *c, struct rsh_cache_block *b);
/* Gives a PLAIN block, whose user the caller is, the content compressed to n
 * bytes as well, if there is room, it is less memory, and compressing is not
 * off.  It may give the lock up. */
void rsh_block_keep_packed(struct rsh_cache *c, struct rsh_cache_block *b,
			   const uint8_t *packed, uint32_t n);
/* Returns how many bytes lie at `mem` of a PLAIN block. */
static inline uint32_t rsh_block_stored(const struct rsh_cache_block *b)
{
	return b->packed ? b->packed : b->len;
}
/* Returns the content of a block, or NULL if it is only there compressed; it
 * stays there as long as the caller is a user of the block. */
const uint8_t *rsh_block_content(const struct rsh_cache_block *b);
/* Returns the key of a block, which is the same in memory and in the
 * directory. */
struct rsh_block_key rsh_block_key_of(const struct rsh_cache *c,
				      const struct rsh_cache_block *b);
/* Makes the memory of a block that rsh_block_take() gave what `len` bytes need;
 * it may give the lock up. */
void rsh_block_fit(struct rsh_cache *c, struct rsh_cache_block *b,
		   uint32_t len);
/* Returns the block of a place in a file, or NULL. */
struct rsh_cache_block *rsh_block_find(struct rsh_cache *c,
				       rsh_cache_file file, uint64_t number);
void rsh_block_insert(struct rsh_cache *c, struct rsh_cache_block *b,
		      rsh_cache_file file, uint64_t number, uint32_t len);
/* These give the block one user more, or one less that took `used` bytes.  The
 * last user of a FAILED block may give the lock up. */
void rsh_block_ref(struct rsh_cache *c, struct rsh_cache_block *b);
void rsh_block_unref(struct rsh_cache *c, struct rsh_cache_block *b,
		     uint64_t used);
/* Takes away a user that did not use the block, which goes back to where it
 * stood in its list. */
void rsh_block_unhold(struct rsh_cache *c, struct rsh_cache_block *b);
/* Says what became of the content that was on its way, and wakes who waits for
 * it.  The caller is a user of the block. */
void rsh_block_settle(struct rsh_cache *c, struct rsh_cache_block *b,
		      enum rsh_block_state state);

/* Frees all memory.  No block has users and no other call is under way. */
void rsh_memory_clear(struct rsh_cache *c);

#endif
