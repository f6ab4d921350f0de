/* SPDX-License-Identifier: Apache-2.0 */
/* formats/dcp/dcp.c - the format of PyTorch's distributed checkpoints: its
 * values, its lists and its check. */
#include "config.h"

#include "dcp_i.h"

#include <errno.h>
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
	bool *lost; /* [value]: its file is missing, or ends before it */
	struct rsh_values *found;
};

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

	/* Its file may be one that is not listed by the source. */
	all->lost[i] = v->file &&
		(rsh_handle_open(rsh_source_store(all->source), v->file, &h) ||
		 rsh_handle_look(h, &st) || st.kind != RSH_IS_FILE ||
		 (v->length != RSH_DCP_BY_NAME &&
		  (v->offset > st.size || v->length > st.size - v->offset)));
	if (!v->file || all->lost[i])
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

int rsh_dcp_add_paths(const struct rsh_dcp *d, struct rsh_values *out)
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
	cleanup_free bool *lost = calloc((size_t)n + 1, sizeof(*lost));
	struct values all = { source, wanted, attrs, lost, out };
	const struct rsh_dcp_value *gone = NULL;
	const char *first = NULL;
	uint32_t n_floats = 0, n_lost = 0;
	int rc = rsh_values_alloc(out, n);

	if (rc || !wanted || !attrs || !lost || rsh_dcp_add_paths(d, out))
		return rsh_error_nomem(err);
	rsh_values_sort_paths(out);
	for (uint32_t i = 0; i < n; i++)
		if (rsh_plan_wants(opts, d->values[i].name)) {
			wanted[out->n] = &d->values[i];
			out->names[out->n++] = d->values[i].name;
		}
	if (out->n > 0)
		rc = rsh_parallel_for(VALUE_THREADS, out->n, value_read, &all,
				      err);
	for (uint32_t i = 0; i < out->n && rc == 0; i++) {
		if (out->values[i].pickle)
			rsh_values_join_attr(out, &attrs[i]);
		if (out->values[i].has_floats && n_floats++ == 0)
			first = out->names[i];
		if (lost[i] && n_lost++ == 0)
			gone = wanted[i];
	}
	if (n_lost)
		rsh_log_warning("%s: %s is missing or too short: %u value%s that "
				"%s no tensor%s left out, such as %s",
				rsh_source_path(source), gone->file, n_lost,
				n_lost > 1 ? "s" : "", n_lost > 1 ? "are" : "is",
				n_lost > 1 ? "s are" : " is", gone->name);
	if (n_floats)
		rsh_log_warning("%s: %u item%s left out, such as %s: an object "
				"that has tensors (a state dict that was saved "
				"without flattening it)",
				rsh_source_path(source), n_floats,
				n_floats > 1 ? "s are" : " is", first);
	return rc;
}

/* ---- lists: they are made from the metadata, and no file is opened ---- */

/* A chunk that is in no file is a problem of the source; one in a damaged file
 * is a problem of the file.  Returns 0 or -ENOMEM. */
static int list_record(const struct rsh_list_job *job, struct rsh_arena *arena,
		       const struct rsh_dcp_tensor *t,
		       const struct rsh_dcp_chunk *c,
		       struct rsh_listed_chunk *out)
{
	const struct rsh_dcp *d = rsh_source_dcp(job->source);
	struct rsh_dcp_held *held = rsh_arena_array(arena, struct rsh_dcp_held,
						    1);
	struct rsh_error why = RSH_ERROR_INIT;
	int rc = 0;

	if (!held || rsh_dcp_chunk_is_empty(t, c))
		return held ? 0 : -ENOMEM;
	if (c->file == RSH_DCP_NO_FILE)
		rc = rsh_error_set(&why, EBADMSG, RSH_DCP_IN_NO_FILE, t->name);
	else if (c->file < job->view->n_ranks && job->view->index[c->file])
		rc = rsh_dcp_find_held(d, t, c, job->view, held, &why);
	else
		return 0;
	if (rc == -ENOENT)
		rsh_error_set(&why, EBADMSG, "tensor %s: %s does not have its "
			      "chunk", t->name, d->files[c->file]);
	out->number = c->file;
	out->record = held->record;
	out->order = rc == 0 ? held->order : NULL;
	out->wrong = rc ? rsh_arena_strndup(arena, why.text,
						 strlen(why.text)) : NULL;
	return rc == -ENOMEM || (rc && !out->wrong) ? -ENOMEM : 0;
}

