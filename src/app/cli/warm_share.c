/* SPDX-License-Identifier: Apache-2.0 */
/* app/cli/warm_share.c divides what the files of a mount take from the source
 * among several runs of `warm`.
 *
 * The plans of the mount list for each record which bytes it takes.  Records
 * that take the same bytes are one slice, which is read in one file only.  All
 * slices are sorted by their position in the source, and share I of N is the
 * I-th of N parts with equally many bytes.  So slices that are adjacent in the
 * source, which may share blocks of it, mostly belong to the same run.
 */
#include "config.h"

#include "warm.h"

#include <dirent.h>
#include <errno.h>
#include <inttypes.h>
#include <jansson.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "rsh/app/options.h"
#include "rsh/util/checked.h"
#include "rsh/util/files.h"
#include "rsh/util/mem.h"
#include "rsh/util/text.h"
#include "rsh/util/xxh3.h"

/* Bytes between two parts of a file, such as headers, are read with the parts
 * if they are not more than this. */
#define GAP_BYTES 4096
/* A thread reads at most so much in one call. */
#define PART_BYTES ((uint64_t)64 * 1024 * 1024)

struct slice {
	uint64_t hash; /* hash of all that the slice takes */
	uint32_t rank; /* its position in the source */
	uint64_t at;
	struct rsh_warm_part part;
};

struct named {
	const char *name;
	size_t file;
	bool planned; /* the slices of the file are known */
};

struct dividing {
	const struct rsh_options *options;
	const struct rsh_warm_file *files;
	size_t n_files;
	struct named *names; /* [n_files], sorted by name */
	struct slice *slices;
	size_t n, cap;
};

/* ---- the slices ---- */

static int named_order(const void *a, const void *b)
{
	const struct named *x = a, *y = b;

	return strcmp(x->name, y->name);
}

static int share_name_files(struct dividing *d)
{
	d->names = rsh_alloc_array(d->n_files + 1, sizeof(*d->names));
	if (!d->names)
		return -ENOMEM;
	for (size_t i = 0; i < d->n_files; i++)
		d->names[i] = (struct named){
			rsh_path_name(d->files[i].path), i, false
		};
	qsort(d->names, d->n_files, sizeof(*d->names), named_order);
	return 0;
}

/* Adds a part of a file; `reads` says what the part takes from the source. */
static int share_add_slice(struct dividing *d, size_t file, uint64_t offset,
			   uint64_t bytes, const char *reads)
{
	struct slice *s;

	if (rsh_grow(&d->slices, &d->cap, d->n + 1, sizeof(*s)))
		return -ENOMEM;
	s = &d->slices[d->n++];
	*s = (struct slice){
		.hash = XXH3_64bits_withSeed(reads, strlen(reads), bytes),
		.rank = UINT32_MAX,
		.part = { file, offset, bytes },
	};
	sscanf(reads, "%" SCNu32 ":%" SCNu64, &s->rank, &s->at);
	return 0;
}

static uint64_t share_number(const json_t *slice, size_t i)
{
	return (uint64_t)json_integer_value(json_array_get(slice, i));
}

static int add_planned_file(struct dividing *d, const json_t *planned)
{
	const struct named key = {
		.name = json_string_value(json_object_get(planned, "name")),
	};
	const json_t *slices = json_object_get(planned, "slices");
	struct named *f = key.name ?
		bsearch(&key, d->names, d->n_files, sizeof(key), named_order) :
		NULL;
	int rc = 0;

	if (!f)
		return 0;
	f->planned = true;
	for (size_t i = 0; i < json_array_size(slices) && rc == 0; i++) {
		const json_t *s = json_array_get(slices, i);
		const char *reads = json_string_value(json_array_get(s, 2));

		rc = share_add_slice(d, f->file, share_number(s, 0),
				     share_number(s, 1), reads ? reads : "");
	}
	return rc;
}

/* Adds each file without a plan as one slice, identified by its path in the
 * mount, because the mount point may differ on other machines. */
static int add_other_files(struct dividing *d)
{
	const size_t above = strlen(d->options->mountpoint);
	int rc = 0;

	for (size_t i = 0; i < d->n_files && rc == 0; i++) {
		const struct named *f = &d->names[i];
		const struct rsh_warm_file *file = &d->files[f->file];
		const char *path = file->path + above;

		if (!f->planned)
			rc = share_add_slice(d, f->file, 0, file->size,
					     path + strspn(path, "/"));
	}
	return rc;
}

/* ---- the plans ---- */

static int add_plan(struct dividing *d, const char *dir, uint32_t rank,
		    struct rsh_error *err)
{
	char path[PATH_MAX];
	json_error_t why;
	json_t *plan;
	int rc = 0;

	snprintf(path, sizeof(path), "%s/rank_%" PRIu32 ".json", dir, rank);
	plan = json_load_file(path, 0, &why);
	if (!plan)
		return rsh_error_set(err, EIO, "%s: %s", path, why.text);
	for (size_t i = 0; i < json_array_size(json_object_get(plan, "files"));
	     i++)
		if (add_planned_file(d, json_array_get(
				json_object_get(plan, "files"), i)))
			rc = rsh_error_nomem(err);
	json_decref(plan);
	return rc;
}

