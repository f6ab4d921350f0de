/* SPDX-License-Identifier: Apache-2.0 */
/* copy/verify_source.c verifies source files by themselves and by their
 * replicas.
 *
 * Each file is scanned, and its CRC is checked.  Then all content is read, and
 * each record is hashed, so that records in several files can be compared. */
#include "config.h"

#include "verify_source_i.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "rsh/source/format.h"
#include "rsh/util/checked.h"
#include "rsh/util/mem.h"

/* ---- one file ---- */

static int source_hash_record(const struct rsh_verify_content *c, uint8_t *buf,
			      XXH3_state_t *state)
{
	const struct rsh_copy_control *control = c->job->control;
	const struct rsh_record *r = c->record;
	uint64_t at = 0;

	XXH3_128bits_reset(state);
	while (at < r->content_bytes) {
		ssize_t n;

		if (rsh_copy_stopped(control))
			return -EINTR;
		n = rsh_verify_pread(c, buf, (size_t)rsh_min_u64(
				     RSH_STREAM_MAX, r->content_bytes - at),
				     at);
		if (n <= 0)
			return n ? (int)n : -EIO;
		XXH3_128bits_update(state, buf, (size_t)n);
		at += (uint64_t)n;
		if (control->progress)
			control->progress(control->ctx, (uint64_t)n);
	}
	return 0;
}

static int hash_records(const struct rsh_verify_job *j,
			struct rsh_verify_file *f, struct rsh_handle *h)
{
	const struct rsh_ckpt_index *ix = f->in.index;
	cleanup_free uint8_t *buf = malloc(RSH_STREAM_MAX);
	XXH3_state_t *state = XXH3_createState();
	int rc = 0;

	f->sums = rsh_alloc_array(ix->n_records, sizeof(*f->sums));
	f->compared = calloc((size_t)ix->n_records + 1, sizeof(*f->compared));
	if (!buf || !state || !f->sums || !f->compared)
		rc = -ENOMEM;
	for (uint32_t i = 0; i < ix->n_records && rc == 0; i++) {
		const struct rsh_verify_content c = { j, f, h,
						      &ix->records[i] };

		rc = source_hash_record(&c, buf, state);
		f->sums[i] = XXH3_128bits_digest(state);
	}
	XXH3_freeState(state);
	return rc;
}

static int verify_look_into(const struct rsh_verify_job *j,
			    struct rsh_verify_file *f, struct rsh_error *why)
{
	const uint32_t i = (uint32_t)(f - j->files);
	cleanup_handle struct rsh_handle *h = NULL;
	int rc = rsh_source_file_open(j->source, i, &h, why) ?:
		 rsh_source_file_inspect(j->source, i, h, j->names,
					 &f->in, why);

	if (rc)
		return rc;
	rc = hash_records(j, f, h);
	return rc ? rsh_error_file(why, -rc, f->info.path) : 0;
}

/* Checks a file.  If it is damaged, this is a problem in the answer.  If memory
 * is out, the work was stopped or a link is not allowed, this is an error of
 * the command. */
