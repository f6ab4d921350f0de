/* SPDX-License-Identifier: Apache-2.0 */
/* app/cli/plan_measure.c finds what one virtual file reads.  It visits the
 * file's pieces in the order in which a reader of the whole file would. */
#include "config.h"

#include <errno.h>
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

struct walk {
	struct counts lengths; /* n: runs */
	struct counts sources; /* n: bytes */
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

static int walk_pieces(struct walk *w, struct rsh_piece_iter *it)
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
		if (count(&w->lengths, length, n) ||
		    count(&w->sources, rank, length * n))
			return -ENOMEM;
	}
	return rsh_piece_iter_status(it);
}

static int sum_up(const struct walk *w, struct rsh_plan_file *out)
{
	const struct count *length = w->lengths.v;
	uint64_t before = 0;

	if (w->lengths.n == 0)
		return 0;
	for (size_t i = 0; i < w->lengths.n; i++) {
		out->n_runs += length[i].n;
		out->read_bytes += length[i].key * length[i].n;
	}
	out->min_run = length[0].key;
	out->max_run = length[w->lengths.n - 1].key;
	/* If there are two middle values, the lower one is the median. */
	for (size_t i = 0; before <= (out->n_runs - 1) / 2; i++) {
		out->median_run = length[i].key;
		before += length[i].n;
	}
	out->sources = rsh_alloc_array(w->sources.n, sizeof(*out->sources));
	if (!out->sources)
		return -ENOMEM;
	out->n_sources = w->sources.n;
	for (size_t i = 0; i < w->sources.n; i++)
		out->sources[i] = (struct rsh_plan_source){
			(uint32_t)w->sources.v[i].key, w->sources.v[i].n
		};
	return 0;
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
	rsh_piece_iter_free(it);
	if (rc == 0)
		rc = sum_up(&w, out);
	free(w.lengths.v);
	free(w.sources.v);
	return rc;
}
