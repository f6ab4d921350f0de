/* SPDX-License-Identifier: Apache-2.0 */
/* formats/dcp/build.c makes the description of a checkpoint from what its files
 * of metadata, or the headers of its shards, say one after the other. */
#include "config.h"

#include "dcp_i.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "rsh/util/checked.h"
#include "rsh/util/log.h"
#include "rsh/util/mem.h"
#include "rsh/wire/torch_dtype.h"

void rsh_dcp_free(struct rsh_dcp *d)
{
	if (!d)
		return;
	rsh_arena_clear(&d->arena_);
	free(d);
}

void rsh_dcp_box(const struct rsh_dcp_tensor *t, const struct rsh_dcp_chunk *c,
		 struct rsh_box *out)
{
	*out = (struct rsh_box){ .n_dims = t->n_dims };
	for (uint32_t d = 0; d < t->n_dims; d++) {
		out->from[d] = c->from[d];
		out->size[d] = c->size[d];
	}
}

bool rsh_dcp_chunk_fits(const struct rsh_dcp_chunk *c, uint64_t file_bytes)
{
	return c->length == RSH_DCP_BY_NAME ||
	       (c->offset <= file_bytes && c->length <= file_bytes - c->offset);
}

bool rsh_dcp_chunk_is_empty(const struct rsh_dcp_tensor *t,
			    const struct rsh_dcp_chunk *c)
{
	return rsh_any(d, t->n_dims, c->size[d] == 0);
}

/* Sets the run of an axis that has this index of the chunks, cut so that it
 * begins there and has at most n indexes. */
static void run_at(const struct rsh_dcp_axis *a, uint64_t at, uint64_t n,
		   uint64_t *from, uint64_t *length)
{
	const uint32_t i = !a || a->n == 0 ? 0 :
		rsh_first(k, a->n, a->runs[k].at + a->runs[k].n <= at);
	const bool has = a && i < a->n;
	const struct rsh_dcp_run own = { at, at, n };
	const struct rsh_dcp_run *r = has ? &a->runs[i] : &own;

	*from = r->from + (at - r->at);
	*length = rsh_min_u64(n, r->n - (at - r->at));
}

int rsh_dcp_parts(const struct rsh_dcp_tensor *t, const struct rsh_box *box,
		  int (*fn)(void *ctx, const struct rsh_dcp_part *part),
		  void *ctx)
{
	const uint32_t n = t->n_dims;
	struct rsh_dcp_part p = { .box = *box };
	uint32_t d = n;
	int rc;

	memcpy(p.at, box->from, n * sizeof(*p.at));
	if (!t->axes)
		return fn(ctx, &p);
	for (uint32_t k = 0; k < n; k++)
		if (box->size[k] == 0)
			return 0;
	for (uint32_t k = 0; k < n; k++)
		run_at(&t->axes[k], p.at[k], box->size[k], &p.box.from[k],
		       &p.box.size[k]);
	do {
		rc = fn(ctx, &p);
		/* Goes to the next run of the last axis that has one. */
		for (d = n; rc == 0 && d-- > 0;) {
			const uint64_t end = box->from[d] + box->size[d];

			p.at[d] += p.box.size[d];
			if (p.at[d] == end)
				p.at[d] = box->from[d];
			run_at(&t->axes[d], p.at[d], end - p.at[d],
			       &p.box.from[d], &p.box.size[d]);
			if (p.at[d] > box->from[d])
				break;
		}
	} while (rc == 0 && d < n);
	return rc;
}

bool rsh_dcp_is_countable(const struct rsh_dcp_tensor *t)
{
	uint64_t n = RSH_TORCH_ELEMENT_MAX;

	for (uint32_t d = 0; d < t->n_dims; d++)
		if (t->dims[d] > INT64_MAX ||
		    !rsh_mul_u64(n, t->dims[d] ? t->dims[d] : 1, &n) ||
		    n > INT64_MAX)
			return false;
	return true;
}

/* ---- what a part adds ---- */

struct rsh_dcp_builder *rsh_dcp_builder_new(const char *path)
{
	struct rsh_dcp_builder *b = calloc(1, sizeof(*b));

	if (!b)
		return NULL;
	b->path = path;
	b->d = calloc(1, sizeof(*b->d));
	b->files = rsh_names_new();
	if (b->d && b->files)
		return b;
	rsh_dcp_builder_free(b);
	return NULL;
}

void rsh_dcp_builder_free(struct rsh_dcp_builder *b)
{
	if (!b)
		return;
	rsh_dcp_free(b->d);
	rsh_names_free(b->files);
	free(b->tensors);
	free(b->values);
	free(b);
}

