/* SPDX-License-Identifier: Apache-2.0 */
/* formats/dcp/listing.c finds the metadata of a distributed checkpoint and
 * lists the files that the metadata names, and does both for --resume. */
#include "config.h"

#include "dcp_i.h"

#include <errno.h>
#include <malloc.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "rsh/formats/files.h"
#include "rsh/util/files.h"
#include "rsh/util/log.h"
#include "rsh/util/mem.h"
#include "rsh/util/text.h"

/* ---- what is there ---- */

struct dcp_found {
	bool whole;             /* there is a .metadata */
	bool hyper;             /* there are files of HyperParallel */
	struct rsh_path_list ranks; /* metadata of ranks, ascending by name */
	struct rsh_path_list shards;
};

static void dcp_found_clear(struct dcp_found *f)
{
	rsh_path_list_clear(&f->ranks);
	rsh_path_list_clear(&f->shards);
}
#define cleanup_found __attribute__((cleanup(dcp_found_clear)))

/* Returns whether a name is a number between two texts. */
static bool name_is(const char *name, const char *before, const char *after)
{
	const size_t n = strlen(before);
	const char *at = name + n;
	size_t digits;

	if (strncmp(name, before, n) != 0)
		return false;
	digits = rsh_count_digits(at, strlen(at));
	return digits > 0 && strcmp(at + digits, after) == 0;
}

static bool is_hyper_rank(const char *name)
{
	return name_is(name, "", RSH_DCP_METADATA);
}

static bool is_of_rank(const char *name)
{
	return name_is(name, "__", RSH_DCP_METADATA) ||
	       name_is(name, ".rank", "_metadata") || is_hyper_rank(name);
}

static bool is_hyper_data(const char *name)
{
	return name_is(name, "_rank", "_.safetensors") ||
	       name_is(name, "_rank", "_.bytes");
}

/* Returns whether only a distributed checkpoint has a file of that name.  Any
 * program may write "3.metadata". */
static bool is_own(const char *name)
{
	return strcmp(name, RSH_DCP_METADATA) == 0 || is_hyper_data(name) ||
	       (is_of_rank(name) && !is_hyper_rank(name));
}

/* Returns 0 or -ENOMEM. */
static int found_take(struct dcp_found *f, const char *name)
{
	f->whole |= strcmp(name, RSH_DCP_METADATA) == 0;
	f->hyper |= is_hyper_data(name);
	return is_of_rank(name) ? rsh_path_list_add(&f->ranks, name) :
	       rsh_dcp_is_shard(name) ? rsh_path_list_add(&f->shards, name) :
					0;
}

/* Reads the metadata of the whole step, or else those of the ranks, of which
 * none of HyperParallel's "0.metadata", "1.metadata" ... may be missing. */
static int found_read(struct dcp_found *f, struct rsh_dcp_builder *b,
		      int (*add)(const void *ctx, const char *name,
				 struct rsh_dcp_builder *b,
				 struct rsh_error *err),
		      const void *ctx, struct rsh_error *err)
{
	const size_t n = f->ranks.n;
	uint64_t rank;
	int rc = 0;

	if (f->whole)
		return add(ctx, RSH_DCP_METADATA, b, err);
	rsh_path_list_sort(&f->ranks);
	for (size_t i = 0; i < n; i++) {
		const char *name = f->ranks.v[i];
		const size_t digits = strlen(name) - strlen(RSH_DCP_METADATA);

		if (is_hyper_rank(name) &&
		    (!rsh_number_read(name, digits, &rank) || rank != i))
			return rsh_error_set(err, ENOENT, "%s: not complete: "
					     "it has %zu metadata files of "
					     "ranks up to %s, and no %zu"
					     RSH_DCP_METADATA, b->path, n,
					     f->ranks.v[n - 1], i);
	}
	for (size_t i = 0; i < n && rc == 0; i++)
		rc = add(ctx, f->ranks.v[i], b, err);
	return rc;
}

static bool dcp_is_step(const struct rsh_look *l)
{
	const char *shard = NULL;
	bool has = false;

	for (size_t i = 0; i < l->n; i++) {
		const char *name = l->names[i];

		if (is_own(name))
			return true;
		if (rsh_dcp_is_shard(name) &&
		    (!shard || strverscmp(name, shard) < 0))
			shard = name;
	}
	/* The first shard decides for all. */
	return shard && rsh_dcp_shard_look(l->source, shard, &has, NULL) == 0 &&
	       has;
}

