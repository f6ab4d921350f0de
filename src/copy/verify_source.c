/* SPDX-License-Identifier: Apache-2.0 */
/* copy/verify_source.c verifies source files by themselves and by their
 * replicas.
 *
 * Each file is scanned, and its CRC is checked.  Then all content is read, and
 * each record is hashed.  Records that should be equal must have the same hash;
 * if they have not, both are read again to find the place where they differ. */
#include "config.h"

#include "copy_i.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "rsh/contents/contents.h"
#include "rsh/source/counters.h"
#include "rsh/source/format.h"
#include "rsh/source/inspect.h"
#include "rsh/strategy/grid.h"
#include "rsh/strategy/strategy.h"
#include "rsh/util/checked.h"
#include "rsh/util/mem.h"

/* A file and the results of its check. */
struct file {
	struct rsh_source_file_info info;
	struct rsh_inspected in;  /* index NULL: it is damaged */
	XXH128_hash_t *sums;      /* [record] */
	bool *compared;           /* [record]: it was compared with a record of
				   * another file */
	struct rsh_counters says;
};

struct job {
	const struct rsh_source *source;
	const struct rsh_strategy *strategy; /* NULL: none */
	bool whole; /* ranks hold whole parameters */
	struct rsh_names *names;
	const struct rsh_copy_control *control;
	struct file *files;
	size_t n;
	/* [rank of the strategy]: the first file of the rank.  Its other files
	 * follow this one.  NULL: the rank has no file. */
	struct file **by_rank;
	uint32_t n_ranks;
	uint32_t n_lost;      /* slices that no file has */
	uint32_t lost, loser; /* the parameter of one of these slices, and a
			       * rank that needs it */
	struct rsh_answer *out;
};

/* A record that is read. */
struct content {
	const struct job *job;
	const struct file *file;
	struct rsh_handle *handle;
	struct rsh_content at;
};

/* ---- one file ---- */

/* Reads bytes of a record's content, as pread() does, but not beyond the end of
 * an extent. */
static ssize_t content_pread(struct content *c, uint8_t *buf, size_t len,
			     uint64_t offset)
{
	uint64_t where;
	const uint64_t n = rsh_content_move(&c->at, offset, &where);

	return n == 0 ? 0 :
	       rsh_source_file_pread(c->job->source,
				     (uint32_t)(c->file - c->job->files),
				     c->handle, buf, (size_t)rsh_min_u64(len, n),
				     where);
}

static int hash_records(const struct job *j, struct file *f,
			struct rsh_handle *h)
{
	const struct rsh_copy_control *control = j->control;
	const struct rsh_ckpt_index *ix = f->in.index;
	cleanup_free uint8_t *buf = malloc(RSH_STREAM_MAX);
	XXH3_state_t *state = XXH3_createState();
	int rc = 0;

	f->sums = rsh_alloc_array(ix->n_records, sizeof(*f->sums));
	f->compared = calloc((size_t)ix->n_records + 1, sizeof(*f->compared));
	if (!buf || !state || !f->sums || !f->compared)
		rc = -ENOMEM;
	for (uint32_t i = 0; i < ix->n_records && rc == 0; i++) {
		const struct rsh_record *r = &ix->records[i];
		struct content c = { j, f, h, rsh_record_content(ix, r) };
		ssize_t n;

		XXH3_128bits_reset(state);
		for (uint64_t at = 0; at < r->content_bytes && rc == 0;
		     at += (uint64_t)n) {
			n = rsh_copy_stopped(control) ? -EINTR :
			    content_pread(&c, buf, (size_t)rsh_min_u64(
				    RSH_STREAM_MAX, r->content_bytes - at),
				    at);
			rc = n < 0 ? (int)n : n == 0 ? -EIO : 0;
			if (rc)
				break;
			XXH3_128bits_update(state, buf, (size_t)n);
			if (control->progress)
				control->progress(control->ctx, (uint64_t)n);
		}
		f->sums[i] = XXH3_128bits_digest(state);
	}
	XXH3_freeState(state);
	return rc;
}

static ssize_t counters_pread(void *ctx, void *buf, size_t len,
			      uint64_t offset)
{
	const struct content *c = ctx;

	return rsh_source_file_pread(c->job->source,
				     (uint32_t)(c->file - c->job->files),
				     c->handle, buf, len, offset);
}

