/* SPDX-License-Identifier: Apache-2.0 */
/* read/gather.c reads the many small runs of a request.
 *
 * A slice that was cut along an inner dimension comes as rows, each from
 * another source file in turn.  Runs are collected in a bounded batch, sorted
 * by file, and neighbours of one file are read together and copied to their
 * places: a request then costs a read a file, not a read a row.  Rows that
 * repeat are one run.  Long runs go straight to where they belong.
 */
#include "config.h"

#include "gather_i.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "rsh/util/checked.h"
#include "rsh/util/place.h"
#include "tile_copies_i.h"

#define BATCH_RUNS 1024
#define BATCH_GROUPS 128
#define HASH_SLOTS 256 /* a power of two above BATCH_GROUPS */

/* A copy of so many bytes costs about what a system call does; for longer runs
 * a read of their own is better. */
#define DIRECT_MIN (16 * 1024)

/* So many states are kept for the next request. */
#define IDLE_STATES 4

/* One read of neighbouring runs has so many bytes at most.  That is small
 * enough for the second-level cache, from which the runs are then copied. */
#define SPAN_MAX RSH_STRIP_BYTES

#define SCRATCH_BYTES (SPAN_MAX + RSH_PLACE_MAX + 2 * SPAN_MAX)

/* Pages are given back together with what lies between them, if that is not
 * more. */
#define HOLE_MAX ((uint64_t)1024 * 1024)

/* At least one byte in so many of a span must be wanted. */
#define SPAN_WASTE 4

/* So many pieces of a request are searched for a long one, by which the bytes
 * are placed. */
#define MOVABLE_PIECES 4

struct gather_run {
	uint64_t src;     /* in the file */
	uint8_t *dst;
	uint64_t n_rows;  /* 1, or more without a codec */
	uint64_t src_stride, dst_stride; /* from row to row */
	uint32_t src_len; /* < DIRECT_MIN */
	uint32_t dst_len;
	uint32_t skip;
	uint16_t codec;
	uint16_t next;    /* next run of the file, 0: none; runs[0] is unused */
	uint32_t scales;  /* which of the gather's are those of the run */
	uint64_t number;  /* of its first element, as scales count them */
};

/* Matrices of scales that runs need are held until these are read. */
#define GATHER_SCALES 8

struct gather_scales {
	struct rsh_scales by;
	struct rsh_kept *matrix;
};

struct gather_group {
	uint32_t file;
	uint16_t first, last;
};

struct rsh_gather {
	struct rsh_gather *next_idle;
	struct rsh_source *source;
	struct rsh_store *store; /* its bytes */
	struct rsh_tiles *tiles;
	bool wait; /* for files that cannot be reached */
	/* Is made when first needed: room for SPAN_MAX bytes as they are
	 * stored, and for the same bytes decoded, when elements may have grown
	 * to twice the size. */
	uint8_t *scratch;
	unsigned n_runs, n_groups;
	struct gather_run runs[BATCH_RUNS + 1];
	struct gather_group groups[BATCH_GROUPS];
	uint8_t slots[HASH_SLOTS]; /* the group's number plus 1; 0: none */
	struct gather_scales scales[GATHER_SCALES];
	unsigned n_scales;
	struct rsh_tile_copies copies;
};

struct rsh_gathers {
	struct rsh_source *source;
	struct rsh_tiles *tiles;
	pthread_mutex_t lock; /* guards all below */
	struct rsh_gather *idle;
	unsigned n_idle;
};

/* Forgets the runs. */
static void gather_reset(struct rsh_gather *g)
{
	g->n_runs = 0;
	g->n_groups = 0;
	memset(g->slots, 0, sizeof(g->slots));
	while (g->n_scales)
		rsh_tiles_drop(g->tiles, g->scales[--g->n_scales].matrix);
}

static bool gather_is_full(const struct rsh_gather *g)
{
	return g->n_runs == BATCH_RUNS || g->n_groups == BATCH_GROUPS;
}

static uint8_t *gather_scratch(struct rsh_gather *g)
{
	if (!g->scratch)
		g->scratch = aligned_alloc(RSH_PLACE_MAX, SCRATCH_BYTES);
	return g->scratch;
}

