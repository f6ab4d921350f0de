/* SPDX-License-Identifier: Apache-2.0 */
/* source/inspect.c reads the index of a single checkpoint file, and returns the
 * candidates and files of a listed tree. */
#include "config.h"

#include "rsh/source/inspect.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "rsh/util/mem.h"
#include "source_i.h"

/* ---- one file ---- */

static int inspect_size(const struct rsh_handle *h, const char *path,
			uint64_t *size, struct rsh_error *err)
{
	struct rsh_stat st;
	int rc = rsh_handle_look(h, &st);

	if (rc)
		return rsh_error_file(err, -rc, path);
	if (st.kind != RSH_IS_FILE)
		return rsh_error_set(err, EINVAL, "%s: not a regular file",
				     path);
	*size = st.size;
	return 0;
}

static int inspect_open(const char *path, struct rsh_store_scan *in,
			bool check_crc, struct rsh_names *names,
			struct rsh_inspected *out, struct rsh_error *err)
{
	struct rsh_byte_source bytes = {
		.pread_fn = rsh_store_scan_pread, .ctx = in, .path = path,
	};
	int rc;

	*out = (struct rsh_inspected){
		.format = rsh_file_type_of(path) == RSH_FILE_SAFETENSORS ?
			RSH_FILE_SAFETENSORS : RSH_FILE_CKPT,
	};
	rc = inspect_size(in->handle, path, &bytes.size, err);
	if (rc)
		return rc;
	out->bytes = bytes.size;
	if (out->format == RSH_FILE_SAFETENSORS) {
		rc = rsh_safetensors_scan(&bytes, names, &out->index,
					  &out->meta, err);
		if (rc || !check_crc)
			return rc;
		out->index->has_crc = out->meta.has_crc;
		return rsh_safetensors_check_crc(&bytes, out->index, names,
						 &out->meta, err);
	}
	rc = rsh_ckpt_scan(&bytes, names, &out->index, err);
	if (rc == 0 && check_crc)
		rc = rsh_ckpt_check_crc(&bytes, out->index, err);
	return rc;
}

int rsh_inspect_file(const char *path, bool check_crc, struct rsh_names *names,
		     struct rsh_inspected *out, struct rsh_error *err)
{
	cleanup_handle struct rsh_handle *h = NULL;
	int rc = rsh_handle_open_path(path, &h);
	struct rsh_store_scan in = { .handle = h };

	*out = (struct rsh_inspected){ 0 };
	if (rc)
		return rsh_error_file(err, -rc, path);
	return inspect_open(path, &in, check_crc, names, out, err);
}

void rsh_inspected_clear(struct rsh_inspected *in)
{
	if (in->index)
		rsh_ckpt_index_free(in->index);
	rsh_safetensors_meta_clear(&in->meta);
	in->index = NULL;
}

/* ---- a tree ---- */

void rsh_source_candidate_step(const struct rsh_source *s, uint32_t i,
			       struct rsh_candidate_step *out)
{
	const struct rsh_checkpoint *c;

	*out = (struct rsh_candidate_step){ 0 };
	if (i >= s->n_candidates)
		return;
	c = &s->listing.files[s->candidates[i].first];
	*out = (struct rsh_candidate_step){
		.stepped = c->step.n > 0,
		.breakpoint = c->step.breakpoint,
		.alone = c->step.n == 1,
		.epoch = c->step.n == 1 ? 0 : c->step.numbers[0],
		.step = c->step.numbers[c->step.n == 1 ? 0 : 1],
		.run = c->step.run,
	};
}

uint32_t rsh_source_n_listed(const struct rsh_source *s)
{
	return s->n_candidates ? s->n_candidates : 1;
}

uint32_t rsh_source_chosen(const struct rsh_source *s)
{
	return s->chosen;
}

uint32_t rsh_source_n_files(const struct rsh_source *s)
{
	return s->n_files;
}

void rsh_source_file_info(const struct rsh_source *s, uint32_t i,
			  struct rsh_source_file_info *out)
{
	const struct rsh_store_identity *id = rsh_store_identity(s->store, i);

	*out = (struct rsh_source_file_info){
		.rank = s->files[i].rank,
		.name = rsh_store_name(s->store, i),
		.path = rsh_store_path(s->store, i),
		.valid = s->files[i].index != NULL,
		.why = s->files[i].why,
		.dev = id->which[0],
		.inode = id->which[1],
		.bytes = id->size,
		.mtime = id->mtime,
		.ctime = id->ctime,
	};
}

const struct rsh_ckpt_index *rsh_source_file_index(const struct rsh_source *s,
						   uint32_t i)
{
	return s->files[i].index;
}

uint32_t rsh_source_rank_files(const struct rsh_source *s, uint32_t rank,
			       uint32_t *first)
{
	uint32_t n;

	*first = rsh_source_rank_first(s, rank, &n);
	return rsh_source_owner(s) == RSH_OWNER_MODEL ? 0 : n;
}