struct rsh_dcp_tensor *rsh_dcp_builder_tensor(struct rsh_dcp_builder *b)
{
	if (rsh_grow(&b->tensors, &b->cap_tensors, b->n_tensors + 1,
		     sizeof(*b->tensors)))
		return NULL;
	b->tensors[b->n_tensors] = (struct rsh_dcp_tensor){ .name = NULL };
	return &b->tensors[b->n_tensors++];
}

struct rsh_dcp_value *rsh_dcp_builder_value(struct rsh_dcp_builder *b)
{
	if (rsh_grow(&b->values, &b->cap_values, b->n_values + 1,
		     sizeof(*b->values)))
		return NULL;
	b->values[b->n_values] = (struct rsh_dcp_value){ .name = NULL };
	return &b->values[b->n_values++];
}

/* ---- all parts together ---- */

static int build_by_text(const void *a, const void *b, void *names)
{
	return strcmp(rsh_names_text(names, *(const uint32_t *)a),
		      rsh_names_text(names, *(const uint32_t *)b));
}

/* Numbers the files in ascending order. */
static int build_files(struct rsh_dcp_builder *b)
{
	const uint32_t n = rsh_names_count(b->files);
	cleanup_free uint32_t *order = rsh_alloc_array(n, sizeof(*order));
	cleanup_free uint32_t *number = rsh_alloc_array(n, sizeof(*number));
	const char **files = rsh_arena_array(&b->d->arena_, const char *, n);

	if (!order || !number || !files)
		return -ENOMEM;
	for (uint32_t i = 0; i < n; i++)
		order[i] = i;
	if (n > 0)
		qsort_r(order, n, sizeof(*order), build_by_text, b->files);
	for (uint32_t i = 0; i < n; i++) {
		const char *name = rsh_names_text(b->files, order[i]);

		number[order[i]] = i;
		files[i] = rsh_arena_strndup(&b->d->arena_, name, strlen(name));
		if (!files[i])
			return -ENOMEM;
	}
	for (size_t i = 0; i < b->n_tensors; i++)
		for (uint32_t k = 0; k < b->tensors[i].n_chunks; k++) {
			uint32_t *file = &b->tensors[i].chunks[k].file;

			if (*file != RSH_DCP_NO_FILE)
				*file = number[*file];
		}
	b->d->n_files = n;
	b->d->files = files;
	return 0;
}

static uint32_t build_first_file(const struct rsh_dcp_tensor *t)
{
	return t->n_chunks ? t->chunks[0].file : RSH_DCP_NO_FILE;
}

/* Of equal boxes the first one is read, which is that of the lowest rank. */
static int build_by_tensor(const void *a, const void *b, void *d)
{
	const struct rsh_dcp_tensor *x = a, *y = b;
	const struct rsh_dcp *dcp = d;
	const uint32_t i = build_first_file(x), k = build_first_file(y);
	const int order = strcmp(x->name, y->name);

	return order || i == RSH_DCP_NO_FILE || k == RSH_DCP_NO_FILE ?
		       order ?: rsh_by_u32(&i, &k) :
		       strverscmp(dcp->files[i], dcp->files[k]);
}

/* Values without a file come last. */
RSH_ORDER(build_by_value, struct rsh_dcp_value,
	  strcmp(x->name, y->name) ?:
	  x->file && y->file ? strverscmp(x->file, y->file) :
			       !x->file - !y->file)

static const char *build_where(const struct rsh_dcp_builder *b,
			       const struct rsh_dcp_tensor *t)
{
	const uint32_t file = build_first_file(t);

	return file == RSH_DCP_NO_FILE ? "a rank" : b->d->files[file];
}

/* Makes one tensor from n tensors that have the same name. */
static int build_unite(struct rsh_dcp_builder *b,
		       const struct rsh_dcp_tensor *t, size_t n,
		       struct rsh_dcp_tensor *out, struct rsh_error *err)
{
	struct rsh_dcp_chunk *chunks;
	uint64_t n_chunks = 0;

	*out = *t;
	for (size_t i = 0; i < n; i++) {
		n_chunks += t[i].n_chunks;
		if (t[i].dtype != t->dtype || t[i].n_dims != t->n_dims ||
		    (t->dims && memcmp(t[i].dims, t->dims,
				       t->n_dims * sizeof(*t->dims)) != 0))
			return rsh_error_set(err, EBADMSG, "%s: %s and %s "
					     "contradict each other in type or "
					     "shape of tensor %s", b->path,
					     build_where(b, t),
					     build_where(b, &t[i]), t->name);
	}
	if (n == 1)
		return 0;
	chunks = n_chunks > UINT32_MAX ? NULL :
		 rsh_arena_array(&b->d->arena_, struct rsh_dcp_chunk, n_chunks);
	if (!chunks)
		return rsh_error_nomem(err);
	out->chunks = chunks;
	out->n_chunks = (uint32_t)n_chunks;
	for (size_t i = 0; i < n; chunks += t[i++].n_chunks)
		if (t[i].n_chunks > 0)
			memcpy(chunks, t[i].chunks,
			       t[i].n_chunks * sizeof(*chunks));
	return 0;
}

