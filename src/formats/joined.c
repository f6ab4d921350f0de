/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "rsh/formats/joined.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "rsh/formats/files.h"
#include "rsh/formats/torch.h"
#include "rsh/util/files.h"
#include "rsh/util/log.h"
#include "rsh/util/mem.h"
#include "rsh/util/thread.h"

/* Entries of SOURCE that are looked into to recognise it. */
#define LOOKED_AT 16

/* ---- the state ---- */

void *rsh_joined_new(const struct rsh_joined_format *format, size_t size,
		     const struct rsh_source *source, size_t n)
{
	struct rsh_joined *j = calloc(1, size);

	if (!j)
		return NULL;
	j->format = format;
	j->source = source;
	j->path = source ? rsh_source_path(source) : "";
	j->dir = "";
	pthread_mutex_init(&j->lock, NULL);
	j->files = calloc(n + 1, sizeof(*j->files));
	if (j->files && !rsh_room(j->names, j->cap_names, n + 1))
		return j;
	rsh_joined_free(j);
	return NULL;
}

void rsh_joined_file_free(void *file)
{
	if (file)
		rsh_arena_clear(file);
	free(file);
}

void rsh_joined_free(void *state)
{
	struct rsh_joined *j = state;

	if (!j)
		return;
	for (uint32_t i = 0; j->files && i < j->n; i++)
		rsh_joined_file_free(j->files[i]);
	if (j->format->clear)
		j->format->clear(j);
	rsh_dcp_free(j->dcp.pub);
	pthread_mutex_destroy(&j->lock);
	free(j->files);
	free(j->names);
	free(j->problems);
	free(j->tensors);
	free(j->chunks);
	rsh_arena_clear(&j->arena);
	free(j);
}

void *rsh_joined_choose(const struct rsh_joined_format *format, size_t size,
			struct rsh_source *s, uint32_t candidate, size_t *first,
			size_t *end)
{
	void *state;

	rsh_source_candidate_range(s, candidate, first, end);
	state = rsh_joined_new(format, size, s, *end - *first);
	rsh_source_keep(s, state, NULL, rsh_joined_free);
	return state;
}

uint32_t rsh_joined_add_name(struct rsh_joined *j, const char *name)
{
	const char *kept = rsh_arena_strdup(&j->arena, name);

	return kept && !rsh_push(j->names, j->n_names, j->cap_names, kept) ?
	       j->n_names - 1 : RSH_DCP_NO_FILE;
}

uint32_t rsh_joined_add_file(struct rsh_joined *j, const char *name)
{
	const uint32_t file = rsh_joined_add_name(j, name);

	j->n += file != RSH_DCP_NO_FILE;
	return file;
}

/* ---- files ---- */

/* A description uses what was read first.  Returns whether something is
 * kept. */
static bool joined_keep(struct rsh_joined *j, uint32_t file, void *read)
{
	bool has;

	pthread_mutex_lock(&j->lock);
	if (!j->described && !j->files[file]) {
		j->files[file] = read;
		read = NULL;
	}
	has = j->files[file];
	pthread_mutex_unlock(&j->lock);
	rsh_joined_file_free(read);
	return has;
}

int rsh_joined_scan(const struct rsh_scan_job *job,
		    struct rsh_ckpt_index **out, struct rsh_error *err)
{
	struct rsh_joined *j = rsh_source_state(job->source);
	void *file;
	int rc;

	/* An index does not say what a file has of all tensors. */
	if (job->stored)
		return j->files[job->file] ? 0 : -ESTALE;
	rc = j->format->read(j, job->file, job->bytes,
			     job->how != RSH_SCAN_HEADERS, job->names, &file,
			     out, err);
	if (rc == 0)
		joined_keep(j, job->file, file);
	return rc;
}

