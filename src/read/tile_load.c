/* SPDX-License-Identifier: Apache-2.0 */
/* read/tile_load.c reads a strip of a tile as it is stored, decodes it, and
 * transposes it into its place. */
#include "config.h"

#include "tiles_i.h"

#include <errno.h>
#include <stdlib.h>

#include "rsh/tensor/transpose.h"
#include "rsh/util/checked.h"

/* A strip has at least this many rows, if the tile has them.  Then a large part
 * of a cache line is written for each column of a strip. */
#define ROWS_MIN 32

/* Rows are read in one range, including the bytes between them, if these are at
 * most one part in WASTE_PART. */
#define WASTE_PART 32

/* A strip is a rectangle of a tile. */
struct strip {
	uint64_t row, column, n_rows, n_columns;
	uint64_t stored_stride; /* bytes from row to row in the buffer */
};

uint8_t *rsh_scratch_make(uint8_t **scratch)
{
	if (!*scratch)
		*scratch = aligned_alloc(RSH_PLACE_MAX, RSH_SCRATCH_BYTES);
	return *scratch;
}

/* Returns how many rows have elements in one unit. */
static uint64_t tile_down(const struct rsh_tile *t)
{
	return t->down ? t->down : 1;
}

bool rsh_strips_of(const struct rsh_tile *t, struct rsh_strips *out)
{
	const uint64_t per = t->per ? t->per : 1, down = tile_down(t);
	const uint64_t stored = t->unit_in ?
		RSH_STRIP_BYTES / t->unit_in * per * down : 0;
	/* Packed elements grow to more than twice their size. */
	const uint64_t most = t->unit_out ?
		rsh_min_u64(stored, 2 * RSH_STRIP_BYTES / t->unit_out) : 0;
	const uint64_t rows = rsh_min_u64(t->n_rows, ROWS_MIN);
	uint64_t across;

	if (most < ROWS_MIN * per || !t->n_rows || !t->n_columns ||
	    t->stride < t->n_columns || t->stride % per ||
	    t->n_columns % per || t->n_rows % down || ROWS_MIN % down)
		return false;
	*out = (struct rsh_strips){
		.joined = t->stride - t->n_columns <= t->stride / WASTE_PART &&
			  t->stride <= most / rows,
		.width = rsh_min_u64(t->n_columns, most / rows / per * per),
	};
	out->height = rsh_min_u64(t->n_rows, most / (out->joined ? t->stride :
						      out->width) / down * down);
	out->down = (t->n_rows - 1) / out->height + 1;
	across = (t->n_columns - 1) / out->width + 1;
	return rsh_mul_u64(out->down, across, &out->n);
}

static struct strip strip_at(const struct rsh_kept *k, uint64_t i)
{
	const struct rsh_tile *t = &k->key.tile;
	struct strip s = {
		.row = i % k->strips.down * k->strips.height,
		.column = i / k->strips.down * k->strips.width,
	};

	s.n_rows = rsh_min_u64(k->strips.height, t->n_rows - s.row);
	s.n_columns = rsh_min_u64(k->strips.width, t->n_columns - s.column);
	s.stored_stride = rsh_tile_stored(t, k->strips.joined ? t->stride :
							       s.n_columns);
	return s;
}

/* Reads the strip.  *stored becomes the address of its first element. */
static int strip_read(struct rsh_source *source, const struct rsh_kept *k,
		      const struct strip *s, const struct rsh_tile_hands *by,
		      uint8_t **stored)
{
	const struct rsh_tile *t = &k->key.tile;
	struct rsh_store *store = rsh_source_store(source);
	struct rsh_attempts a = { .wait = by->wait };
	const uint64_t stride = rsh_tile_stored(t, t->stride);
	uint64_t row_bytes = rsh_tile_stored(t, s->n_columns);
	const uint64_t down = tile_down(t);
	const uint64_t extent = (s->n_rows / down - 1) * stride + row_bytes;
	uint64_t n_rows = s->n_rows / down, offset;
	struct rsh_handle *h;

	offset = t->src_offset +
		 rsh_tile_stored(t, s->row / down * t->stride + s->column);
	if (k->strips.joined) {
		row_bytes = extent;
		n_rows = 1;
	}
	if (!rsh_source_locate(source, t->src_rank, &offset, &a.file))
		return -ENOENT;
	*stored = by->stored + rsh_place(offset);
	while ((h = rsh_store_attempt(store, &a))) {
		for (uint64_t i = 0; i < n_rows && a.code == 0; i++)
			a.code = rsh_store_pread(store, a.file, h, *stored +
						 i * s->stored_stride,
						 (size_t)row_bytes,
						 offset + i * stride);
		if (a.code == 0)
			rsh_store_spent(store, h, offset, extent, true);
	}
	return a.rc;
}