static int check_saved_file(void *ctx, size_t i, struct rsh_error *err)
{
	struct rsh_verify_job *j = ctx;
	struct rsh_verify_file *f = &j->files[i];
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

/* Checks that all files of a job have CRC trailers, or none has. */
static int check_trailers(struct rsh_verify_job *j)
{
	bool any = false;

	for (size_t i = 0; i < j->n; i++)
		any |= j->files[i].in.index && j->files[i].in.index->has_crc;
	for (size_t i = 0; any && i < j->n; i++) {
		struct rsh_verify_file *f = &j->files[i];

		if (f->in.index && !f->in.index->has_crc &&
		    rsh_problem_set(&f->problem, NULL, f->info.path, "has no "
				    "CRC, but files of other ranks have one"))
			return -ENOMEM;
	}
	return 0;
}

/* ---- ranks without a file ---- */

static bool is_made_up_for(const struct rsh_verify_job *j,
			   const uint32_t *first, uint32_t rank)
{
	for (uint32_t r = 0; r < j->n_ranks; r++)
		if (first[r] == first[rank] &&
		    rsh_verify_sound_file(j, r, NULL))
			return true;
	return false;
}

static int find_absent(struct rsh_verify_job *j)
{
	cleanup_free uint32_t *first =
		rsh_alloc_array(j->n_ranks, sizeof(*first));

	if (!first || rsh_strategy_replicas(j->strategy, first))
		return -ENOMEM;
	for (uint32_t r = 0; r < j->n_ranks; r++) {
		char name[32];

		if (j->by_rank[r] ||
		    r / j->strategy->stage_ranks < j->strategy->lone_stage)
			continue;
		if (is_made_up_for(j, first, r)) {
			j->out->n_made_up++;
			continue;
		}
		snprintf(name, sizeof(name), "rank %" PRIu32, r);
		if (rsh_answer_tell(j->out, NULL, name, "has no file, and no "
				    "other rank holds the same"))
			return -ENOMEM;
	}
	return 0;
}

static int by_strategy(struct rsh_verify_job *j)
{
	struct rsh_source_file_info f;

	j->n_ranks = j->strategy->n_stages * j->strategy->stage_ranks;
	j->by_rank = calloc((size_t)j->n_ranks + 1, sizeof(*j->by_rank));
	if (!j->by_rank)
		return -ENOMEM;
	for (size_t i = j->n; i-- > 0;)
		if (j->files[i].info.rank < j->n_ranks)
			j->by_rank[j->files[i].info.rank] = &j->files[i];
	if (!rsh_source_format(j->source)->absent)
		return find_absent(j) ? -ENOMEM : rsh_verify_same(j);
	if (rsh_verify_same(j))
		return -ENOMEM;
	/* If the format lists the files of a checkpoint, each slice may be in
	 * only one of them, so missing files are reported by name. */
	for (uint32_t i = 0; rsh_source_absent(j->source, i, &f); i++) {
		if (j->n_lost == 0)
			j->out->n_made_up++;
		else if (rsh_answer_tell(j->out, NULL, f.name, "is missing"))
			return -ENOMEM;
	}
	if (j->n_lost == 0)
		return 0;
	return rsh_answer_tell(j->out, NULL, j->strategy->path, "%" PRIu32
			       " slices that it describes are in no sound "
			       "file, such as that of %s on rank %" PRIu32,
			       j->n_lost,
			       rsh_names_text(j->names, j->lost), j->loser);
}

/* ---- the whole check ---- */

static int make_files(struct rsh_verify_job *j)
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

/* Returns whether any record was compared with that of another file. */
static bool count_records(struct rsh_verify_job *j,
			  const struct rsh_verify_file *f, bool crc)
{
	const struct rsh_ckpt_index *ix = f->in.index;
	bool any = false;

	for (uint32_t r = 0; r < ix->n_records; r++) {
		any |= f->compared[r];
		if (!crc && !f->compared[r])
			j->out->uncompared += ix->records[r].content_bytes;
	}
	return any;
}

/* ---- by the format ---- */

static int format_problem(void *ctx, const struct rsh_error *why)
{
	struct rsh_verify_job *j = ctx;

	return rsh_answer_tell(j->out, NULL, rsh_source_path(j->source), "%s",
			       why->text);
}

static int format_compare(void *ctx, uint32_t file, uint32_t record,
			  uint32_t other, uint32_t other_record,
			  const char *what)
{
	struct rsh_verify_job *j = ctx;
	struct rsh_verify_file *a = &j->files[file], *b = &j->files[other];
	struct rsh_verify_leader leader = {
		a, &a->in.index->records[record],
	};

	return rsh_verify_compare(j, &leader, b,
				  &b->in.index->records[other_record], what);
}

/* Calls the format's check, which compares the files with the description of
 * them in the source. */
static int judge_by_format(struct rsh_verify_job *j)
{
	cleanup_free const struct rsh_ckpt_index **index =
		rsh_alloc_array(j->n + 1, sizeof(*index));
	cleanup_free const char **path =
		rsh_alloc_array(j->n + 1, sizeof(*path));
	const struct rsh_source_view view = {
		.n_ranks = (uint32_t)j->n, .index = index, .path = path,
		.names = j->names,
	};
	const struct rsh_verifier v = {
		.source = j->source, .view = &view, .ctx = j,
		.problem = format_problem, .compare = format_compare,
	};

	if (!index || !path)
		return -ENOMEM;
	for (size_t i = 0; i < j->n; i++) {
		index[i] = j->files[i].in.index;
		path[i] = j->files[i].info.path;
	}
	return rsh_source_format(j->source)->verify(&v);
}

static int judge_slices(struct rsh_verify_job *j, struct rsh_error *err)
{
	const struct rsh_verify_file *last = NULL;
	int rc = check_trailers(j);

	for (size_t i = 0; rc == 0 && i < j->n; i++)
		rc = rsh_answer_add(j->out, &j->files[i].problem);

	if (rc == 0 && rsh_source_format(j->source)->verify)
		rc = judge_by_format(j);
	if (rc == 0)
		rc = j->strategy ? by_strategy(j) : rsh_verify_same(j);
	if (rc)
		return rsh_error_nomem(err);
	/* Count what was compared.  The files are in ascending order of their
	 * ranks. */
	for (size_t i = 0; i < j->n; i++) {
		const struct rsh_verify_file *f = &j->files[i];
		bool crc;

		if (!f->in.index)
			continue;
		crc = rsh_source_has_crc(j->source, f->in.index);
		j->out->n_by_crc += crc;
		j->out->n_unsummed += f->in.index->n_unsummed;
		if (!count_records(j, f, crc))
			continue;
		j->out->n_ranks += !last || last->info.rank != f->info.rank;
		last = f;
	}
	return 0;
}

int rsh_verify_source(const struct rsh_verify_source *s,
		      const struct rsh_copy_control *control,
		      struct rsh_answer *out, struct rsh_error *err)
{
	struct rsh_verify_job j = { .source = s->source,
				    .strategy = s->strategy,
				    .whole = s->whole, .names = s->names,
				    .control = control, .out = out };
	int rc = make_files(&j) ? rsh_error_nomem(err) : 0;

	if (rc == 0 && control->begin)
		control->begin(control->ctx, out->bytes);
	rc = rc ?: rsh_parallel_for(control->n_jobs, j.n, check_saved_file,
				    &j, err) ?:
		   judge_slices(&j, err);
	for (size_t i = 0; j.files && i < j.n; i++) {
		rsh_inspected_clear(&j.files[i].in);
		free(j.files[i].sums);
		free(j.files[i].compared);
		free(j.files[i].problem.path);
		free(j.files[i].problem.what);
	}
	free(j.files);
	free(j.by_rank);
	return rc;
}
