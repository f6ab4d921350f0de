/* SPDX-License-Identifier: Apache-2.0 */
/* formats/dcp/listing.c finds the metadata of a distributed checkpoint and
 * lists the files that the metadata names. */
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

/* ---- the content of the directory ---- */

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

bool rsh_dcp_is_of_rank(const char *name)
{
	return name_is(name, "__", RSH_DCP_METADATA) ||
	       name_is(name, ".rank", "_metadata") || is_hyper_rank(name);
}

static bool is_hyper_data(const char *name)
{
	return name_is(name, "_rank", "_.safetensors") ||
	       name_is(name, "_rank", "_.bytes");
}

/* Any program may write "3.metadata". */
bool rsh_dcp_is_own(const char *name)
{
	return strcmp(name, RSH_DCP_METADATA) == 0 || is_hyper_data(name) ||
	       (rsh_dcp_is_of_rank(name) && !is_hyper_rank(name));
}

int rsh_dcp_check_ranks(const char *path, const char *const *names, size_t n,
			struct rsh_error *err)
{
	uint64_t rank;

	for (size_t i = 0; i < n; i++) {
		const size_t digits = strlen(names[i]) -
				      strlen(RSH_DCP_METADATA);

		if (is_hyper_rank(names[i]) &&
		    (!rsh_number_read(names[i], digits, &rank) || rank != i))
			return rsh_error_set(err, ENOENT, "%s: not complete: "
					     "it has %zu metadata files of "
					     "ranks up to %s, and no %zu"
					     RSH_DCP_METADATA, path, n,
					     names[n - 1], i);
	}
	return 0;
}

/* Returns 0, -ENOMEM, or the error if the directory cannot be read to its
 * end. */
static int dcp_look(const struct rsh_source *s, struct dcp_found *f)
{
	cleanup_dir struct rsh_dir *dir = NULL;
	int more = rsh_dir_open(rsh_source_store(s), "", &dir), rc = 0;
	const char *name;

	while (more >= 0 && rc == 0 && (more = rsh_dir_next(dir, &name)) > 0) {
		f->whole |= strcmp(name, RSH_DCP_METADATA) == 0;
		f->hyper |= is_hyper_data(name);
		if (rsh_dcp_is_of_rank(name))
			rc = rsh_path_list_add(&f->ranks, name);
		else if (rsh_dcp_is_shard(name))
			rc = rsh_path_list_add(&f->shards, name);
	}
	if (dir && more < 0)
		rc = more;
	rsh_path_list_sort(&f->ranks);
	rsh_path_list_sort(&f->shards);
	return rc;
}

