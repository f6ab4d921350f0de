/* SPDX-License-Identifier: Apache-2.0 */
/* read/tiles_i.h - tiles of a source (plan/plan.h), transposed and cached in
 * bounded memory, and scales; for this layer only.
 *
 * tiles.c caches them, tile_load.c reads and transposes them, tile_copies.c
 * copies from them, scales.c reads scales.
 *
 * A tile is loaded when it is first needed, in strips, each by one thread.  A
 * thread that needs a tile that is being loaded loads its next strip, or waits
 * if there is none.  So each byte is read once, and the number of strips in
 * progress follows the number of threads.
 *
 * No lock is held while strips are read, decoded or transposed.  A thread that
 * needs memory for a tile waits until others release theirs, so it must not
 * wait while it holds a tile.  Scales are small and always get memory.
 *
 * Threads: any thread may call all functions except rsh_tiles_new() and
 * rsh_tiles_free().
 */
#pragma once

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/queue.h>

#include "rsh/plan/catalogue.h"
#include "rsh/plan/plan.h"
#include "rsh/read/body.h"
#include "rsh/source/source.h"
#include "rsh/tensor/scaled.h"
#include "rsh/util/place.h"
#include "rsh/util/thread.h"

/* The most stored bytes of a strip, including bytes between its rows that are
 * read with them. */
#define RSH_STRIP_BYTES (256 * 1024)

struct rsh_tiles;
struct rsh_kept;

/* What a thread needs to read strips: buffers for a strip as stored and decoded
 * (elements may grow to twice the size), and whether to wait for files that
 * cannot be reached. */
struct rsh_tile_hands {
	uint8_t *stored;  /* RSH_STRIP_BYTES + RSH_PLACE_MAX */
	uint8_t *decoded; /* 2 * RSH_STRIP_BYTES */
	const struct rsh_wait *wait;
	struct rsh_helpers *helpers; /* NULL: none */
	/* Hold and drop scales; tiles.c sets these. */
	struct rsh_tiles *tiles;
	int (*hold_scales)(struct rsh_tiles *t, const struct rsh_scales *s,
			   uint64_t first, const struct rsh_tile_hands *h,
			   struct rsh_kept **out);
	void (*drop)(struct rsh_tiles *t, struct rsh_kept *k);
};

/* A scratch buffer contains both buffers. */
#define RSH_SCRATCH_BYTES (RSH_STRIP_BYTES + RSH_PLACE_MAX + 2 * RSH_STRIP_BYTES)

/* Allocates *scratch if it is NULL.  Returns it; NULL means out of memory. */
uint8_t *rsh_scratch_make(uint8_t **scratch);

/* Returns the buffer for decoded elements. */
static inline uint8_t *rsh_scratch_decoded(uint8_t *scratch)
{
	return scratch + RSH_STRIP_BYTES + RSH_PLACE_MAX;
}

/* Identifies the content of a tile. */
struct rsh_tile_key {
	struct rsh_tile tile;
	enum rsh_codec codec;
	struct rsh_scales scales; /* for a codec with scales, else zero */
};

enum rsh_tile_state { RSH_TILE_LOADING, RSH_TILE_READY, RSH_TILE_FAILED };

/* A tile is divided into bands of columns, and each band into strips of
 * rows. */
struct rsh_strips {
	uint64_t width, height; /* size of a strip that is not at the edge */
	uint64_t down;          /* number of strips in a band */
	uint64_t n;
	bool joined; /* rows are read together with the bytes between them */
};

/* A tile in memory. */
struct rsh_kept {
	struct rsh_tile_key key;
	uint8_t *data;  /* the columns of the tile, as they are shown */
	uint64_t bytes; /* size of data */
	/* Scales: */
	bool is_scales;
	uint64_t chunk;     /* its number (scales.c) */
	uint32_t *files;    /* the files that were read */
	uint32_t n_files;

	/* The lock guards the following members. */
	enum rsh_tile_state state;
	unsigned users;
	struct rsh_strips strips;
	uint64_t next_strip;
	unsigned n_loading; /* strips that are being loaded */
	bool is_known; /* it is in the hash table */
	LIST_ENTRY(rsh_kept) same_hash;
	TAILQ_ENTRY(rsh_kept) unused; /* in the list of unused tiles */
};

struct rsh_tile_stats {
	uint64_t loads;        /* tiles that were loaded */
	uint64_t maps;         /* mappings for large tiles */
	uint64_t memory_bytes; /* memory of cached tiles */
	uint64_t memory_peak;
};

/* `bytes` is the limit of the memory of tiles, unless a single one needs more.
 * The source has to outlive the tiles.  Returns 0 or -ENOMEM. */