static void dcp_hint(const struct rsh_look *l, char *buf, size_t max)
{
	const char *item = NULL;

	for (size_t i = 0; i < l->n; i++) {
		if (strcmp(l->names[i], RSH_DCP_METADATA) == 0) {
			snprintf(buf, max, "; it is a distributed checkpoint");
			return;
		}
		if (rsh_has_suffix(l->names[i], ".distcp") &&
		    (!item || strverscmp(l->names[i], item) < 0))
			item = l->names[i];
	}
	if (item)
		snprintf(buf, max, "; %s is of a distributed checkpoint, and "
			 "no " RSH_DCP_METADATA " is beside it: the save was "
			 "not finished", item);
}

int rsh_dcp_bid(const struct rsh_look *l, struct rsh_bid_more *more)
{
	if (l->file || !rsh_look_is_plain(l))
		return RSH_BID_NO;
	if (more->hint)
		dcp_hint(l, more->hint, more->max);
	more->is_step = dcp_is_step(l);
	return more->is_step ? RSH_BID_SURE : RSH_BID_NO;
}

/* ---- SOURCE is a step ---- */

static int dcp_add(const void *source, const char *name,
		   struct rsh_dcp_builder *b, struct rsh_error *err)
{
	cleanup_format_file struct rsh_format_file f;

	return rsh_format_file_open(source, name, &f, err) ?:
	       rsh_dcp_builder_add(b, &f.bytes, err);
}

static int dcp_read(const struct rsh_source *s, struct rsh_dcp **out,
		    struct rsh_error *err)
{
	const char *path = rsh_source_path(s), *name;
	cleanup_found struct dcp_found f = { 0 };
	cleanup_dir struct rsh_dir *dir = NULL;
	struct rsh_dcp_builder *b;
	int more = rsh_dir_open(rsh_source_store(s), "", &dir), rc = 0;

	while (more >= 0 && rc == 0 && (more = rsh_dir_next(dir, &name)) > 0)
		rc = found_take(&f, name);
	b = rc ? NULL : rsh_dcp_builder_new(path);
	if (!b)
		return rsh_error_nomem(err);
	rsh_path_list_sort(&f.shards);
	if (dir && more < 0)
		rc = rsh_store_open_error(rsh_source_store(s), "", more, err);
	else if (f.whole || f.ranks.n)
		rc = found_read(&f, b, dcp_add, s, err);
	else if (f.hyper)
		rc = rsh_error_set(err, ENOENT, "%s: not complete, as it has "
				   "no " RSH_DCP_METADATA ": the save has "
				   "not ended or was stopped", path);
	else if (f.shards.n)
		rc = rsh_dcp_shards_add(s, (const char *const *)f.shards.v,
					f.shards.n, b, err);
	else
		rc = rsh_error_set(err, ENOENT, "%s: its metadata was "
				   "removed", path);
	rc = rc ?: rsh_dcp_builder_finish(b, out, err);
	rsh_dcp_builder_free(b);
	return rc;
}

static int dcp_refuse_outside(const struct rsh_source *s, const char *name,
			      const char *file, struct rsh_error *err)
{
	return rsh_error_set(err, EXDEV, "%s: %s is in %s, outside of it (an "
			     "incremental save): --follow-outside reads it",
			     rsh_source_path(s), name, file);
}

static bool is_outside(const char *file, size_t levels)
{
	for (; file && strncmp(file, "../", 3) == 0; file += 3)
		if (levels-- == 0)
			return true;
	return false;
}

/* An incremental save of HyperParallel names files of earlier steps. */
static int dcp_check_inside(const struct rsh_source *s, const struct rsh_dcp *d,
			    const char *within, struct rsh_error *err)
{
	const char *path = rsh_source_path(s);
	const size_t n = within ? strlen(within) : 0;
	/* So many directories above SOURCE are below `within`, or are it. */
	size_t levels = 0;

	if (n && strncmp(path, within, n) == 0 && path[n] == '/')
		for (const char *at = path + n; *at; at += strcspn(at, "/")) {
			at += strspn(at, "/");
			levels += *at != '\0';
		}
	for (uint32_t i = 0; i < d->n_tensors; i++) {
		const struct rsh_dcp_tensor *t = &d->tensors[i];

		for (uint32_t k = 0; k < t->n_chunks; k++) {
			const uint32_t file = t->chunks[k].file;

			if (file != RSH_DCP_NO_FILE &&
			    is_outside(d->files[file], levels))
				return dcp_refuse_outside(s, t->name,
							  d->files[file], err);
		}
	}
	for (uint32_t i = 0; i < d->n_values; i++)
		if (is_outside(d->values[i].file, levels))
			return dcp_refuse_outside(s, d->values[i].name,
						  d->values[i].file, err);
	return 0;
}