static void take_counters(const struct job *j, struct file *f,
			  struct rsh_handle *h)
{
	struct content c = { .job = j, .file = f, .handle = h };
	const struct rsh_byte_source bytes = {
		.pread_fn = counters_pread, .ctx = &c,
		.size = f->in.index->file_bytes, .path = f->info.path,
	};

	rsh_counters_read(&bytes, f->in.index, j->names, &f->says);
}

/* Checks a file.  If it is damaged, this is a problem in the answer.  If memory
 * is out, the work was stopped or a link is not allowed, this is an error of
 * the command. */
static int check_saved_file(void *ctx, size_t i, struct rsh_error *err)
{
	struct job *j = ctx;
	struct file *f = &j->files[i];
	const size_t size = strlen(f->info.path);
	const struct rsh_place at = { .order = i, .name = f->info.path };
	struct rsh_error why = RSH_ERROR_INIT;
	cleanup_handle struct rsh_handle *h = NULL;
	int rc = rsh_copy_stopped(j->control) ? -EINTR : 0;

	rc = rc ?: rsh_source_file_open(j->source, (uint32_t)i, &h, &why) ?:
		   rsh_source_file_inspect(j->source, (uint32_t)i, h, j->names,
					   &f->in, &why);
	if (rc == 0) {
		rc = hash_records(j, f, h);
		if (rc)
			rsh_error_file(&why, -rc, f->info.path);
		else
			take_counters(j, f, h);
	}
	if (rc == -EINTR)
		return rsh_error_set(err, EINTR, "interrupted");
	if (rc == -EXDEV)
		return rsh_error_set(err, EXDEV, "%s", why.text);
	if (rc == 0)
		return 0;
	rsh_inspected_clear(&f->in);
	/* The sentence begins with the path, which the problem has already. */
	if (rc == -ENOMEM ||
	    rsh_answer_tell(j->out, &at, "%s",
			    strncmp(why.text, f->info.path, size) == 0 &&
			    strncmp(why.text + size, ": ", 2) == 0 ?
			    why.text + size + 2 : why.text))
		return rsh_error_nomem(err);
	return 0;
}

/* Checks that all files of a job have CRC trailers, or none has. */
static int check_trailers(struct job *j)
{
	const bool any = rsh_any(i, j->n, j->files[i].in.index &&
					  j->files[i].in.index->has_crc);

	for (size_t i = 0; any && i < j->n; i++) {
		const struct file *f = &j->files[i];
		const struct rsh_place at = {
			.order = i, .name = f->info.path,
		};

		if (f->in.index && !f->in.index->has_crc &&
		    rsh_answer_tell(j->out, &at, "has no CRC, but files of "
				    "other ranks have one"))
			return -ENOMEM;
	}
	return 0;
}

/* Returns the next undamaged file of the rank after f, or the first one if f is
 * NULL. */
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

/* ---- comparison of copies ---- */

