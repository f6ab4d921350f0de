/* SPDX-License-Identifier: Apache-2.0 */
/* source/inspect.c says what is known of an open source: its files, steps,
 * ranks and values.  It also reads the index of a single checkpoint file. */
#include "config.h"

#define XXH_INLINE_ALL
#include <xxhash.h>

#include "kept_i.h"
#include "source_i.h"

#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "rsh/source/format.h"
#include "rsh/source/inspect.h"
#include "rsh/source/sample.h"
#include "rsh/util/log.h"
#include "rsh/util/mem.h"

/* ---- one file ---- */

static int inspect_size(const struct rsh_handle *h, const char *path,
			uint64_t *size, struct rsh_error *err)
{
	struct rsh_stat st;
	int rc = rsh_handle_look(h, &st);

	if (rc)
		return rsh_error_file(err, -rc, path);
	if (st.kind != RSH_IS_FILE)
		return rsh_error_set(err, EINVAL, "%s: not a regular file",
				     path);
	*size = st.size;
	return 0;
}

static int inspect_open(const char *path, struct rsh_store_scan *in,
			bool check_crc, struct rsh_names *names,
			struct rsh_inspected *out, struct rsh_error *err)
{
	struct rsh_byte_source bytes = {
		.pread_fn = rsh_store_scan_pread, .ctx = in, .path = path,
	};
	int rc;

	*out = (struct rsh_inspected){
		.format = rsh_file_type_of(path) == RSH_FILE_SAFETENSORS ?
			RSH_FILE_SAFETENSORS : RSH_FILE_CKPT,
	};
	rc = inspect_size(in->handle, path, &bytes.size, err);
	if (rc)
		return rc;
	out->bytes = bytes.size;
	if (out->format == RSH_FILE_SAFETENSORS) {
		rc = rsh_safetensors_scan(&bytes, names, &out->index,
					  &out->meta, err);
		if (rc || !check_crc)
			return rc;
		out->index->has_crc = out->meta.has_crc;
		return rsh_safetensors_check_crc(&bytes, out->index, names,
						 &out->meta, err);
	}
	rc = rsh_ckpt_scan(&bytes, names, &out->index, err);
	if (rc == 0 && check_crc)
		rc = rsh_ckpt_check_crc(&bytes, out->index, err);
	return rc;
}

int rsh_inspect_file(const char *path, bool check_crc, struct rsh_names *names,
		     struct rsh_inspected *out, struct rsh_error *err)
{
	cleanup_handle struct rsh_handle *h = NULL;
	int rc = rsh_handle_open_path(path, &h);
	struct rsh_store_scan in = { .handle = h };

	*out = (struct rsh_inspected){ 0 };
	if (rc)
		return rsh_error_file(err, -rc, path);
	return inspect_open(path, &in, check_crc, names, out, err);
}

void rsh_inspected_clear(struct rsh_inspected *in)
{
	if (in->index)
		rsh_ckpt_index_free(in->index);
	rsh_safetensors_meta_clear(&in->meta);
	in->index = NULL;
}

/* ---- a tree ---- */

void rsh_source_candidate_step(const struct rsh_source *s, uint32_t i,
			       struct rsh_candidate_step *out)
{
	const struct rsh_checkpoint *c;

	*out = (struct rsh_candidate_step){ 0 };
	if (i >= s->n_candidates)
		return;
	c = &s->listing.files[s->candidates[i].first];
	*out = (struct rsh_candidate_step){
		.stepped = c->step.n > 0,
		.breakpoint = c->step.breakpoint,
		.alone = c->step.n == 1,
		.epoch = c->step.n == 1 ? 0 : c->step.numbers[0],
		.step = c->step.numbers[c->step.n == 1 ? 0 : 1],
		.run = c->step.run,
	};
}

uint32_t rsh_source_n_listed(const struct rsh_source *s)
{
	return s->n_candidates ? s->n_candidates : 1;
}

uint32_t rsh_source_chosen(const struct rsh_source *s)
{
	return s->chosen;
}

