/* SPDX-License-Identifier: Apache-2.0 */
/* copy/verify_same.c compares records that several ranks hold.
 *
 * Records that should be equal must have the same hash.  If they have not, both
 * are read again to find the place where they differ. */
#include "config.h"

#include "verify_source_i.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "rsh/strategy/grid.h"
#include "rsh/util/checked.h"
#include "rsh/util/mem.h"

/* ---- files and records ---- */

ssize_t rsh_verify_pread(const struct rsh_verify_content *c, uint8_t *buf,
			 size_t len, uint64_t offset)
{
	const struct rsh_record *r = c->record;
	const struct rsh_extent *e = c->file->in.index->extents +
				     r->first_extent;
	const uint32_t file = (uint32_t)(c->file - c->job->files);
	size_t got = 0;

	for (uint32_t i = 0; i < r->n_extents && got < len; i++) {
		size_t want;
		ssize_t n;

		if (offset >= e[i].length) {
			offset -= e[i].length;
			continue;
		}
		want = (size_t)rsh_min_u64(len - got, e[i].length - offset);
		n = rsh_source_file_pread(c->job->source, file, c->handle,
					  buf + got, want,
					  e[i].offset + offset);
		if (n <= 0)
			return n ? n : -EIO;
		got += (size_t)n;
		offset += (uint64_t)n;
		/* After a short read, continue in the same extent. */
		if (offset < e[i].length)
			i--;
		else
			offset = 0;
	}
	return (ssize_t)got;
}

struct rsh_verify_file *rsh_verify_sound_file(const struct rsh_verify_job *j,
					      uint32_t rank,
					      struct rsh_verify_file *f)
{
	const struct rsh_verify_file *end = j->files + j->n;

	if (f)
		f++;
	else if (rank < j->n_ranks && j->by_rank[rank])
		f = j->by_rank[rank];
	else
		return NULL;
	while (f < end && f->info.rank == rank && !f->in.index)
		f++;
	return f < end && f->info.rank == rank ? f : NULL;
}

/* ---- the place of a difference ---- */

static int find_difference(const struct rsh_verify_content *a,
			   const struct rsh_verify_content *b, uint64_t *at)
{
	cleanup_free uint8_t *x = malloc(RSH_STREAM_MAX);
	cleanup_free uint8_t *y = malloc(RSH_STREAM_MAX);

	if (!x || !y)
		return -ENOMEM;
	for (*at = 0;;) {
		ssize_t n = rsh_verify_pread(a, x, RSH_STREAM_MAX, *at);
		ssize_t m = rsh_verify_pread(b, y, RSH_STREAM_MAX, *at);

		if (n <= 0 || m != n)
			return n < 0 ? (int)n : m < 0 ? (int)m : 0;
		if (memcmp(x, y, (size_t)n) != 0) {
			size_t i = 0;

			while (x[i] == y[i])
				i++;
			*at += i;
			return 0;
		}
		*at += (uint64_t)n;
	}
}

/* Returns the offset in its file of a byte of the content. */
static uint64_t place_of_content(const struct rsh_verify_content *c,
				 uint64_t at)
{
	const struct rsh_extent *e = c->file->in.index->extents +
				     c->record->first_extent;

	for (uint32_t i = 0; i < c->record->n_extents; i++) {
		if (at < e[i].length)
			return e[i].offset + at;
		at -= e[i].length;
	}
	return 0;
}

static bool same_kind(const struct rsh_verify_leader *l,
		      const struct rsh_verify_file *f,
		      const struct rsh_record *r)
{
	const struct rsh_record *a = l->record;

	return a->dtype == r->dtype && a->n_dims == r->n_dims &&
	       a->content_bytes == r->content_bytes &&
	       (!r->n_dims ||
		!memcmp(rsh_record_dims(l->file->in.index, a),
			rsh_record_dims(f->in.index, r),
			r->n_dims * sizeof(int64_t)));
}

static int tell_kinds(struct rsh_verify_job *j,
		      const struct rsh_verify_leader *leader,
		      const struct rsh_verify_file *f,
		      const struct rsh_record *r, const char *what)
{
	struct rsh_problem p = { 0 };

	if (rsh_problem_set(&p, NULL, f->info.path, "has another type or shape "
			    "than the same %s of rank %" PRIu32 " (%s)", what,
			    leader->file->info.rank, leader->file->info.path))
		return -ENOMEM;
	p.record = strdup(rsh_names_text(j->names, r->name));
	return p.record ? rsh_answer_add(j->out, &p) : -ENOMEM;
}