/* Sets *n to the number of plans; 0 for a mount with --resume. */
static int count_plans(const char *dir, uint32_t *n, struct rsh_error *err)
{
	DIR *d = opendir(dir);
	const struct dirent *e;

	*n = 0;
	if (!d && errno == ENOENT)
		return 0;
	if (!d)
		return rsh_error_file(err, errno, dir);
	while ((e = readdir(d)))
		*n += strncmp(e->d_name, "rank_", 5) == 0;
	closedir(d);
	return 0;
}

static int add_plans(struct dividing *d, struct rsh_error *err)
{
	cleanup_free char *dir =
		rsh_text_format("%s/.reshardfs/plan", d->options->mountpoint);
	cleanup_free bool *wanted = NULL;
	uint32_t n;
	int rc;

	if (!dir)
		return rsh_error_nomem(err);
	rc = count_plans(dir, &n, err);
	if (rc || n == 0)
		return rc;
	wanted = rsh_alloc_array(n, sizeof(*wanted));
	if (!wanted)
		return rsh_error_nomem(err);
	rc = rsh_ranks_mark(d->options, 1, n, wanted, err);
	for (uint32_t rank = 0; rank < n && rc == 0; rank++)
		if (wanted[rank])
			rc = add_plan(d, dir, rank, err);
	return rc;
}

/* ---- the share ---- */

static int by_hash(const void *a, const void *b)
{
	const struct slice *x = a, *y = b;

	return rsh_compare_u64(x->hash, y->hash) ?:
	       rsh_compare_u64(x->part.file, y->part.file) ?:
	       rsh_compare_u64(x->part.offset, y->part.offset);
}

static int share_by_source(const void *a, const void *b)
{
	const struct slice *x = a, *y = b;

	return rsh_compare_u64(x->rank, y->rank) ?:
	       rsh_compare_u64(x->at, y->at) ?:
	       rsh_compare_u64(x->hash, y->hash);
}

static int part_order(const void *a, const void *b)
{
	const struct rsh_warm_part *x = a, *y = b;

	return rsh_compare_u64(x->file, y->file) ?:
	       rsh_compare_u64(x->offset, y->offset);
}

/* Keeps one of equal slices, and sorts them. */
static void make_distinct(struct dividing *d, struct rsh_warm_parts *out)
{
	size_t n = 0;

	if (d->n == 0)
		return;
	qsort(d->slices, d->n, sizeof(*d->slices), by_hash);
	for (size_t i = 0; i < d->n; i++)
		if (n == 0 || d->slices[i].hash != d->slices[n - 1].hash)
			d->slices[n++] = d->slices[i];
	d->n = n;
	for (size_t i = 0; i < n; i++)
		out->distinct += d->slices[i].part.bytes;
	qsort(d->slices, n, sizeof(*d->slices), share_by_source);
}

static uint64_t share_begin(uint64_t all, uint64_t i, uint64_t n)
{
	return all / n * i + all % n * i / n;
}

/* Takes this run's share of all slices. */
static int take_share(const struct dividing *d, struct rsh_warm_parts *out)
{
	const struct rsh_options *o = d->options;
	const uint64_t from = share_begin(out->distinct, o->share, o->n_shares);
	const uint64_t to = share_begin(out->distinct, o->share + 1,
					o->n_shares);
	uint64_t at = 0;

	for (size_t i = 0; i < d->n; i++) {
		struct rsh_warm_part p = d->slices[i].part;
		const uint64_t lo = rsh_max_u64(at, from);
		const uint64_t hi = rsh_min_u64(at + p.bytes, to);

		p.offset += lo - at;
		at += p.bytes;
		if (lo >= hi)
			continue;
		p.bytes = hi - lo;
		if (rsh_grow(&out->v, &out->cap, out->n + 1, sizeof(p)))
			return -ENOMEM;
		out->v[out->n++] = p;
		out->bytes += p.bytes;
	}
	return 0;
}

/* Merges adjacent parts. */
static void share_join_parts(struct rsh_warm_parts *out)
{
	size_t n = 0;

	if (out->n == 0)
		return;
	qsort(out->v, out->n, sizeof(*out->v), part_order);
	for (size_t i = 0; i < out->n; i++) {
		const struct rsh_warm_part p = out->v[i];
		struct rsh_warm_part *last = n ? &out->v[n - 1] : NULL;

		if (last && last->file == p.file &&
		    p.offset <= last->offset + last->bytes + GAP_BYTES &&
		    p.offset + p.bytes - last->offset <= PART_BYTES)
			last->bytes = p.offset + p.bytes - last->offset;
		else
			out->v[n++] = p;
	}
	out->n = n;
}

int rsh_warm_divide(const struct rsh_options *o,
		    const struct rsh_warm_file *files, size_t n_files,
		    struct rsh_warm_parts *out, struct rsh_error *err)
{
	struct dividing d = {
		.options = o, .files = files, .n_files = n_files,
	};
	int rc = share_name_files(&d) ? rsh_error_nomem(err) : 0;

	rc = rc ?: add_plans(&d, err);
	if (rc == 0 && add_other_files(&d))
		rc = rsh_error_nomem(err);
	if (rc == 0) {
		make_distinct(&d, out);
		if (take_share(&d, out))
			rc = rsh_error_nomem(err);
		share_join_parts(out);
	}
	free(d.names);
	free(d.slices);
	return rc;
}