/* ---- one file's runs ---- */

static uint8_t *gather_decoded(struct rsh_gather *g)
{
	return g->scratch + SPAN_MAX + RSH_PLACE_MAX;
}

static void run_copy_rows(const struct gather_run *r, uint8_t *dst,
			  const uint8_t *stored, uint64_t n)
{
	for (; n; n--) {
		memcpy(dst, stored, r->dst_len);
		dst += r->dst_stride;
		stored += r->src_stride;
	}
}

/* Elements and the scales that they are decoded with, if the codec has any. */
struct gather_code {
	enum rsh_codec codec;
	uint32_t scales; /* which of the gather's */
	uint64_t number; /* of the first element, as the scales count them */
};

/* Returns how many bytes they are where gather_decoded() says. */
static size_t gather_decode(struct rsh_gather *g, const struct gather_code *c,
			    const uint8_t *stored, size_t n)
{
	const struct gather_scales *scales = &g->scales[c->scales];
	struct rsh_scaled m;

	if (c->codec != RSH_CODEC_FP8_SCALED)
		return rsh_codec_decode(c->codec, stored, n,
					gather_decoded(g));
	m = rsh_scaled_by(&scales->by, scales->matrix);
	rsh_scaled_decode(&m, c->number, stored, n, gather_decoded(g));
	return 2 * n;
}

static void run_scatter(struct rsh_gather *g, const struct gather_run *r,
			const uint8_t *stored)
{
	const struct gather_code code = {
		(enum rsh_codec)r->codec, r->scales, r->number,
	};

	if (r->codec == RSH_CODEC_NONE) {
		run_copy_rows(r, r->dst, stored, r->n_rows);
		return;
	}
	gather_decode(g, &code, stored, r->src_len);
	memcpy(r->dst, gather_decoded(g) + r->skip, r->dst_len);
}

/* Returns the bytes from the first one of the run to its last. */
static uint64_t run_extent(const struct gather_run *r)
{
	return (r->n_rows - 1) * r->src_stride + r->src_len;
}

static uint64_t run_wanted(const struct gather_run *r)
{
	return r->n_rows * r->src_len;
}

/* True if the extent is worth one read. */
static bool is_span_worth(uint64_t wanted, uint64_t extent)
{
	return extent <= SPAN_MAX && extent <= wanted * SPAN_WASTE;
}

/* Returns how many runs from r on one read shall serve, which is 1 if r has to
 * be read by itself; *len is that read's length. */
static unsigned run_span(const struct rsh_gather *g, const struct gather_run *r,
			 uint64_t *len)
{
	const uint64_t start = r->src;
	uint64_t end = start + run_extent(r);
	uint64_t wanted = run_wanted(r);
	unsigned n = 1;

	while (r->next) {
		uint64_t next_end;

		r = &g->runs[r->next];
		next_end = r->src + run_extent(r);
		wanted += run_wanted(r);
		if (r->src < end || !is_span_worth(wanted, next_end - start))
			break;
		end = next_end;
		n++;
	}
	*len = end - start;
	return n;
}

/* Reads a run of many rows, several of them in each read.  Returns 0 or a
 * positive errno. */
static int gather_read_rows(struct rsh_gather *g, uint32_t file,
			    struct rsh_handle *h, const struct gather_run *r)
{
	uint64_t most = 1, n;

	if (r->n_rows > 1 && r->src_stride <= r->src_len * SPAN_WASTE)
		most = (SPAN_MAX - r->src_len) / r->src_stride + 1;
	for (uint64_t at = 0; at < r->n_rows; at += n) {
		const uint64_t src = r->src + at * r->src_stride;
		uint8_t *dst = r->dst + at * r->dst_stride;
		uint8_t *buf = dst;
		int rc;

		n = rsh_min_u64(most, r->n_rows - at);
		if (n > 1) {
			buf = gather_scratch(g);
			if (!buf)
				return ENOMEM;
			buf += rsh_place(src);
		}
		rc = rsh_store_pread(g->store, file, h, buf,
				     (size_t)((n - 1) * r->src_stride +
					      r->src_len), src);
		if (rc)
			return rc;
		if (n > 1)
			run_copy_rows(r, dst, buf, n);
	}
	return 0;
}