void rsh_source_chosen_text(const struct rsh_source *s, char *text, size_t size)
{
	rsh_source_candidate_text(s, s->chosen, text, size);
}

uint32_t rsh_source_n_files(const struct rsh_source *s)
{
	return s->n_files;
}

void rsh_source_file_info(const struct rsh_source *s, uint32_t i,
			  struct rsh_source_file_info *out)
{
	const struct rsh_store_identity *id = rsh_store_identity(s->store, i);

	*out = (struct rsh_source_file_info){
		.rank = s->files[i].rank,
		.name = rsh_store_name(s->store, i),
		.path = rsh_store_path(s->store, i),
		.valid = s->files[i].index != NULL,
		.why = s->files[i].why,
		.dev = id->which[0],
		.inode = id->which[1],
		.bytes = id->size,
		.mtime = id->mtime,
		.ctime = id->ctime,
	};
}

const struct rsh_ckpt_index *rsh_source_file_index(const struct rsh_source *s,
						   uint32_t i)
{
	return s->files[i].index;
}

uint32_t rsh_source_rank_files(const struct rsh_source *s, uint32_t rank,
			       uint32_t *first)
{
	uint32_t n;

	*first = rsh_source_rank_first(s, rank, &n);
	return rsh_source_owner(s) == RSH_OWNER_MODEL ? 0 : n;
}

int rsh_source_file_open(const struct rsh_source *s, uint32_t i,
			 struct rsh_handle **out, struct rsh_error *err)
{
	return rsh_store_open_file(s->store, i, out, err);
}

int rsh_source_file_inspect(const struct rsh_source *s, uint32_t i,
			    struct rsh_handle *h, struct rsh_names *names,
			    struct rsh_inspected *out, struct rsh_error *err)
{
	struct rsh_store_scan in = { s->store, i, h };
	struct rsh_byte_source bytes = {
		.pread_fn = rsh_store_scan_pread, .ctx = &in,
		.path = rsh_store_path(s->store, i),
	};
	int rc;

	if (!s->format->scan)
		return inspect_open(bytes.path, &in, true, names, out, err);
	rc = inspect_size(h, bytes.path, &bytes.size, err);
	*out = (struct rsh_inspected){ .bytes = bytes.size };
	return rc ? rc : s->format->scan(&(struct rsh_scan_job){
				.source = s, .file = i, .bytes = &bytes,
				.how = RSH_SCAN_VERIFY, .names = names,
			}, &out->index, err);
}

int rsh_source_training_state(const struct rsh_source *s,
			      struct rsh_training_state *out)
{
	const struct rsh_list_job job = {
		.source = s, .part = RSH_LIST_STATE,
	};
	struct rsh_listed l = { .n_tensors = 0 };
	int rc = s->format->layout == RSH_LAYOUT_OWN ?
		 s->format->list(&job, &l, NULL) : 0;

	out->epoch = l.state.epoch ? l.state.epoch : out->epoch;
	out->batch_size = l.state.batch_size ? l.state.batch_size :
					       out->batch_size;
	if (l.state.loss_scale > 0)
		out->loss_scale = l.state.loss_scale;
	return rc;
}

int rsh_source_strategy(struct rsh_source *s, bool allow_missing,
			struct rsh_names *names, struct rsh_strategy **out,
			struct rsh_error *err)
{
	struct rsh_source_view view;
	const struct rsh_list_job job = {
		.source = s, .part = RSH_LIST_LAYOUT, .view = &view,
		.allow_missing = allow_missing,
	};
	struct rsh_listed l = { .n_tensors = 0 };
	int rc = 0;

	rsh_source_view(s, names, &view);
	if (s->format->layout == RSH_LAYOUT_OWN)
		rc = s->format->list(&job, &l, err);
	*out = l.strategy;
	return rc;
}

int rsh_source_each(const struct rsh_list_job *job, struct rsh_listed *out,
		    struct rsh_error *err)
{
	int rc;

	*out = (struct rsh_listed){ .n_tensors = 0 };
	rc = job->source->format->list(job, out, err);
	for (uint32_t i = 0; i < out->n_tensors && rc == 0; i++)
		if (job->take(job->ctx, &out->tensors[i]))
			rc = rsh_error_nomem(err);
	return rc;
}

