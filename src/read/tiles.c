/* SPDX-License-Identifier: Apache-2.0 */
/* read/tiles.c caches tiles in bounded memory.  The threads that need a tile
 * load it together, once. */
#include "config.h"

#include "tiles_i.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/mman.h>

#include "rsh/util/checked.h"
#include "rsh/util/thread.h"

#define HASH_HEADS 1024 /* a power of two */

/* Smaller tiles are allocated with malloc(). */
#define LARGE_MIN (1024 * 1024)
/* Decoded elements may need twice as much as a plan allows. */
#define TILE_MAX (2 * RSH_TILE_BYTES)
#define HUGE_PAGE ((size_t)2 * 1024 * 1024)

/* Memory of a large tile that no tile uses. */
struct spare {
	struct spare *next;
};

LIST_HEAD(kept_list, rsh_kept);

struct rsh_tiles {
	struct rsh_source *source;
	uint64_t bound;

	pthread_mutex_t lock; /* guards all below */
	pthread_cond_t loaded; /* a tile is ready or has failed */
	pthread_cond_t room;   /* a tile has no more users */
	unsigned n_waiting;    /* threads that wait for memory */
	struct kept_list heads[HASH_HEADS];
	TAILQ_HEAD(, rsh_kept) unused; /* least recently used first */
	struct spare *spares;
	unsigned n_spares;
	uint64_t used;     /* bytes of all tiles, with spare memory */
	unsigned n_in_use; /* tiles with users, without scales */
	struct rsh_tile_stats stats;
};

/* ---- keys ---- */

bool rsh_scales_same(const struct rsh_scales *a, const struct rsh_scales *b)
{
	return a->tensor == b->tensor && a->rows == b->rows &&
	       a->columns == b->columns && a->from[0] == b->from[0] &&
	       a->from[1] == b->from[1] && a->from[2] == b->from[2] &&
	       a->parts == b->parts && a->first_part == b->first_part;
}

bool rsh_tile_key_same(const struct rsh_tile_key *a,
		       const struct rsh_tile_key *b)
{
	return a->tile.src_offset == b->tile.src_offset &&
	       a->tile.src_rank == b->tile.src_rank &&
	       a->tile.n_rows == b->tile.n_rows &&
	       a->tile.n_columns == b->tile.n_columns &&
	       a->tile.stride == b->tile.stride &&
	       a->tile.unit_in == b->tile.unit_in &&
	       a->tile.unit_out == b->tile.unit_out && a->codec == b->codec &&
	       a->tile.per == b->tile.per && a->tile.down == b->tile.down &&
	       (!rsh_codec_is_scaled(a->codec) ||
		(rsh_scales_same(&a->scales, &b->scales) &&
		 a->scales.first == b->scales.first));
}

static struct kept_list *tiles_head(struct rsh_tiles *t,
				    const struct rsh_tile_key *key)
{
	uint64_t h = key->tile.src_offset + key->tile.n_rows +
		     key->tile.src_rank * UINT64_C(0xc2b2ae3d27d4eb4f);

	h *= UINT64_C(0x9e3779b97f4a7c15);
	return &t->heads[(h >> 32) & (HASH_HEADS - 1)];
}

static struct rsh_kept *tiles_find(struct rsh_tiles *t,
				   const struct rsh_tile_key *key)
{
	struct rsh_kept *k;

	LIST_FOREACH(k, tiles_head(t, key), same_hash)
		if (rsh_tile_key_same(&k->key, key))
			return k;
	return NULL;
}

/* ---- memory; lock held ---- */

static bool is_large(uint64_t bytes)
{
	return bytes >= LARGE_MIN && bytes <= RSH_TILE_BYTES;
}

/* Returns how many bytes of the limit a tile uses. */
static uint64_t charge_of(uint64_t bytes)
{
	return sizeof(struct rsh_kept) +
	       (is_large(bytes) ? RSH_TILE_BYTES : bytes);
}