int rsh_joined_need(struct rsh_joined *j, uint32_t file, struct rsh_error *err)
{
	cleanup_format_file struct rsh_format_file f = { .path = NULL };
	void *read;
	bool has;
	int rc;

	pthread_mutex_lock(&j->lock);
	has = j->files[file];
	pthread_mutex_unlock(&j->lock);
	if (has)
		return 0;
	rc = rsh_format_file_open(j->source, j->names[file], &f, err) ?:
	     j->format->read(j, file, &f.bytes, false, NULL, &read, NULL, err);
	return rc || joined_keep(j, file, read) ? rc :
	       rsh_error_set(err, ESTALE, "%s could not be read before",
			     f.bytes.path);
}

static int load_file(void *ctx, size_t i, struct rsh_error *err)
{
	struct rsh_error why = RSH_ERROR_INIT;
	int rc = rsh_joined_need(ctx, (uint32_t)i, &why);

	if (rc == 0 || rc == -ENOMEM)
		return rc ? rsh_error_nomem(err) : 0;
	rsh_log_warning("%s", why.text);
	return rsh_errno_is_unread(-rc) ?
	       rsh_error_set(err, -rc, "%s", why.text) : 0;
}

/* ---- values ---- */

int rsh_joined_values(struct rsh_joined *j, const char *file,
		      const struct rsh_plan_options *opts,
		      int (*take)(void *ctx, const struct rsh_torch_value *v,
				  struct rsh_joined_value *out),
		      void *ctx, struct rsh_values *out)
{
	static const struct rsh_torch_parts parts = { .values_only = true };
	cleanup_format_file struct rsh_format_file opened;
	struct rsh_error why = RSH_ERROR_INIT;
	struct rsh_torch_file *f = NULL;
	struct rsh_stat st = { .size = 0 };
	int rc = rsh_format_file_open(j->source, file, &opened, &why) ?:
		 rsh_torch_file_read(&opened.bytes, &parts, &f, &why);

	if (rc) {
		if (rc != -ENOENT && rc != -ENOMEM)
			rsh_log_warning("%s: its values are not shown",
					why.text);
		return rc == -ENOMEM ? rc : 0;
	}
	rsh_handle_look(opened.handle, &st);
	for (uint32_t i = 0; i < f->n_values && rc == 0; i++) {
		struct rsh_joined_value shown;
		struct rsh_path_key *keys;
		const char *name;

		if (f->values[i].make || !f->values[i].plain.pickle)
			continue;
		rc = take(ctx, &f->values[i], &shown);
		if (rc <= 0 || !rsh_plan_wants(opts, shown.name)) {
			rc = rc < 0 ? rc : 0;
			continue;
		}
		/* The file of torch is freed. */
		name = rsh_arena_strdup(&j->arena, shown.name);
		keys = rsh_path_keys_copy(shown.keys, shown.n_keys, &j->arena);
		rc = name && keys ? rsh_values_add(out, opts, name,
						   &f->values[i].plain,
						   &st.attr) : -ENOMEM;
		if (rc > 0)
			rc = rsh_values_add_path(out, name, keys, shown.n_keys);
	}
	rsh_torch_file_free(f);
	return rc;
}

/* ---- the description ---- */

int rsh_joined_by_name(const void *a, const void *b)
{
	const struct rsh_dcp_tensor *x = a, *y = b;

	return strcmp(x->name, y->name);
}