ssize_t rsh_source_file_pread(const struct rsh_source *s, uint32_t i,
			      struct rsh_handle *h, void *buf, size_t len,
			      uint64_t offset)
{
	return rsh_store_pread_once(s->store, i, h, buf, len, offset);
}

int rsh_source_ranks(const struct rsh_source *s, uint32_t **ranks, size_t *n)
{
	const struct rsh_listing *l = &s->listing;
	uint32_t *all = rsh_alloc_array(l->n + l->n_dirs, sizeof(*all));
	size_t have = 0;

	if (!all)
		return -ENOMEM;
	/* A rank may have thousands of files, and this is called for each
	 * step. */
	for (size_t i = 0; i < l->n; i++)
		if (l->files[i].rank != RSH_RANK_UNKNOWN &&
		    (have == 0 || all[have - 1] != l->files[i].rank))
			all[have++] = l->files[i].rank;
	for (size_t i = 0; i < l->n_dirs; i++)
		all[have++] = l->dirs[i].rank;
	*n = rsh_sort_distinct(all, have);
	*ranks = all;
	return 0;
}

/* ---- values that are not tensors ---- */

int rsh_values_alloc(struct rsh_values *v, size_t n)
{
	*v = (struct rsh_values){
		.names = calloc(n + 1, sizeof(*v->names)),
		.values = calloc(n + 1, sizeof(*v->values)),
	};
	return v->names && v->values ? 0 : -ENOMEM;
}

void rsh_values_join_attr(struct rsh_values *v, const struct rsh_store_attr *a)
{
	if (!v->has_attr)
		v->attr = *a;
	else
		v->attr.mode &= rsh_store_mode_as(a, v->attr.uid, v->attr.gid);
	v->attr.mode &= 0444;
	v->has_attr = true;
}

int rsh_values_add(struct rsh_values *v, const struct rsh_plan_options *opts,
		   const char *name, const struct rsh_plain *value,
		   const struct rsh_store_attr *a)
{
	if (!rsh_plan_wants(opts, name))
		return 0;
	if (rsh_room(v->names, v->cap_names, (size_t)v->n + 1) ||
	    rsh_room(v->values, v->cap_values, (size_t)v->n + 1))
		return -ENOMEM;
	v->names[v->n] = name;
	/* It is counted after a failure, too, because it may have a part. */
	if (rsh_plain_copy(value, &v->values[v->n++]))
		return -ENOMEM;
	if (value->pickle)
		rsh_values_join_attr(v, a);
	return 1;
}

int rsh_values_add_path(struct rsh_values *v, const char *name,
			const struct rsh_path_key *keys, uint32_t n)
{
	return n == 0 ? 0 : rsh_push(v->paths, v->n_paths, v->cap_paths,
				     (struct rsh_name_path){ name, keys, n });
}

RSH_ORDER(values_path_by_name, struct rsh_name_path, strcmp(x->name, y->name))

void rsh_values_sort_paths(struct rsh_values *v)
{
	rsh_sort(v->paths, v->n_paths, values_path_by_name);
}

const struct rsh_name_path *rsh_values_path(const struct rsh_values *v,
					    const char *name)
{
	const struct rsh_name_path key = { .name = name };

	return rsh_find(&key, v->paths, v->n_paths, values_path_by_name);
}

const char *rsh_values_state_key(const struct rsh_values *v, const char *name)
{
	const struct rsh_name_path *p = rsh_values_path(v, name);

	return p && p->n > 1 ? p->keys->text : NULL;
}

void rsh_values_clear(struct rsh_values *v)
{
	free(v->paths);
	for (uint32_t i = 0; i < v->n; i++)
		rsh_plain_clear(&v->values[i]);
	free(v->values);
	free(v->names);
	*v = (struct rsh_values){ .n = 0 };
}

/* ---- for contents/ ---- */

const char *rsh_source_path(const struct rsh_source *s)
{
	return s->path;
}

uint32_t rsh_source_first_rank(const struct rsh_source *s)
{
	return s->first_rank;
}

