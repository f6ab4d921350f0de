/* SPDX-License-Identifier: Apache-2.0 */
/* copy/verify_source.c verifies source files by themselves and by their
 * replicas.
 *
 * Each file is scanned and checked against its CRC, then all content is read
 * and hashed record by record.  Ranks that hold one slice by the strategy must
 * have the same hash; where they have not, both are read again to say where.
 */
#include "config.h"

#include "rsh/copy/verify.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "copy_i.h"
#include "rsh/strategy/grid.h"
#include "rsh/source/inspect.h"
#include "rsh/util/checked.h"
#include "rsh/util/mem.h"

/* This has a file and what was found of it. */
struct file {
	struct rsh_source_file_info info;
	struct rsh_inspected in;  /* index NULL: it is damaged */
	XXH128_hash_t *sums;      /* [record] */
	struct rsh_problem problem;
};

struct job {
	const struct rsh_source *source;
	const struct rsh_strategy *strategy; /* NULL: none */
	struct rsh_names *names;
	const struct rsh_copy_control *control;
	struct file *files;
	size_t n;
	/* Of the strategy's ranks: the first file, which those of the same rank
	 * follow; NULL: there is none. */
	struct file **by_rank;
	uint32_t n_ranks;
	uint32_t n_lost;      /* slices that no file has */
	uint32_t lost, loser; /* one's parameter, and a rank that wants it */
	struct rsh_answer *out;
};

/* ---- one file ---- */

struct content {
	const struct rsh_source *source;
	uint32_t file; /* its number in the source */
	struct rsh_handle *handle;
	const struct rsh_ckpt_index *index;
	const struct rsh_record *record;
};

static struct content content_of(const struct job *j, const struct file *f,
				 struct rsh_handle *h,
				 const struct rsh_record *r)
{
	return (struct content){
		.source = j->source,
		.file = (uint32_t)(f - j->files),
		.handle = h,
		.index = f->in.index,
		.record = r,
	};
}

/* Reads bytes of a record's content, which may lie in several extents, as
 * pread() does. */
static ssize_t read_saved(const struct content *c, uint8_t *buf, size_t len,
			  uint64_t offset)
{
	const struct rsh_extent *e =
		c->index->extents + c->record->first_extent;
	size_t got = 0;

	for (uint32_t i = 0; i < c->record->n_extents && got < len; i++) {
		size_t want;
		ssize_t n;

		if (offset >= e[i].length) {
			offset -= e[i].length;
			continue;
		}
		want = (size_t)rsh_min_u64(len - got, e[i].length - offset);
		n = rsh_source_file_pread(c->source, c->file, c->handle,
					  buf + got, want,
					  e[i].offset + offset);
		if (n <= 0)
			return n ? n : -EIO;
		got += (size_t)n;
		offset += (uint64_t)n;
		/* A short read goes on in the same extent. */
		if (offset < e[i].length)
			i--;
		else
			offset = 0;
	}
	return (ssize_t)got;
}

static int hash_saved(const struct job *j, const struct content *c,
		      uint8_t *buf, XXH3_state_t *state, XXH128_hash_t *sum)
{
	uint64_t at = 0;

	XXH3_128bits_reset(state);
	while (at < c->record->content_bytes) {
		ssize_t n;

		if (rsh_copy_stopped(j->control))
			return -EINTR;
		n = read_saved(c, buf, (size_t)rsh_min_u64(
			       RSH_STREAM_MAX,
			       c->record->content_bytes - at), at);
		if (n <= 0)
			return n ? (int)n : -EIO;
		XXH3_128bits_update(state, buf, (size_t)n);
		at += (uint64_t)n;
		if (j->control->progress)
			j->control->progress(j->control->ctx, (uint64_t)n);
	}
	*sum = XXH3_128bits_digest(state);
	return 0;
}

static int hash_records(const struct job *j, struct file *f,
			struct rsh_handle *h)
{
	const struct rsh_ckpt_index *ix = f->in.index;
	cleanup_free uint8_t *buf = malloc(RSH_STREAM_MAX);
	XXH3_state_t *state = XXH3_createState();
	int rc = 0;

	f->sums = rsh_alloc_array(ix->n_records, sizeof(*f->sums));
	if (!buf || !state || !f->sums)
		rc = -ENOMEM;
	for (uint32_t i = 0; i < ix->n_records && rc == 0; i++) {
		const struct content c = content_of(j, f, h,
						    &ix->records[i]);

		rc = hash_saved(j, &c, buf, state, &f->sums[i]);
	}
	XXH3_freeState(state);
	return rc;
}

