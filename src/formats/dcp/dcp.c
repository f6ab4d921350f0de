/* SPDX-License-Identifier: Apache-2.0 */
/* formats/dcp/dcp.c - the format of PyTorch's distributed checkpoints: its
 * values, its lists and its check. */
#include "config.h"

#include "dcp_i.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "rsh/formats/files.h"
#include "rsh/formats/formats.h"
#include "rsh/storage/store.h"
#include "rsh/util/log.h"
#include "rsh/util/mem.h"
#include "rsh/util/thread.h"
#include "rsh/wire/pickle_values.h"

/* ---- values that are not tensors: the step, learning rates and so on ---- */

/* Values after the first VALUES_MAX are not read: these are objects of Megatron
 * that cannot be shown. */
#define VALUES_MAX 4096
/* Reads wait for the storage, so the number of threads depends on how many
 * requests it handles at once, not on the processors. */
#define VALUE_THREADS 32

struct values {
	struct rsh_source *source;
	const struct rsh_dcp_value **wanted; /* [value] */
	struct rsh_store_attr *attrs; /* [value]: attributes of its file */
	struct rsh_values *found;
};

/* Opens a value's file, which may be a file that is not listed by the
 * source. */
static int value_open(const struct values *all, const struct rsh_dcp_value *v,
		      struct rsh_handle **h, struct rsh_stat *st)
{
	int rc = rsh_handle_open(rsh_source_store(all->source), v->file, h) ?:
		 rsh_handle_look(*h, st);

	return rc ? rc : st->kind == RSH_IS_FILE ? 0 : -EINVAL;
}

/* If a value cannot be read, the tensors are still shown. */
static int value_read(void *ctx, size_t i, struct rsh_error *err)
{
	const struct values *all = ctx;
	const struct rsh_dcp_value *v = all->wanted[i];
	struct rsh_error why = RSH_ERROR_INIT;
	struct rsh_byte_source bytes = { .pread_fn = rsh_handle_pread };
	cleanup_handle struct rsh_handle *h = NULL;
	struct rsh_stat st;
	int rc;

	if (!v->file || value_open(all, v, &h, &st))
		return 0;
	bytes.ctx = h;
	bytes.size = st.size;
	bytes.path = v->file;
	all->attrs[i] = (struct rsh_store_attr){
		.mode = st.attr.mode, .uid = st.attr.uid, .gid = st.attr.gid,
	};
	rc = rsh_dcp_value_read(&bytes, v->offset, v->length,
				rsh_source_dcp(all->source)->by_name,
				&all->found->values[i], &why);
	if (rc == -ENOMEM)
		return rsh_error_nomem(err);
	if (rc)
		rsh_log_info("%s: %s is not shown", why.text, v->name);
	return 0;
}

static int values_add_paths(const struct rsh_dcp *d, struct rsh_values *out)
{
	int rc = 0;

	for (uint32_t i = 0; i < d->n_tensors && rc == 0; i++)
		rc = rsh_values_add_path(out, d->tensors[i].name,
					 d->tensors[i].keys,
					 d->tensors[i].n_keys);
	for (uint32_t i = 0; i < d->n_values && rc == 0; i++)
		rc = rsh_values_add_path(out, d->values[i].name,
					 d->values[i].keys,
					 d->values[i].n_keys);
	return rc;
}

/* Reads the wanted values, several at a time; see struct rsh_format. */
static int dcp_values(struct rsh_source *source,
		      const struct rsh_plan_options *opts,
		      struct rsh_values *out, struct rsh_error *err)
{
	const struct rsh_dcp *d = rsh_source_dcp(source);
	const uint32_t n = d->n_values < VALUES_MAX ? d->n_values : VALUES_MAX;
	cleanup_free const struct rsh_dcp_value **wanted =
		calloc((size_t)n + 1, sizeof(*wanted));
	cleanup_free struct rsh_store_attr *attrs =
		calloc((size_t)n + 1, sizeof(*attrs));
	struct values all = { source, wanted, attrs, out };
	int rc = rsh_values_alloc(out, n);

