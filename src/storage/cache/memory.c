/* SPDX-License-Identifier: Apache-2.0 */
/* storage/cache/memory.c has frames of memory with the blocks in them, and
 * evicts blocks.
 *
 * A frame is address space for a complete block.  Only its resident part counts
 * as memory: the last block of a file uses the first pages of a frame, and the
 * others are returned to the system.  There is much more address space than
 * memory.  So blocks of any size need no allocator, memory is not fragmented,
 * and a block never moves.
 */
#include "config.h"

#include "cache_i.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "rsh/util/compat.h"
#include "rsh/util/thread.h"

/* Frames are mapped RSH_SLAB_BLOCKS at a time and unmapped only at the end. */

struct rsh_cache_slab {
	struct rsh_cache_slab *next;
	uint8_t *mem;
	struct rsh_cache_block blocks[RSH_SLAB_BLOCKS];
};

/* ---- lists ---- */

void rsh_lists_init(struct rsh_cache *c)
{
	struct rsh_block_list *lists[] = { &c->spent, &c->plain, &c->warm,
					   &c->cold, &c->copies };

	for (size_t i = 0; i < sizeof(lists) / sizeof(*lists); i++)
		TAILQ_INIT(&lists[i]->blocks);
}

/* Adds a block as the newest of a list. */
static void block_list_add(struct rsh_block_list *l, struct rsh_cache_block *b)
{
	TAILQ_INSERT_TAIL(&l->blocks, b, list);
	l->n++;
}

/* Inserts a block in the order of last_use. */
static void block_list_insert(struct rsh_block_list *l,
			      struct rsh_cache_block *b)
{
	struct rsh_cache_block *older, *younger;

	/* The position may be near either end.  The search goes from both ends
	 * and finds the nearer one first. */
	older = TAILQ_LAST(&l->blocks, rsh_block_queue);
	younger = TAILQ_FIRST(&l->blocks);
	while (older && older->last_use > b->last_use &&
	       younger->last_use < b->last_use) {
		older = TAILQ_PREV(older, rsh_block_queue, list);
		younger = TAILQ_NEXT(younger, list);
	}
	if (!older)
		TAILQ_INSERT_HEAD(&l->blocks, b, list);
	else if (older->last_use <= b->last_use)
		TAILQ_INSERT_AFTER(&l->blocks, older, b, list);
	else
		TAILQ_INSERT_BEFORE(younger, b, list);
	l->n++;
}

static void block_list_remove(struct rsh_block_list *l,
			      struct rsh_cache_block *b)
{
	TAILQ_REMOVE(&l->blocks, b, list);
	l->n--;
}

/* Returns the list for a block without users. */
static struct rsh_block_list *block_list_of(struct rsh_cache *c,
					    const struct rsh_cache_block *b)
{
	return b->spent ? &c->spent : &c->plain;
}

/* ---- accounting of memory ---- */

static void memory_account(struct rsh_cache *c, uint64_t bytes)
{
	c->used += bytes;
	if (c->used > c->stats.memory_peak)
		c->stats.memory_peak = c->used;
}

static uint32_t memory_whole_pages(const struct rsh_cache *c, uint32_t len)
{
	return (len + c->page_bytes - 1) & ~(c->page_bytes - 1);
}

static void block_state_set(struct rsh_cache *c, struct rsh_cache_block *b,
			    enum rsh_block_state state)
{
	if (b->state != RSH_BLOCK_FREE)
		c->plain_bytes -= b->resident;
	b->state = (uint8_t)state;
	if (state != RSH_BLOCK_FREE)
		c->plain_bytes += b->resident;
}

static void block_resident_set(struct rsh_cache *c, struct rsh_cache_block *b,
			       uint32_t resident)
{
	const enum rsh_block_state state = b->state;

	block_state_set(c, b, RSH_BLOCK_FREE);
	c->used -= b->resident;
	b->resident = resident;
	memory_account(c, resident);
	block_state_set(c, b, state);
}

/* Returns memory after the first `len` bytes to the system.  It releases the
 * lock meanwhile, so no other thread may use the block. */
static void block_trim(struct rsh_cache *c, struct rsh_cache_block *b,
		       uint32_t len)
{
	uint32_t keep = memory_whole_pages(c, len);

	if (keep >= b->resident)
		return;
	pthread_mutex_unlock(&c->lock);
	madvise(b->mem + keep, c->block_bytes - keep, MADV_DONTNEED);
	pthread_mutex_lock(&c->lock);
	block_resident_set(c, b, keep);
}

void rsh_block_fit(struct rsh_cache *c, struct rsh_cache_block *b, uint32_t len)
{
	block_trim(c, b, len);
	if (!b->untouched)
		return;
	b->untouched = false;
	pthread_mutex_unlock(&c->lock);
	/* This costs half as much as a page fault for each page.  With a kernel
	 * that does not support it, page faults occur instead. */
	madvise(b->mem, b->resident, MADV_POPULATE_WRITE);
	pthread_mutex_lock(&c->lock);
}

/* ---- free blocks ---- */