static int build_by_place(const void *a, const void *b, void *tensor)
{
	const struct rsh_dcp_chunk *const *x = a, *const *y = b;
	const struct rsh_dcp_tensor *t = tensor;
	int order = 0;

	for (uint32_t d = 0; d < t->n_dims && !order; d++)
		order = rsh_compare_u64((*x)->from[d], (*y)->from[d]);
	return order;
}

/* torch writes each part of a tensor once.  If a job saves with fewer ranks
 * into a directory, files of the older save are left beside its own. */
static int build_check_once(const struct rsh_dcp_builder *b,
			    struct rsh_dcp_tensor *t, struct rsh_error *err)
{
	cleanup_free const struct rsh_dcp_chunk **v =
		rsh_alloc_array(t->n_chunks, sizeof(*v));
	uint32_t n = 0;

	if (!v)
		return rsh_error_nomem(err);
	for (uint32_t i = 0; i < t->n_chunks; i++)
		if (!rsh_dcp_chunk_is_empty(t, &t->chunks[i]))
			v[n++] = &t->chunks[i];
	if (n > 0)
		qsort_r(v, n, sizeof(*v), build_by_place, t);
	for (uint32_t i = 1; i < n; i++)
		if (build_by_place(&v[i - 1], &v[i], t) == 0)
			return rsh_error_set(err, EBADMSG, "%s: %s and %s have "
					     "the same part of tensor %s: one "
					     "of them is of another save",
					     b->path, b->d->files[v[i - 1]->file],
					     b->d->files[v[i]->file], t->name);
	return 0;
}

/* Computes the shape from the ends of the chunks. */
static int build_shape(struct rsh_dcp_builder *b, struct rsh_dcp_tensor *t,
		       struct rsh_error *err)
{
	uint64_t *dims = rsh_arena_array(&b->d->arena_, uint64_t, t->n_dims);

	if (!dims)
		return rsh_error_nomem(err);
	for (uint32_t i = 0; i < t->n_chunks; i++)
		for (uint32_t d = 0; d < t->n_dims; d++)
			dims[d] = rsh_max_u64(dims[d], t->chunks[i].from[d] +
						       t->chunks[i].size[d]);
	t->dims = dims;
	return rsh_dcp_is_countable(t) ? 0 :
	       rsh_error_set(err, EBADMSG, "%s: by the offsets of its chunks "
			     "tensor %s has more bytes than can be counted",
			     b->path, t->name);
}

static int build_tensors(struct rsh_dcp_builder *b, struct rsh_error *err)
{
	struct rsh_dcp_tensor *out = rsh_arena_array(
		&b->d->arena_, struct rsh_dcp_tensor, b->n_tensors);
	int rc = out ? 0 : rsh_error_nomem(err);

	if (b->n_tensors > 0)
		qsort_r(b->tensors, b->n_tensors, sizeof(*b->tensors),
			build_by_tensor, b->d);
	b->d->tensors = out;
	for (size_t i = 0, end; i < b->n_tensors && rc == 0; i = end, out++) {
		for (end = i + 1; end < b->n_tensors &&
		     strcmp(b->tensors[end].name, b->tensors[i].name) == 0;)
			end++;
		rc = build_unite(b, &b->tensors[i], end - i, out, err);
		if (rc == 0 && !out->dims)
			rc = build_check_once(b, out, err) ?:
			     build_shape(b, out, err);
		b->d->n_tensors++;
	}
	return rc;
}

/* If ranks have a value of one name, that of the lowest rank is taken. */
static int build_values(struct rsh_dcp_builder *b)
{
	struct rsh_dcp_value *out = rsh_arena_array(
		&b->d->arena_, struct rsh_dcp_value, b->n_values);

	if (!out)
		return -ENOMEM;
	b->d->values = out;
	rsh_sort(b->values, b->n_values, build_by_value);
	for (size_t i = 0; i < b->n_values; i++)
		if (i == 0 || strcmp(b->values[i - 1].name,
				     b->values[i].name) != 0)
			out[b->d->n_values++] = b->values[i];
	if (b->d->n_values < b->n_values)
		rsh_log_info("%s: several ranks saved values of the same "
			     "name, which may differ; those of the lowest rank "
			     "are taken", b->path);
	return 0;
}

int rsh_dcp_builder_finish(struct rsh_dcp_builder *b, struct rsh_dcp **out,
			   struct rsh_error *err)
{
	int rc;

	*out = NULL;
	if (build_files(b) || build_values(b))
		return rsh_error_nomem(err);
	rc = build_tensors(b, err);
	if (rc == 0)
		*out = steal_pointer(&b->d);
	return rc;
}
