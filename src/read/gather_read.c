/* SPDX-License-Identifier: Apache-2.0 */
/* read/gather_read.c reads the runs that a gather has collected, neighbouring
 * runs of one file together.
 *
 * Local files are read one after the other.  With object storage the latency of
 * a read is longer than its transfer, so all reads of a gather are sent at
 * once, each by its own thread.
 */
#include "config.h"

#include "gather_runs_i.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "rsh/util/checked.h"
#include "rsh/util/mem.h"

/* Pages are dropped from the page cache together with the bytes between two
 * spans, if these are not more than this. */
#define HOLE_MAX ((uint64_t)1024 * 1024)

/* At least one byte of this many in a span must be needed. */
#define SPAN_WASTE 4

/* The maximum number of reads of a gather that are sent at once. */
#define GATHER_READS 64

/* The buffers of a thread that reads runs of a gather. */
struct gather_hand {
	struct rsh_gather *gather;
	uint8_t **scratch;
};

/* ---- the order of runs ---- */

static int run_by_source(const void *a, const void *b, void *gather)
{
	const struct rsh_gather *g = gather;
	const uint16_t x = *(const uint16_t *)a, y = *(const uint16_t *)b;

	return rsh_compare_u64(g->runs[x].src, g->runs[y].src) ?:
	       rsh_compare_u64(x, y);
}

/* Rows that alternate between tensors of a file are in the order of the rows,
 * in which no two are neighbours.  This sorts them by their offset. */
static void group_sort(struct rsh_gather *g, struct gather_group *group)
{
	uint16_t order[RSH_BATCH_RUNS], n = 0;
	bool sorted = true;

	for (uint16_t at = group->first; at; at = g->runs[at].next) {
		order[n++] = at;
		sorted &= n < 2 || g->runs[order[n - 2]].src <= g->runs[at].src;
	}
	if (sorted)
		return;
	qsort_r(order, n, sizeof(*order), run_by_source, g);
	group->first = order[0];
	group->last = order[n - 1];
	for (uint16_t i = 0; i < n; i++)
		g->runs[order[i]].next = i + 1 < n ? order[i + 1] : 0;
}

/* ---- one run ---- */

static void run_copy_rows(const struct gather_run *r, uint8_t *dst,
			  const uint8_t *stored, uint64_t n)
{
	for (; n; n--) {
		memcpy(dst, stored, r->dst_len);
		dst += r->dst_stride;
		stored += r->src_stride;
	}
}

/* Decodes the elements of a run.  If these are more than its bytes (the run
 * begins or ends within an element) it needs a buffer. */
static void run_decode(const struct gather_hand *by, const struct gather_run *r,
		       const uint8_t *stored)
{
	const struct gather_scales *scales = &by->gather->scales[r->scales];
	const enum rsh_codec codec = (enum rsh_codec)r->codec;
	const bool is_scaled = rsh_codec_is_scaled(codec);
	struct rsh_scaled m;
	uint32_t per = 1, in, width;
	uint64_t n;
	uint8_t *out;

	rsh_codec_units(codec, &in, &width);
	if (is_scaled) {
		m = rsh_scaled_by(&scales->by, scales->chunk, codec);
		rsh_packing_unit(m.packing, &per, &in);
	}
	n = r->src_len / in * per;
	out = n * width == r->dst_len ? r->dst :
		rsh_scratch_decoded(*by->scratch);
	if (is_scaled)
		rsh_scaled_decode(&m, r->number, stored, n, out);
	else
		rsh_codec_decode(codec, stored, r->src_len, out);
	if (out != r->dst)
		memcpy(r->dst, out + r->skip, r->dst_len);
}

static void run_scatter(const struct gather_hand *by,
			const struct gather_run *r, const uint8_t *stored)
{
	if (r->codec == RSH_CODEC_NONE)
		run_copy_rows(r, r->dst, stored, r->n_rows);
	else
		run_decode(by, r, stored);
}

/* Returns the number of bytes from the first byte of the run to its last. */
static uint64_t run_extent(const struct gather_run *r)
{
	return (r->n_rows - 1) * r->src_stride + r->src_len;
}

static uint64_t run_wanted(const struct gather_run *r)
{
	return r->n_rows * r->src_len;
}

/* ---- reads ---- */