/* What is listed of a tensor. */
struct list_taking {
	const struct rsh_dcp *d;
	const struct rsh_dcp_chunk *chunk;
	struct rsh_arena *arena;
	struct rsh_listed_chunk *v; /* from malloc */
	size_t n, cap;
};

static int list_box(struct list_taking *l, const uint64_t *from,
		    const uint64_t *size)
{
	const struct rsh_dcp_chunk *c = l->chunk;
	const bool in_file = c->file != RSH_DCP_NO_FILE;

	if (rsh_grow(&l->v, &l->cap, l->n + 1, sizeof(*l->v)))
		return -ENOMEM;
	l->v[l->n++] = (struct rsh_listed_chunk){
		.from = from, .size = size,
		.file = in_file ? l->d->files[c->file] : NULL,
		.placed = in_file && c->length != RSH_DCP_BY_NAME,
		.offset = c->offset, .length = c->length,
	};
	return 0;
}

/* Lists a box of the tensor that is a part of a chunk. */
static int list_part(void *ctx, const struct rsh_dcp_part *part)
{
	struct list_taking *l = ctx;
	const uint32_t n = part->box.n_dims;
	uint64_t *box = rsh_arena_array(l->arena, uint64_t, 2 * (size_t)n);

	if (!box)
		return -ENOMEM;
	memcpy(box, part->box.from, n * sizeof(*box));
	memcpy(box + n, part->box.size, n * sizeof(*box));
	return list_box(l, box, box + n);
}

/* Returns 0 or -ENOMEM. */
static int list_tensor(const struct rsh_list_job *job, struct rsh_arena *arena,
		       const struct rsh_dcp_tensor *t,
		       struct rsh_listed_tensor *out)
{
	const struct rsh_dcp *d = rsh_source_dcp(job->source);
	const bool records = job->part == RSH_LIST_RECORDS;
	struct list_taking l = { .d = d, .arena = arena };
	struct rsh_error why = RSH_ERROR_INIT;
	struct rsh_listed_chunk *all;
	struct rsh_box box;
	int rc = 0;

	*out = (struct rsh_listed_tensor){
		.name = t->name, .dtype = t->dtype, .n_dims = t->n_dims,
		.dims = t->dims,
	};
	if (job->part == RSH_LIST_TENSORS)
		return 0;
	if (records && rsh_dcp_check_covered(t, &why))
		out->wrong = rsh_arena_strndup(arena, why.text,
						 strlen(why.text));
	if (why.code == ENOMEM || (why.code && !out->wrong))
		return -ENOMEM;
	for (uint32_t i = 0; i < t->n_chunks && rc == 0; i++) {
		const struct rsh_dcp_chunk *c = &t->chunks[i];
		const size_t first = l.n;

		l.chunk = c;
		rsh_dcp_box(t, c, &box);
		rc = t->axes && !records ? rsh_dcp_parts(t, &box, list_part,
							 &l) :
					   list_box(&l, c->from, c->size);
		if (rc == 0 && records && t->dtype != RSH_DTYPE_UNKNOWN)
			rc = list_record(job, arena, t, c, &l.v[first]);
	}
	all = rsh_arena_array(arena, struct rsh_listed_chunk, l.n + 1);
	if (rc == 0 && all && l.n > 0)
		memcpy(all, l.v, l.n * sizeof(*all));
	free(l.v);
	out->n_chunks = (uint32_t)l.n;
	out->chunks = all;
	return rc || all ? rc : -ENOMEM;
}