/* Returns 0 or a positive errno. */
static int gather_read_span(struct rsh_gather *g, uint32_t file,
			    struct rsh_handle *h, const struct gather_run *r,
			    unsigned n, size_t len)
{
	const uint64_t start = r->src;
	uint8_t *buf;
	int rc;

	if (n == 1 && r->codec == RSH_CODEC_NONE &&
	    (r->n_rows == 1 || !is_span_worth(run_wanted(r), len)))
		return gather_read_rows(g, file, h, r);
	buf = gather_scratch(g);
	if (!buf)
		return ENOMEM;
	buf += rsh_place(start);
	rc = rsh_store_pread(g->store, file, h, buf, len, start);
	if (rc)
		return rc;
	for (;; r = &g->runs[r->next]) {
		run_scatter(g, r, buf + (r->src - start));
		if (--n == 0)
			return 0;
	}
}

/* Neighbouring spans make a stretch, which includes the holes between them. */
struct gather_stretch {
	uint64_t start, end;
};

static void stretch_end(struct rsh_gather *g, const struct rsh_handle *h,
			struct gather_stretch *s)
{
	if (s->end > s->start)
		rsh_store_spent(g->store, h, s->start, s->end - s->start,
				true);
	s->start = s->end = 0;
}

/* Spans are given back as a stretch, since each by itself would never come to
 * the end of the kernel's pieces. */
static void stretch_extend(struct rsh_gather *g, const struct rsh_handle *h,
			   struct gather_stretch *s, uint64_t start,
			   uint64_t len)
{
	if (start < s->end || start - s->end > HOLE_MAX)
		stretch_end(g, h, s);
	if (s->end == 0)
		s->start = start;
	s->end = start + len;
}

/* Adds what one call of gather_read_span() has read, of `len` bytes in all. */
static void stretch_add_span(struct rsh_gather *g, const struct rsh_handle *h,
			     struct gather_stretch *s,
			     const struct gather_run *r, uint64_t len)
{
	if (r->n_rows == 1 || r->src_stride <= HOLE_MAX) {
		stretch_extend(g, h, s, r->src, len);
		return;
	}
	for (uint64_t i = 0; i < r->n_rows; i++)
		stretch_extend(g, h, s, r->src + i * r->src_stride,
			       r->src_len);
}

struct gather_use {
	struct rsh_gather *gather;
	const struct gather_group *group;
};

static int gather_read_runs(void *ctx, struct rsh_handle *h)
{
	const struct gather_use *runs = ctx;
	struct rsh_gather *g = runs->gather;
	const struct gather_group *group = runs->group;
	struct gather_stretch spent = { 0 };
	unsigned at = group->first;

	while (at) {
		const struct gather_run *r = &g->runs[at];
		uint64_t len;
		unsigned n = run_span(g, r, &len);
		int rc = gather_read_span(g, group->file, h, r, n, len);

		if (rc)
			return rc;
		stretch_add_span(g, h, &spent, r, len);
		while (n--)
			at = g->runs[at].next;
	}
	stretch_end(g, h, &spent);
	return 0;
}

static int gather_flush(struct rsh_gather *g)
{
	for (unsigned i = 0; i < g->n_groups; i++) {
		struct gather_use runs = { g, &g->groups[i] };
		int rc = rsh_store_use(g->store, g->groups[i].file, g->wait,
				       gather_read_runs, &runs);

		if (rc)
			return rc;
	}
	gather_reset(g);
	return 0;
}

/* ---- scales and tiles ---- */

/* 0 or -ENOMEM. */
static int gather_hands(struct rsh_gather *g, struct rsh_tile_hands *h)
{
	if (!gather_scratch(g))
		return -ENOMEM;
	*h = (struct rsh_tile_hands){
		.stored = g->scratch, .decoded = gather_decoded(g),
		.wait = g->wait,
	};
	return 0;
}