/* ---- the places of items ---- */

/* Sets holds[file] for each file that has a chunk with elements.  Other files
 * may be of any format. */
static void dcp_mark_files(const struct rsh_dcp *d, bool *holds)
{
	for (uint32_t i = 0; i < d->n_tensors; i++) {
		const struct rsh_dcp_tensor *t = &d->tensors[i];

		for (uint32_t k = 0; k < t->n_chunks; k++)
			if (t->chunks[k].file != RSH_DCP_NO_FILE &&
			    !rsh_dcp_chunk_is_empty(t, &t->chunks[k]))
				holds[t->chunks[k].file] = true;
	}
}

RSH_ORDER(dcp_by_place, struct rsh_dcp_place,
	  rsh_compare_u64(x->file, y->file) ?:
	  rsh_compare_u64(x->offset, y->offset) ?:
	  rsh_compare_u64(x->length, y->length))

/* Lists the items of each file, each once. */
static int dcp_place_all(struct rsh_dcp_source *d)
{
	size_t n = 0, kept = 0;

	for (uint32_t i = 0; i < d->pub->n_tensors; i++)
		n += d->pub->tensors[i].n_chunks;
	d->places = rsh_alloc_array(n, sizeof(*d->places));
	d->holds = calloc((size_t)d->pub->n_files + 1, sizeof(*d->holds));
	if (!d->places || !d->holds)
		return -ENOMEM;
	dcp_mark_files(d->pub, d->holds);
	for (uint32_t i = 0; i < d->pub->n_tensors; i++) {
		const struct rsh_dcp_tensor *t = &d->pub->tensors[i];

		for (uint32_t k = 0; k < t->n_chunks; k++) {
			const struct rsh_dcp_chunk *c = &t->chunks[k];

			if (c->file != RSH_DCP_NO_FILE &&
			    c->length != RSH_DCP_BY_NAME &&
			    !rsh_dcp_chunk_is_empty(t, c))
				d->places[d->n++] = (struct rsh_dcp_place){
					c->file, c->offset, c->length, t,
				};
		}
	}
	rsh_sort(d->places, d->n, dcp_by_place);
	for (size_t i = 0; i < d->n; i++)
		if (kept == 0 ||
		    dcp_by_place(&d->places[kept - 1], &d->places[i]) != 0)
			d->places[kept++] = d->places[i];
	d->n = kept;
	return 0;
}

static void dcp_close(void *state)
{
	struct rsh_dcp_source *d = state;

	if (!d)
		return;
	rsh_dcp_free(d->pub);
	free(d->places);
	free(d->holds);
	free(d);
}

int rsh_dcp_open(struct rsh_source *s, const struct rsh_source_options *opts,
		 struct rsh_error *err)
{
	const char *path = rsh_source_path(s);
	struct rsh_dcp_source *d = calloc(1, sizeof(*d));
	int rc;

	rsh_source_keep(s, d, NULL, dcp_close);
	rc = d ? dcp_read(s, &d->pub, err) : rsh_error_nomem(err);
	if (rc == 0 && !opts->store.follow_outside)
		rc = dcp_check_inside(s, d->pub, opts->store.within, err);
	if (rc)
		return rc;
	/* Parsing a large .metadata took several times the memory that is kept,
	 * in pieces that malloc does not return to the system by itself. */
	malloc_trim(0);
	rc = dcp_place_all(d);
	for (uint32_t i = 0; i < d->pub->n_files && rc == 0; i++)
		rc = rsh_source_list(s, &(struct rsh_checkpoint){
			.rank = i, .name = d->pub->files[i],
		});
	if (rc)
		return rsh_error_nomem(err);
	rsh_source_take_list(s, rsh_path_name(path));
	rsh_log_info("%s: a distributed checkpoint of %u tensors in %u files",
		     path, d->pub->n_tensors, d->pub->n_files);
	return 0;
}

/* ---- steps, for --resume: step-100, checkpoint_100, iter_0000100 ---- */

/* The numbers in the name of the directory are the step.  The files that a step
 * needs decide about it. */
enum rsh_part rsh_dcp_part(const char *path, struct rsh_step_name *out)
{
	const char *slash = strchr(path, '/'), *file = slash ? slash + 1 : "";
	cleanup_free char *dir = slash ? strndup(path, (size_t)(slash - path)) :
					 NULL;