static bool slab_add(struct rsh_cache *c)
{
	const size_t size = (size_t)RSH_SLAB_BLOCKS * c->block_bytes;
	struct rsh_cache_slab *slab;

	if (c->n_slabs == c->max_slabs || c->used + sizeof(*slab) > c->bound)
		return false;
	slab = calloc(1, sizeof(*slab));
	if (!slab)
		return false;
	slab->mem = mmap(NULL, size, PROT_READ | PROT_WRITE,
			 MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if (slab->mem == MAP_FAILED) {
		free(slab);
		return false;
	}
	/* A huge page would be completely resident after the first access. */
	madvise(slab->mem, size, MADV_NOHUGEPAGE);
	for (unsigned i = 0; i < RSH_SLAB_BLOCKS; i++) {
		slab->blocks[i].mem = slab->mem + (size_t)i * c->block_bytes;
		block_list_add(&c->cold, &slab->blocks[i]);
	}
	slab->next = c->slabs;
	c->slabs = slab;
	c->n_slabs++;
	c->bookkeeping += sizeof(*slab);
	memory_account(c, sizeof(*slab));
	return true;
}

/* Returns whether there is a frame without memory, and memory for it. */
static bool cold_has_room(struct rsh_cache *c, uint32_t need)
{
	return (c->cold.n || slab_add(c)) && c->used + need <= c->bound;
}

/* A short block does not use a frame that has all of its memory if there are
 * other frames, because the rest of the memory would be returned to the system
 * and requested again. */
static struct rsh_cache_block *block_take_free(struct rsh_cache *c,
					       uint32_t len)
{
	const uint32_t need = memory_whole_pages(c, len);
	struct rsh_cache_block *b = TAILQ_LAST(&c->warm.blocks,
						rsh_block_queue);

	if (b && (need == c->block_bytes || !cold_has_room(c, need))) {
		block_list_remove(&c->warm, b);
		return b;
	}
	if (!b && !cold_has_room(c, need))
		return NULL;
	b = TAILQ_LAST(&c->cold.blocks, rsh_block_queue);
	block_list_remove(&c->cold, b);
	block_resident_set(c, b, need);
	b->untouched = true;
	return b;
}

void rsh_block_give(struct rsh_cache *c, struct rsh_cache_block *b)
{
	block_state_set(c, b, RSH_BLOCK_FREE);
	b->packed = 0;
	if (b->resident != c->block_bytes)
		block_trim(c, b, 0);
	block_list_add(b->resident ? &c->warm : &c->cold, b);
}

/* ---- eviction ---- */

static struct rsh_cache_block **block_head(struct rsh_cache *c,
					   rsh_cache_file file, uint64_t number)
{
	uint64_t h = (number + file * UINT64_C(0xc2b2ae3d27d4eb4f)) *
		     UINT64_C(0x9e3779b97f4a7c15);

	return &c->heads[(h >> 32) & (c->n_heads - 1)];
}

/* Removes the block from the table. */
static void block_forget(struct rsh_cache *c, struct rsh_cache_block *b)
{
	struct rsh_cache_block **at = block_head(c, b->file, b->number);

	while (*at != b)
		at = &(*at)->hash_next;
	*at = b->hash_next;
	c->held_bytes -= b->len;
}

/* Frees the copy of a compressed block without users. */
static void block_give_copy(struct rsh_cache *c, struct rsh_cache_block *b)
{
	struct rsh_cache_block *copy = b->copy;

	block_list_remove(&c->copies, copy);
	b->copy = copy->copy = NULL;
	rsh_block_give(c, copy);
}

static bool copy_give_up(struct rsh_cache *c)
{
	struct rsh_cache_block *copy = TAILQ_FIRST(&c->copies.blocks);

	if (copy)
		block_give_copy(c, copy->copy);
	return copy;
}

static bool block_evict_one(struct rsh_cache *c)
{
	struct rsh_cache_block *b = TAILQ_FIRST(&c->spent.blocks);

	if (!b)
		b = TAILQ_FIRST(&c->plain.blocks);
	if (!b)
		return false;
	if (b->spent)
		c->stats.evicted_spent++;
	else
		c->stats.evicted_plain++;
	block_list_remove(block_list_of(c, b), b);
	block_forget(c, b);
	c->n_packed -= b->packed > 0;
	if (b->copy)
		block_give_copy(c, b);
	rsh_block_give(c, b);
	return true;
}

struct rsh_cache_block *rsh_block_take(struct rsh_cache *c, uint32_t len)
{
	struct rsh_cache_block *b;

	do
		b = block_take_free(c, len);
	while (!b && (copy_give_up(c) || block_evict_one(c)));
	return b;
}

/* Returns the memory of a free block to the system. */
static bool block_warm_give_up(struct rsh_cache *c)
{
	struct rsh_cache_block *b = TAILQ_FIRST(&c->warm.blocks);

	if (!b)
		return false;
	block_list_remove(&c->warm, b);
	block_trim(c, b, 0);
	block_list_add(&c->cold, b);
	return true;
}

bool rsh_cache_charge(struct rsh_cache *c, uint64_t bytes)
{
	while (c->used + bytes > c->bound)
		if (!block_warm_give_up(c) && !copy_give_up(c) &&
		    !block_evict_one(c))
			return false;
	c->bookkeeping += bytes;
	memory_account(c, bytes);
	return true;
}

void rsh_cache_discharge(struct rsh_cache *c, uint64_t bytes)
{
	c->bookkeeping -= bytes;
	c->used -= bytes;
}

bool rsh_cache_cede(struct rsh_cache *c, uint64_t bytes)
{
	bool fits;

	rsh_hold_lock(&c->lock);
	fits = bytes <= c->bound && rsh_cache_charge(c, bytes);
	if (fits) {
		rsh_cache_discharge(c, bytes);
		c->bound -= bytes;
	}
	return fits;
}

void rsh_cache_drop(struct rsh_cache *c)
{
	rsh_hold_lock(&c->lock);
	while (block_evict_one(c))
		;
	while (block_warm_give_up(c))
		;
}

/* ---- compressed blocks ---- */

void rsh_block_keep_packed(struct rsh_cache *c, struct rsh_cache_block *b,
			   const uint8_t *packed, uint32_t n)
{
	struct rsh_cache_block *f;
	uint32_t resident;
	uint8_t *mem;

	if (!c->compress ||
	    memory_whole_pages(c, n) >= memory_whole_pages(c, b->len))
		return;
	f = rsh_block_take(c, n);
	if (!f)
		return;
	rsh_block_fit(c, f, n);
	pthread_mutex_unlock(&c->lock);
	memcpy(f->mem, packed, n);
	pthread_mutex_lock(&c->lock);
	block_state_set(c, f, RSH_BLOCK_PLAIN);
	b->copy = f;
	f->copy = b;
	mem = b->mem;
	resident = b->resident;
	b->mem = f->mem;
	b->resident = f->resident;
	f->mem = mem;
	f->resident = resident;
	b->packed = n;
	c->n_packed++;
}

const uint8_t *rsh_block_content(const struct rsh_cache_block *b)
{
	if (!b->packed)
		return b->mem;
	return b->copy ? b->copy->mem : NULL;
}

void rsh_memory_clear(struct rsh_cache *c)
{
	struct rsh_cache_slab *slab, *next;

	for (slab = c->slabs; slab; slab = next) {
		next = slab->next;
		munmap(slab->mem, (size_t)RSH_SLAB_BLOCKS * c->block_bytes);
		free(slab);
	}
	c->slabs = NULL;
}

/* ---- the table of blocks ---- */

struct rsh_cache_block *rsh_block_find(struct rsh_cache *c,
				       rsh_cache_file file, uint64_t number)
{
	struct rsh_cache_block *b = *block_head(c, file, number);

	while (b && (b->number != number || b->file != file))
		b = b->hash_next;
	return b;
}

struct rsh_block_key rsh_block_key_of(const struct rsh_cache *c,
				      const struct rsh_cache_block *b)
{
	return (struct rsh_block_key){
		.file = c->files.files[b->file],
		.offset = b->number << c->block_shift,
		.len = b->len,
	};
}

void rsh_block_insert(struct rsh_cache *c, struct rsh_cache_block *b,
		      rsh_cache_file file, uint64_t number, uint32_t len)
{
	struct rsh_cache_block **head = block_head(c, file, number);

	b->file = file;
	b->number = number;
	b->len = len;
	b->handed = 0;
	b->spent = false;
	b->refs = 1;
	c->n_in_use++;
	c->held_bytes += len;
	b->hash_next = *head;
	*head = b;
	block_state_set(c, b, RSH_BLOCK_LOADING);
}

void rsh_block_ref(struct rsh_cache *c, struct rsh_cache_block *b)
{
	if (b->refs++)
		return;
	c->n_in_use++;
	block_list_remove(block_list_of(c, b), b);
	if (b->copy)
		block_list_remove(&c->copies, b->copy);
	if (b->spent)
		b->handed = 0;
	b->spent = false;
}

void rsh_block_unhold(struct rsh_cache *c, struct rsh_cache_block *b)
{
	if (--b->refs)
		return;
	c->n_in_use--;
	if (b->state == RSH_BLOCK_FAILED) {
		rsh_block_give(c, b);
		return;
	}
	b->spent = b->handed == b->len;
	block_list_insert(block_list_of(c, b), b);
	if (b->copy)
		block_list_add(&c->copies, b->copy);
}

void rsh_block_unref(struct rsh_cache *c, struct rsh_cache_block *b,
		     uint64_t used)
{
	b->handed = used < b->len - b->handed ? b->handed + (uint32_t)used :
						b->len;
	b->last_use = ++c->clock;
	rsh_block_unhold(c, b);
}

void rsh_block_settle(struct rsh_cache *c, struct rsh_cache_block *b,
		      enum rsh_block_state state)
{
	if (state == RSH_BLOCK_FAILED)
		block_forget(c, b);
	block_state_set(c, b, state);
	pthread_cond_broadcast(&c->loaded[b->number % RSH_WAIT_CONDITIONS]);
}
