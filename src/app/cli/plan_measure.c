/* SPDX-License-Identifier: Apache-2.0 */
/* app/cli/plan_measure.c finds what one virtual file reads.  It visits the
 * file's pieces in the order in which a reader of the whole file would. */
#include "config.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "plan.h"
#include "rsh/util/mem.h"

/* Counts runs of one length.  There are few lengths, and consecutive runs
 * mostly have the same one. */
struct length {
	uint64_t bytes;
	uint64_t n;
};

struct walk {
	struct length *lengths;
	size_t n_lengths, cap_lengths, last_length;
	struct rsh_plan_source *sources;
	size_t n_sources, cap_sources, last_source;
};

static int count_runs(struct walk *w, uint64_t bytes, uint64_t n)
{
	size_t i = w->last_length;

	if (i >= w->n_lengths || w->lengths[i].bytes != bytes)
		for (i = 0; i < w->n_lengths; i++)
			if (w->lengths[i].bytes == bytes)
				break;
	if (i == w->n_lengths) {
		if (rsh_grow(&w->lengths, &w->cap_lengths, i + 1,
			     sizeof(*w->lengths)))
			return -ENOMEM;
		w->lengths[w->n_lengths++] = (struct length){ bytes, 0 };
	}
	w->lengths[i].n += n;
	w->last_length = i;
	return 0;
}

static int count_source(struct walk *w, uint32_t rank, uint64_t bytes)
{
	size_t i = w->last_source;

	if (i >= w->n_sources || w->sources[i].rank != rank)
		for (i = 0; i < w->n_sources; i++)
			if (w->sources[i].rank == rank)
				break;
	if (i == w->n_sources) {
		if (rsh_grow(&w->sources, &w->cap_sources, i + 1,
			     sizeof(*w->sources)))
			return -ENOMEM;
		w->sources[w->n_sources++] =
			(struct rsh_plan_source){ rank, 0 };
	}
	w->sources[i].bytes += bytes;
	w->last_source = i;
	return 0;
}

static int count_piece(struct walk *w, const struct rsh_piece *p)
{
	return count_runs(w, p->src_length, 1) ||
	       count_source(w, p->src_rank, p->src_length) ? -ENOMEM : 0;
}

/* A tile is read once, row by row, for all pieces that show a part of it. */
static int count_tile(struct walk *w, const struct rsh_piece *p)
{
	const struct rsh_tile *t = &p->tile;
	const uint64_t row = t->n_columns * t->unit_in;

	if (p->tile_offset)
		return 0;
	return count_runs(w, row, t->n_rows) ||
	       count_source(w, t->src_rank, row * t->n_rows) ? -ENOMEM : 0;
}

static int walk_pieces(struct walk *w, struct rsh_piece_iter *it)
{
	struct rsh_piece p;

	while (rsh_piece_iter_next(it, &p)) {
		int rc;

		if (p.is_header)
			continue;
		rc = p.is_tiled ? count_tile(w, &p) : count_piece(w, &p);
		if (rc)
			return rc;
	}
	return rsh_piece_iter_status(it);
}

static int by_bytes(const void *a, const void *b)
{
	const struct length *x = a, *y = b;

	return (x->bytes > y->bytes) - (x->bytes < y->bytes);
}

static int source_by_rank(const void *a, const void *b)
{
	const struct rsh_plan_source *x = a, *y = b;

	return (x->rank > y->rank) - (x->rank < y->rank);
}

static void sum_up(struct walk *w, struct rsh_plan_file *out)
{
	uint64_t before = 0;

	if (w->n_lengths == 0)
		return;
	qsort(w->lengths, w->n_lengths, sizeof(*w->lengths), by_bytes);
	qsort(w->sources, w->n_sources, sizeof(*w->sources), source_by_rank);
	for (size_t i = 0; i < w->n_lengths; i++) {
		out->n_runs += w->lengths[i].n;
		out->read_bytes += w->lengths[i].bytes * w->lengths[i].n;
	}
	out->min_run = w->lengths[0].bytes;
	out->max_run = w->lengths[w->n_lengths - 1].bytes;
	/* If there are two middle values, the lower one is the median. */
	for (size_t i = 0; before <= (out->n_runs - 1) / 2; i++) {
		out->median_run = w->lengths[i].bytes;
		before += w->lengths[i].n;
	}
}

int rsh_plan_measure(const struct rsh_plan *c, uint32_t file,
		     struct rsh_plan_file *out)
{
	const uint32_t per_rank = rsh_plan_files_of_rank(c);
	struct rsh_piece_iter *it;
	struct walk w = { 0 };
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
	rc = it ? walk_pieces(&w, it) : -ENOMEM;
	if (it)
		rsh_piece_iter_free(it);
	if (rc == 0)
		sum_up(&w, out);
	free(w.lengths);
	out->n_sources = w.n_sources;
	out->sources = w.sources;
	return rc;
}

void rsh_plan_file_clear(struct rsh_plan_file *f)
{
	free(f->sources);
	f->sources = NULL;
}