/* One read of neighbouring runs, or several reads of rows of one run. */
struct gather_read {
	uint32_t file;
	const struct gather_run *run;
	unsigned n; /* number of runs */
	uint64_t len;
	uint64_t row, n_rows; /* rows of the run, if it has rows */
};

/* Returns whether one read of the extent is worthwhile. */
static bool is_span_worth(uint64_t wanted, uint64_t extent)
{
	return extent <= RSH_SPAN_MAX && extent <= wanted * SPAN_WASTE;
}

/* Returns the longest span of runs from r that one read can serve, at least r
 * itself. */
static struct gather_read run_span(const struct rsh_gather *g,
				   const struct gather_run *r)
{
	struct gather_read span = { .run = r, .n = 1, .n_rows = r->n_rows };
	const uint64_t start = r->src;
	uint64_t end = start + run_extent(r);
	uint64_t wanted = run_wanted(r);

	while (r->next) {
		uint64_t next_end;

		r = &g->runs[r->next];
		next_end = r->src + run_extent(r);
		wanted += run_wanted(r);
		if (r->src < end || !is_span_worth(wanted, next_end - start))
			break;
		end = next_end;
		span.n++;
	}
	span.len = end - start;
	return span;
}

/* Returns whether a run is read row by row, or directly to its destination. */
static bool read_is_of_rows(const struct gather_read *read)
{
	const struct gather_run *r = read->run;

	return read->n == 1 && r->codec == RSH_CODEC_NONE &&
	       (r->n_rows == 1 || !is_span_worth(run_wanted(r), read->len));
}

/* Returns how many rows one read has. */
static uint64_t run_rows_at_once(const struct gather_run *r)
{
	if (r->n_rows == 1 || r->src_len > RSH_SPAN_MAX ||
	    r->src_stride > (uint64_t)r->src_len * SPAN_WASTE)
		return 1;
	return (RSH_SPAN_MAX - r->src_len) / r->src_stride + 1;
}

/* Returns 0 or a positive errno. */
static int read_rows(const struct gather_hand *by, const struct gather_read *rd,
		     struct rsh_handle *h)
{
	const struct gather_run *r = rd->run;
	const uint64_t most = run_rows_at_once(r);
	const uint64_t end = rd->row + rd->n_rows;
	uint64_t n;

	for (uint64_t at = rd->row; at < end; at += n) {
		const uint64_t src = r->src + at * r->src_stride;
		uint8_t *dst = r->dst + at * r->dst_stride;
		uint8_t *buf = dst;
		int rc;

		n = rsh_min_u64(most, end - at);
		if (n > 1) {
			buf = rsh_scratch_make(by->scratch);
			if (!buf)
				return ENOMEM;
			buf += rsh_place(src);
		}
		rc = rsh_store_pread(by->gather->store, rd->file, h, buf,
				     (size_t)((n - 1) * r->src_stride +
					      r->src_len), src);
		if (rc)
			return rc;
		if (n > 1)
			run_copy_rows(r, dst, buf, n);
	}
	return 0;
}

/* Reads a span of neighbouring runs in one read.  Returns 0 or a positive
 * errno. */
static int read_together(const struct gather_hand *by,
			 const struct gather_read *rd, struct rsh_handle *h)
{
	struct rsh_gather *g = by->gather;
	const struct gather_run *r = rd->run;
	const uint64_t start = r->src;
	uint8_t *buf;
	int rc;

	buf = rsh_scratch_make(by->scratch);
	if (!buf)
		return ENOMEM;
	buf += rsh_place(start);
	rc = rsh_store_pread(g->store, rd->file, h, buf, (size_t)rd->len,
			     start);
	if (rc)
		return rc;
	for (unsigned n = rd->n;; r = &g->runs[r->next]) {
		run_scatter(by, r, buf + (r->src - start));
		if (--n == 0)
			return 0;
	}
}

/* Moves to the next read of the group; without runs (n is 0) to the first
 * one. */
static bool group_next_read(const struct rsh_gather *g,
			    const struct gather_group *group,
			    struct gather_read *rd)
{
	unsigned at = group->first;

	if (rd->n) {
		const struct gather_run *r = rd->run;

		for (unsigned n = rd->n; --n;)
			r = &g->runs[r->next];
		at = r->next;
	}
	if (at == 0)
		return false;
	*rd = run_span(g, &g->runs[at]);
	rd->file = group->file;
	return true;
}

