/* SPDX-License-Identifier: Apache-2.0 */
/* read/gather.c collects the many small runs of a request.
 *
 * A slice that was cut along an inner dimension consists of rows that alternate
 * between source files.  Runs are collected in a bounded batch and sorted by
 * file.  Neighbouring runs of a file are read together and copied to their
 * destinations, so a request costs one read for each file, not one for each
 * row.  Repeated rows are one run.  Long runs are read directly to their
 * destination.
 */
#include "config.h"

#include "gather_runs_i.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "rsh/util/checked.h"
#include "rsh/util/mem.h"

/* A copy of this many bytes costs about as much as a system call.  Longer runs
 * have their own read. */
#define DIRECT_MIN (16 * 1024)

/* The most states that are kept for the next request. */
#define IDLE_STATES 4

/* The most pieces of a request that are checked for a long one, which decides
 * where the bytes are placed. */
#define MOVABLE_PIECES 4

static void gather_reset(struct rsh_gather *g)
{
	g->n_runs = 0;
	g->n_groups = 0;
	memset(g->slots, 0, sizeof(g->slots));
	while (g->n_scales)
		rsh_tiles_drop(g->tiles, g->scales[--g->n_scales].chunk);
}

static int gather_flush(struct rsh_gather *g)
{
	int rc = rsh_gather_read_runs(g);

	if (rc == 0)
		gather_reset(g);
	return rc;
}

/* ---- scales and tiles ---- */

/* Returns 0 or -ENOMEM. */
static int gather_hands(struct rsh_gather *g, struct rsh_tile_hands *h)
{
	if (!rsh_scratch_make(&g->scratch))
		return -ENOMEM;
	*h = (struct rsh_tile_hands){
		.stored = g->scratch,
		.decoded = rsh_scratch_decoded(g->scratch),
		.wait = g->wait,
		.helpers = g->all->far ? &g->all->helpers : NULL,
	};
	return 0;
}

/* Holds the scales of a piece, as g->scales[*at]. */
static int gather_hold_scales(struct rsh_gather *g, const struct rsh_piece *p,
			      uint32_t *at)
{
	const struct rsh_scales *by = &p->scales;
	const uint64_t chunk = rsh_scales_chunk(by, by->first);
	struct rsh_tile_hands h;
	const unsigned i = rsh_index(
		k, g->n_scales, rsh_scales_same(&g->scales[k].by, by) &&
				g->scales[k].chunk->chunk == chunk);
	int rc;

	*at = i;
	if (i < g->n_scales)
		return 0;
	rc = i == RSH_GATHER_SCALES ? gather_flush(g) : 0;
	rc = rc ?: gather_hands(g, &h);
	*at = g->n_scales;
	rc = rc ?: rsh_tiles_hold_scales(g->tiles, by, by->first, &h,
					 &g->scales[*at].chunk);
	if (rc == 0)
		g->scales[g->n_scales++].by = *by;
	return rc;
}

static int gather_flush_copies(struct rsh_gather *g)
{
	struct rsh_tile_hands h;

	return gather_hands(g, &h) ?:
	       rsh_tile_copies_flush(&g->copies, g->tiles, &h);
}

/* ---- collecting ---- */

static struct gather_group *gather_group(struct rsh_gather *g, uint32_t file)
{
	unsigned slot = file * UINT32_C(2654435761) >> 24;

	while (g->slots[slot]) {
		struct gather_group *group = &g->groups[g->slots[slot] - 1];

		if (group->file == file)
			return group;
		slot = (slot + 1) % RSH_HASH_SLOTS;
	}
	g->groups[g->n_groups] = (struct gather_group){ .file = file };
	g->slots[slot] = (uint8_t)++g->n_groups;
	return &g->groups[g->n_groups - 1];
}

