/* SPDX-License-Identifier: Apache-2.0 */
/* formats/dcp/steps.c finds and checks steps of distributed checkpoints:
 * a directory for each step (step-100, checkpoint_100, iter_0000100), with
 * .metadata, which is written last, and the files that it names.
 *
 * The numbers in the directory's name are the step.  A step was not finished if
 * its metadata, a file, or a part of a file is missing. */
#include "config.h"

#include "dcp_i.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "rsh/formats/steps.h"
#include "rsh/util/files.h"
#include "rsh/util/mem.h"

static const char dcp_items[] = ".distcp";

/* The files that a step needs decide about its directory. */
enum rsh_part rsh_dcp_part(const char *path, struct rsh_step_name *out)
{
	const char *slash = strchr(path, '/'), *file = slash ? slash + 1 : "";
	cleanup_free char *dir = slash ? strndup(path, (size_t)(slash - path)) :
					 NULL;

	if (!dir || strchr(file, '/'))
		return RSH_PART_NO;
	rsh_step_name_read(dir, strlen(dir), out);
	return rsh_dcp_is_own(file) || rsh_has_suffix(file, dcp_items) ?
	       RSH_PART_YES : RSH_PART_MAYBE;
}

struct dcp_step {
	const struct rsh_byte_source *files;
	const char *const *names;
	size_t n;
	bool full;
	const struct rsh_dcp *dcp;
	const char *path; /* of the metadata */
};

static const struct rsh_byte_source *step_file(const struct dcp_step *s,
					       const char *name)
{
	const size_t at = rsh_step_place(s->names, s->n, name);

	return at < s->n ? &s->files[at] : NULL;
}

static int step_check_chunk(const struct dcp_step *s,
			    const struct rsh_byte_source *const *files,
			    const struct rsh_dcp_tensor *t,
			    const struct rsh_dcp_chunk *c,
			    struct rsh_error *err)
{
	const struct rsh_byte_source *file;
	struct rsh_dcp_item item;
	int rc;

	if (rsh_dcp_chunk_is_empty(t, c))
		return 0;
	if (c->file == RSH_DCP_NO_FILE)
		return rsh_error_set(err, EBADMSG, "%s: a chunk of tensor %s "
				     "is in no file", s->path, t->name);
	if (c->length == RSH_DCP_BY_NAME)
		return 0;
	file = files[c->file];
	if (!rsh_dcp_chunk_fits(c, file->size))
		return rsh_error_set(err, EBADMSG, "%s: it is too short for "
				     "tensor %s", file->path, t->name);
	if (!s->full)
		return 0;
	rc = rsh_dcp_item_read(file, c->offset, c->length, &item, err);
	if (rc)
		return rc;
	if (!item.has_crc)
		rsh_step_say_unsummed(file->path);
	return rsh_dcp_item_check(file, &item, err);
}

static int step_check_tensor(const struct dcp_step *s,
			     const struct rsh_byte_source *const *files,
			     const struct rsh_dcp_tensor *t,
			     struct rsh_error *err)
{
	uint64_t n = 0;
	int rc = rsh_dcp_uncovered(t, &n, err);

	if (rc == 0 && n > 0)
		rc = rsh_error_set(err, EBADMSG, "%s: %" PRIu64 " elements of "
				   "tensor %s are in no chunk", s->path, n,
				   t->name);
	for (uint32_t i = 0; i < t->n_chunks && rc == 0; i++)
		rc = step_check_chunk(s, files, t, &t->chunks[i], err);
	return rc;
}

static int step_check_files(const struct dcp_step *s, struct rsh_error *err)
{
	const struct rsh_dcp *d = s->dcp;
	cleanup_free const struct rsh_byte_source **files =
		rsh_alloc_array((size_t)d->n_files + 1, sizeof(*files));
	cleanup_free bool *holds = calloc((size_t)d->n_files + 1,
					  sizeof(*holds));
	int rc = files && holds ? 0 : rsh_error_nomem(err);

	if (rc == 0)
		rsh_dcp_mark_files(d, holds);
	for (uint32_t i = 0; i < d->n_files && rc == 0; i++) {
		files[i] = step_file(s, d->files[i]);
		if (!files[i])
			rc = rsh_error_set(err, EBADMSG, "%s: %s is %s",
					   s->path, d->files[i],
					   strchr(d->files[i], '/') ?
					   "outside of it (an incremental save)"
					   : "missing");
		else if (d->by_name && holds[i])
			rc = rsh_step_check_file(RSH_FILE_SAFETENSORS, files[i],
						 s->full, err);
	}
	for (uint32_t i = 0; i < d->n_tensors && rc == 0; i++)
		rc = step_check_tensor(s, files, &d->tensors[i], err);
	return rc;
}

static int step_by_rank(const void *a, const void *b)
{
	return strverscmp(*(const char *const *)a, *(const char *const *)b);
}

/* Reads the metadata of all ranks that have some. */
static int step_read_ranks(struct dcp_step *s, struct rsh_dcp_builder *b,
			   struct rsh_error *err)
{
	cleanup_free const char **names = rsh_alloc_array(s->n, sizeof(*names));
	size_t n = 0;
	int rc = 0;

	if (!names || !b)
		return rsh_error_nomem(err);
	for (size_t i = 0; i < s->n && rc == 0; i++) {
		if (!rsh_dcp_is_of_rank(s->names[i]))
			continue;
		names[n++] = s->names[i];
		rc = rsh_dcp_builder_add(b, &s->files[i], err);
	}
	if (n == 0)
		return rsh_error_set(err, EBADMSG, "%s: no " RSH_DCP_METADATA
				     " beside it: the save was not finished",
				     s->path);
	qsort(names, n, sizeof(*names), step_by_rank);
	return rc ?: rsh_dcp_check_ranks(s->path, names, n, err);
}

/* Reads the metadata of the whole step, or else those of the ranks. */
static int step_read(struct dcp_step *s, struct rsh_dcp **out,
		     struct rsh_error *err)
{
	const struct rsh_byte_source *whole = step_file(s, RSH_DCP_METADATA);
	struct rsh_dcp_builder *b;
	int rc;

	s->path = whole ? whole->path : s->files[0].path;
	if (whole)
		return rsh_dcp_parse(whole, out, err);
	b = rsh_dcp_builder_new(s->path);
	rc = step_read_ranks(s, b, err) ?: rsh_dcp_builder_finish(b, out, err);
	rsh_dcp_builder_free(b);
	return rc;
}

int rsh_dcp_check(const struct rsh_byte_source *files,
		  const char *const *names, size_t n, bool full,
		  struct rsh_error *err)
{
	struct dcp_step s = {
		.files = files, .names = names, .n = n, .full = full,
	};
	struct rsh_dcp *d = NULL;
	int rc = step_read(&s, &d, err);

	if (rc)
		return rc;
	s.dcp = d;
	rc = step_check_files(&s, err);
	rsh_dcp_free(d);
	return rc;
}
