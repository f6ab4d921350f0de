/* SPDX-License-Identifier: Apache-2.0 */
/* read/tiles_i.h - tiles of a source (plan/plan.h), turned and kept in bounded
 * memory, and matrices of scales; for this room only.
 *
 * tiles.c keeps them, tile_load.c reads and turns them, tile_copies.c copies
 * from them what a request wants.
 *
 * A tile is loaded when it is first wanted.  It is loaded in strips, each by
 * one thread; whoever wants a tile that is being loaded takes the next strip of
 * it, and waits when there is none.  So each byte is read once, and what a
 * slow source gives at a time does not depend on who came first.
 *
 * No lock is held while strips are read, decoded or turned.  Who wants memory
 * for a tile waits until others let go of theirs, so that nobody may wait while
 * he holds a tile.  Matrices of scales are small and always get memory.
 *
 * Threads: any thread may call all but rsh_tiles_new() and rsh_tiles_free().
 */
#ifndef RSH_READ_TILES_I_H
#define RSH_READ_TILES_I_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/queue.h>

#include "helpers_i.h"
#include "rsh/plan/plan.h"
#include "rsh/read/body.h"
#include "rsh/source/source.h"
#include "rsh/tensor/scaled.h"
#include "rsh/util/place.h"

/* A strip has so many stored bytes at most, with those between its rows that
 * are read along with them. */
#define RSH_STRIP_BYTES (256 * 1024)

/* This is what reading takes: room for a strip as it is stored, and decoded,
 * when elements may have grown to twice the size; and whether files that cannot
 * be reached are waited for. */
struct rsh_tile_hands {
	uint8_t *stored;  /* RSH_STRIP_BYTES + RSH_PLACE_MAX */
	uint8_t *decoded; /* 2 * RSH_STRIP_BYTES */
	const struct rsh_wait *wait;
	struct rsh_helpers *helpers; /* NULL: there are none */
	const struct rsh_kept *scales; /* of the tile; the tiles set it */
};

/* A scratch has room for a strip as it is stored, and decoded. */
#define RSH_SCRATCH_BYTES (RSH_STRIP_BYTES + RSH_PLACE_MAX + 2 * RSH_STRIP_BYTES)

/* Makes a scratch where there is none.  NULL: memory is out. */
uint8_t *rsh_scratch_make(uint8_t **scratch);

/* Gives the part of a scratch for decoded elements. */
static inline uint8_t *rsh_scratch_decoded(uint8_t *scratch)
{
	return scratch + RSH_STRIP_BYTES + RSH_PLACE_MAX;
}

/* Tells one content from all others. */
struct rsh_tile_key {
	struct rsh_tile tile;
	enum rsh_codec codec;
	struct rsh_scales scales; /* of RSH_CODEC_FP8_SCALED, or zero */
};

enum rsh_tile_state { RSH_TILE_LOADING, RSH_TILE_READY, RSH_TILE_FAILED };

/* How a tile is divided into strips: bands of columns, and each of these into
 * strips of rows. */
struct rsh_strips {
	uint64_t width, height; /* of a strip, unless it is at the edge */
	uint64_t down;          /* strips of a band */
	uint64_t n;
	bool joined; /* rows are read together with what lies between */
};

/* A tile in memory. */
struct rsh_kept {
	struct rsh_tile_key key;
	uint8_t *data;  /* the columns of the tile, as they are shown */
	uint64_t bytes; /* of them */
	bool is_scales;

	/* The lock guards what follows. */
	enum rsh_tile_state state;
	unsigned users;
	struct rsh_strips strips;
	uint64_t next_strip;
	unsigned n_loading; /* strips that are being loaded */
	bool is_known; /* can be found */
	LIST_ENTRY(rsh_kept) same_hash;
	TAILQ_ENTRY(rsh_kept) unused; /* nobody uses it */
};

struct rsh_tiles;

struct rsh_tile_stats {
	uint64_t loads;        /* how many were loaded */
	uint64_t maps;         /* for how many large ones memory was mapped */
	uint64_t memory_bytes; /* of those that are kept */
	uint64_t memory_peak;  /* the most that it was */
};

/* `bytes` bounds the memory of tiles, unless a single one needs more.  The
 * source has to outlive the tiles.  0 or -ENOMEM. */
int rsh_tiles_new(struct rsh_source *s, uint64_t bytes, struct rsh_tiles **out);
void rsh_tiles_free(struct rsh_tiles *t);
void rsh_tiles_stats(struct rsh_tiles *t, struct rsh_tile_stats *out);

/* Finds a tile, or loads it; it stays where it is until it is
 * dropped.  The caller holds no other one.  0, or -errno as of a read of the
 * source. */
int rsh_tiles_hold(struct rsh_tiles *t, const struct rsh_tile_key *key,
		   const struct rsh_tile_hands *h, struct rsh_kept **out);
/* The same for a matrix of scales, of which the caller may hold several, and a
 * tile. */
int rsh_tiles_hold_scales(struct rsh_tiles *t, const struct rsh_scales *s,
			  const struct rsh_tile_hands *h,
			  struct rsh_kept **out);
void rsh_tiles_drop(struct rsh_tiles *t, struct rsh_kept *k);

bool rsh_tile_key_same(const struct rsh_tile_key *a,
		       const struct rsh_tile_key *b);

/* Have both the same matrix of scales, for the same tensor? */
bool rsh_scales_same(const struct rsh_scales *a, const struct rsh_scales *b);

/* Says how elements are scaled, with a matrix that is held. */
struct rsh_scaled rsh_scaled_by(const struct rsh_scales *s,
				const struct rsh_kept *matrix);

/* ---- tile_load.c ---- */

/* Divides a tile into strips.  False if there are none, or one would be too
 * large. */
bool rsh_strips_of(const struct rsh_tile *t, struct rsh_strips *out);
/* Loads strip i.  0 or -errno. */
int rsh_strip_load(struct rsh_source *s, const struct rsh_kept *k, uint64_t i,
		   const struct rsh_tile_hands *h);

#endif