static uint8_t *memory_take(struct rsh_tiles *t, uint64_t bytes)
{
	struct spare *s = t->spares;

	if (!is_large(bytes))
		return malloc((size_t)bytes);
	if (!s) {
		size_t more;
		uint8_t *map;
		size_t before;

		t->stats.maps++;
		/* Columns of a tile are far apart in memory.  Huge pages avoid
		 * most TLB misses. */
		more = RSH_TILE_BYTES + HUGE_PAGE;
		map = mmap(NULL, more, PROT_READ | PROT_WRITE,
			   MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
		if (map == MAP_FAILED)
			return NULL;
		before = -(uintptr_t)map % HUGE_PAGE;
		if (before)
			munmap(map, before);
		if (before < HUGE_PAGE)
			munmap(map + before + RSH_TILE_BYTES,
			       HUGE_PAGE - before);
		madvise(map + before, RSH_TILE_BYTES, MADV_HUGEPAGE);
		return map + before;
	}
	t->spares = s->next;
	t->n_spares--;
	t->used -= RSH_TILE_BYTES;
	return (uint8_t *)s;
}

static void memory_give(struct rsh_tiles *t, uint8_t *data, uint64_t bytes)
{
	struct spare *s = (struct spare *)(void *)data;

	t->used -= charge_of(bytes);
	if (!is_large(bytes)) {
		free(data);
		return;
	}
	s->next = t->spares;
	t->spares = s;
	t->n_spares++;
	t->used += RSH_TILE_BYTES;
}

static void tiles_give_up_spare(struct rsh_tiles *t)
{
	struct spare *s = t->spares;

	t->spares = s->next;
	t->n_spares--;
	munmap(s, RSH_TILE_BYTES);
	t->used -= RSH_TILE_BYTES;
}

static void kept_forget(struct rsh_kept *k)
{
	if (k->is_known)
		LIST_REMOVE(k, same_hash);
	k->is_known = false;
}

static void kept_free(struct rsh_tiles *t, struct rsh_kept *k)
{
	kept_forget(k);
	memory_give(t, k->data, k->bytes);
	free(k->files);
	free(k);
}

static bool tiles_evict(struct rsh_tiles *t)
{
	struct rsh_kept *k = TAILQ_FIRST(&t->unused);

	if (!k)
		return false;
	TAILQ_REMOVE(&t->unused, k, unused);
	kept_free(t, k);
	return true;
}

/* Frees memory until the limit allows the tile.  A large tile reuses the memory
 * of a large tile that is evicted.  Returns false if the limit does not allow
 * it. */
static bool tiles_has_room(struct rsh_tiles *t, uint64_t bytes)
{
	for (;;) {
		const unsigned keep = is_large(bytes) && t->n_spares;
		const uint64_t more = charge_of(bytes) - keep * RSH_TILE_BYTES;

		if (t->used + more <= t->bound)
			return true;
		if (t->n_spares > keep)
			tiles_give_up_spare(t);
		else if (!tiles_evict(t))
			return false;
	}
}

/* ---- tiles; lock held ---- */

/* The tile that a caller needs. */
struct wish {
	const struct rsh_tile_key *key;
	uint64_t bytes;
	bool is_scales;
	uint64_t chunk; /* of the scales */
	struct rsh_strips strips;
};

static struct rsh_kept *kept_new(struct rsh_tiles *t, const struct wish *w)
{
	struct rsh_kept *k = calloc(1, sizeof(*k));

	if (!k)
		return NULL;
	k->data = memory_take(t, w->bytes);
	if (!k->data) {
		free(k);
		return NULL;
	}
	k->key = *w->key;
	k->bytes = w->bytes;
	k->is_scales = w->is_scales;
	k->chunk = w->chunk;
	k->strips = w->strips;
	k->is_known = true;
	LIST_INSERT_HEAD(tiles_head(t, w->key), k, same_hash);
	t->used += charge_of(w->bytes);
	t->stats.memory_peak = rsh_max_u64(t->stats.memory_peak, t->used);
	t->stats.loads++;
	rsh_store_count_tiles(rsh_source_store(t->source), t->stats.loads,
			      t->used);
	return k;
}

static void kept_unuse(struct rsh_tiles *t, struct rsh_kept *k)
{
	if (--k->users)
		return;
	t->n_in_use -= !k->is_scales;
	if (k->state == RSH_TILE_READY)
		TAILQ_INSERT_TAIL(&t->unused, k, unused);
	else
		kept_free(t, k);
	if (t->n_waiting)
		pthread_cond_broadcast(&t->room);
}

/* Loads the next strip; releases the lock meanwhile.  Returns 0 or -errno. */
static int kept_load_strip(struct rsh_tiles *t, struct rsh_kept *k,
			   const struct rsh_tile_hands *h)
{
	const uint64_t i = k->next_strip++;
	int rc;

	k->n_loading++;
	pthread_mutex_unlock(&t->lock);
	rc = rsh_strip_load(t->source, k, i, h);
	pthread_mutex_lock(&t->lock);
	k->n_loading--;
	if (rc) {
		k->state = RSH_TILE_FAILED;
		kept_forget(k);
	} else if (k->state == RSH_TILE_LOADING && !k->n_loading &&
		   k->next_strip == k->strips.n) {
		k->state = RSH_TILE_READY;
	}
	if (k->state != RSH_TILE_LOADING)
		pthread_cond_broadcast(&t->loaded);
	return rc;
}

/* A tile whose strips are loaded by several threads. */
struct joint_load {
	struct rsh_tiles *tiles;
	struct rsh_kept *kept;
	const struct rsh_tile_hands *hands;
};

static int joint_load_strip(void *ctx, size_t i, struct rsh_error *err)
{
	const struct joint_load *j = ctx;
	struct rsh_tile_hands hands = *j->hands;
	uint8_t *scratch = NULL;
	int rc = 0;

	(void)i;
	(void)err;
	hands.stored = rsh_scratch_make(&scratch);
	if (!hands.stored)
		return -ENOMEM;
	hands.decoded = rsh_scratch_decoded(scratch);
	pthread_mutex_lock(&j->tiles->lock);
	/* Other threads that need the tile may have taken the last strip. */
	if (j->kept->state == RSH_TILE_LOADING &&
	    j->kept->next_strip < j->kept->strips.n)
		rc = kept_load_strip(j->tiles, j->kept, &hands);
	pthread_mutex_unlock(&j->tiles->lock);
	free(scratch);
	return rc;
}

/* Finds the tile, or makes it and waits until there is memory for it. */
static struct rsh_kept *tiles_get(struct rsh_tiles *t, const struct wish *w)
{
	struct rsh_kept *k;

	while (!(k = tiles_find(t, w->key))) {
		/* If no tile is in use this exceeds the limit, because no
		 * thread would release memory. */
		if (tiles_has_room(t, w->bytes) || w->is_scales || !t->n_in_use)
			return kept_new(t, w);
		t->n_waiting++;
		pthread_cond_wait(&t->room, &t->lock);
		t->n_waiting--;
	}
	return k;
}

void rsh_tiles_drop(struct rsh_tiles *t, struct rsh_kept *k)
{
	rsh_hold_lock(&t->lock);
	kept_unuse(t, k);
}

/* Returns 0 if the file is still the one from which the tile was loaded.  After
 * a change of the file all reads of it have to fail. */
static int tiles_check_file(struct rsh_tiles *t, uint32_t rank,
			    uint64_t offset, const struct rsh_wait *wait)
{
	struct rsh_attempts a = { .wait = wait };

	if (!rsh_source_locate(t->source, rank, &offset, &a.file))
		return -ENOENT;
	/* An attempt without a read also checks the file. */
	while (rsh_store_attempt(rsh_source_store(t->source), &a))
		;
	return a.rc;
}

static int tiles_check(struct rsh_tiles *t, const struct rsh_kept *k,
		       const struct rsh_wait *wait)
{
	const struct rsh_tile *tile = &k->key.tile;
	int rc = k->is_scales ? 0 :
		tiles_check_file(t, tile->src_rank, tile->src_offset, wait);

	for (uint32_t i = 0; rc == 0 && i < k->n_files; i++)
		rc = tiles_check_file(t, k->files[i], 0, wait);
	return rc;
}

static int tiles_hold(struct rsh_tiles *t, const struct wish *w,
		      const struct rsh_tile_hands *h, struct rsh_kept **out)
{
	int rc;

	pthread_mutex_lock(&t->lock);
	do {
		struct rsh_kept *k;

		*out = tiles_get(t, w);
		if (!*out) {
			rc = -ENOMEM;
			break;
		}
		k = *out;
		if (k->users++ == 0) {
			if (k->state == RSH_TILE_READY)
				TAILQ_REMOVE(&t->unused, k, unused);
			t->n_in_use += !k->is_scales;
		}
		/* Loads strips until none is left, and waits for those that
		 * other threads load.  Result: 0; -errno if a strip of this
		 * thread failed; -EAGAIN if another thread failed, which may
		 * have waited less long for the source. */
		rc = 0;
		if (h->helpers && k->state == RSH_TILE_LOADING) {
			const uint64_t n = k->strips.n - k->next_strip;
			struct joint_load j = { t, k, h };

			pthread_mutex_unlock(&t->lock);
			rc = rsh_helpers_run(h->helpers, n, joint_load_strip,
					     &j);
			pthread_mutex_lock(&t->lock);
		}
		while (rc == 0 && k->state == RSH_TILE_LOADING)
			if (k->next_strip < k->strips.n)
				rc = kept_load_strip(t, k, h);
			else
				pthread_cond_wait(&t->loaded, &t->lock);
		rc = rc ?: k->state == RSH_TILE_FAILED ? -EAGAIN : 0;
		if (rc)
			kept_unuse(t, *out);
	} while (rc == -EAGAIN);
	pthread_mutex_unlock(&t->lock);
	if (rc == 0) {
		rc = tiles_check(t, *out, h->wait);
		if (rc)
			rsh_tiles_drop(t, *out);
	}
	if (rc)
		*out = NULL;
	return rc;
}

/* The caller may hold a tile here without a deadlock: scales get memory beyond
 * the limit, so the threads that load them never wait for memory. */
int rsh_tiles_hold_scales(struct rsh_tiles *t, const struct rsh_scales *s,
			  uint64_t first, const struct rsh_tile_hands *h,
			  struct rsh_kept **out)
{
	const uint64_t chunk = rsh_scales_chunk(s, first);
	/* No tile has 0 rows.  The cell does not matter. */
	const struct rsh_tile_key key = {
		.tile = { .src_rank = s->tensor->name, .src_offset = chunk },
		.codec = RSH_CODEC_SCALED_BF16,
		.scales = { .cat = s->cat, .tensor = s->tensor },
	};
	const struct wish w = {
		.key = &key, .is_scales = true, .chunk = chunk,
		.bytes = rsh_scales_bytes(s, chunk), .strips = { .n = 1 },
	};

	return w.bytes ? tiles_hold(t, &w, h, out) : -EIO;
}

int rsh_tiles_hold(struct rsh_tiles *t, const struct rsh_tile_key *key,
		   const struct rsh_tile_hands *h, struct rsh_kept **out)
{
	const struct rsh_tile *tile = &key->tile;
	struct rsh_tile_hands hands = *h;
	struct wish w = { .key = key };

	/* Plans make only tiles that pass this check. */
	if (!rsh_mul_u64(tile->n_rows, tile->n_columns, &w.bytes) ||
	    !rsh_mul_u64(w.bytes, tile->unit_out, &w.bytes) ||
	    w.bytes > TILE_MAX || !rsh_strips_of(tile, &w.strips))
		return -EIO;
	rsh_store_take_tile_room(rsh_source_store(t->source));
	hands.tiles = t;
	hands.hold_scales = rsh_tiles_hold_scales;
	hands.drop = rsh_tiles_drop;
	return tiles_hold(t, &w, &hands, out);
}

void rsh_tiles_stats(struct rsh_tiles *t, struct rsh_tile_stats *out)
{
	rsh_hold_lock(&t->lock);
	*out = t->stats;
	out->memory_bytes = t->used;
}

int rsh_tiles_new(struct rsh_source *s, uint64_t bytes, struct rsh_tiles **out)
{
	struct rsh_tiles *t = calloc(1, sizeof(*t));

	if (!t || pthread_mutex_init(&t->lock, NULL)) {
		free(t);
		return -ENOMEM;
	}
	pthread_cond_init(&t->loaded, NULL);
	pthread_cond_init(&t->room, NULL);
	t->source = s;
	t->bound = bytes;
	TAILQ_INIT(&t->unused);
	*out = t;
	return 0;
}

void rsh_tiles_free(struct rsh_tiles *t)
{
	if (!t)
		return;
	while (tiles_evict(t))
		;
	while (t->n_spares)
		tiles_give_up_spare(t);
	pthread_cond_destroy(&t->room);
	pthread_cond_destroy(&t->loaded);
	pthread_mutex_destroy(&t->lock);
	free(t);
}