enum rsh_check rsh_source_check(const struct rsh_source *s)
{
	return s->check;
}

/* ---- ranks ---- */

/* If the chosen candidate has no step, `b` is NULL, and each file is
 * accepted. */
static bool sample_is_of_step(const struct rsh_checkpoint *a,
			      const struct rsh_checkpoint *b)
{
	return !b || (a->step.n == b->step.n &&
		      (a->step.n == 0 ||
		       rsh_step_cmp(&a->step, &b->step) == 0));
}

/* Returns a file of the chosen candidate; NULL: it has none. */
static const struct rsh_checkpoint *
sample_chosen_file(const struct rsh_source *s)
{
	const struct rsh_listing *l = &s->listing;
	size_t i = s->chosen < s->n_candidates ?
		s->candidates[s->chosen].first : l->n - s->n_always;

	return i < l->n ? &l->files[i] : NULL;
}

bool rsh_source_has_step(const struct rsh_source *s)
{
	return s->chosen < s->n_candidates;
}

uint32_t rsh_source_count_ranks(const struct rsh_source *s, uint32_t n_ranks,
				const char **beyond)
{
	const struct rsh_checkpoint *chosen = sample_chosen_file(s),
				    *all = s->listing.beyond, *one = NULL;
	uint32_t n = s->n_files;

	*beyond = NULL;
	/* If the tree was opened for listing, s->files has all ranks, in
	 * ascending order. */
	if (n > 0 && s->files[n - 1].rank >= n_ranks)
		for (uint32_t i = n; i-- > 0 && s->files[i].rank >= n_ranks;)
			*beyond = rsh_store_name(s->store, i);
	for (size_t i = 0; i < s->listing.n_beyond; i++) {
		const struct rsh_checkpoint *c = &all[i];
		size_t k;

		if (!sample_is_of_step(c, chosen))
			continue;
		/* A rank may have several files of a step; the first one is
		 * counted. */
		for (k = i; k > 0 && all[k - 1].rank == c->rank; k--)
			if (sample_is_of_step(&all[k - 1], chosen))
				break;
		n += k == 0 || all[k - 1].rank != c->rank;
		if (!one || c->rank < one->rank)
			one = c;
	}
	if (one)
		*beyond = one->name;
	return n;
}

bool rsh_source_older_beyond(const struct rsh_source *s, uint32_t n_ranks,
			     uint64_t *epoch, uint64_t *step)
{
	const struct rsh_listing *l = &s->listing;
	const struct rsh_checkpoint *chosen = sample_chosen_file(s);
	const struct rsh_checkpoint *newest = NULL;

	/* If a step describes itself, older steps are not compared with it. */
	if (s->format->layout == RSH_LAYOUT_OWN)
		return false;
	for (size_t i = 0; chosen && i < l->n + l->n_beyond; i++) {
		const struct rsh_checkpoint *c = i < l->n ?
			&l->files[i] : &l->beyond[i - l->n];

		/* In each directory of a power-off save steps are counted from
		 * the beginning, so these are not compared. */
		if (c->rank < n_ranks || !c->step.n || !chosen->step.n ||
		    c->n_dir || chosen->n_dir || c->step.breakpoint ||
		    rsh_step_cmp(&c->step, &chosen->step) <= 0 ||
		    (newest && rsh_step_cmp(&c->step, &newest->step) >= 0))
			continue;
		newest = c;
	}
	if (!newest)
		return false;
	*epoch = newest->step.numbers[0];
	*step = newest->step.numbers[1];
	return true;
}

/* ---- bytes ---- */

bool rsh_source_sample(struct rsh_source *s, uint32_t rank, uint64_t offset,
		       uint8_t *buf, size_t len)
{
	struct rsh_store_scan in = { .store = s->store };
	size_t done = 0;
	int code = 0;

	if (!rsh_source_locate(s, rank, &offset, &in.file) ||
	    rsh_store_take(s->store, in.file, &in.handle))
		return false;
	/* The cache is bypassed because these bytes are not read again soon. */
	while (done < len && !code) {
		ssize_t n = rsh_store_scan_pread(&in, buf + done, len - done,
						 offset + done);

		if (n <= 0)
			code = n < 0 ? (int)-n : EIO;
		else
			done += (size_t)n;
	}
	return rsh_store_finish(s->store, in.file, in.handle, code) == 0;
}