static int verify_look_into(const struct job *j, struct file *f,
			    struct rsh_error *why)
{
	const uint32_t i = (uint32_t)(f - j->files);
	cleanup_handle struct rsh_handle *h = NULL;
	int rc = rsh_source_file_open(j->source, i, &h, why);

	if (rc == 0)
		rc = rsh_source_file_inspect(j->source, i, h, true, j->names,
					     &f->in, why);
	if (rc)
		return rc;
	rc = hash_records(j, f, h);
	return rc ? rsh_error_set(why, -rc, "%s: %s", f->info.path,
				  strerror(-rc)) : 0;
}

/* What is wrong with a file is its problem; running out of memory, being
 * stopped and links to where nobody may look are failures of the command. */
static int check_saved_file(void *ctx, size_t i, struct rsh_error *err)
{
	struct job *j = ctx;
	struct file *f = &j->files[i];
	struct rsh_error why = RSH_ERROR_INIT;
	size_t size;
	int rc = rsh_copy_stopped(j->control) ? -EINTR :
						verify_look_into(j, f, &why);

	if (rc == -EINTR)
		return rsh_error_set(err, EINTR, "interrupted");
	if (rc == -EXDEV)
		return rsh_error_set(err, EXDEV, "%s", why.text);
	if (rc == 0)
		return 0;
	rsh_inspected_clear(&f->in);
	/* The sentence begins with the path, which the problem has already. */
	size = strlen(f->info.path);
	if (rc == -ENOMEM ||
	    rsh_problem_set(&f->problem, NULL, f->info.path, "%s",
			    strncmp(why.text, f->info.path, size) == 0 &&
			    strncmp(why.text + size, ": ", 2) == 0 ?
			    why.text + size + 2 : why.text))
		return rsh_error_nomem(err);
	return 0;
}

/* Either all files of a job have trailers, or none has. */
static int check_trailers(struct job *j)
{
	bool any = false;

	for (size_t i = 0; i < j->n; i++)
		any |= j->files[i].in.index && j->files[i].in.index->has_crc;
	for (size_t i = 0; any && i < j->n; i++) {
		struct file *f = &j->files[i];

		if (f->in.index && !f->in.index->has_crc &&
		    rsh_problem_set(&f->problem, NULL, f->info.path, "has no "
				    "CRC, but files of other ranks have one"))
			return -ENOMEM;
	}
	return 0;
}

/* ---- ranks that hold the same ---- */