	if (rc || !wanted || !attrs || values_add_paths(d, out))
		return rsh_error_nomem(err);
	rsh_values_sort_paths(out);
	for (uint32_t i = 0; i < n; i++)
		if (!opts->wanted ||
		    opts->wanted(opts->ctx, d->values[i].name)) {
			wanted[out->n] = &d->values[i];
			out->names[out->n++] = d->values[i].name;
		}
	if (out->n > 0)
		rc = rsh_parallel_for(VALUE_THREADS, out->n, value_read, &all,
				      err);
	if (rc == 0) {
		bool first = true;

		for (uint32_t i = 0; i < all.found->n; i++) {
			if (!all.found->values[i].pickle)
				continue;
			rsh_values_join_attr(all.found, &all.attrs[i], first);
			first = false;
		}
	}
	return rc;
}

/* ---- lists: they are made from the metadata, and no file is opened ---- */

static int dcp_check_covered(const struct rsh_dcp_tensor *t,
			     struct rsh_error *err)
{
	uint64_t n = 0;
	int rc = rsh_dcp_uncovered(t, &n, err);

	return rc || n == 0 ? rc :
	       rsh_error_set(err, EBADMSG, "tensor %s: %" PRIu64 " elements "
			     "are in no chunk", t->name, n);
}

static void dcp_check_ends(const struct rsh_dcp *d,
			   const struct rsh_dcp_tensor *t,
			   const uint64_t *file_bytes, struct rsh_error *wrong)
{
	for (uint32_t i = 0; i < t->n_chunks && !wrong->code; i++) {
		const struct rsh_dcp_chunk *c = &t->chunks[i];

		if (c->file != RSH_DCP_NO_FILE &&
		    !rsh_dcp_chunk_fits(c, file_bytes[c->file]))
			rsh_error_set(wrong, EBADMSG, "%s is too short for "
				      "tensor %s", d->files[c->file], t->name);
	}
}

/* Finds the first tensor whose boxes do not cover it, or else the first file
 * that is missing or too short. */
static int list_judge(const struct rsh_source *s, struct rsh_error *wrong)
{
	const struct rsh_dcp *d = rsh_source_dcp(s);
	cleanup_free uint64_t *file_bytes =
		calloc((size_t)d->n_files + 1, sizeof(*file_bytes));
	struct rsh_stat st;

	if (!file_bytes)
		return -ENOMEM;
	for (uint32_t i = 0; i < d->n_tensors && !wrong->code; i++)
		if (dcp_check_covered(&d->tensors[i], wrong) == -ENOMEM)
			return -ENOMEM;
	for (uint32_t i = 0; i < d->n_files && !wrong->code; i++) {
		if (rsh_store_look(rsh_source_store(s), d->files[i], &st) ||
		    st.kind != RSH_IS_FILE)
			rsh_error_set(wrong, ENOENT, "%s is missing",
				      d->files[i]);
		else
			file_bytes[i] = st.size;
	}
	for (uint32_t i = 0; i < d->n_tensors && !wrong->code; i++)
		dcp_check_ends(d, &d->tensors[i], file_bytes, wrong);
	return 0;
}

static int list_chunks(const struct rsh_dcp *d, const struct rsh_dcp_tensor *t,
		       struct rsh_arena *arena, struct rsh_listed_tensor *out)
{
	struct rsh_listed_chunk *all = rsh_arena_array(
		arena, struct rsh_listed_chunk, (size_t)t->n_chunks + 1);