/* ---- results of earlier checks ---- */

bool rsh_source_digest(struct rsh_source *s, uint64_t *digest)
{
	time_t now = time(NULL);
	XXH3_state_t state;

	if (s->index_dirfd < 0 || !rsh_store_is_true(s->store))
		return false;
	XXH3_INITSTATE(&state);
	XXH3_64bits_reset(&state);
	if (s->facts->key)
		XXH3_64bits_update(&state, s->facts->key,
				   sizeof(*s->facts->key));
	for (uint32_t i = 0; i < s->n_files; i++) {
		const struct rsh_source_file *f = &s->files[i];
		struct rsh_index_key key;
		struct rsh_handle *h;

		XXH3_64bits_update(&state, &f->rank, sizeof(f->rank));
		if (!f->index)
			continue;
		if (rsh_store_take(s->store, i, &h) ||
		    rsh_store_finish(s->store, i, h,
				     -rsh_index_key_take(h, &key)) ||
		    !rsh_index_key_settled(&key, now))
			return false;
		XXH3_64bits_update(&state, &key, sizeof(key));
	}
	*digest = XXH3_64bits_digest(&state);
	return true;
}

bool rsh_source_was_right(const struct rsh_source *s, uint64_t digest)
{
	return rsh_kept_is_right(s->index_dirfd, digest);
}

void rsh_source_keep_right(const struct rsh_source *s, uint64_t digest)
{
	rsh_kept_put_right(s->index_dirfd, digest);
}

/* ---- messages about candidates ---- */

void rsh_source_candidate_text(const struct rsh_source *s, uint32_t i,
			       char *text, size_t size)
{
	const struct rsh_checkpoint *c;
	size_t first, end;
	const char *name = *s->step_name ? s->step_name : NULL;
	int at = 0;

	rsh_source_candidate_range(s, i, &first, &end);
	if (!name && !s->resumed && s->listing.n > 0)
		name = s->listing.files[first].label;
	if (name) {
		snprintf(text, size, "%s", name);
		return;
	}
	if (i >= s->n_candidates) {
		snprintf(text, size, "%s", s->select == RSH_SELECT_MINDSPORE ?
			 "the last name of each rank" :
			 "the file of each rank");
		return;
	}
	c = &s->listing.files[s->candidates[i].first];
	if (c->step.n == 0) {
		snprintf(text, size, "%s", c->series);
		return;
	}
	if (c->n_dir)
		at = snprintf(text, size, "%.*s ", (int)c->n_dir, c->name);
	if (c->step.n == 1) {
		snprintf(text + at, size - (size_t)at, "step %llu",
			 (unsigned long long)c->step.numbers[0]);
		return;
	}
	snprintf(text + at, size - (size_t)at, "epoch %llu step %llu%s",
		 (unsigned long long)c->step.numbers[0],
		 (unsigned long long)c->step.numbers[1],
		 c->step.breakpoint ? " (breakpoint)" : "");
	if (c->step.run) {
		at = (int)strlen(text);
		snprintf(text + at, size - (size_t)at, " of run %llu",
			 (unsigned long long)c->step.run);
	}
}

/* Logs the ranks that have checkpoints, but none of the chosen candidate. */
static void say_absent(const struct rsh_source *s, const char *choice)
{
	const struct rsh_listing *l = &s->listing;
	char ranks[160];
	size_t at = 0;
	uint32_t n = 0;

	for (size_t i = 0; i < l->n; i++) {
		uint32_t n_chosen;
		size_t k = 0;

		/* Some files are of no rank. */
		rsh_source_rank_first(s, l->files[i].rank, &n_chosen);
		if (n_chosen > 0 || l->files[i].rank == UINT32_MAX)
			continue;
		while (l->files[k].rank != l->files[i].rank)
			k++;
		if (k < i)
			continue;
		if (n++ < RSH_LISTED_MAX)
			at += (size_t)snprintf(ranks + at, sizeof(ranks) - at,
					       " %u", l->files[i].rank);
	}
	if (n > 0)
		rsh_log_notice("%s: %u ranks with checkpoints have none of "
			       "%s:%s%s", s->path, n, choice, ranks,
			       n > RSH_LISTED_MAX ? " ..." : "");
}

