/* SPDX-License-Identifier: Apache-2.0 */
/* util/names.c keeps names in an arena, and finds their ids by a hash table
 * with open addressing. */
#include "rsh/util/names.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

#include "rsh/util/arena.h"
#include "rsh/util/mem.h"
#include "rsh/util/thread.h"

/* The texts of ids are in segments of doubling size that never move.  Segment k
 * begins with id FIRST_SEGMENT * (2^k - 1) and holds FIRST_SEGMENT * 2^k
 * ids. */
#define FIRST_SEGMENT_BITS 10
#define FIRST_SEGMENT (UINT32_C(1) << FIRST_SEGMENT_BITS)
#define N_SEGMENTS (32 - FIRST_SEGMENT_BITS)

#define FIRST_SLOTS 1024 /* a power of two */

struct slot {
	uint32_t hash; /* the lower half; the upper one chooses the slot */
	uint32_t id;   /* RSH_NAME_NONE: free */
};

struct rsh_names {
	/* Guards slots, n_slots and texts, and makes add() atomic.  No other
	 * lock is taken while it is held. */
	pthread_mutex_t lock;
	struct slot *slots; /* open addressing, at most half full */
	size_t n_slots;     /* a power of two */
	struct rsh_arena texts;

	/* These are written under the lock and read without it.  An element of
	 * a segment is written once, before its id is handed out. */
	const char **segment[N_SEGMENTS];
	_Atomic uint32_t count;
};

static void segment_of(uint32_t id, uint32_t *segment, uint32_t *index)
{
	uint32_t n = id + FIRST_SEGMENT;
	uint32_t top = 31 - (uint32_t)__builtin_clz(n);

	*segment = top - FIRST_SEGMENT_BITS;
	*index = n - (UINT32_C(1) << top);
}

static struct slot *slots_new(size_t n)
{
	struct slot *slots = rsh_alloc_array(n, sizeof(*slots));

	for (size_t i = 0; slots && i < n; i++)
		slots[i] = (struct slot){ 0, RSH_NAME_NONE };
	return slots;
}

static size_t home_slot(uint64_t hash, size_t n_slots)
{
	return (size_t)(hash >> 32) & (n_slots - 1);
}

static bool same_text(const char *text, const char *s, size_t len)
{
	return !strncmp(text, s, len) && !text[len];
}

/* Returns the slot that holds the text, or the free one where it belongs.  The
 * caller holds the lock. */
static struct slot *names_find_slot(const struct rsh_names *t, uint64_t hash,
				    const char *s, size_t len)
{
	size_t i = home_slot(hash, t->n_slots);

	for (;; i = (i + 1) & (t->n_slots - 1)) {
		struct slot *slot = &t->slots[i];

		if (slot->id == RSH_NAME_NONE)
			return slot;
		if (slot->hash == (uint32_t)hash &&
		    same_text(rsh_names_text(t, slot->id), s, len))
			return slot;
	}
}

/* Doubles the slots.  The caller holds the lock. */
static bool grow_slots(struct rsh_names *t, uint32_t count)
{
	size_t n = t->n_slots * 2;
	struct slot *slots = slots_new(n);

	if (!slots)
		return false;
	for (uint32_t id = 0; id < count; id++) {
		const char *text = rsh_names_text(t, id);
		uint64_t hash = XXH3_64bits(text, strlen(text));
		size_t i = home_slot(hash, n);

		while (slots[i].id != RSH_NAME_NONE)
			i = (i + 1) & (n - 1);
		slots[i] = (struct slot){ (uint32_t)hash, id };
	}
	free(t->slots);
	t->slots = slots;
	t->n_slots = n;
	return true;
}

/* Copies the text to its place under `id`.  The caller holds the lock. */
static bool store_text(struct rsh_names *t, uint32_t id, const char *s,
		       size_t len)
{
	uint32_t segment, index;
	char *copy;

	segment_of(id, &segment, &index);
	if (!t->segment[segment])
		t->segment[segment] = rsh_alloc_array(
			(size_t)FIRST_SEGMENT << segment, sizeof(char *));
	if (!t->segment[segment])
		return false;
	copy = rsh_arena_strndup(&t->texts, s, len);
	if (!copy)
		return false;
	t->segment[segment][index] = copy;
	return true;
}

/* Does what rsh_names_add() does.  The caller holds the lock. */
static uint32_t add_locked(struct rsh_names *t, uint64_t hash, const char *s,
			   size_t len)
{
	uint32_t id = rsh_names_count(t);
	struct slot *slot = names_find_slot(t, hash, s, len);

	if (slot->id != RSH_NAME_NONE)
		return slot->id;
	/* The last segment ends one short of what 32 bits could count. */
	if (id == UINT32_MAX - FIRST_SEGMENT)
		return RSH_NAME_NONE;
	if ((size_t)id + 1 > t->n_slots / 2) {
		if (!grow_slots(t, id))
			return RSH_NAME_NONE;
		slot = names_find_slot(t, hash, s, len);
	}
	if (!store_text(t, id, s, len))
		return RSH_NAME_NONE;
	*slot = (struct slot){ (uint32_t)hash, id };
	atomic_store_explicit(&t->count, id + 1, memory_order_release);
	return id;
}

struct rsh_names *rsh_names_new(void)
{
	struct rsh_names *t = calloc(1, sizeof(*t));

	if (!t)
		return NULL;
	t->slots = slots_new(FIRST_SLOTS);
	t->n_slots = FIRST_SLOTS;
	if (!t->slots || pthread_mutex_init(&t->lock, NULL)) {
		free(t->slots);
		free(t);
		return NULL;
	}
	return t;
}

void rsh_names_free(struct rsh_names *t)
{
	if (!t)
		return;
	for (unsigned k = 0; k < N_SEGMENTS; k++)
		free(t->segment[k]);
	rsh_arena_clear(&t->texts);
	free(t->slots);
	pthread_mutex_destroy(&t->lock);
	free(t);
}

uint32_t rsh_names_add(struct rsh_names *t, const char *s, size_t len)
{
	uint64_t hash = XXH3_64bits(s, len);

	rsh_hold_lock(&t->lock);
	return add_locked(t, hash, s, len);
}

uint32_t rsh_names_find(struct rsh_names *t, const char *s, size_t len)
{
	uint64_t hash = XXH3_64bits(s, len);

	rsh_hold_lock(&t->lock);
	return names_find_slot(t, hash, s, len)->id;
}

const char *rsh_names_text(const struct rsh_names *t, uint32_t id)
{
	uint32_t segment, index;

	segment_of(id, &segment, &index);
	return t->segment[segment][index];
}

uint32_t rsh_names_count(const struct rsh_names *t)
{
	return atomic_load_explicit(&t->count, memory_order_acquire);
}