	for (uint32_t i = 0; all && i < t->n_chunks; i++) {
		const struct rsh_dcp_chunk *c = &t->chunks[i];
		const bool in_file = c->file != RSH_DCP_NO_FILE;

		all[i] = (struct rsh_listed_chunk){
			.from = c->from, .size = c->size,
			.file = in_file ? d->files[c->file] : NULL,
			.placed = in_file && c->length != RSH_DCP_BY_NAME,
			.offset = c->offset, .length = c->length,
		};
	}
	*out = (struct rsh_listed_tensor){
		.name = t->name, .dtype = t->dtype, .n_dims = t->n_dims,
		.dims = t->dims, .n_chunks = t->n_chunks, .chunks = all,
	};
	return all ? 0 : -ENOMEM;
}

static int dcp_list(const struct rsh_source *s, struct rsh_arena *arena,
		    struct rsh_listed *out, struct rsh_error *err)
{
	const struct rsh_dcp *d = rsh_source_dcp(s);
	struct rsh_listed_tensor *tensors = rsh_arena_array(
		arena, struct rsh_listed_tensor, (size_t)d->n_tensors + 1);
	const char **values = rsh_arena_array(arena, const char *,
					      (size_t)d->n_values + 1);

	*out = (struct rsh_listed){
		.tensors = tensors, .n_tensors = d->n_tensors,
		.values = values, .n_values = d->n_values,
		.files = (const char *const *)d->files, .n_files = d->n_files,
		.wrong = RSH_ERROR_INIT,
	};
	if (!tensors || !values)
		return rsh_error_nomem(err);
	for (uint32_t i = 0; i < d->n_tensors; i++)
		if (list_chunks(d, &d->tensors[i], arena, &tensors[i]))
			return rsh_error_nomem(err);
	for (uint32_t i = 0; i < d->n_values; i++)
		values[i] = d->values[i].name;
	return list_judge(s, &out->wrong) ? rsh_error_nomem(err) : 0;
}

/* ---- the check: the chunks cover the tensors, each element once, and files
 * with the same chunk have the same content ---- */

/* Copies are compared if their elements are stored in the same order. */
struct held_chunk {
	const struct rsh_dcp_chunk *chunk;
	struct rsh_dcp_held held;
};

static int by_box(const void *a, const void *b, void *n_dims)
{
	const struct held_chunk *x = a, *y = b;
	const uint32_t n = *(const uint32_t *)n_dims;

	for (uint32_t d = 0; d < n; d++) {
		const struct rsh_dcp_chunk *p = x->chunk, *q = y->chunk;

		if (p->from[d] != q->from[d])
			return p->from[d] < q->from[d] ? -1 : 1;
		if (p->size[d] != q->size[d])
			return p->size[d] < q->size[d] ? -1 : 1;
	}
	return rsh_by_u32(&x->chunk->file, &y->chunk->file);
}

static bool same_box(const struct held_chunk *a, const struct held_chunk *b,
		     uint32_t n)
{
	return !n || (!memcmp(a->chunk->from, b->chunk->from,
			      n * sizeof(uint64_t)) &&
		      !memcmp(a->chunk->size, b->chunk->size,
			      n * sizeof(uint64_t)));
}

/* A chunk that is in no file is a problem of the source; one in a damaged file
 * is a problem of the file. */
static int take_chunk(const struct rsh_verifier *v,
		      const struct rsh_dcp_tensor *t,
		      const struct rsh_dcp_chunk *chunk,
		      struct held_chunk *out, uint32_t *n)
{
	const struct rsh_dcp *d = rsh_source_dcp(v->source);
	struct rsh_error why = RSH_ERROR_INIT;
	int rc;

	if (rsh_dcp_chunk_is_empty(t, chunk))
		return 0;
	if (chunk->file == RSH_DCP_NO_FILE) {
		rsh_error_set(&why, EBADMSG, "tensor %s: a chunk is in no file",
			      t->name);
		return v->problem(v->ctx, &why);
	}
	if (chunk->file >= v->view->n_ranks || !v->view->index[chunk->file])
		return 0;
	rc = rsh_dcp_find_held(d, t, chunk, v->view, &out[*n].held, &why);
	out[*n].chunk = chunk;
	*n += rc == 0;
	if (rc == -ENOENT)
		rsh_error_set(&why, EBADMSG, "tensor %s: %s does not have its "
			      "chunk", t->name, d->files[chunk->file]);
	return rc == 0 || rc == -ENOMEM ? rc : v->problem(v->ctx, &why);
}

