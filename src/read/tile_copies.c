/* SPDX-License-Identifier: Apache-2.0 */
/* read/tile_copies.c collects what a request takes from tiles, which comes from
 * several of them in turn, and copies it tile by tile, so that each is held
 * once and none while another one is wanted. */
#include "config.h"

#include "tiles_i.h"

#include <errno.h>
#include <string.h>

void rsh_tile_copies_reset(struct rsh_tile_copies *c)
{
	c->n = c->n_tiles = c->last_tile = 0;
}

/* Returns the number of the tile; n_tiles if it is not there. */
static unsigned tile_copies_find(const struct rsh_tile_copies *c,
				 const struct rsh_tile_key *key)
{
	unsigned at = c->last_tile;

	for (unsigned i = 0; i < c->n_tiles; i++) {
		at = at + 1 < c->n_tiles ? at + 1 : 0;
		if (rsh_tile_key_same(&c->tiles[at].key, key))
			return at;
	}
	return c->n_tiles;
}

bool rsh_tile_copies_add(struct rsh_tile_copies *c, const struct rsh_piece *p,
			 uint8_t *dst)
{
	struct rsh_tile_key key = { .tile = p->tile, .codec = p->codec };
	struct rsh_copied_tile *t;
	unsigned i;

	if (rsh_codec_is_scaled(p->codec))
		key.scales = p->scales;
	i = tile_copies_find(c, &key);
	t = &c->tiles[i];
	if (c->n == RSH_COPIES || i == RSH_COPIED_TILES)
		return false;
	if (i == c->n_tiles) {
		*t = (struct rsh_copied_tile){ .key = key };
		c->n_tiles++;
	}
	c->last_tile = i;
	c->copies[++c->n] = (struct rsh_tile_copy){
		.dst = dst, .from = p->tile_offset, .len = p->length,
	};
	if (t->first)
		c->copies[t->last].next = c->n;
	else
		t->first = c->n;
	t->last = c->n;
	return true;
}

void rsh_tile_copies_move(struct rsh_tile_copies *c, ptrdiff_t by)
{
	for (unsigned i = 1; i <= c->n; i++)
		c->copies[i].dst += by;
}

int rsh_tile_copies_flush(struct rsh_tile_copies *c, struct rsh_tiles *tiles,
			  const struct rsh_tile_hands *h)
{
	int rc = 0;

	for (unsigned i = 0; i < c->n_tiles && rc == 0; i++) {
		struct rsh_kept *k;

		rc = rsh_tiles_hold(tiles, &c->tiles[i].key, h, &k);
		if (rc)
			break;
		for (unsigned at = c->tiles[i].first; rc == 0 && at;
		     at = c->copies[at].next) {
			const struct rsh_tile_copy *one = &c->copies[at];

			if (one->from > k->bytes ||
			    one->len > k->bytes - one->from)
				rc = -EIO;
			else
				memcpy(one->dst, k->data + one->from,
				       (size_t)one->len);
		}
		rsh_tiles_drop(tiles, k);
	}
	rsh_tile_copies_reset(c);
	return rc;
}
