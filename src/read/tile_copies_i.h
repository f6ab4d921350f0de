/* SPDX-License-Identifier: Apache-2.0 */
/* read/tile_copies_i.h - what one request is to copy from tiles; for this room
 * only. */
#pragma once

#include <stddef.h>

#include "tiles_i.h"

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