static int check_held(const struct rsh_verifier *v,
		      const struct rsh_dcp_tensor *t)
{
	cleanup_free struct held_chunk *held =
		calloc((size_t)t->n_chunks + 1, sizeof(*held));
	uint32_t n_dims = t->n_dims, n = 0;
	int rc = held ? 0 : -ENOMEM;
	const struct held_chunk *first;

	if (t->dtype == RSH_DTYPE_UNKNOWN)
		return rc;
	for (uint32_t i = 0; i < t->n_chunks && rc == 0; i++)
		rc = take_chunk(v, t, &t->chunks[i], held, &n);
	if (rc || n < 2)
		return rc;
	qsort_r(held, n, sizeof(*held), by_box, &n_dims);
	first = held;
	rc = 0;
	for (uint32_t i = 1; i < n && rc == 0; i++) {
		const struct held_chunk *h = &held[i];

		if (!same_box(first, h, n_dims))
			first = h;
		else if (first->chunk->file != h->chunk->file &&
			 memcmp(first->held.order, h->held.order, n_dims) == 0)
			rc = v->compare(v->ctx, first->chunk->file,
					first->held.record, h->chunk->file,
					h->held.record, "chunk");
	}
	return rc;
}

static int dcp_verify(const struct rsh_verifier *v)
{
	const struct rsh_dcp *d = rsh_source_dcp(v->source);
	int rc = 0;

	for (uint32_t i = 0; i < d->n_tensors && rc == 0; i++) {
		const struct rsh_dcp_tensor *t = &d->tensors[i];
		struct rsh_error why = RSH_ERROR_INIT;

		rc = dcp_check_covered(t, &why);
		if (rc && rc != -ENOMEM)
			rc = v->problem(v->ctx, &why);
		if (rc == 0)
			rc = check_held(v, t);
	}
	return rc;
}

/* Ranks that write their own metadata do not wait for each other. */
static int dcp_whole(const struct rsh_source *s, struct rsh_error *err)
{
	/* Megatron-Core writes the second one last. */
	static const char common[] = "common.pt", last[] = "metadata.json";
	const struct rsh_store *store = rsh_source_store(s);
	struct rsh_stat st;
	int rc = rsh_store_look(store, RSH_DCP_METADATA, &st);

	if (rc == -ENOENT)
		return rsh_error_set(err, ENOENT, "%s: nothing says when "
				     "all ranks have saved, for it has no %s: "
				     "mount this step alone",
				     rsh_source_path(s), RSH_DCP_METADATA);
	rc = rsh_format_check_marker(s, RSH_DCP_METADATA, err);
	if (rc || rsh_store_look(store, common, &st))
		return rc;
	return rsh_format_check_marker(s, last, err);
}

const struct rsh_format rsh_dcp_format = {
	.name = "dcp",
	.says = "distributed checkpoint",
	.layout = RSH_LAYOUT_WHOLE,
	.owner = RSH_OWNER_NOBODY,
	.lone = true,
	.below = "pytorch_model_fsdp_0", /* of the Trainer and accelerate */
	.any_type = true,
	.any_copy = true,
	.shown = RSH_SHOWN_HF,
	.bid = rsh_dcp_bid,
	.open = rsh_dcp_open,
	.scan = rsh_dcp_index_scan,
	.whole = dcp_whole,
	.read = rsh_dcp_read,
	.values = dcp_values,
	.each = rsh_dcp_each,
	.list = dcp_list,
	.verify = dcp_verify,
	.framework = "PyTorch DCP",
	.step_dirs = true,
	.tracked = "iter_", /* of Megatron-Core */
	.part = rsh_dcp_part,
	.check = rsh_dcp_check,
};