int rsh_tiles_new(struct rsh_source *s, uint64_t bytes, struct rsh_tiles **out);
void rsh_tiles_free(struct rsh_tiles *t);
void rsh_tiles_stats(struct rsh_tiles *t, struct rsh_tile_stats *out);

/* Finds or loads a tile, which stays in memory until it is dropped.  The caller
 * must not hold another one.  Returns 0, or -errno like a read of the source
 * with *out NULL. */
int rsh_tiles_hold(struct rsh_tiles *t, const struct rsh_tile_key *key,
		   const struct rsh_tile_hands *h, struct rsh_kept **out);
/* Does the same for the chunk of scales that element `first` of the cell needs;
 * the caller may hold a tile and several chunks. */
int rsh_tiles_hold_scales(struct rsh_tiles *t, const struct rsh_scales *s,
			  uint64_t first, const struct rsh_tile_hands *h,
			  struct rsh_kept **out);
void rsh_tiles_drop(struct rsh_tiles *t, struct rsh_kept *k);

bool rsh_tile_key_same(const struct rsh_tile_key *a,
		       const struct rsh_tile_key *b);

/* Returns whether both are of the same cell. */
bool rsh_scales_same(const struct rsh_scales *a, const struct rsh_scales *b);

/* ---- scales.c ----
 *
 * Scales are kept as Float32, and zero points as bytes, in chunks of whole
 * rows, so that their memory is bounded. */

/* Returns the number of the chunk that element n of the cell needs. */
uint64_t rsh_scales_chunk(const struct rsh_scales *s, uint64_t n);
/* Returns how many elements from element n on need the same chunk. */
uint64_t rsh_scales_reach(const struct rsh_scales *s, uint64_t n);
/* Returns the memory that a chunk needs; 0: it is too large. */
uint64_t rsh_scales_bytes(const struct rsh_scales *s, uint64_t chunk);
/* Reads the chunk into k->data.  Returns 0 or -errno. */
int rsh_scales_load(struct rsh_source *source, struct rsh_kept *k,
		    const struct rsh_wait *wait);
/* Returns how elements are scaled that need a chunk which the caller holds, to
 * the type of the codec. */
struct rsh_scaled rsh_scaled_by(const struct rsh_scales *s,
				const struct rsh_kept *chunk,
				enum rsh_codec codec);

/* ---- tile_load.c ---- */

/* Divides a tile into strips.  Returns false if it is empty or a strip would be
 * too large. */
bool rsh_strips_of(const struct rsh_tile *t, struct rsh_strips *out);
/* Loads strip i.  Returns 0 or -errno. */
int rsh_strip_load(struct rsh_source *s, struct rsh_kept *k, uint64_t i,
		   const struct rsh_tile_hands *h);

/* ---- threads that help (helpers.c) ----
 *
 * They help with a read of a source with a long latency, where most of the time
 * is spent waiting. */

/* There are at most RSH_READ_HELPERS threads.  If all bytes are zero, none is
 * running. */
struct rsh_helpers {
	atomic_uint n;
};

/* Runs n pieces of work, like rsh_parallel_for(), by this thread and, if
 * possible, by helpers.  Each helper reads on behalf of this thread.  Returns 0
 * or the first -errno of a piece. */
int rsh_helpers_run(struct rsh_helpers *h, size_t n, rsh_parallel_work *work,
		    void *ctx);

/* ---- what one request is to copy from tiles (tile_copies.c) ---- */

#define RSH_COPIES 1024
#define RSH_COPIED_TILES 16

struct rsh_tile_copy {
	uint8_t *dst;
	uint64_t from, len; /* in the tile, as it is shown */
	unsigned next;      /* of the same tile, 0: none */
};

struct rsh_copied_tile {
	struct rsh_tile_key key;
	unsigned first, last;
};

struct rsh_tile_copies {
	unsigned n, n_tiles, last_tile;
	struct rsh_tile_copy copies[RSH_COPIES + 1]; /* [0] is unused */
	struct rsh_copied_tile tiles[RSH_COPIED_TILES + 1];
};

void rsh_tile_copies_reset(struct rsh_tile_copies *c);
/* Notes that a piece of a tile is to be copied to `dst`.  False if there is no
 * room for it before a flush. */
bool rsh_tile_copies_add(struct rsh_tile_copies *c, const struct rsh_piece *p,
			 uint8_t *dst);
/* Says that all places have moved. */
void rsh_tile_copies_move(struct rsh_tile_copies *c, ptrdiff_t by);
/* Copies all and forgets them.  0 or -errno. */
int rsh_tile_copies_flush(struct rsh_tile_copies *c, struct rsh_tiles *tiles,
			  const struct rsh_tile_hands *h);