/* Returns 0 or -ENOMEM. */
static int list_tensors(const struct rsh_list_job *job, struct rsh_listed *out)
{
	const struct rsh_dcp *d = rsh_source_dcp(job->source);
	struct rsh_listed_tensor *all = job->take ? NULL : rsh_arena_array(
		job->arena, struct rsh_listed_tensor, (size_t)d->n_tensors + 1);
	struct rsh_listed_tensor one;
	int rc = job->take || all ? 0 : -ENOMEM;

	for (uint32_t i = 0; i < d->n_tensors && rc == 0; i++) {
		struct rsh_arena arena = { NULL, 0 };

		if (all) {
			rc = list_tensor(job, job->arena, &d->tensors[i],
					 &all[i]);
			continue;
		}
		rc = list_tensor(job, &arena, &d->tensors[i], &one) ?:
		     job->take(job->ctx, &one);
		rsh_arena_clear(&arena);
	}
	out->tensors = all;
	out->n_tensors = all ? d->n_tensors : 0;
	return rc;
}

int rsh_dcp_list(const struct rsh_list_job *job, struct rsh_listed *out,
		 struct rsh_error *err)
{
	const struct rsh_dcp *d = rsh_source_dcp(job->source);
	const char **values = rsh_arena_array(job->arena, const char *,
					      (size_t)d->n_values + 1);

	if (!values)
		return rsh_error_nomem(err);
	for (uint32_t i = 0; i < d->n_values; i++)
		values[i] = d->values[i].name;
	out->values = values;
	out->n_values = d->n_values;
	out->files = (const char *const *)d->files;
	out->n_files = d->n_files;
	return list_tensors(job, out) ? rsh_error_nomem(err) : 0;
}

/* Ranks that write their own metadata do not wait for each other. */
static int dcp_check_ended(const struct rsh_source *s, struct rsh_error *err)
{
	/* Megatron-Core writes the second one last. */
	static const char common[] = "common.pt", last[] = "metadata.json";
	const struct rsh_store *store = rsh_source_store(s);
	struct rsh_stat st;
	int rc = rsh_store_look(store, RSH_DCP_METADATA, &st);

	if (rc == -ENOENT)
		return rsh_error_set(err, ENOENT, "nothing says when all ranks "
				     "have saved, for it has no %s: mount this "
				     "step alone", RSH_DCP_METADATA);
	rc = rsh_format_check_marker(s, RSH_DCP_METADATA, err) ?:
	     rsh_store_has(store, common, err);
	return rc > 0 ? rsh_format_check_marker(s, last, err) : rc;
}

static int dcp_judge(const struct rsh_source *s, bool ended,
		     struct rsh_error *err)
{
	const struct rsh_store *store = rsh_source_store(s);
	const struct rsh_dcp *d = rsh_source_dcp(s);
	cleanup_free uint64_t *sizes =
		rsh_alloc_array((size_t)d->n_files + 1, sizeof(*sizes));
	struct rsh_stat st;
	int rc = !sizes ? rsh_error_nomem(err) :
		 ended ? dcp_check_ended(s, err) : 0;

	for (uint32_t i = 0; i < d->n_files && rc == 0; i++) {
		rc = rsh_store_look(store, d->files[i], &st);
		sizes[i] = rc || st.kind != RSH_IS_FILE ? RSH_DCP_MISSING :
							  st.size;
		/* What cannot be looked at now may be there. */
		rc = rsh_errno_is_unread(-rc) ?
		     rsh_store_open_error(store, d->files[i], rc, err) : 0;
	}
	return rc ?: rsh_dcp_judge(d, sizes, err);
}

const struct rsh_format rsh_dcp_format = {
	.name = "dcp",
	.says = "distributed checkpoint",
	.layout = RSH_LAYOUT_WHOLE,
	.owner = RSH_OWNER_NOBODY,
	.below = "pytorch_model_fsdp_0", /* of the Trainer and accelerate */
	.shown = RSH_SHOWN_HF,
	.written_last = RSH_DCP_METADATA,
	.bid = rsh_dcp_bid,
	.open = rsh_dcp_open,
	.scan = rsh_dcp_index_scan,
	.judge = dcp_judge,
	.read = rsh_dcp_read,
	.values = dcp_values,
	.list = rsh_dcp_list,
	.framework = "PyTorch DCP",
	.step_dirs = true,
	.tracked = "iter_", /* of Megatron-Core */
	.part = rsh_dcp_part,
	.check = rsh_dcp_check,
};