	if (!dir || strchr(file, '/'))
		return RSH_PART_NO;
	rsh_step_name_read(dir, strlen(dir), out);
	return is_own(file) || rsh_has_suffix(file, ".distcp") ?
	       RSH_PART_YES : RSH_PART_MAYBE;
}

struct dcp_step {
	const struct rsh_byte_source *files;
	const char *const *names;
	size_t n;
};

static int step_add(const void *step, const char *name,
		    struct rsh_dcp_builder *b, struct rsh_error *err)
{
	const struct dcp_step *s = step;

	return rsh_dcp_builder_add(
		b, &s->files[rsh_step_place(s->names, s->n, name)], err);
}

/* Compares the bytes of a chunk with their checksum. */
static int step_check_chunk(const struct rsh_byte_source *file,
			    const struct rsh_dcp_chunk *c,
			    struct rsh_error *err)
{
	struct rsh_dcp_item item;
	int rc = rsh_dcp_item_read(file, c->offset, c->length, &item, err);

	if (rc == 0 && !item.has_crc)
		rsh_step_say_unsummed(file->path);
	return rc ?: rsh_dcp_item_check(file, &item, err);
}

static int step_check(const struct dcp_step *s, const struct rsh_dcp *d,
		      const char *path, bool full, struct rsh_error *err)
{
	const size_t n = (size_t)d->n_files + 1;
	cleanup_free uint64_t *sizes = rsh_alloc_array(n, sizeof(*sizes));
	cleanup_free size_t *at = rsh_alloc_array(n, sizeof(*at));
	cleanup_free bool *holds = calloc(n, sizeof(*holds));
	int rc;

	if (!sizes || !at || !holds)
		return rsh_error_nomem(err);
	dcp_mark_files(d, holds);
	for (uint32_t i = 0; i < d->n_files; i++) {
		at[i] = rsh_step_place(s->names, s->n, d->files[i]);
		sizes[i] = at[i] < s->n ? s->files[at[i]].size :
					  RSH_DCP_MISSING;
		if (at[i] == s->n && strchr(d->files[i], '/'))
			return rsh_error_set(err, EBADMSG, "%s: %s is outside "
					     "of it (an incremental save)",
					     path, d->files[i]);
	}
	rc = rsh_dcp_judge(d, sizes, err);
	if (rc) {
		rsh_error_prefix(err, "%s", path);
		return rc;
	}
	for (uint32_t i = 0; i < d->n_files && d->by_name && rc == 0; i++)
		if (holds[i])
			rc = rsh_step_check_file(RSH_FILE_SAFETENSORS,
						 &s->files[at[i]], full,
						 NULL, err);
	for (uint32_t i = 0; i < d->n_tensors && full; i++) {
		const struct rsh_dcp_tensor *t = &d->tensors[i];

		for (uint32_t k = 0; k < t->n_chunks && rc == 0; k++)
			if (!rsh_dcp_chunk_is_empty(t, &t->chunks[k]) &&
			    t->chunks[k].length != RSH_DCP_BY_NAME)
				rc = step_check_chunk(
					&s->files[at[t->chunks[k].file]],
					&t->chunks[k], err);
	}
	return rc;
}

/* A step was not finished if its metadata, which is written last, or a file
 * that it names, or a part of a file is missing. */
int rsh_dcp_check(const struct rsh_byte_source *files,
		  const char *const *names, size_t n, bool full,
		  struct rsh_counters *says, struct rsh_error *err)
{
	const size_t at = rsh_step_place(names, n, RSH_DCP_METADATA);
	const struct dcp_step s = { files, names, n };
	const char *path = files[at < n ? at : 0].path;
	cleanup_found struct dcp_found f = { 0 };
	struct rsh_dcp_builder *b = rsh_dcp_builder_new(path);
	struct rsh_dcp *d = NULL;
	int rc = b ? 0 : -ENOMEM;

	(void)says;
	for (size_t i = 0; i < n && rc == 0; i++)
		rc = found_take(&f, names[i]);
	if (rc)
		rsh_error_nomem(err);
	else if (!f.whole && f.ranks.n == 0)
		rc = rsh_error_set(err, EBADMSG, "%s: no " RSH_DCP_METADATA
				   " beside it: the save was not finished",
				   path);
	rc = rc ?: found_read(&f, b, step_add, &s, err) ?:
	     rsh_dcp_builder_finish(b, &d, err) ?:
	     step_check(&s, d, path, full, err);
	rsh_dcp_builder_free(b);
	rsh_dcp_free(d);
	return rc;
}