static int gather_add_piece(struct rsh_gather *g, const struct rsh_piece *p,
			    uint8_t *dst)
{
	uint64_t offset = p->src_offset;
	struct gather_group *group;
	uint64_t first = 0;
	uint32_t file, scales = 0;
	uint16_t number;
	int rc = g->n_runs == RSH_BATCH_RUNS || g->n_groups == RSH_BATCH_GROUPS ?
		 gather_flush(g) : 0;

	if (rc == 0 && rsh_codec_is_scaled(p->codec)) {
		rc = gather_hold_scales(g, p, &scales);
		first = p->scales.first;
	}
	if (rc)
		return rc;
	if (!rsh_source_locate(g->source, p->src_rank, &offset, &file))
		return -ENOENT;
	group = gather_group(g, file);
	number = (uint16_t)++g->n_runs;

	g->runs[number] = (struct gather_run){
		.src = offset,
		.dst = dst,
		.n_rows = 1,
		.src_len = (uint32_t)p->src_length,
		.dst_len = (uint32_t)p->length,
		.skip = p->skip,
		.codec = (uint16_t)p->codec,
		.scales = scales,
		.number = first,
	};
	if (group->first)
		g->runs[group->last].next = number;
	else
		group->first = number;
	group->last = number;
	return 0;
}

/* Extends the runs of the last row to n more rows, if all bytes of the row are
 * in these runs.  The last row begins at `dst`.  Runs of other targets may be
 * after it. */
static bool gather_repeat_row(struct rsh_gather *g,
			      const struct rsh_rows *rows, const uint8_t *dst)
{
	uint64_t bytes = 0;
	unsigned first = g->n_runs + 1;

	while (first > 1 && g->runs[first - 1].dst >= dst &&
	       g->runs[first - 1].dst < dst + rows->bytes)
		bytes += g->runs[--first].dst_len;
	if (bytes != rows->bytes)
		return false;
	for (unsigned i = first; i <= g->n_runs; i++) {
		g->runs[i].n_rows = 1 + rows->n;
		g->runs[i].src_stride = rows->src_stride;
		g->runs[i].dst_stride = rows->bytes;
	}
	return true;
}

/* Returns how many stored bytes of a piece one run may have, so that they and
 * what is decoded fit into the scratch buffers, and one chunk of scales is
 * enough.  Sets the bytes of a unit, and those that are decoded from it. */
static uint64_t gather_run_most(const struct rsh_piece *p, uint32_t *in,
				uint32_t *out)
{
	uint64_t most, reach;
	uint32_t per = 1;

	rsh_codec_units(p->codec, in, out);
	if (!rsh_codec_is_scaled(p->codec))
		return RSH_SPAN_MAX / *in * *in;
	rsh_packing_unit(p->scales.tensor->quantised->packing, &per, in);
	*out *= per;
	most = rsh_min_u64(RSH_SPAN_MAX / *in, 2 * RSH_SPAN_MAX / *out);
	reach = rsh_scales_reach(&p->scales, p->scales.first) / per;
	return rsh_min_u64(most, reach) * *in;
}

/* Adds a piece whose elements must be decoded, in runs. */
static int gather_add_decoded(struct rsh_gather *g, const struct rsh_piece *p,
			      uint8_t *dst)
{
	struct rsh_piece part = *p;
	uint64_t left = p->length, src_left = p->src_length;
	uint32_t in, out;
	int rc = 0;

	while (rc == 0 && left && src_left) {
		const uint64_t most = gather_run_most(&part, &in, &out);

		part.src_length = rsh_min_u64(src_left, most);
		part.length = rsh_min_u64(left, part.src_length / in * out -
						part.skip);
		rc = gather_add_piece(g, &part, dst);
		dst += part.length;
		left -= part.length;
		src_left -= part.src_length;
		part.src_offset += part.src_length;
		if (rsh_codec_is_scaled(part.codec))
			part.scales.first += part.src_length / in * out /
				rsh_dtype_size(rsh_codec_scaled_type(
					part.codec));
		part.skip = 0;
	}
	return rc ?: left ? -EIO : 0;
}

static int gather_take_piece(struct rsh_gather *g, const struct rsh_piece *p,
			     uint8_t *dst)
{
	if (p->is_header) {
		memcpy(dst, p->header, (size_t)p->length);
		return 0;
	}
	if (p->is_tiled) {
		int rc;

		if (rsh_tile_copies_add(&g->copies, p, dst))
			return 0;
		rc = gather_flush_copies(g);
		if (rc == 0)
			rsh_tile_copies_add(&g->copies, p, dst);
		return rc;
	}
	if (p->codec != RSH_CODEC_NONE)
		return gather_add_decoded(g, p, dst);
	if (p->src_length >= DIRECT_MIN &&
	    (!g->all->far || p->src_length > UINT32_MAX))
		return rsh_source_read_at(g->source, p->src_rank, p->src_offset,
					  dst, (size_t)p->length, g->wait);
	return gather_add_piece(g, p, dst);
}