int rsh_verify_compare(struct rsh_verify_job *j,
		       struct rsh_verify_leader *leader,
		       struct rsh_verify_file *f, const struct rsh_record *r,
		       const char *what)
{
	const struct rsh_verify_file *a = leader->file;
	cleanup_handle struct rsh_handle *ha = NULL, *hb = NULL;
	struct rsh_problem p = { 0 };
	struct rsh_verify_content ca = { j, a, NULL, leader->record };
	struct rsh_verify_content cb = { j, f, NULL, r };
	ptrdiff_t in_a, in_f = r - f->in.index->records;
	uint64_t at = 0;
	int rc;

	if (!a) {
		*leader = (struct rsh_verify_leader){ f, r };
		return 0;
	}
	in_a = leader->record - a->in.index->records;
	a->compared[in_a] = true;
	f->compared[in_f] = true;
	j->out->n_replicas++;
	if (!same_kind(leader, f, r))
		return tell_kinds(j, leader, f, r, what);
	if (XXH128_isEqual(a->sums[in_a], f->sums[in_f]))
		return 0;
	rc = rsh_source_file_open(j->source, (uint32_t)(a - j->files), &ha,
				  NULL) ?:
	     rsh_source_file_open(j->source, (uint32_t)(f - j->files),
				  &hb, NULL);
	ca.handle = ha;
	cb.handle = hb;
	rc = rc ?: find_difference(&ca, &cb, &at);
	if (rc == -ENOMEM ||
	    rsh_problem_set(&p, NULL, f->info.path, "differs from the same "
			    "%s of rank %" PRIu32 " (%s)", what, a->info.rank,
			    a->info.path) ||
	    rsh_problem_place(&p, rsh_names_text(j->names, r->name),
			      place_of_content(&cb, at)))
		return -ENOMEM;
	return rsh_answer_add(j->out, &p);
}

/* ---- by the strategy ---- */

static int compare_stage(struct rsh_verify_job *j, uint32_t name,
			 const struct rsh_param_stage *stage)
{
	const uint32_t n = j->strategy->stage_ranks, base = stage->stage * n;
	cleanup_free struct rsh_verify_leader *leaders =
		calloc(n, sizeof(*leaders));
	uint32_t cell[RSH_MAX_DIMS];
	struct rsh_grid *g;
	int rc = 0;

	if (!leaders)
		return -ENOMEM;
	/* An invalid layout is skipped.  The planner reports it. */
	if (rsh_grid_new_unsized(stage->item, &g, NULL))
		return 0;
	for (uint32_t r = 0; r < rsh_grid_n_ranks(g) && r < n && rc == 0; r++) {
		struct rsh_verify_file *f = NULL;
		const struct rsh_record *record = NULL;

		rsh_grid_cell(g, r, cell);
		while (!record && (f = rsh_verify_sound_file(j, base + r, f)))
			record = rsh_ckpt_find(f->in.index, name);
		if (record)
			rc = rsh_verify_compare(
				j, &leaders[rsh_grid_member(g, cell, 0)], f,
				record, "slice");
	}
	/* Count the slices that no file has. */
	for (uint32_t r = 0; r < rsh_grid_n_ranks(g) && r < n; r++) {
		rsh_grid_cell(g, r, cell);
		if (rsh_grid_member(g, cell, 0) != r || leaders[r].file)
			continue;
		j->n_lost++;
		j->lost = name;
		j->loser = base + r;
	}
	rsh_grid_free(g);
	return rc;
}

/* ---- by names ---- */

static int compare_by_name(struct rsh_verify_job *j)
{
	cleanup_free struct rsh_verify_leader *leaders =
		calloc((size_t)rsh_names_count(j->names) + 1, sizeof(*leaders));
	int rc = leaders ? 0 : -ENOMEM;

	for (size_t i = 0; i < j->n && rc == 0; i++) {
		struct rsh_verify_file *f = &j->files[i];
		const struct rsh_ckpt_index *ix = f->in.index;

		for (uint32_t r = 0; ix && r < ix->n_records && rc == 0; r++)
			rc = rsh_verify_compare(j,
						&leaders[ix->records[r].name],
						f, &ix->records[r],
						"parameter");
	}
	return rc;
}

int rsh_verify_same(struct rsh_verify_job *j)
{
	if (j->strategy) {
		const struct rsh_strategy *s = j->strategy;

		for (uint32_t i = 0; i < s->n_params; i++)
			for (uint32_t k = 0; k < s->params[i].n_stages; k++)
				if (compare_stage(j, s->params[i].name,
						  &s->params[i].stages[k]))
					return -ENOMEM;
		return 0;
	}
	return j->whole ? compare_by_name(j) : 0;
}