int rsh_source_file_open(const struct rsh_source *s, uint32_t i,
			 struct rsh_handle **out, struct rsh_error *err)
{
	return rsh_store_open_file(s->store, i, out, err);
}

static int inspect_scan(const struct rsh_source *s, uint32_t i,
			struct rsh_store_scan *in, struct rsh_names *names,
			struct rsh_inspected *out, struct rsh_error *err)
{
	struct rsh_byte_source bytes = {
		.pread_fn = rsh_store_scan_pread, .ctx = in,
		.path = rsh_store_path(s->store, i),
	};
	int rc = inspect_size(in->handle, bytes.path, &bytes.size, err);

	*out = (struct rsh_inspected){ .bytes = bytes.size };
	return rc ? rc : s->format->scan(&(struct rsh_scan_job){
				.source = s, .file = i, .bytes = &bytes,
				.how = RSH_SCAN_VERIFY, .names = names,
			}, &out->index, err);
}

int rsh_source_file_inspect(const struct rsh_source *s, uint32_t i,
			    struct rsh_handle *h, struct rsh_names *names,
			    struct rsh_inspected *out, struct rsh_error *err)
{
	struct rsh_store_scan in = { s->store, i, h };

	if (s->format->scan)
		return inspect_scan(s, i, &in, names, out, err);
	return inspect_open(rsh_store_path(s->store, i), &in, true, names, out,
			    err);
}

bool rsh_source_absent(const struct rsh_source *s, uint32_t i,
		       struct rsh_source_file_info *out)
{
	if (!s->facts || i >= s->facts->n_absent)
		return false;
	*out = (struct rsh_source_file_info){
		.rank = s->facts->absent[i].rank,
		.name = s->facts->absent[i].name,
		.path = s->facts->absent[i].name,
	};
	return true;
}

int rsh_source_training_state(const struct rsh_source *s,
			      struct rsh_training_state *out)
{
	const struct rsh_list_job job = {
		.source = s, .part = RSH_LIST_STATE,
	};
	struct rsh_listed l = { .n_tensors = 0 };
	int rc = s->format->layout == RSH_LAYOUT_OWN ?
		 s->format->list(&job, &l, NULL) : 0;

	out->epoch = l.state.epoch ? l.state.epoch : out->epoch;
	out->batch_size = l.state.batch_size ? l.state.batch_size :
					       out->batch_size;
	if (l.state.loss_scale > 0)
		out->loss_scale = l.state.loss_scale;
	return rc;
}

int rsh_source_strategy(struct rsh_source *s, bool allow_missing,
			struct rsh_names *names, struct rsh_strategy **out,
			struct rsh_error *err)
{
	struct rsh_source_view view;
	const struct rsh_list_job job = {
		.source = s, .part = RSH_LIST_LAYOUT, .view = &view,
		.allow_missing = allow_missing,
	};
	struct rsh_listed l = { .n_tensors = 0 };
	int rc = 0;

	rsh_source_view(s, names, &view);
	if (s->format->layout == RSH_LAYOUT_OWN)
		rc = s->format->list(&job, &l, err);
	*out = l.strategy;
	return rc;
}

int rsh_source_each(const struct rsh_list_job *job, struct rsh_listed *out,
		    struct rsh_error *err)
{
	int rc;

	*out = (struct rsh_listed){ .n_tensors = 0 };
	rc = job->source->format->list(job, out, err);
	for (uint32_t i = 0; i < out->n_tensors && rc == 0; i++)
		if (job->take(job->ctx, &out->tensors[i]))
			rc = rsh_error_nomem(err);
	return rc;
}

ssize_t rsh_source_file_pread(const struct rsh_source *s, uint32_t i,
			      struct rsh_handle *h, void *buf, size_t len,
			      uint64_t offset)
{
	return rsh_store_pread_once(s->store, i, h, buf, len, offset);
}

int rsh_source_ranks(const struct rsh_source *s, uint32_t **ranks, size_t *n)
{
	const struct rsh_listing *l = &s->listing;
	uint32_t *all = rsh_alloc_array(l->n + l->n_dirs, sizeof(*all));
	size_t have = 0;

	if (!all)
		return -ENOMEM;
	/* A rank may have thousands of files, and this is called for each
	 * step. */
	for (size_t i = 0; i < l->n; i++)
		if (l->files[i].rank != RSH_RANK_UNKNOWN &&
		    (have == 0 || all[have - 1] != l->files[i].rank))
			all[have++] = l->files[i].rank;
	for (size_t i = 0; i < l->n_dirs; i++)
		all[have++] = l->dirs[i].rank;
	qsort(all, have, sizeof(*all), rsh_by_u32);
	*n = 0;
	for (size_t i = 0; i < have; i++)
		if (*n == 0 || all[*n - 1] != all[i])
			all[(*n)++] = all[i];
	*ranks = all;
	return 0;
}