void rsh_source_log_left_out(const struct rsh_source *s)
{
	if (s->n_bad == 1)
		rsh_log_warning("%s: the file is left out", s->first_bad.text);
	else if (s->n_bad > 1)
		rsh_log_warning(
			"%s: the file is left out, and so are %u others "
			"of %u, which --log-level info lists",
			s->first_bad.text, s->n_bad - 1, s->n_files);
}

const char *rsh_source_other(const struct rsh_source *s)
{
	return s->other ? s->other->says : NULL;
}

void rsh_source_log_other(const struct rsh_source *s)
{
	if (s->other)
		rsh_log_warning("%s: it has two kinds of checkpoint: taking "
				"the %s, not the %s", s->path,
				s->format->says, s->other->says);
}

/* Returns by how many seconds file i is younger than `mark`. */
static double younger_by(const struct rsh_source *s, uint32_t i,
			 const struct rsh_stat *mark,
			 struct rsh_source_file_info *f)
{
	struct rsh_stat data;

	rsh_source_file_info(s, i, f);
	/* Nothing is known of a file that was not indexed. */
	if (!f->valid && rsh_store_look(s->store, f->name, &data) == 0)
		f->mtime = data.attr.mtime;
	return (double)(f->mtime.tv_sec - mark->attr.mtime.tv_sec) +
	       (double)(f->mtime.tv_nsec - mark->attr.mtime.tv_nsec) / 1e9;
}

int rsh_source_check_times(const struct rsh_source *s, const char *last,
			   struct rsh_error *err)
{
	struct rsh_stat mark;
	int rc = rsh_store_look(s->store, last, &mark);

	if (rsh_errno_is_unread(-rc))
		return rsh_store_open_error(s->store, last, rc, err);
	if (rc)
		return rsh_error_set(err, -rc, "it has no %s yet, which is "
				     "written last", last);
	for (uint32_t i = 0; i < s->n_files; i++) {
		struct rsh_source_file_info f;

		if (younger_by(s, i, &mark, &f) > 0)
			return rsh_error_set(err, EBADMSG, "%s is younger than "
					     "%s: it is being saved again, or "
					     "was copied without its times",
					     f.name, last);
	}
	return 0;
}

/* A copy without times, too, has files that are younger than the last one, but
 * by the time that it takes; and it may have the last one first.  A job that
 * saves again has trained meanwhile, and files of both saves are there. */
#define TRAINED_SECONDS 60

/* The files of one save are written within minutes, and so are those of one
 * copy.  Hours between two such groups are those of another save. */
#define SAVE_SECONDS 600
#define APART_SECONDS 3600

RSH_ORDER(file_by_time, struct rsh_source_file_info,
	  rsh_compare_u64((uint64_t)x->mtime.tv_sec, (uint64_t)y->mtime.tv_sec))

static int64_t seconds_between(const struct rsh_source_file_info *from,
			       const struct rsh_source_file_info *to)
{
	return to->mtime.tv_sec - from->mtime.tv_sec;
}

/* Warns if the files of ranks are of two times; 0 is none. */
static void log_two_times(const struct rsh_source *s)
{
	const uint32_t n = s->format->owner == RSH_OWNER_MODEL ? 0 : s->n_files;
	cleanup_free struct rsh_source_file_info *v =
		rsh_alloc_array(n, sizeof(*v));
	uint32_t at = 0;

	if (!v)
		return;
	for (uint32_t i = 0; i < n; i++) {
		rsh_source_file_info(s, i, &v[at]);
		at += v[at].valid && v[at].mtime.tv_sec > 0;
	}
	rsh_sort(v, at, file_by_time);
	for (uint32_t i = 1; i < at; i++)
		if (seconds_between(&v[i - 1], &v[i]) > APART_SECONDS &&
		    seconds_between(&v[0], &v[i - 1]) < SAVE_SECONDS &&
		    seconds_between(&v[i], &v[at - 1]) < SAVE_SECONDS)
			rsh_log_warning("%s: %u of %u files, such as %s, are "
					"%" PRIi64 " s younger than the others: "
					"a job may have saved the step again "
					"and not ended it", s->path, at - i, at,
					v[i].name,
					seconds_between(&v[i - 1], &v[i]));
}