static int find_difference(struct content *a, struct content *b, uint64_t *at)
{
	cleanup_free uint8_t *x = malloc(RSH_STREAM_MAX);
	cleanup_free uint8_t *y = malloc(RSH_STREAM_MAX);

	if (!x || !y)
		return -ENOMEM;
	for (*at = 0;;) {
		ssize_t n = content_pread(a, x, RSH_STREAM_MAX, *at);
		ssize_t m = content_pread(b, y, RSH_STREAM_MAX, *at);

		if (n <= 0 || m <= 0)
			return n < 0 ? (int)n : m < 0 ? (int)m : 0;
		n = n < m ? n : m;
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

/* The first record that was found of several equal ones.  `file` is NULL until
 * there is one. */
struct leader {
	struct file *file;
	const struct rsh_record *record;
};

/* Makes a record the leader if there is none yet.  Otherwise compares it with
 * the leader's record, which should be equal, and adds a problem if they
 * differ.  `what` names the content for the message, for example "slice".
 * Returns 0 or -ENOMEM. */
static int compare(struct job *j, struct leader *leader, struct file *f,
		   const struct rsh_record *r, const char *what)
{
	const struct file *l = leader->file;
	const struct rsh_record *a = leader->record;
	struct rsh_place at = {
		.name = f->info.path, .record = rsh_names_text(j->names,
							       r->name),
	};
	cleanup_handle struct rsh_handle *ha = NULL, *hb = NULL;
	struct content x, y;
	uint64_t where = 0;
	int rc;

	if (!l) {
		*leader = (struct leader){ f, r };
		return 0;
	}
	l->compared[a - l->in.index->records] = true;
	f->compared[r - f->in.index->records] = true;
	j->out->n_replicas++;
	if (!rsh_record_is_alike(l->in.index, a, f->in.index, r) ||
	    a->content_bytes != r->content_bytes)
		return rsh_answer_tell(j->out, &at, "has another type or shape "
				       "than the same %s of rank %" PRIu32
				       " (%s)", what, l->info.rank,
				       l->info.path);
	if (XXH128_isEqual(l->sums[a - l->in.index->records],
			   f->sums[r - f->in.index->records]))
		return 0;
	rc = rsh_source_file_open(j->source, (uint32_t)(l - j->files), &ha,
				  NULL) ?:
	     rsh_source_file_open(j->source, (uint32_t)(f - j->files), &hb,
				  NULL);
	x = (struct content){ j, l, ha, rsh_record_content(l->in.index, a) };
	y = (struct content){ j, f, hb, rsh_record_content(f->in.index, r) };
	rc = rc ?: find_difference(&x, &y, &where);
	if (rc == -ENOMEM)
		return rc;
	at.placed = true;
	rsh_content_move(&y.at, where, &at.offset);
	return rsh_answer_tell(j->out, &at, "differs from the same %s of rank "
			       "%" PRIu32 " (%s)", what, l->info.rank,
			       l->info.path);
}

/* Compares the slices of a stage.  With `end`, counts those without a leader,
 * which no file has. */
static int compare_stage(struct job *j, uint32_t name,
			 const struct rsh_param_stage *stage,
			 struct leader *leaders, bool end)
{
	const uint32_t n = j->strategy->stage_ranks, base = stage->stage * n;
	uint32_t cell[RSH_MAX_DIMS];
	cleanup_grid struct rsh_grid *g = NULL;
	int rc = 0;

	/* An invalid layout is skipped.  The planner reports it. */
	if (rsh_grid_new_unsized(stage->item, &g, NULL))
		return 0;
	for (uint32_t r = 0; r < rsh_grid_n_ranks(g) && r < n && rc == 0; r++) {
		struct file *f = NULL;
		const struct rsh_record *record = NULL;

		rsh_grid_cell(g, r, cell);
		while (!record && (f = sound_file(j, base + r, f)))
			record = rsh_ckpt_find(f->in.index, name);
		if (record)
			rc = compare(
				j, &leaders[rsh_grid_member(g, cell, 0)], f,
				record, "slice");
	}
	for (uint32_t r = 0; end && r < rsh_grid_n_ranks(g) && r < n; r++) {
		rsh_grid_cell(g, r, cell);
		if (rsh_grid_member(g, cell, 0) != r || leaders[r].file)
			continue;
		j->n_lost++;
		j->lost = name;
		j->loser = base + r;
	}
	return rc;
}

/* If all stages that share a parameter cut it in the same way, their slices are
 * the same. */
static int compare_param(struct job *j, const struct rsh_strategy_param *p)
{
	const uint32_t n = j->strategy->stage_ranks;
	cleanup_free struct leader *leaders = calloc(n, sizeof(*leaders));
	bool same = true;
	int rc = leaders ? 0 : -ENOMEM;

	for (uint32_t k = 1; k < p->n_stages; k++)
		same &= rsh_item_same_layout(p->stages[0].item,
					     p->stages[k].item);
	for (uint32_t k = 0; k < p->n_stages && rc == 0; k++) {
		if (!same)
			memset(leaders, 0, n * sizeof(*leaders));
		rc = compare_stage(j, p->name, &p->stages[k], leaders,
				   !same || k + 1 == p->n_stages);
	}
	return rc;
}

/* Compares the ranks that hold the same slice by the strategy.  If all ranks
 * hold whole parameters, compares the parameters that have the same name.
 * Returns 0 or -ENOMEM. */
static int compare_same(struct job *j)
{
	const struct rsh_strategy *s = j->strategy;
	cleanup_free struct leader *leaders = NULL;
	int rc = 0;

	for (uint32_t i = 0; s && i < s->n_params && rc == 0; i++)
		rc = compare_param(j, &s->params[i]);
	if (s || !j->whole)
		return rc;
	leaders = calloc((size_t)rsh_names_count(j->names) + 1,
			 sizeof(*leaders));
	if (!leaders)
		return -ENOMEM;
	for (size_t i = 0; i < j->n; i++) {
		const struct rsh_ckpt_index *ix = j->files[i].in.index;

		for (uint32_t r = 0; ix && r < ix->n_records && rc == 0; r++)
			rc = compare(j, &leaders[ix->records[r].name],
				     &j->files[i], &ix->records[r],
				     "parameter");
	}
	return rc;
}

/* ---- ranks without a file ---- */

static int find_absent(struct job *j)
{
	cleanup_free uint32_t *first =
		rsh_alloc_array(j->n_ranks, sizeof(*first));

	if (!first || rsh_strategy_replicas(j->strategy, first))
		return -ENOMEM;
	for (uint32_t r = 0; r < j->n_ranks; r++) {
		const char *wrong = "has no file, and no other rank holds the "
				    "same";
		char name[32];

		if (j->by_rank[r] ||
		    r / j->strategy->stage_ranks < j->strategy->lone_stage)
			continue;
		for (uint32_t k = 0; k < j->n_ranks && wrong; k++)
			if (first[k] == first[r] && sound_file(j, k, NULL))
				wrong = NULL;
		j->out->n_made_up += !wrong;
		snprintf(name, sizeof(name), "rank %" PRIu32, r);
		if (wrong && rsh_answer_tell(j->out, &(struct rsh_place){
						.name = name }, "%s", wrong))
			return -ENOMEM;
	}
	return 0;
}

/* Finds what files lack and no other file has. */
static int find_lost(struct job *j)
{
	cleanup_free struct rsh_lost_slices *lost =
		calloc((size_t)j->n_ranks + 1, sizeof(*lost));
	cleanup_free const struct rsh_ckpt_index **index =
		rsh_alloc_array(j->n_ranks, sizeof(*index));
	int rc = 0;

	if (!lost || !index)
		return -ENOMEM;
	for (uint32_t r = 0; r < j->n_ranks; r++) {
		const struct file *f = sound_file(j, r, NULL);

		index[r] = f ? f->in.index : NULL;
	}
	rc = rsh_contents_lost_slices(j->strategy, index, j->n_ranks, lost);
	for (uint32_t r = 0; r < j->n_ranks && rc == 0; r++) {
		const char *name = rsh_names_text(j->names, lost[r].name);
		const struct rsh_place at = {
			.name = lost[r].n ? sound_file(j, r, NULL)->info.path :
					    NULL,
			.record = lost[r].n == 1 ? name : NULL,
		};

		if (lost[r].n == 1)
			rc = rsh_answer_tell(j->out, &at, "lacks its slice, "
					     "which no other file has");
		else if (lost[r].n > 1)
			rc = rsh_answer_tell(j->out, &at, "lacks %" PRIu32
					     " slices that no other file has, "
					     "such as that of %s", lost[r].n,
					     name);
	}
	return rc;
}

static int by_strategy(struct job *j)
{
	const struct rsh_step_facts *facts = rsh_source_facts(j->source);
	struct rsh_place at = { .name = j->strategy->path };

	j->n_ranks = j->strategy->n_stages * j->strategy->stage_ranks;
	j->by_rank = calloc((size_t)j->n_ranks + 1, sizeof(*j->by_rank));
	if (!j->by_rank)
		return -ENOMEM;
	for (size_t i = j->n; i-- > 0;)
		if (j->files[i].info.rank < j->n_ranks)
			j->by_rank[j->files[i].info.rank] = &j->files[i];
	if (rsh_source_format(j->source)->layout != RSH_LAYOUT_OWN)
		return find_absent(j) ?: compare_same(j) ?: find_lost(j);
	if (compare_same(j))
		return -ENOMEM;
	/* If the format lists the files of a checkpoint, each slice may be in
	 * only one of them, so missing files are reported by name. */
	for (uint32_t i = 0; i < facts->n_absent; i++) {
		j->out->n_made_up += j->n_lost == 0;
		if (j->n_lost > 0 &&
		    rsh_answer_tell(j->out, &(struct rsh_place){
					.name = facts->absent[i].name },
				    "is missing"))
			return -ENOMEM;
	}
	if (j->n_lost == 0)
		return 0;
	return rsh_answer_tell(j->out, &at, "%" PRIu32 " slices that it "
			       "describes are in no sound file, such as that "
			       "of %s on rank %" PRIu32, j->n_lost,
			       rsh_names_text(j->names, j->lost), j->loser);
}

/* ---- by the list of the format ---- */

static int judge_problem(struct job *j, const char *text)
{
	const struct rsh_place at = { .name = rsh_source_path(j->source) };

	return text ? rsh_answer_tell(j->out, &at, "%s", text) : 0;
}

static int by_box(const void *a, const void *b, void *n_dims)
{
	const struct rsh_listed_chunk *x = *(struct rsh_listed_chunk *const *)a,
				      *y = *(struct rsh_listed_chunk *const *)b;
	const uint32_t n = *(const uint32_t *)n_dims;

	for (uint32_t d = 0; d < n; d++) {
		if (x->from[d] != y->from[d])
			return x->from[d] < y->from[d] ? -1 : 1;
		if (x->size[d] != y->size[d])
			return x->size[d] < y->size[d] ? -1 : 1;
	}
	return 0;
}

static int by_box_and_file(const void *a, const void *b, void *n_dims)
{
	return by_box(a, b, n_dims) ?:
	       rsh_by_u32(&(*(struct rsh_listed_chunk *const *)a)->number,
			  &(*(struct rsh_listed_chunk *const *)b)->number);
}

/* Compares copies of a chunk if their elements are stored in the same order. */
static int judge_tensor(void *ctx, const struct rsh_listed_tensor *t)
{
	struct job *j = ctx;
	cleanup_free const struct rsh_listed_chunk **held =
		rsh_alloc_array((size_t)t->n_chunks + 1, sizeof(*held));
	const struct rsh_listed_chunk **first = held;
	uint32_t n_dims = t->n_dims, n = 0;
	int rc = held ? judge_problem(j, t->wrong) : -ENOMEM;

	for (uint32_t i = 0; i < t->n_chunks && rc == 0; i++) {
		rc = judge_problem(j, t->chunks[i].wrong);
		if (t->chunks[i].order)
			held[n++] = &t->chunks[i];
	}
	if (rc || n < 2)
		return rc;
	qsort_r(held, n, sizeof(*held), by_box_and_file, &n_dims);
	for (uint32_t i = 1; i < n && rc == 0; i++) {
		const struct rsh_listed_chunk *a = *first, *b = held[i];
		struct file *f = &j->files[a->number];
		struct file *g = &j->files[b->number];

		if (by_box(first, &held[i], &n_dims) != 0)
			first = &held[i];
		else if (f != g && memcmp(a->order, b->order, n_dims) == 0)
			rc = compare(j, &(struct leader){
					f, &f->in.index->records[a->record] },
				     g, &g->in.index->records[b->record],
				     "chunk");
	}
	return rc;
}

/* Checks that the files of ranks are of one save. */
static int judge_save(struct job *j)
{
	const struct rsh_format *f = rsh_source_format(j->source);
	cleanup_free struct rsh_counters *says =
		rsh_alloc_array(j->n + 1, sizeof(*says));
	cleanup_free const char **name =
		rsh_alloc_array(j->n + 1, sizeof(*name));
	struct rsh_error why = RSH_ERROR_INIT;
	struct rsh_candidate_step step;

	if (!f->by_name || f->owner != RSH_OWNER_RANK)
		return 0;
	if (!says || !name)
		return -ENOMEM;
	for (size_t i = 0; i < j->n; i++) {
		says[i] = j->files[i].says;
		name[i] = j->files[i].info.name;
	}
	rsh_source_candidate_step(j->source, 0, &step);
	return rsh_counters_compare(says, name, (uint32_t)j->n, step.stepped,
				    &why) < 0 ?
	       judge_problem(j, why.text) : 0;
}

/* Compares the files with what the format lists. */
static int judge_by_list(struct job *j)
{
	cleanup_free const struct rsh_ckpt_index **index =
		rsh_alloc_array(j->n + 1, sizeof(*index));
	cleanup_free const char **path =
		rsh_alloc_array(j->n + 1, sizeof(*path));
	const struct rsh_source_view view = {
		.n_ranks = (uint32_t)j->n, .index = index, .path = path,
		.names = j->names,
	};
	cleanup_arena struct rsh_arena arena = { NULL, 0 };
	struct rsh_error why = RSH_ERROR_INIT;
	const struct rsh_list_job job = {
		.source = j->source, .part = RSH_LIST_RECORDS, .view = &view,
		.arena = &arena, .take = judge_tensor, .ctx = j,
	};
	struct rsh_listed all;
	int rc;

	if (!index || !path)
		return -ENOMEM;
	for (size_t i = 0; i < j->n; i++) {
		index[i] = j->files[i].in.index;
		path[i] = j->files[i].info.path;
	}
	rc = rsh_source_each(&job, &all, &why);
	/* What cannot be listed is a problem of the checkpoint. */
	if (rc && rc != -ENOMEM && why.code)
		rc = judge_problem(j, why.text);
	return rc;
}

/* Checks that the parts of a model have what its map names.  A damaged part is
 * a problem by itself. */
static int judge_map(struct job *j)
{
	cleanup_free const struct rsh_ckpt_index **index =
		rsh_alloc_array(j->n + 1, sizeof(*index));
	char text[RSH_MAP_LACKS];

	if (!index)
		return -ENOMEM;
	for (size_t i = 0; i < j->n; i++) {
		index[i] = j->files[i].in.index;
		if (!index[i])
			return 0;
	}
	return rsh_source_map_lacks(j->source, j->names, index, (uint32_t)j->n,
				    text, sizeof(text)) ?
	       judge_problem(j, text) : 0;
}

/* ---- the whole check ---- */

static int verify(struct job *j, struct rsh_error *err)
{
	const struct rsh_copy_control *control = j->control;
	const struct file *last = NULL;
	int rc;

	j->n = rsh_source_n_files(j->source);
	j->files = calloc(j->n + 1, sizeof(*j->files));
	if (!j->files)
		return rsh_error_nomem(err);
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
	if (control->begin)
		control->begin(control->ctx, j->out->bytes);
	rc = rsh_parallel_for(control->n_jobs, j->n, check_saved_file, j, err);
	if (rc)
		return rc;
	rc = check_trailers(j);
	rsh_answer_sort(j->out, 0);
	if (rc == 0 && rsh_format_lists(rsh_source_format(j->source)))
		rc = judge_by_list(j);
	rc = rc ?: judge_save(j) ?: judge_map(j);
	rc = rc ?: j->strategy ? by_strategy(j) : compare_same(j);
	if (rc)
		return rsh_error_nomem(err);
	/* The files are in ascending order of their ranks. */
	for (size_t i = 0; i < j->n; i++) {
		const struct file *f = &j->files[i];
		const struct rsh_ckpt_index *ix = f->in.index;
		bool crc, any = false;

		if (!ix)
			continue;
		crc = ix->has_crc || ix->summed;
		j->out->n_by_crc += crc;
		j->out->n_unsummed += ix->n_unsummed;
		for (uint32_t r = 0; r < ix->n_records; r++) {
			any |= f->compared[r];
			if (!crc && !f->compared[r])
				j->out->uncompared +=
					ix->records[r].content_bytes;
		}
		if (!any)
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
	struct job j = { .source = s->source, .strategy = s->strategy,
			 .whole = s->whole, .names = s->names,
			 .control = control, .out = out };
	int rc = verify(&j, err);

	for (size_t i = 0; j.files && i < j.n; i++) {
		rsh_inspected_clear(&j.files[i].in);
		free(j.files[i].sums);
		free(j.files[i].compared);
	}
	free(j.files);
	free(j.by_rank);
	return rc;
}