/* Sees to it that the scales of a piece are held, as g->scales[*at]. */
static int gather_hold_scales(struct rsh_gather *g, const struct rsh_piece *p,
			      uint32_t *at)
{
	struct rsh_tile_hands h;
	unsigned i = 0;
	int rc;

	while (i < g->n_scales &&
	       !rsh_scales_same(&g->scales[i].by, &p->scales))
		i++;
	*at = i;
	if (i < g->n_scales)
		return 0;
	rc = i == GATHER_SCALES ? gather_flush(g) : 0;
	if (rc == 0)
		rc = gather_hands(g, &h);
	*at = g->n_scales;
	if (rc == 0)
		rc = rsh_tiles_hold_scales(g->tiles, &p->scales, &h,
					   &g->scales[*at].matrix);
	if (rc == 0)
		g->scales[g->n_scales++].by = p->scales;
	return rc;
}

/* Says how the elements of a piece are decoded, and holds what that takes. */
static int gather_code_of(struct rsh_gather *g, const struct rsh_piece *p,
			  struct gather_code *out)
{
	*out = (struct gather_code){ .codec = p->codec };
	if (p->codec != RSH_CODEC_FP8_SCALED)
		return 0;
	out->number = p->scales.first;
	return gather_hold_scales(g, p, &out->scales);
}

static int gather_flush_copies(struct rsh_gather *g)
{
	struct rsh_tile_hands h;
	int rc = gather_hands(g, &h);

	return rc ? rc : rsh_tile_copies_flush(&g->copies, g->tiles, &h);
}

static int gather_take_tiled(struct rsh_gather *g, const struct rsh_piece *p,
			     uint8_t *dst)
{
	int rc;

	if (rsh_tile_copies_add(&g->copies, p, dst))
		return 0;
	rc = gather_flush_copies(g);
	if (rc == 0)
		rsh_tile_copies_add(&g->copies, p, dst);
	return rc;
}

/* ---- collecting ---- */

static struct gather_group *gather_group(struct rsh_gather *g, uint32_t file)
{
	unsigned slot = file * UINT32_C(2654435761) >> 24;

	while (g->slots[slot]) {
		struct gather_group *group = &g->groups[g->slots[slot] - 1];

		if (group->file == file)
			return group;
		slot = (slot + 1) % HASH_SLOTS;
	}
	g->groups[g->n_groups] = (struct gather_group){ .file = file };
	g->slots[slot] = (uint8_t)++g->n_groups;
	return &g->groups[g->n_groups - 1];
}

/* The pieces of one file come in the order of its bytes but for a few jumps
 * from record to record, so that no sorting is needed. */
static int gather_add_run(struct rsh_gather *g, const struct rsh_piece *p,
			  uint8_t *dst)
{
	uint64_t offset = p->src_offset;
	struct gather_group *group;
	struct gather_code code;
	uint32_t file;
	uint16_t number;
	int rc = gather_code_of(g, p, &code);

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
		.codec = (uint16_t)code.codec,
		.scales = code.scales,
		.number = code.number,
	};
	if (group->first)
		g->runs[group->last].next = number;
	else
		group->first = number;
	group->last = number;
	return 0;
}

/* Makes the runs of the last row stand for n rows more, if they are all there;
 * `dst` is where the last row begins.  Runs of other targets may lie behind
 * it. */
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

/* Reads a long piece whose elements must be decoded, as much at a time as the
 * scratch holds. */
static int gather_read_decoded(struct rsh_gather *g, const struct rsh_piece *p,
			       uint8_t *dst)
{
	uint64_t left = p->length, src = p->src_offset;
	uint64_t src_left = p->src_length;
	uint32_t skip = p->skip;
	struct gather_code code;
	uint8_t *buf = gather_scratch(g);
	int rc = buf ? gather_code_of(g, p, &code) : -ENOMEM;

	if (rc)
		return rc;
	buf += rsh_place(src);
	while (left > 0 && src_left > 0) {
		size_t n = src_left < SPAN_MAX ? (size_t)src_left : SPAN_MAX;
		size_t got;

		rc = rsh_source_read_at(g->source, p->src_rank, src, buf, n,
					g->wait);
		if (rc)
			return rc;
		got = gather_decode(g, &code, buf, n) - skip;
		code.number += n;
		if (got > left)
			got = (size_t)left;
		memcpy(dst, gather_decoded(g) + skip, got);
		skip = 0;
		dst += got;
		left -= got;
		src += n;
		src_left -= n;
	}
	return left ? -EIO : 0;
}

