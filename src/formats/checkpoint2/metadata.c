/* SPDX-License-Identifier: Apache-2.0 */
/* formats/checkpoint2/metadata.c reads the metadata.json of a step of
 * Checkpoint 2.0, which names the files and their ranks. */
#include "config.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "steps_i.h"
#include "rsh/util/log.h"
#include "rsh/util/mem.h"

#define METADATA "metadata.json"

void rsh_described_free(void *described)
{
	struct rsh_described *d = described;

	if (!d)
		return;
	rsh_ckpt2_free(d->metadata);
	free(d->absent);
	free(d->path);
	free(d);
}

char *rsh_described_path(const char *path)
{
	const char *slash = strrchr(path, '/');
	const char *base = slash ? slash + 1 : path;
	struct rsh_ckpt2_name parts;
	size_t at;
	char *out;

	if (!rsh_ckpt2_name_parse(base, &parts))
		return strdup(path);
	at = parts.n_prefix ? parts.n_prefix + 1 : 0;
	if (asprintf(&out, "%.*s*%s", (int)(base - path + (ptrdiff_t)at), path,
		     base + at + strlen(parts.opt ? "opt" : "model")) < 0)
		return NULL;
	return out;
}

/* ---- the file ---- */

static int described_load(const struct rsh_source *s, size_t first, size_t end,
			  struct rsh_described *d, struct rsh_error *err)
{
	const struct rsh_checkpoint *one = rsh_source_on_list(s, first);
	cleanup_free char *name = NULL;
	cleanup_handle struct rsh_handle *h = NULL;
	struct rsh_ckpt2_name parts;
	int rc;

	if (asprintf(&name, "%.*s" METADATA, (int)(one->base - one->name),
		     one->name) < 0)
		name = NULL;
	if (!name || asprintf(&d->path, "%s/%s", rsh_source_path(s), name) < 0) {
		d->path = NULL;
		return rsh_error_nomem(err);
	}
	rc = rsh_handle_open(rsh_source_store(s), name, &h);
	if (rc && rc != -ENOENT)
		return rsh_store_open_error(rsh_source_store(s), name, rc, err);
	/* A step of one card has no metadata.json. */
	for (size_t i = first; rc && i < end; i++)
		if (rsh_ckpt2_name_parse(rsh_source_on_list(s, i)->base,
					 &parts) &&
		    (parts.of > 1 || parts.rank > 0))
			return rsh_error_set(err, ENOENT, "%s is missing, which "
					     "says how the files of %u ranks "
					     "belong together: the save was not "
					     "finished", d->path, parts.of);
	if (rc)
		return 0;
	/* An injected fault must not be stored in the index cache, and the
	 * cache must not hide it. */
	rc = rsh_index_key_take(h, &d->key);
	if (rc)
		return rsh_error_set(err, -rc, "%s: %s", d->path,
				     strerror(-rc));
	return rsh_metadata_parse(rsh_source_index_dir(s), h, d->path,
				  &d->metadata, err);
}

/* ---- ranks of the files ---- */

static int described_by_name(const void *name, const void *file)
{
	return strcmp(name, ((const struct rsh_ckpt2_file *)file)->name);
}

/* Finds which of the described files exist. */
static int described_take_files(struct rsh_source *s, size_t first, size_t end,
				struct rsh_described *d)
{
	const struct rsh_ckpt2 *m = d->metadata;
	const uint32_t n = m->n_files;
	/* [file of the metadata] */
	cleanup_free bool *present = calloc((size_t)n + 1, sizeof(*present));
	struct rsh_ckpt2_name parts;

	d->absent = rsh_alloc_array(n, sizeof(*d->absent));
	if (!present || !d->absent)
		return -ENOMEM;
	for (size_t i = first; i < end; i++) {
		struct rsh_checkpoint *file = rsh_source_on_list(s, i);
		const struct rsh_ckpt2_file *named =
			bsearch(file->base, m->files, n, sizeof(*m->files),
				described_by_name);
		const bool parsed = rsh_ckpt2_name_parse(file->base, &parts);

		d->any_opt |= parsed && parts.opt;
		/* If no record of a file is described, as in an optimizer's
		 * file that has only counters, the rank is taken from the
		 * file's name, if names have ranks. */
		file->rank = named ? named->rank :
			     parsed && parts.of == m->n_ranks &&
			     parts.rank < m->n_ranks ? parts.rank :
						       RSH_RANK_UNKNOWN;
		if (named)
			present[named - m->files] = true;
		if (file->rank == RSH_RANK_UNKNOWN)
			rsh_log_info("%s/%s: " METADATA " does not list the "
				     "file, which is left out",
				     rsh_source_path(s), file->name);
	}
	for (uint32_t i = 0; i < n; i++)
		if (!present[i])
			d->absent[d->n_absent++] = i;
	return 0;
}

int rsh_checkpoint2_choose(struct rsh_source *s, uint32_t candidate,
			   struct rsh_error *err)
{
	struct rsh_described *d = calloc(1, sizeof(*d));
	size_t first, end;
	int rc;

	rsh_described_free(rsh_source_state(s));
	rsh_source_keep(s, NULL);
	rsh_source_candidate_range(s, candidate, &first, &end);
	rc = d ? described_load(s, first, end, d, err) : rsh_error_nomem(err);
	if (rc == 0 && d->metadata && described_take_files(s, first, end, d))
		rc = rsh_error_nomem(err);
	if (rc || !d->metadata) {
		rsh_described_free(d);
		return rc;
	}
	rsh_source_keep(s, d);
	return 0;
}

bool rsh_checkpoint2_absent(const struct rsh_source *s, uint32_t i,
			    struct rsh_source_file_info *out)
{
	const struct rsh_described *d = rsh_source_state(s);
	const struct rsh_ckpt2_file *f;

	if (!d || i >= d->n_absent)
		return false;
	f = &d->metadata->files[d->absent[i]];
	*out = (struct rsh_source_file_info){
		.rank = f->rank, .name = f->name, .path = f->name,
	};
	return true;
}

const char *rsh_checkpoint2_notes(const struct rsh_source *s,
				  const char *choice, FILE *to)
{
	const struct rsh_described *d = rsh_source_state(s);
	const struct rsh_ckpt2 *m = d ? d->metadata : NULL;

	if (!d)
		return NULL;
	if (choice)
		fprintf(to, "; several steps, taking %s", choice);
	if (d->n_absent > 0)
		fprintf(to, "; %u of the %u files that it names are not there, "
			"such as %s", d->n_absent, m->n_files,
			m->files[d->absent[d->n_absent - 1]].name);
	if (d->n_nowhere > 0)
		fprintf(to, "; %u of the %u parameters that it describes are "
			"in no file and left out, such as %s", d->n_nowhere,
			m->n_params, d->nowhere);
	if (d->n_unlisted > 0)
		fprintf(to, "; %u parameters in the files are not described "
			"and count as unlisted, such as %s", d->n_unlisted,
			d->unlisted);
	return d->path;
}
