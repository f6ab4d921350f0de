/* SPDX-License-Identifier: Apache-2.0 */
/* storage/cache/files.c gives identities of files small numbers. */
#include "cache_i.h"

#include <stdlib.h>
#include <string.h>

#include <xxhash.h>

#include "rsh/util/thread.h"

#define FIRST_FILES 16 /* a power of two */
#define MAX_FILES (UINT32_C(1) << 28)

static uint64_t file_table_bytes(const struct rsh_cache *c, uint32_t cap)
{
	return (uint64_t)cap * (sizeof(struct rsh_cache_file_id) +
				2 * sizeof(uint32_t) +
				(c->shared ? sizeof(*c->files.shared) : 0));
}

/* Returns the slot of the identity, or the empty one where it would be. */
static uint32_t *file_table_slot(const struct rsh_file_table *t,
				 const struct rsh_cache_file_id *id)
{
	const size_t n = offsetof(struct rsh_cache_file_id, memory_only);
	uint32_t at = (uint32_t)XXH3_64bits(id, n) & (t->n_slots - 1);
	const struct rsh_cache_file_id *there;

	for (; t->slots[at]; at = (at + 1) & (t->n_slots - 1)) {
		there = &t->files[t->slots[at] - 1];
		if (memcmp(there, id, n) == 0 &&
		    there->memory_only == id->memory_only)
			break;
	}
	return &t->slots[at];
}

/* Makes room for more files; returns false if there is none.  The lock is held
 * and may be given up meanwhile, so that another thread may make the same
 * room. */
static bool file_table_make_room(struct rsh_cache *c)
{
	struct rsh_file_table *t = &c->files;
	const uint32_t old = t->cap, cap = old ? 2 * old : FIRST_FILES;
	struct rsh_file_table bigger = { .cap = cap, .n_slots = 2 * cap };

	if (cap > MAX_FILES || !rsh_cache_charge(c, file_table_bytes(c, cap)))
		return false;
	if (t->cap != old) {
		rsh_cache_discharge(c, file_table_bytes(c, cap));
		return true;
	}
	bigger.files = calloc(cap, sizeof(*bigger.files));
	bigger.slots = calloc(bigger.n_slots, sizeof(*bigger.slots));
	if (c->shared)
		bigger.shared = calloc(cap, sizeof(*bigger.shared));
	if (!bigger.files || !bigger.slots || (c->shared && !bigger.shared)) {
		rsh_file_table_clear(&bigger);
		rsh_cache_discharge(c, file_table_bytes(c, cap));
		return false;
	}
	bigger.n = t->n;
	if (t->n)
		memcpy(bigger.files, t->files, t->n * sizeof(*t->files));
	if (t->n && c->shared)
		memcpy(bigger.shared, t->shared, t->n * sizeof(*t->shared));
	for (uint32_t i = 0; i < t->n; i++)
		*file_table_slot(&bigger, &t->files[i]) = i + 1;
	rsh_file_table_clear(t);
	*t = bigger;
	rsh_cache_discharge(c, file_table_bytes(c, old));
	return true;
}

rsh_cache_file rsh_cache_file_open(struct rsh_cache *c,
				   const struct rsh_cache_file_id *id)
{
	struct rsh_file_table *t = &c->files;
	rsh_cache_file file = RSH_CACHE_FILE_NONE;
	uint32_t *slot;

	rsh_hold_lock(&c->lock);
	do {
		slot = t->cap ? file_table_slot(t, id) : NULL;
		if (slot && *slot) {
			file = *slot - 1;
		} else if (t->n < t->cap) {
			file = t->n++;
			t->files[file] = *id;
			*slot = t->n;
		}
	} while (file == RSH_CACHE_FILE_NONE && file_table_make_room(c));
	return file;
}

void rsh_cache_file_share(struct rsh_cache *c, rsh_cache_file file,
			  const uint64_t name[2])
{
	rsh_hold_lock(&c->lock);
	if (c->shared && file < c->files.n)
		memcpy(c->files.shared[file], name,
		       sizeof(c->files.shared[file]));
}

void rsh_file_table_clear(struct rsh_file_table *t)
{
	free(t->files);
	free(t->slots);
	free(t->shared);
	*t = (struct rsh_file_table){ 0 };
}