static int gather_take_piece(struct rsh_gather *g, const struct rsh_piece *p,
			     uint8_t *dst)
{
	int rc;

	if (p->is_header) {
		memcpy(dst, p->header, (size_t)p->length);
		return 0;
	}
	if (p->is_tiled)
		return gather_take_tiled(g, p, dst);
	if (p->src_length >= DIRECT_MIN) {
		if (p->codec != RSH_CODEC_NONE)
			return gather_read_decoded(g, p, dst);
		return rsh_source_read_at(g->source, p->src_rank, p->src_offset,
					  dst, (size_t)p->length, g->wait);
	}
	if (gather_is_full(g)) {
		rc = gather_flush(g);
		if (rc)
			return rc;
	}
	return gather_add_run(g, p, dst);
}

/* ---- where the bytes are placed ---- */

/* Where the first byte belongs is known from the first long piece, since short
 * ones and headers are copied by this program itself, which knows no slow
 * places.  What came before that piece moves with it. */
static uint8_t *gather_move(struct rsh_gather *g, const struct rsh_piece *p,
			    uint8_t *area, uint8_t *data, size_t at)
{
	uint8_t *to = area + rsh_place(p->src_offset - at);

	memmove(to, data, at);
	for (unsigned i = 1; i <= g->n_runs; i++)
		g->runs[i].dst += to - data;
	rsh_tile_copies_move(&g->copies, to - data);
	return to;
}

static bool gather_is_long(const struct rsh_piece *p)
{
	return !p->is_header && !p->is_tiled &&
	       p->src_length >= RSH_PLACE_MAX;
}

int rsh_gather_add(struct rsh_gather *g, struct rsh_piece_iter *it,
		   struct rsh_target *to, size_t len)
{
	uint8_t *data = to->area ? to->area + rsh_place(0) : to->data;
	unsigned n_movable = to->area ? MOVABLE_PIECES : 0;
	struct rsh_piece p;
	struct rsh_rows rows;
	size_t at = 0;

	while (rsh_piece_iter_next(it, &p)) {
		int rc;

		if (p.length > len - at)
			return -EIO;
		if (n_movable && gather_is_long(&p)) {
			data = gather_move(g, &p, to->area, data, at);
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
	return at == len ? 0 : -EIO;
}

/* ---- states are kept for the next request, the last one used first ---- */

static struct rsh_gather *gather_take(struct rsh_gathers *all)
{
	struct rsh_gather *g;

	pthread_mutex_lock(&all->lock);
	g = all->idle;
	if (g) {
		all->idle = g->next_idle;
		all->n_idle--;
	}
	pthread_mutex_unlock(&all->lock);
	if (g)
		return g;
	g = malloc(sizeof(*g));
	if (g) {
		g->source = all->source;
		g->store = rsh_source_store(all->source);
		g->tiles = all->tiles;
		g->scratch = NULL;
		g->n_scales = 0;
		rsh_tile_copies_reset(&g->copies);
		gather_reset(g);
	}
	return g;
}

static void gather_free(struct rsh_gather *g)
{
	free(g->scratch);
	free(g);
}

static void gather_return(struct rsh_gathers *all, struct rsh_gather *g)
{
	bool keep;

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
}

int rsh_gathers_new(struct rsh_source *s, struct rsh_tiles *tiles,
		    struct rsh_gathers **out)
{
	struct rsh_gathers *all = calloc(1, sizeof(*all));

	if (!all || pthread_mutex_init(&all->lock, NULL)) {
		free(all);
		return -ENOMEM;
	}
	all->source = s;
	all->tiles = tiles;
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

struct rsh_gather *rsh_gather_begin(struct rsh_gathers *all, bool wait)
{
	struct rsh_gather *g = gather_take(all);

	if (g)
		g->wait = wait;
	return g;
}

int rsh_gather_end(struct rsh_gathers *all, struct rsh_gather *g, int rc)
{
	if (rc == 0 && g->n_runs)
		rc = gather_flush(g);
	if (rc == 0 && g->copies.n)
		rc = gather_flush_copies(g);
	gather_return(all, g);
	return rc;
}
