/* SPDX-License-Identifier: Apache-2.0 */
/* app/cli/plan_measure.c finds what one virtual file reads.  It visits the
 * file's pieces in the order in which a reader of the whole file would. */
#include "config.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "plan.h"
#include "rsh/util/mem.h"

/* These numbers belong to a key: runs of a length, or bytes of a source rank.
 * They are ascending by key. */
struct count {
	uint64_t key;
	uint64_t n;
};

struct counts {
	struct count *v;
	size_t n, cap, last;
};

static size_t count_place(const struct counts *c, uint64_t key)
{
	size_t lo = 0, hi = c->n;

	/* Consecutive runs mostly have the same key. */
	if (c->last < c->n && c->v[c->last].key == key)
		return c->last;
	while (lo < hi) {
		const size_t mid = lo + (hi - lo) / 2;

		if (c->v[mid].key < key)
			lo = mid + 1;
		else
			hi = mid;
	}
	return lo;
}

static int count(struct counts *c, uint64_t key, uint64_t n)
{
	const size_t at = count_place(c, key);

	if (at == c->n || c->v[at].key != key) {
		if (rsh_grow(&c->v, &c->cap, c->n + 1, sizeof(*c->v)))
			return -ENOMEM;
		memmove(&c->v[at + 1], &c->v[at], (c->n - at) * sizeof(*c->v));
		c->v[at] = (struct count){ key, 0 };
		c->n++;
	}
	c->v[at].n += n;
	c->last = at;
	return 0;
}

static int walk_pieces(struct counts *lengths, struct counts *sources,
		       struct rsh_piece_iter *it)
{
	struct rsh_piece p;

	while (rsh_piece_iter_next(it, &p)) {
		uint64_t length = p.src_length, n = 1;
		uint32_t rank = p.src_rank;

		/* A tile is read once, row by row, for all pieces that show a
		 * part of it. */
		if (p.is_header || (p.is_tiled && p.tile_offset))
			continue;
		if (p.is_tiled) {
			length = rsh_tile_stored(&p.tile, p.tile.n_columns);
			n = p.tile.n_rows;
			rank = p.tile.src_rank;
		}
		if (count(lengths, length, n) ||
		    count(sources, rank, length * n))
			return -ENOMEM;
	}
	return rsh_piece_iter_status(it);
}

static int sum_up(const struct counts *lengths, const struct counts *sources,
		  struct rsh_plan_file *out)
{
	const struct count *length = lengths->v;
	uint64_t before = 0;

	if (lengths->n == 0)
		return 0;
	for (size_t i = 0; i < lengths->n; i++) {
		out->n_runs += length[i].n;
		out->read_bytes += length[i].key * length[i].n;
	}
	out->min_run = length[0].key;
	out->max_run = length[lengths->n - 1].key;
	/* If there are two middle values, the lower one is the median. */
	for (size_t i = 0; before <= (out->n_runs - 1) / 2; i++) {
		out->median_run = length[i].key;
		before += length[i].n;
	}
	out->sources = rsh_alloc_array(sources->n, sizeof(*out->sources));
	if (!out->sources)
		return -ENOMEM;
	out->n_sources = sources->n;
	for (size_t i = 0; i < sources->n; i++)
		out->sources[i] = (struct rsh_plan_source){
			(uint32_t)sources->v[i].key, sources->v[i].n
		};
	return 0;
}

int rsh_plan_measure(const struct rsh_plan *c, uint32_t file,
		     struct rsh_plan_file *out)
{
	const uint32_t per_rank = rsh_plan_files_of_rank(c);
	/* Runs of each length, and bytes of each source rank. */
	struct counts lengths = { 0 }, sources = { 0 };
	struct rsh_piece_iter *it;
	int rc = 0;

	*out = (struct rsh_plan_file){
		.file = file,
		.rank = file / per_rank,
		.kind = per_rank == 1 ? NULL : file % 2 ? "opt" : "model",
		.bytes = rsh_plan_size(c, file),
		.lost = rsh_plan_is_lost(c, file),
	};
	if (out->lost)
		return 0;
	it = rsh_piece_iter_new(c, file, 0, out->bytes, NULL);
	rc = it ? walk_pieces(&lengths, &sources, it) : -ENOMEM;
	rsh_piece_iter_free(it);
	rc = rc ?: sum_up(&lengths, &sources, out);
	free(lengths.v);
	free(sources.v);
	return rc;
}

