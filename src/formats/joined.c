/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "rsh/formats/joined.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "rsh/formats/files.h"
#include "rsh/formats/torch.h"
#include "rsh/util/log.h"
#include "rsh/util/mem.h"
#include "rsh/util/thread.h"

int rsh_joined_init(struct rsh_joined *j,
		    const struct rsh_joined_format *format,
		    const struct rsh_source *source, size_t n)
{
	j->format = format;
	j->source = source;
	pthread_mutex_init(&j->lock, NULL);
	j->files = calloc(n + 1, sizeof(*j->files));
	return j->files ? 0 : -ENOMEM;
}

void rsh_joined_clear(struct rsh_joined *j)
{
	for (uint32_t i = 0; j->files && i < j->n; i++)
		j->format->free_it(j->files[i]);
	rsh_dcp_free(j->dcp.pub);
	pthread_mutex_destroy(&j->lock);
	free(j->files);
	rsh_tensor_problems_clear(&j->problems);
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
	j->format->free_it(read);
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
	rc = rsh_format_file_open(j->source, j->format->name(j, file), &f,
				  err) ?:
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
	rsh_log_notice("%s", why.text);
	return rsh_errno_is_unread(-rc) ?
	       rsh_error_set(err, -rc, "%s", why.text) : 0;
}

int rsh_joined_load(const struct rsh_source *s, struct rsh_error *err)
{
	struct rsh_joined *j = rsh_source_state(s);

	return j->described ? 0 :
	       rsh_parallel_for(rsh_source_scan_threads(s), j->n, load_file, j,
				err);
}

/* ---- values ---- */

static int parts_ignore(void *ctx, const char *path, const char *name,
			const struct rsh_pickle_value *args,
			const struct rsh_pickle_value **pieces, uint32_t *n,
			struct rsh_error *err)
{
	(void)ctx, (void)path, (void)name, (void)args, (void)pieces, (void)err;
	*n = 0;
	return 0;
}

static int object_ignore(void *ctx, const char *path,
			 const struct rsh_pickle_value *root,
			 struct rsh_error *err)
{
	(void)ctx, (void)path, (void)root, (void)err;
	return 0;
}

static int value_add(const struct rsh_torch_value *v,
		     const struct rsh_joined_value *shown,
		     const struct rsh_plan_options *opts,
		     const struct rsh_store_attr *attr, struct rsh_arena *arena,
		     struct rsh_values *out)
{
	struct rsh_path_key *keys;
	const char *name;
	int rc;

	if (opts->wanted && !opts->wanted(opts->ctx, shown->name))
		return 0;
	/* The file of torch is freed. */
	name = rsh_arena_strndup(arena, shown->name, strlen(shown->name));
	keys = rsh_path_keys_copy(shown->keys, shown->n_keys, arena);
	rc = name && keys ? rsh_values_add(out, opts, name, &v->plain, attr) :
			    -ENOMEM;
	return rc > 0 ? rsh_values_add_path(out, name, keys, shown->n_keys) :
			rc;
}

int rsh_joined_values(const struct rsh_source *s, const char *file,
		      const struct rsh_plan_options *opts,
		      struct rsh_arena *arena,
		      int (*take)(void *ctx, const struct rsh_torch_value *v,
				  struct rsh_joined_value *out),
		      void *ctx, struct rsh_values *out)
{
	static const struct rsh_torch_parts parts = {
		.take = parts_ignore, .look = object_ignore,
		.values_only = true,
	};
	cleanup_format_file struct rsh_format_file opened;
	struct rsh_error why = RSH_ERROR_INIT;
	struct rsh_torch_file *f = NULL;
	struct rsh_stat st = { .size = 0 };
	int rc = rsh_format_file_open(s, file, &opened, &why) ?:
		 rsh_torch_file_read_parts(&opened.bytes, &parts, &f, &why);

	if (rc) {
		if (rc != -ENOENT && rc != -ENOMEM)
			rsh_log_warning("%s: its values are not shown",
					why.text);
		return rc == -ENOMEM ? rc : 0;
	}
	rsh_handle_look(opened.handle, &st);
	for (uint32_t i = 0; i < f->n_values && rc == 0; i++) {
		struct rsh_joined_value shown;

		rc = take(ctx, &f->values[i], &shown);
		if (rc > 0)
			rc = value_add(&f->values[i], &shown, opts, &st.attr,
				       arena, out);
	}
	rsh_torch_file_free(f);
	return rc;
}

/* ---- the description ---- */

struct rsh_dcp *rsh_joined_begin(struct rsh_joined *j)
{
	/* An attempt that failed may have left one. */
	rsh_dcp_free(j->dcp.pub);
	j->problems.n = 0;
	j->dcp.pub = calloc(1, sizeof(*j->dcp.pub));
	if (j->dcp.pub)
		j->dcp.pub->by_name = true;
	return j->dcp.pub;
}

static const char *name_at(const char *v, size_t i, size_t size)
{
	const char *name;

	memcpy(&name, v + i * size, sizeof(name));
	return name;
}

int rsh_joined_each(void *v, size_t n, size_t size,
		    int (*take)(void *ctx, void *first, size_t n), void *ctx)
{
	char *at = v;
	int rc = 0;

	for (size_t i = 0, end; i < n && rc == 0; i = end) {
		for (end = i + 1; end < n && strcmp(name_at(at, end, size),
						    name_at(at, i, size)) == 0;)
			end++;
		rc = take(ctx, at + i * size, end - i);
	}
	return rc;
}

void rsh_joined_find_lost(const struct rsh_joined *j,
			  const struct rsh_dcp_tensor *t,
			  struct rsh_error *wrong)
{
	const struct rsh_dcp_chunk *lost = t->chunks;
	const struct rsh_dcp_chunk *end = lost + t->n_chunks;
	const struct rsh_dcp *d = j->dcp.pub;

	while (lost < end && (rsh_dcp_chunk_is_empty(t, lost) ||
			      (lost->file < j->n && j->files[lost->file])))
		lost++;
	if (lost == end)
		return;
	if (lost->file < d->n_files)
		rsh_error_set(wrong, ENOENT, "tensor %s: %s, which has a part "
			      "of it, %s", t->name, d->files[lost->file],
			      lost->file < j->n ? "cannot be read" :
			      "is missing");
	else
		rsh_error_set(wrong, ENOENT, "tensor %s: a part of it is in no "
			      "file", t->name);
}

void rsh_joined_lost(const struct rsh_joined *j, struct rsh_error *wrong)
{
	const struct rsh_dcp *d = j->dcp.pub;

	for (uint32_t i = 0; i < d->n_tensors && !wrong->code; i++)
		rsh_joined_find_lost(j, &d->tensors[i], wrong);
}