void rsh_source_log_doubt(const struct rsh_source *s)
{
	const char *last = s->format->written_last;
	struct rsh_source_file_info f, younger = { .name = "" };
	struct rsh_stat mark;
	double most = 0;
	bool old = false;

	if (!last)
		log_two_times(s);
	if (!last || rsh_store_look(s->store, last, &mark))
		return;
	for (uint32_t i = 0; i < s->n_files; i++) {
		const double by = younger_by(s, i, &mark, &f);

		old |= by <= 0;
		if (by > most) {
			most = by;
			younger = f;
		}
	}
	if (old && most > TRAINED_SECONDS)
		rsh_log_warning("%s: %s is %.0f s younger than %s, and other "
				"files are older: what is shown may be of two "
				"saves", s->path, younger.name, most, last);
}

void rsh_candidates_beside(const struct rsh_source *s, char *text, size_t size)
{
	*text = '\0';
	if (s->n_tried < s->n_candidates)
		snprintf(text, size, "; %s has no step in its name and is "
				     "ignored: use --select name=GLOB to "
				     "select it",
			 rsh_checkpoint_label(&s->listing.files[s->listing.n -
								1]));
}

void rsh_ranks_gap(const uint32_t *ranks, size_t n, char *text, size_t size)
{
	uint32_t first = 0, missing = 0;

	*text = '\0';
	for (size_t i = 1; i < n; i++) {
		if (missing == 0)
			first = ranks[i - 1] + 1;
		missing += ranks[i] - ranks[i - 1] - 1;
	}
	if (missing > 0)
		snprintf(text, size, "it has ranks %u to %u, but nothing of "
			 "rank %u%s: only a strategy says whether they are "
			 "needed", ranks[0], ranks[n - 1], first,
			 missing > 1 ? " and of others" : "");
}

void rsh_source_gap(const struct rsh_source *s, char *text, size_t size)
{
	cleanup_free uint32_t *ranks = NULL;
	size_t n = 0;

	if (s->format->layout == RSH_LAYOUT_GIVEN &&
	    rsh_source_ranks(s, &ranks, &n))
		n = 0;
	rsh_ranks_gap(ranks, n, text, size);
}

void rsh_source_log_choice(const struct rsh_source *s)
{
	/* What the file says that describes the step. */
	const struct rsh_step_facts *f = s->facts;
	const char *notes = f->notes ? f->notes : "";
	char choice[256], beside[NAME_MAX + 128];

	rsh_source_log_left_out(s);
	rsh_source_log_other(s);
	rsh_source_log_doubt(s);
	for (uint32_t i = 0; i < s->n_files; i++)
		rsh_log_debug("taken: %s", rsh_store_path(s->store, i));
	rsh_source_chosen_text(s, choice, sizeof(choice));
	if (s->format->layout == RSH_LAYOUT_OWN && f->path &&
	    s->n_candidates > 1)
		rsh_log_notice("%s: several steps, taking %s%s", f->path,
			       choice, notes);
	else if (s->format->layout == RSH_LAYOUT_OWN && *notes)
		rsh_log_notice("%s: %s", f->path, notes + strlen("; "));
	if (s->format->layout == RSH_LAYOUT_OWN)
		return;
	if (s->listing.n <= s->n_files || s->n_files == 0)
		return;
	rsh_candidates_beside(s, beside, sizeof(beside));
	rsh_log_notice("%s: several checkpoints per rank, taking %s (%s)%s",
		       s->path, choice, rsh_store_name(s->store, 0), beside);
	say_absent(s, choice);
}
