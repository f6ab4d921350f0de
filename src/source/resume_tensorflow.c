/* SPDX-License-Identifier: Apache-2.0 */
/* source/resume_tensorflow.c - TensorFlow 2: <name>-<step>.index and its
 * <name>-<step>.data-<i>-of-<n>, and the file `checkpoint` that names the
 * newest one. */
#include "config.h"

#include "resume_i.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "rsh/util/mem.h"
#include "rsh/wire/intact.h"

static const char index_suffix[] = ".index";
static const char data_infix[] = ".data-";

/* Where ".data-00001-of-00002" begins at the end of a name, NULL if nothing of
 * this form does. */
static const char *data_suffix(const char *file, unsigned *i, unsigned *n)
{
	const char *p = strrchr(file, '.');
	int end = 0;

	if (!p || p == file ||
	    strncmp(p, data_infix, strlen(data_infix)) != 0 ||
	    strspn(p + strlen(data_infix), "0123456789") != 5)
		return NULL;
	if (sscanf(p + strlen(data_infix), "%5u-of-%5u%n", i, n, &end) != 2 ||
	    p[strlen(data_infix) + (size_t)end] || *n == 0 || *i >= *n)
		return NULL;
	return p;
}

static int parse(struct rsh_job *job, const char *file, struct rsh_saved *out)
{
	const char *data, *dash;
	unsigned i, n;
	size_t len;

	if (rsh_has_suffix(file, index_suffix))
		len = rsh_stem_length(file, index_suffix);
	else if ((data = data_suffix(file, &i, &n)))
		len = (size_t)(data - file);
	else
		return 0;
	out->name = rsh_arena_strndup(&job->arena, file, len);
	if (!out->name)
		return -ENOMEM;
	/* The last number is the step, as tf.train.Checkpoint writes it. */
	dash = strrchr(out->name, '-');
	if (dash && dash[1] && !dash[1 + strspn(dash + 1, "0123456789")]) {
		errno = 0;
		out->numbers[0] = strtoull(dash + 1, NULL, 10);
		out->n_numbers = errno == 0;
	}
	out->series = out->n_numbers ?
		rsh_job_printf(job, "%.*s", (int)(dash - out->name),
			       out->name) : out->name;
	return out->series ? 1 : -ENOMEM;
}

/* All data files must say the same n and be there. */
static int collect_shards(const struct rsh_byte_source *files,
			  const char *const *names, size_t n_files,
			  const struct rsh_byte_source **shards,
			  struct rsh_error *err)
{
	unsigned i = 0, n = 0;
	size_t n_found = 0;

	for (size_t f = 0; f < n_files; f++) {
		if (!data_suffix(names[f], &i, &n))
			continue;
		if (n != n_files - 1)
			return rsh_error_set(err, EBADMSG, "%s: %zu of its %u "
					     "data files are there",
					     files[f].path, n_files - 1, n);
		shards[i] = &files[f];
		n_found++;
	}
	return n_found == n_files - 1 ? 0 :
	       rsh_error_set(err, EBADMSG, "%s: two indexes", files[0].path);
}

static int check(const struct rsh_byte_source *files, const char *const *names,
		 size_t n, bool full, struct rsh_error *err)
{
	cleanup_free const struct rsh_byte_source **shards =
		calloc(n, sizeof(*shards));
	const struct rsh_byte_source *index = NULL;
	int rc;

	if (!shards)
		return rsh_error_nomem(err);
	for (size_t i = 0; i < n; i++)
		if (rsh_has_suffix(names[i], index_suffix))
			index = &files[i];
	if (!index)
		return rsh_error_set(err, EBADMSG, "%s: there is no .index "
				     "beside it", files[0].path);
	if (n == 1)
		return rsh_error_set(err, EBADMSG, "%s: its data files are "
				     "not there", index->path);
	rc = collect_shards(files, names, n, shards, err);
	return rc ? rc : rsh_tf_index_check(index, shards, (uint32_t)n - 1,
					    full, err);
}

static int find(struct rsh_job *job, struct rsh_error *err)
{
	return rsh_find_in_ranks(job, parse, err);
}

/* A string of a text protobuf. */
static const char *quote(struct rsh_job *job, const char *name)
{
	char *out = rsh_arena_alloc(&job->arena, 2 * strlen(name) + 1, 1);
	char *to = out;

	for (; out && *name; name++) {
		if (*name == '"' || *name == '\\')
			*to++ = '\\';
		*to++ = *name;
	}
	return out;
}

static int show_links(struct rsh_resume *r, const struct rsh_saved *s,
		      const char *dir)
{
	static const char latest[] = "latest";
	const size_t n = strlen(s->name);
	int rc = 0;

	if (strcmp(s->name, latest) == 0)
		return 0;
	for (size_t i = 0; i < s->n_files && rc == 0; i++)
		rc = rsh_show_link(r, s, dir,
				   rsh_job_printf(&r->job, "%s%s", latest,
						  s->files[i] + n),
				   s->files[i]);
	return rc;
}

static int show(struct rsh_resume *r, const struct rsh_saved *step, size_t n)
{
	int rc = 0;

	for (size_t i = 0; i < n && rc == 0; i++) {
		const struct rsh_saved *s = &step[i];
		const char *dir = r->job.units[s->unit].name;
		const char *name = quote(&r->job, s->name);

		if (!name)
			return -ENOMEM;
		rc = rsh_show_files(r, s, dir);
		if (rc == 0)
			rc = show_links(r, s, dir);
		if (rc == 0)
			rc = rsh_show_text(r, s, dir, "checkpoint",
				rsh_job_printf(&r->job,
					"model_checkpoint_path: \"%s\"\n"
					"all_model_checkpoint_paths: \"%s\"\n",
					name, name));
	}
	return rc;
}

const struct rsh_resume_format rsh_resume_tensorflow = {
	.name = "TensorFlow",
	.find = find,
	.check = check,
	.show = show,
};