static int find_difference(const struct content *a, const struct content *b,
			   uint64_t *at)
{
	cleanup_free uint8_t *x = malloc(RSH_STREAM_MAX);
	cleanup_free uint8_t *y = malloc(RSH_STREAM_MAX);

	if (!x || !y)
		return -ENOMEM;
	for (*at = 0;;) {
		ssize_t n = read_saved(a, x, RSH_STREAM_MAX, *at);
		ssize_t m = read_saved(b, y, RSH_STREAM_MAX, *at);

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

/* Returns where in its file a byte of the content lies. */
static uint64_t place_of_slice(const struct content *c, uint64_t at)
{
	const struct rsh_extent *e =
		c->index->extents + c->record->first_extent;

	for (uint32_t i = 0; i < c->record->n_extents; i++) {
		if (at < e[i].length)
			return e[i].offset + at;
		at -= e[i].length;
	}
	return 0;
}

static int tell_difference(struct job *j, const struct file *a,
			   const struct rsh_record *ra, const struct file *b,
			   const struct rsh_record *rb)
{
	cleanup_handle struct rsh_handle *ha = NULL, *hb = NULL;
	struct rsh_problem p = { 0 };
	struct content ca, cb;
	uint64_t at = 0;
	int rc = rsh_source_file_open(j->source, (uint32_t)(a - j->files), &ha,
				      NULL);

	if (rc == 0)
		rc = rsh_source_file_open(j->source, (uint32_t)(b - j->files),
					  &hb, NULL);
	ca = content_of(j, a, ha, ra);
	cb = content_of(j, b, hb, rb);
	if (rc == 0)
		rc = find_difference(&ca, &cb, &at);
	if (rc == -ENOMEM ||
	    rsh_problem_set(&p, NULL, b->info.path, "differs from the same "
			    "slice of rank %" PRIu32 " (%s)", a->info.rank,
			    a->info.path) ||
	    rsh_problem_place(&p, rsh_names_text(j->names, rb->name),
			      place_of_slice(&cb, at)))
		return -ENOMEM;
	return rsh_answer_add(j->out, &p);
}

static bool same_record(const struct file *a, const struct rsh_record *ra,
			const struct file *b, const struct rsh_record *rb)
{
	return ra->dtype == rb->dtype &&
	       ra->content_bytes == rb->content_bytes &&
	       XXH128_isEqual(a->sums[ra - a->in.index->records],
			      b->sums[rb - b->in.index->records]);
}

/* Gives the next sound file of the rank after f, which is NULL at first. */
static struct file *sound_file(const struct job *j, uint32_t rank,
			       struct file *f)
{
	const struct file *end = j->files + j->n;

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

/* The leader is the first file that has a slice. */
struct leader {
	const struct file *file;
	const struct rsh_record *record;
};

static int compare_rank(struct job *j, uint32_t name, uint32_t rank,
			struct leader *leader)
{
	struct file *f = NULL;
	const struct rsh_record *r = NULL;

	while (!r && (f = sound_file(j, rank, f)))
		r = rsh_ckpt_find(f->in.index, name);
	if (!r)
		return 0;
	if (!leader->file) {
		*leader = (struct leader){ f, r };
		return 0;
	}
	j->out->n_replicas++;
	return same_record(leader->file, leader->record, f, r) ? 0 :
		tell_difference(j, leader->file, leader->record, f, r);
}

/* Counts the slices that were found in no file. */
static void verify_count_lost(struct job *j, uint32_t name, uint32_t base,
			      const struct rsh_grid *g,
			      const struct leader *leaders)
{
	uint32_t cell[RSH_MAX_DIMS];

	for (uint32_t r = 0; r < rsh_grid_n_ranks(g) &&
			     r < j->strategy->stage_ranks; r++) {
		rsh_grid_cell(g, r, cell);
		if (rsh_grid_member(g, cell, 0) != r || leaders[r].file)
			continue;
		j->n_lost++;
		j->lost = name;
		j->loser = base + r;
	}
}

static int compare_stage(struct job *j, uint32_t name,
			 const struct rsh_param_stage *stage)
{
	const uint32_t n = j->strategy->stage_ranks, base = stage->stage * n;
	cleanup_free struct leader *leaders = calloc(n, sizeof(*leaders));
	uint32_t cell[RSH_MAX_DIMS];
	struct rsh_grid *g;
	int rc = 0;

	if (!leaders)
		return -ENOMEM;
	/* A layout that makes no sense is for the planner to refuse. */
	if (rsh_grid_new_unsized(stage->item, &g, NULL))
		return 0;
	for (uint32_t r = 0; r < rsh_grid_n_ranks(g) && r < n && rc == 0; r++) {
		rsh_grid_cell(g, r, cell);
		rc = compare_rank(j, name, base + r,
				  &leaders[rsh_grid_member(g, cell, 0)]);
	}
	verify_count_lost(j, name, base, g, leaders);
	rsh_grid_free(g);
	return rc;
}

static int compare_replicas(struct job *j)
{
	const struct rsh_strategy *s = j->strategy;

	for (uint32_t i = 0; i < s->n_params; i++)
		for (uint32_t k = 0; k < s->params[i].n_stages; k++)
			if (compare_stage(j, s->params[i].name,
					  &s->params[i].stages[k]))
				return -ENOMEM;
	return 0;
}

/* ---- ranks without a file ---- */

static bool is_made_up_for(const struct job *j, const uint32_t *first,
			   uint32_t rank)
{
	for (uint32_t r = 0; r < j->n_ranks; r++)
		if (first[r] == first[rank] && sound_file(j, r, NULL))
			return true;
	return false;
}

static int find_absent(struct job *j)
{
	cleanup_free uint32_t *first =
		rsh_alloc_array(j->n_ranks, sizeof(*first));

	if (!first || rsh_strategy_replicas(j->strategy, first))
		return -ENOMEM;
	for (uint32_t r = 0; r < j->n_ranks; r++) {
		struct rsh_problem p = { 0 };
		char name[32];

		if (j->by_rank[r] ||
		    r / j->strategy->stage_ranks < j->strategy->lone_stage)
			continue;
		if (is_made_up_for(j, first, r)) {
			j->out->n_made_up++;
			continue;
		}
		snprintf(name, sizeof(name), "rank %" PRIu32, r);
		if (rsh_problem_set(&p, NULL, name, "has no file, and no other "
				    "rank holds the same") ||
		    rsh_answer_add(j->out, &p))
			return -ENOMEM;
	}
	return 0;
}

/* A tree that says which files it has may keep each slice in one of them. */
static int find_absent_files(struct job *j)
{
	struct rsh_source_file_info f;
	struct rsh_problem p;

	for (uint32_t i = 0; rsh_source_absent(j->source, i, &f); i++) {
		p = (struct rsh_problem){ 0 };
		if (j->n_lost == 0)
			j->out->n_made_up++;
		else if (rsh_problem_set(&p, NULL, f.name, "is missing") ||
			 rsh_answer_add(j->out, &p))
			return -ENOMEM;
	}
	if (j->n_lost == 0)
		return 0;
	p = (struct rsh_problem){ 0 };
	return rsh_problem_set(&p, NULL, j->strategy->path, "%" PRIu32
			       " slices that it describes are in no sound "
			       "file, such as that of %s on rank %" PRIu32,
			       j->n_lost,
			       rsh_names_text(j->names, j->lost), j->loser) ||
	       rsh_answer_add(j->out, &p) ? -ENOMEM : 0;
}

static int by_strategy(struct job *j)
{
	j->n_ranks = j->strategy->n_stages * j->strategy->stage_ranks;
	j->by_rank = calloc((size_t)j->n_ranks + 1, sizeof(*j->by_rank));
	if (!j->by_rank)
		return -ENOMEM;
	for (size_t i = j->n; i-- > 0;)
		if (j->files[i].info.rank < j->n_ranks)
			j->by_rank[j->files[i].info.rank] = &j->files[i];
	if (!rsh_source_is_described(j->source))
		return find_absent(j) ? -ENOMEM : compare_replicas(j);
	return compare_replicas(j) ? -ENOMEM : find_absent_files(j);
}

/* ---- all of it ---- */

static int make_files(struct job *j)
{
	j->n = rsh_source_n_files(j->source);
	j->files = calloc(j->n + 1, sizeof(*j->files));
	if (!j->files)
		return -ENOMEM;
	for (size_t i = 0; i < j->n; i++) {
		struct rsh_source_file_info *f = &j->files[i].info;
		struct rsh_stat st;

		rsh_source_file_info(j->source, (uint32_t)i, f);
		if (!f->valid && rsh_store_look(rsh_source_store(j->source),
						f->name, &st) == 0)
			f->bytes = st.size;
		j->out->bytes += f->bytes;
	}
	j->out->n_files = (uint32_t)j->n;
	return 0;
}

static int take_problems(struct job *j)
{
	for (size_t i = 0; i < j->n; i++)
		if (rsh_answer_add(j->out, &j->files[i].problem))
			return -ENOMEM;
	return 0;
}

static int judge_slices(struct job *j, struct rsh_error *err)
{
	if (check_trailers(j) || take_problems(j) ||
	    rsh_verify_chunks(j->source, j->out) ||
	    (j->strategy && by_strategy(j)))
		return rsh_error_nomem(err);
	return 0;
}

static void job_clear(struct job *j)
{
	for (size_t i = 0; j->files && i < j->n; i++) {
		rsh_inspected_clear(&j->files[i].in);
		free(j->files[i].sums);
		free(j->files[i].problem.path);
		free(j->files[i].problem.what);
	}
	free(j->files);
	free(j->by_rank);
}

int rsh_verify_source(const struct rsh_source *source,
		      const struct rsh_strategy *strategy,
		      struct rsh_names *names,
		      const struct rsh_copy_control *control,
		      struct rsh_answer *out, struct rsh_error *err)
{
	struct job j = { .source = source, .strategy = strategy,
			 .names = names, .control = control, .out = out };
	int rc = make_files(&j) ? rsh_error_nomem(err) : 0;

	if (rc == 0 && control->begin)
		control->begin(control->ctx, out->bytes);
	if (rc == 0)
		rc = rsh_crew_run(control->n_jobs, j.n, check_saved_file, &j,
				  err);
	if (rc == 0)
		rc = judge_slices(&j, err);
	job_clear(&j);
	return rc;
}