int rsh_joined_describe(struct rsh_joined *j, struct rsh_error *err)
{
	struct rsh_dcp *d;
	int rc;

	if (j->described)
		return 0;
	/* An attempt that failed may have left one. */
	rsh_dcp_free(j->dcp.pub);
	j->dcp.pub = d = calloc(1, sizeof(*d));
	if (!d)
		return rsh_error_nomem(err);
	d->by_name = true;
	j->n_problems = j->n_tensors = j->n_chunks = 0;
	j->n_names = j->n;
	rc = j->format->describe(j, err);
	if (rc == 0 && d->arena_.failed)
		rc = rsh_error_nomem(err);
	if (rc)
		return rc;
	rsh_sort(j->tensors, j->n_tensors, rsh_joined_by_name);
	for (size_t i = 1; i < j->n_tensors; i++)
		if (rsh_joined_by_name(&j->tensors[i - 1], &j->tensors[i]) == 0)
			return rsh_error_set(err, EBADMSG, "%s: damaged: two "
					     "tensors have the name %s",
					     j->path, j->tensors[i].name);
	d->tensors = rsh_arena_copy(&d->arena_, j->tensors, j->n_tensors);
	if (!d->tensors)
		return rsh_error_nomem(err);
	d->n_tensors = (uint32_t)j->n_tensors;
	d->files = j->names;
	d->n_files = j->n_names;
	free(steal_pointer(&j->tensors));
	free(steal_pointer(&j->chunks));
	j->cap_tensors = j->cap_chunks = 0;
	j->described = true;
	return 0;
}

static const char *name_at(const char *v, size_t i, size_t size)
{
	const char *name;

	memcpy(&name, v + i * size, sizeof(name));
	return name;
}

void rsh_joined_each(struct rsh_joined *j, void *v, size_t n, size_t size,
		     void (*take)(void *ctx, void *first, size_t n), void *ctx)
{
	char *at = v;

	for (size_t i = 0, end; i < n && !j->dcp.pub->arena_.failed; i = end) {
		for (end = i + 1; end < n && strcmp(name_at(at, end, size),
						    name_at(at, i, size)) == 0;)
			end++;
		j->n_chunks = 0;
		take(ctx, at + i * size, end - i);
	}
}

int rsh_joined_refuse(const struct rsh_joined *j, const char *name, int code,
		      struct rsh_error *err, const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	rsh_error_vset(err, code, fmt, ap);
	va_end(ap);
	rsh_error_prefix(err, "%s%s%s", j->path, *name ? "/" : "", name);
	return -code;
}

bool rsh_joined_blame(struct rsh_joined *j, const char *name, int code,
		      const char *fmt, ...)
{
	struct rsh_arena *arena = &j->dcp.pub->arena_;
	char text[RSH_ERROR_TEXT_MAX];
	struct rsh_joined_problem p = { name, code, NULL };
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	p.text = name ? rsh_arena_format(arena, "tensor %s: %s", name, text) :
			NULL;
	if (p.text && rsh_push(j->problems, j->n_problems, j->cap_problems, p))
		arena->failed = true;
	return true;
}

void rsh_joined_chunk(struct rsh_joined *j, uint32_t file, const char *key,
		      uint32_t n_dims, const uint64_t *from,
		      const uint64_t *size)
{
	struct rsh_arena *arena = &j->dcp.pub->arena_;
	uint64_t *box = rsh_arena_array(arena, uint64_t, 2 * (size_t)n_dims);
	const struct rsh_dcp_chunk c = {
		.from = box, .size = box + n_dims, .file = file, .key = key,
		.length = RSH_DCP_BY_NAME,
	};

	for (uint32_t d = 0; d < n_dims && box; d++) {
		box[d] = from ? from[d] : 0;
		box[n_dims + d] = size[d];
	}
	if (!box || rsh_push(j->chunks, j->n_chunks, j->cap_chunks, c))
		arena->failed = true;
}

void rsh_joined_tensor(struct rsh_joined *j, const struct rsh_dcp_tensor *t)
{
	struct rsh_arena *arena = &j->dcp.pub->arena_;
	struct rsh_dcp_tensor own = *t;

	own.n_chunks = (uint32_t)j->n_chunks;
	own.chunks = rsh_arena_copy(arena, j->chunks, j->n_chunks);
	j->n_chunks = 0;
	/* Memory is out for the name, too. */
	if (!arena->failed &&
	    rsh_push(j->tensors, j->n_tensors, j->cap_tensors, own))
		arena->failed = true;
}