/* Decodes rows with scales.  Neighbouring rows mostly need the same chunk. */
static int strip_decode_scaled(const struct rsh_kept *k, const struct strip *s,
			       const uint8_t *stored,
			       const struct rsh_tile_hands *h)
{
	const struct rsh_tile *t = &k->key.tile;
	const struct rsh_scales *by = &k->key.scales;
	struct rsh_kept *chunk = NULL;
	uint8_t *at = h->decoded;
	int rc = 0;

	for (uint64_t i = 0; rc == 0 && i < s->n_rows; i++) {
		uint64_t n = by->first + (s->row + i) * t->stride + s->column;
		const uint8_t *in = stored + i / tile_down(t) * s->stored_stride;

		for (uint64_t left = s->n_columns, part; left; left -= part) {
			struct rsh_scaled m;

			part = rsh_min_u64(left, rsh_scales_reach(by, n));
			if (chunk && chunk->chunk != rsh_scales_chunk(by, n)) {
				h->drop(h->tiles, chunk);
				chunk = NULL;
			}
			if (!chunk) {
				rc = h->hold_scales(h->tiles, by, n, h, &chunk);
				if (rc)
					break;
			}
			m = rsh_scaled_by(by, chunk, k->key.codec);
			rsh_scaled_decode(&m, n, in, part, at);
			in += rsh_tile_stored(t, part);
			at += part * t->unit_out;
			n += part;
		}
	}
	if (chunk)
		h->drop(h->tiles, chunk);
	return rc;
}

/* Decodes the rows into h->decoded; there they are contiguous. */
static int strip_decode(const struct rsh_kept *k, const struct strip *s,
			const uint8_t *stored, const struct rsh_tile_hands *h)
{
	const struct rsh_tile *t = &k->key.tile;
	uint8_t *at = h->decoded;

	if (rsh_codec_is_scaled(k->key.codec))
		return strip_decode_scaled(k, s, stored, h);
	for (uint64_t i = 0; i < s->n_rows; i++) {
		rsh_codec_decode(k->key.codec, stored,
				 (size_t)(s->n_columns * t->unit_in), at);
		stored += s->stored_stride;
		at += s->n_columns * t->unit_out;
	}
	return 0;
}

int rsh_strip_load(struct rsh_source *source, struct rsh_kept *k, uint64_t i,
		   const struct rsh_tile_hands *h)
{
	const struct rsh_tile *t = &k->key.tile;
	const struct strip s = k->is_scales ? (struct strip){ 0 } :
					      strip_at(k, i);
	struct rsh_transpose turn = {
		.unit = t->unit_out,
		.n_rows = s.n_rows,
		.n_columns = s.n_columns,
		.in_stride = s.stored_stride,
		.out_stride = t->n_rows * t->unit_out,
	};
	const uint8_t *in;
	uint8_t *stored;
	int rc;

	if (k->is_scales)
		return rsh_scales_load(source, k, h->wait);
	rc = strip_read(source, k, &s, h, &stored);
	if (rc)
		return rc;
	in = stored;
	if (k->key.codec != RSH_CODEC_NONE) {
		rc = strip_decode(k, &s, stored, h);
		if (rc)
			return rc;
		in = h->decoded;
		turn.in_stride = s.n_columns * t->unit_out;
	}
	rsh_transpose(&turn, in,
		      k->data + (s.column * t->n_rows + s.row) * t->unit_out);
	return 0;
}