/* ---- where each byte comes from ----
 *
 * The description is short, so that whole jobs can be compared: records with
 * equal descriptions take the same bytes.
 */

/* A run extends one of the last so many stretches, or begins a new one, because
 * a row may take bytes from that many files. */
#define STRETCHES_BACK 64

/* This is a number of runs of a source file with equal lengths and equal
 * distances. */
struct stretch {
	uint32_t rank;
	uint64_t at, bytes, n, stride;
};

struct reads {
	struct stretch *v;
	size_t n, cap;
	size_t next; /* index at which the search for the next run begins */
};

static bool stretch_takes(struct stretch *s, uint32_t rank, uint64_t at,
			  uint64_t bytes)
{
	if (s->rank != rank || s->bytes != bytes || at <= s->at ||
	    (s->n > 1 && at != s->at + s->n * s->stride))
		return false;
	s->stride = (at - s->at) / s->n;
	s->n++;
	return true;
}

static int reads_add(struct reads *r, uint32_t rank, uint64_t at,
		     uint64_t bytes)
{
	const size_t back = r->n < STRETCHES_BACK ? r->n : STRETCHES_BACK;
	struct stretch *last = r->n ? &r->v[r->n - 1] : NULL;

	if (last && last->n == 1 && last->rank == rank &&
	    last->at + last->bytes == at) {
		last->bytes += bytes;
		return 0;
	}
	for (size_t k = 0; k < back; k++) {
		size_t i = r->n - back + (r->next + k) % back;

		if (stretch_takes(&r->v[i], rank, at, bytes)) {
			r->next = r->next + k + 1;
			return 0;
		}
	}
	if (rsh_grow(&r->v, &r->cap, r->n + 1, sizeof(*r->v)))
		return -ENOMEM;
	r->v[r->n++] = (struct stretch){ rank, at, bytes, 1, 0 };
	r->next = 0;
	return 0;
}

static int reads_collect(struct reads *r, struct rsh_piece_iter *it)
{
	struct rsh_piece p;
	int rc = 0;

	while (rc == 0 && rsh_piece_iter_next(it, &p)) {
		const struct rsh_tile *t = &p.tile;

		if (!p.is_tiled)
			rc = reads_add(r, p.src_rank, p.src_offset,
				       p.src_length);
		for (uint64_t i = 0; p.is_tiled && i < t->n_rows && rc == 0 &&
				     !p.tile_offset; i++)
			rc = reads_add(r, t->src_rank, t->src_offset +
				       i * rsh_tile_stored(t, t->stride),
				       rsh_tile_stored(t, t->n_columns));
	}
	return rc ? rc : rsh_piece_iter_status(it);
}

static char *reads_text(const struct reads *r)
{
	char *text = NULL;
	size_t length;
	FILE *f = open_memstream(&text, &length);

	if (!f)
		return NULL;
	for (size_t i = 0; i < r->n; i++) {
		const struct stretch *s = &r->v[i];
		const bool whole = s->n > 1 && s->stride == s->bytes;

		fprintf(f, "%s%" PRIu32 ":%" PRIu64 "+%" PRIu64, i ? " " : "",
			s->rank, s->at, whole ? s->bytes * s->n : s->bytes);
		if (s->n > 1 && !whole)
			fprintf(f, "*%" PRIu64 "/%" PRIu64, s->n, s->stride);
	}
	if (fclose(f) == 0)
		return text;
	free(text);
	return NULL;
}

void rsh_plan_print_slices(struct rsh_printer *out, const struct rsh_plan *p,
			   uint32_t file)
{
	const uint32_t n = rsh_plan_is_lost(p, file) ? 0 :
		rsh_plan_n_records(p, file);

	rsh_json(out, "[");
	for (uint32_t i = 0; i < n && !out->failed; i++) {
		struct rsh_piece_iter *it = rsh_piece_iter_content(
			p, file, i, 0, UINT64_MAX, NULL);
		cleanup_free char *text = NULL;
		struct rsh_virtual_record record;
		struct reads reads = { 0 };

		rsh_plan_record(p, file, i, &record);
		if (it && reads_collect(&reads, it) == 0)
			text = reads_text(&reads);
		rsh_piece_iter_free(it);
		free(reads.v);
		out->failed |= !text;
		rsh_json(out, "[% % %]", record.offset, record.total_bytes,
			 text);
	}
	rsh_json(out, "]");
}