int rsh_joined_same_bytes(const struct rsh_joined *j, const uint32_t file[2],
			  const uint64_t offset[2], uint64_t n, bool *same,
			  struct rsh_error *err)
{
	struct rsh_format_file f[2] = { { .path = NULL }, { .path = NULL } };
	int rc = 0;

	for (unsigned i = 0; i < 2 && rc == 0; i++)
		if (j->source)
			rc = rsh_format_file_open(j->source, j->names[file[i]],
						  &f[i], err);
		else
			f[i].bytes = *j->bytes[file[i]];
	rc = rc ?: rsh_format_same_bytes(&f[0].bytes, offset[0], &f[1].bytes,
					 offset[1], n, same, err);
	rsh_format_file_close(&f[0]);
	rsh_format_file_close(&f[1]);
	return rc;
}

/* ---- what is wrong with it ---- */

/* Finds a part of a tensor that no file has. */
static void find_lost(const struct rsh_joined *j,
		      const struct rsh_dcp_tensor *t, struct rsh_error *wrong)
{
	for (uint32_t i = 0; i < t->n_chunks && !wrong->code; i++) {
		const struct rsh_dcp_chunk *c = &t->chunks[i];

		if (rsh_dcp_chunk_is_empty(t, c) ||
		    (c->file < j->n && j->files[c->file]))
			continue;
		if (c->file < j->n_names)
			rsh_error_set(wrong, ENOENT, "tensor %s: %s, which has "
				      "a part of it, %s", t->name,
				      j->names[c->file], c->file < j->n ?
				      "cannot be read" : "is missing");
		else
			rsh_error_set(wrong, ENOENT, "tensor %s: a part of it "
				      "is in no file", t->name);
	}
}

static bool is_state(const struct rsh_joined *j, const char *name)
{
	return j->format->is_state && j->format->is_state(j, name);
}

int rsh_joined_judge(const struct rsh_joined *j, bool of_states,
		     struct rsh_error *wrong)
{
	const struct rsh_dcp *d = j->dcp.pub;

	if (j->format->judge)
		j->format->judge(j, of_states, wrong);
	for (size_t i = 0; i < j->n_problems && !wrong->code; i++)
		if (is_state(j, j->problems[i].name) == of_states)
			rsh_error_set(wrong, j->problems[i].code, "%s",
				      j->problems[i].text);
	for (uint32_t i = 0; i < d->n_tensors && !wrong->code; i++) {
		const struct rsh_dcp_tensor *t = &d->tensors[i];

		if (is_state(j, t->name) != of_states)
			continue;
		if (j->format->has_gaps &&
		    rsh_dcp_check_covered(t, wrong) == -ENOMEM)
			return -ENOMEM;
		find_lost(j, t, wrong);
	}
	return 0;
}

bool rsh_joined_wants_states(const struct rsh_plan_options *o)
{
	return rsh_plan_wants(o, "optimizer.state.0.exp_avg");
}

int rsh_joined_tell_states(const struct rsh_joined *j)
{
	struct rsh_error wrong = RSH_ERROR_INIT;
	int rc = rsh_joined_judge(j, true, &wrong);

	if (rc == 0 && wrong.code)
		rsh_log_warning("%s: the optimizer's state is not complete: %s",
				j->path, wrong.text);
	return rc;
}

int rsh_joined_check(const struct rsh_joined *j,
		     const struct rsh_plan_options *opts, struct rsh_error *err)
{
	for (size_t i = 0; i < j->n_problems; i++)
		if (rsh_plan_wants(opts, j->problems[i].name))
			return rsh_error_set(err, j->problems[i].code, "%s",
					     j->problems[i].text);
	return 0;
}

int rsh_joined_judge_step(const struct rsh_source *s, bool ended,
			  struct rsh_error *err)
{
	struct rsh_joined *j = rsh_source_state(s);
	/* *err may have the sentence about another step. */
	struct rsh_error wrong = RSH_ERROR_INIT;
	int rc = rsh_joined_describe(j, err);