/* ---- where the bytes are placed ---- */

int rsh_gather_add(struct rsh_gather *g, struct rsh_piece_iter *it,
		   struct rsh_target *to, size_t len)
{
	uint8_t *data = to->area ? to->area + rsh_place(0) : to->data;
	unsigned n_movable = to->area ? MOVABLE_PIECES : 0;
	struct rsh_piece p;
	struct rsh_rows rows;
	size_t at = 0;
	int rc;

	while (rsh_piece_iter_next(it, &p)) {
		if (p.length > len - at)
			return -EIO;
		if (n_movable && !p.is_header && !p.is_tiled &&
		    p.src_length >= RSH_PLACE_MAX) {
			uint8_t *place =
				to->area + rsh_place(p.src_offset - at);

			/* The place of the first byte depends on the first long
			 * piece, because this program copies headers and short
			 * pieces itself, and its copies have no slow places.
			 * The bytes and runs before that piece move with it. */
			memmove(place, data, at);
			for (unsigned i = 1; i <= g->n_runs; i++)
				g->runs[i].dst += place - data;
			rsh_tile_copies_move(&g->copies, place - data);
			data = place;
			n_movable = 0;
		}
		n_movable -= n_movable > 0;
		rc = gather_take_piece(g, &p, data + at);
		if (rc)
			return rc;
		at += (size_t)p.length;
		if (rsh_piece_iter_rows(it, &rows) &&
		    rows.n <= (len - at) / rows.bytes &&
		    gather_repeat_row(g, &rows, data + at - rows.bytes)) {
			rsh_piece_iter_skip(it, &rows);
			at += (size_t)(rows.n * rows.bytes);
			n_movable = 0;
		}
	}
	to->data = data;
	rc = rsh_piece_iter_status(it);
	return rc || at == len ? rc : -EIO;
}

/* ---- states for the next request; the last used one is first ---- */

static void gather_free(struct rsh_gather *g)
{
	free(g->scratch);
	free(g);
}

int rsh_gathers_new(struct rsh_source *s, struct rsh_tiles *tiles, bool far,
		    struct rsh_gathers **out)
{
	struct rsh_gathers *all = calloc(1, sizeof(*all));

	if (!all || pthread_mutex_init(&all->lock, NULL)) {
		free(all);
		return -ENOMEM;
	}
	all->source = s;
	all->tiles = tiles;
	all->far = far;
	*out = all;
	return 0;
}

void rsh_gathers_free(struct rsh_gathers *all)
{
	if (!all)
		return;
	while (all->idle) {
		struct rsh_gather *next = all->idle->next_idle;

		gather_free(all->idle);
		all->idle = next;
	}
	pthread_mutex_destroy(&all->lock);
	free(all);
}

struct rsh_gather *rsh_gather_begin(struct rsh_gathers *all,
				    const struct rsh_wait *wait)
{
	struct rsh_gather *g;

	pthread_mutex_lock(&all->lock);
	g = all->idle;
	if (g) {
		all->idle = g->next_idle;
		all->n_idle--;
	}
	pthread_mutex_unlock(&all->lock);
	if (!g) {
		g = malloc(sizeof(*g));
		if (!g)
			return NULL;
		g->all = all;
		g->source = all->source;
		g->store = rsh_source_store(all->source);
		g->tiles = all->tiles;
		g->scratch = NULL;
		g->n_scales = 0;
		rsh_tile_copies_reset(&g->copies);
		gather_reset(g);
	}
	g->wait = wait;
	return g;
}

int rsh_gather_end(struct rsh_gathers *all, struct rsh_gather *g, int rc)
{
	bool keep;

	if (rc == 0 && g->n_runs)
		rc = rsh_gather_read_runs(g);
	if (rc == 0 && g->copies.n)
		rc = gather_flush_copies(g);
	if (g->n_runs || g->n_scales)
		gather_reset(g);
	rsh_tile_copies_reset(&g->copies);
	pthread_mutex_lock(&all->lock);
	keep = all->n_idle < IDLE_STATES;
	if (keep) {
		g->next_idle = all->idle;
		all->idle = g;
		all->n_idle++;
	}
	pthread_mutex_unlock(&all->lock);
	if (!keep)
		gather_free(g);
	return rc;
}