/* ---- reads one after the other ---- */

/* A stretch has neighbouring spans, with the bytes between them. */
struct gather_stretch {
	uint64_t start, end;
};

static void stretch_end(struct rsh_gather *g, const struct rsh_handle *h,
			struct gather_stretch *s)
{
	if (s->end > s->start)
		rsh_store_spent(g->store, h, s->start, s->end - s->start, true);
	s->start = s->end = 0;
}

/* Pages are dropped for a whole stretch, because the kernel drops pages in
 * larger units, and a single span may not reach the end of one. */
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

static void stretch_add_read(struct rsh_gather *g, const struct rsh_handle *h,
			     struct gather_stretch *s,
			     const struct gather_read *rd)
{
	const struct gather_run *r = rd->run;

	if (r->n_rows == 1 || r->src_stride <= HOLE_MAX) {
		stretch_extend(g, h, s, r->src, rd->len);
		return;
	}
	for (uint64_t i = 0; i < r->n_rows; i++)
		stretch_extend(g, h, s, r->src + i * r->src_stride, r->src_len);
}

/* ---- reads sent at once ---- */

struct gather_round {
	struct rsh_gather *gather;
	unsigned n;
	struct gather_read reads[GATHER_READS];
};

static int round_read(void *ctx, size_t i, struct rsh_error *err)
{
	struct gather_round *round = ctx;
	struct rsh_gather *g = round->gather;
	const struct gather_read *rd = &round->reads[i];
	struct rsh_attempts a = { .file = rd->file, .wait = g->wait };
	cleanup_free uint8_t *scratch = NULL;
	const struct gather_hand by = { g, &scratch };
	struct rsh_handle *h;

	(void)err;
	while ((h = rsh_store_attempt(g->store, &a)))
		a.code = read_is_of_rows(rd) ? read_rows(&by, rd, h) :
					       read_together(&by, rd, h);
	return a.rc;
}

static int round_carry_out(struct gather_round *round)
{
	const unsigned n = round->n;

	round->n = 0;
	return rsh_helpers_run(&round->gather->all->helpers, n, round_read,
			       round);
}

static int round_add(struct gather_round *round, const struct gather_read *rd)
{
	round->reads[round->n++] = *rd;
	return round->n == GATHER_READS ? round_carry_out(round) : 0;
}

/* Adds a read, or as many reads as its rows need. */
static int round_add_rows(struct gather_round *round,
			  const struct gather_read *rd)
{
	const uint64_t most = run_rows_at_once(rd->run);
	struct gather_read part = *rd;
	int rc = 0;

	if (!read_is_of_rows(rd))
		return round_add(round, rd);
	for (; rc == 0 && part.row < rd->n_rows; part.row += part.n_rows) {
		part.n_rows = rsh_min_u64(most, rd->n_rows - part.row);
		rc = round_add(round, &part);
	}
	return rc;
}

int rsh_gather_read_runs(struct rsh_gather *g)
{
	int rc = 0;

	for (unsigned i = 0; i < g->n_groups; i++)
		group_sort(g, &g->groups[i]);
	if (g->all->far) {
		struct gather_round round = { .gather = g };

		for (unsigned i = 0; rc == 0 && i < g->n_groups; i++) {
			struct gather_read rd = { 0 };

			while (rc == 0 && group_next_read(round.gather,
							  &g->groups[i], &rd))
				rc = round_add_rows(&round, &rd);
		}
		return rc ?: round_carry_out(&round);
	}
	for (unsigned i = 0; rc == 0 && i < g->n_groups; i++) {
		const struct gather_hand by = { g, &g->scratch };
		struct rsh_attempts a = { .file = g->groups[i].file,
					  .wait = g->wait };
		struct rsh_handle *h;

		while ((h = rsh_store_attempt(g->store, &a))) {
			struct gather_stretch spent = { 0 };
			struct gather_read rd = { 0 };

			while (a.code == 0 &&
			       group_next_read(g, &g->groups[i], &rd)) {
				a.code = read_is_of_rows(&rd) ?
					read_rows(&by, &rd, h) :
					read_together(&by, &rd, h);
				if (a.code == 0)
					stretch_add_read(g, h, &spent, &rd);
			}
			if (a.code == 0)
				stretch_end(g, h, &spent);
		}
		rc = a.rc;
	}
	return rc;
}