static bool dcp_is_step(const struct rsh_look *l)
{
	const char *shard = NULL;
	bool has = false;

	for (size_t i = 0; i < l->n; i++) {
		const char *name = l->names[i];

		if (rsh_dcp_is_own(name))
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

/* ---- reading the metadata ---- */

static int dcp_add(const struct rsh_source *s, const char *name,
		   struct rsh_dcp_builder *b, struct rsh_error *err)
{
	cleanup_format_file struct rsh_format_file f;

	return rsh_format_file_open(s, name, &f, err) ?:
	       rsh_dcp_builder_add(b, &f.bytes, err);
}

static int dcp_read(const struct rsh_source *s, const struct dcp_found *f,
		    struct rsh_dcp_source *d, struct rsh_error *err)
{
	struct rsh_dcp_builder *b;
	int rc = 0;

	if (!f->whole && f->ranks.n == 0 && f->hyper)
		return rsh_error_set(err, ENOENT, "%s: not complete, as it has "
				     "no " RSH_DCP_METADATA ": the save has "
				     "not ended or was stopped",
				     rsh_source_path(s));
	if (!f->whole && f->ranks.n == 0 && f->shards.n == 0)
		return rsh_error_set(err, ENOENT, "%s: its metadata was "
				     "removed", rsh_source_path(s));
	if (!f->whole)
		rc = rsh_dcp_check_ranks(rsh_source_path(s),
					 (const char *const *)f->ranks.v,
					 f->ranks.n, err);
	if (rc)
		return rc;
	b = rsh_dcp_builder_new(rsh_source_path(s));
	if (!b)
		return rsh_error_nomem(err);
	if (f->whole)
		rc = dcp_add(s, RSH_DCP_METADATA, b, err);
	for (size_t i = 0; i < f->ranks.n && !f->whole && rc == 0; i++)
		rc = dcp_add(s, f->ranks.v[i], b, err);
	if (!f->whole && f->ranks.n == 0)
		rc = rsh_dcp_shards_add(s, (const char *const *)f->shards.v,
					f->shards.n, b, err);
	if (rc == 0)
		rc = rsh_dcp_builder_finish(b, &d->pub, err);
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

/* Returns how many directories above SOURCE are below `within`, or are it. */
static size_t levels_above(const struct rsh_source *s, const char *within)
{
	const char *path = rsh_source_path(s);
	const size_t n = within ? strlen(within) : 0;
	size_t levels = 0;

	if (n == 0 || strncmp(path, within, n) != 0 || path[n] != '/')
		return 0;
	for (const char *at = path + n; *at; at += strcspn(at, "/")) {
		at += strspn(at, "/");
		levels += *at != '\0';
	}
	return levels;
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
	const size_t levels = levels_above(s, within);

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

bool rsh_dcp_chunk_fits(const struct rsh_dcp_chunk *c, uint64_t file_bytes)
{
	return c->length == RSH_DCP_BY_NAME ||
	       (c->offset <= file_bytes && c->length <= file_bytes - c->offset);
}

bool rsh_dcp_chunk_is_empty(const struct rsh_dcp_tensor *t,
			    const struct rsh_dcp_chunk *c)
{
	for (uint32_t d = 0; d < t->n_dims; d++)
		if (c->size[d] == 0)
			return true;
	return false;
}

void rsh_dcp_mark_files(const struct rsh_dcp *d, bool *holds)
{
	for (uint32_t i = 0; i < d->n_tensors; i++) {
		const struct rsh_dcp_tensor *t = &d->tensors[i];

		for (uint32_t k = 0; k < t->n_chunks; k++)
			if (t->chunks[k].file != RSH_DCP_NO_FILE &&
			    !rsh_dcp_chunk_is_empty(t, &t->chunks[k]))
				holds[t->chunks[k].file] = true;
	}
}

static int dcp_by_place(const void *a, const void *b)
{
	const struct rsh_dcp_place *x = a, *y = b;

	return rsh_compare_u64(x->file, y->file) ?:
	       rsh_compare_u64(x->offset, y->offset) ?:
	       rsh_compare_u64(x->length, y->length);
}

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
	rsh_dcp_mark_files(d->pub, d->holds);
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
	if (d->n > 0)
		qsort(d->places, d->n, sizeof(*d->places), dcp_by_place);
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
	cleanup_found struct dcp_found f = { 0 };
	const char *slash = strrchr(rsh_source_path(s), '/');
	struct rsh_dcp_source *d = calloc(1, sizeof(*d));
	int rc;

	rsh_source_keep(s, d, NULL, dcp_close);
	rc = dcp_look(s, &f);
	if (!d || rc == -ENOMEM)
		return rsh_error_nomem(err);
	rc = rc ? rsh_store_open_error(rsh_source_store(s), "", rc, err) :
		  dcp_read(s, &f, d, err);
	if (rc == 0 && !opts->store.follow_outside)
		rc = dcp_check_inside(s, d->pub, opts->store.within, err);
	if (rc)
		return rc;
	/* Parsing a large .metadata took several times the memory that is kept,
	 * in pieces that malloc does not return to the system by itself. */
	malloc_trim(0);
	if (dcp_place_all(d))
		return rsh_error_nomem(err);
	for (uint32_t i = 0; i < d->pub->n_files; i++) {
		const struct rsh_checkpoint c = {
			.rank = i, .name = strdup(d->pub->files[i]),
		};

		if (rsh_source_list(s, &c))
			return rsh_error_nomem(err);
	}
	/* SOURCE is the step. */
	rsh_source_take_list(s, slash ? slash + 1 : rsh_source_path(s));
	rsh_log_info("%s: a distributed checkpoint of %u tensors in %u files",
		     rsh_source_path(s), d->pub->n_tensors, d->pub->n_files);
	return 0;
}