	(void)ended;
	if (rc == 0 && rsh_joined_judge(j, false, &wrong))
		rc = rsh_error_nomem(err);
	return rc || !wrong.code ? rc :
	       rsh_error_set(err, wrong.code, "%s", wrong.text);
}

/* Lists what is wrong with tensors that the description does not have, and a
 * part that no file has. */
static int list_wrong(const struct rsh_joined *j,
		      const struct rsh_list_job *job)
{
	const struct rsh_dcp *d = j->dcp.pub;
	struct rsh_error lost = RSH_ERROR_INIT;
	int rc = 0;

	for (uint32_t i = 0; i < d->n_tensors && !lost.code; i++)
		find_lost(j, &d->tensors[i], &lost);
	if (lost.code && job->take)
		rc = job->take(job->ctx, &(struct rsh_listed_tensor){
			.name = "", .wrong = lost.text });
	for (size_t i = 0; i < j->n_problems && job->take && rc == 0; i++)
		rc = job->take(job->ctx, &(struct rsh_listed_tensor){
			.name = j->problems[i].name,
			.wrong = j->problems[i].text });
	return rc || !j->format->list_more ? rc : j->format->list_more(j, job);
}

int rsh_joined_list(const struct rsh_list_job *job, struct rsh_listed *out,
		    struct rsh_error *err)
{
	struct rsh_joined *j = rsh_source_state(job->source);
	const bool of_records = job->part == RSH_LIST_RECORDS;
	int rc = of_records || j->described ? 0 :
		 rsh_parallel_for(rsh_source_scan_threads(job->source), j->n,
				  load_file, j, err);

	rc = rc ?: rsh_joined_describe(j, err) ?:
	     (j->format->list ? j->format->list : rsh_dcp_list)(job, out, err);
	if (rc || job->part == RSH_LIST_TENSORS)
		return rc;
	out->about = j->format->about(j, job->arena);
	if (!out->about ||
	    (of_records ? list_wrong(j, job) : rsh_joined_tell_states(j)))
		return rsh_error_nomem(err);
	return 0;
}

/* ---- finding steps ---- */

int rsh_joined_dir_has(const struct rsh_store *store, const char *dir,
		       bool (*is)(const char *name))
{
	cleanup_dir struct rsh_dir *d = NULL;
	int more = rsh_dir_open(store, dir, &d);
	const char *name;

	while (more >= 0 && (more = rsh_dir_next(d, &name)) > 0)
		if (is(name))
			return 1;
	return more;
}

int rsh_joined_look(const struct rsh_look *l,
		    bool (*may_be)(const char *name, size_t n, uint64_t *step),
		    int (*has)(const struct rsh_store *store, const char *dir))
{
	unsigned looked_at = 0;
	uint64_t step;
	int rc = 0;

	for (size_t i = l->n; i-- > 0 && rc <= 0 && looked_at < LOOKED_AT;) {
		if (!may_be(l->names[i], strlen(l->names[i]), &step))
			continue;
		looked_at++;
		rc = has(rsh_source_store(l->source), l->names[i]);
		rsh_look_fail(l, l->names[i], rc < 0 ? rc : 0);
	}
	return rc > 0 ? rc : 0;
}

int rsh_joined_list_file(struct rsh_source *s, const char *name,
			 const char *label, struct rsh_step step,
			 uint32_t rank)
{
	struct rsh_checkpoint c = {
		.step = step, .rank = rank, .name = name,
		.label = label ?: rsh_path_name(rsh_source_path(s)),
	};
	struct rsh_stat st;

	if (rsh_store_look(rsh_source_store(s), name, &st) == 0) {
		c.mtime = st.attr.mtime;
		c.ctime = st.attr.ctime;
	}
	return rsh_source_list(s, &c);
}
