/* SPDX-License-Identifier: Apache-2.0 */
/* mount/made_up_format.c - a kind of checkpoint that nobody has, and the list of
 * formats with it in place of the program's own.  A line of "toy.txt" is a
 * matrix, "NAME DTYPE ROWS COLUMNS FILE OFFSET", that FILE has from OFFSET on. */
#include "config.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "rsh/formats/formats.h"
#include "rsh/util/checked.h"
#include "rsh/util/files.h"
#include "rsh/util/mem.h"

#define MOST 64
struct toy {
	uint32_t n;
	struct toy_tensor {
		char name[64], type[64], file[64];
		uint64_t dims[2], offset, bytes;
	} t[MOST];
	const char *files[MOST];
};

static int toy_bid(const struct rsh_look *l, struct rsh_bid_more *more)
{
	for (size_t i = 0; i < l->n && more->hint && !*more->hint; i++)
		if (rsh_has_suffix(l->names[i], ".raw"))
			snprintf(more->hint, more->max, "; %s has no toy.txt",
				 l->names[i]);
	return !l->file && rsh_look_is_plain(l) && rsh_look_has(l, "toy.txt") ?
	       RSH_BID_SURE : RSH_BID_NO;
}

static enum rsh_dtype toy_type(const struct toy_tensor *t)
{
	return rsh_dtype_parse(t->type, strlen(t->type));
}

static int toy_open(struct rsh_source *s, const struct rsh_source_options *opts,
		    struct rsh_error *err)
{
	struct toy *toy = calloc(1, sizeof(*toy));
	struct toy_tensor *t = toy ? toy->t : NULL;
	uint8_t *data = NULL;
	FILE *f;
	size_t len;
	static const struct rsh_small_file list = { "list of a toy", 1 << 20 };
	int n = 0, rc = rsh_store_load(rsh_source_store(s), "toy.txt", &list,
				       &data, &len, err);

	(void)opts;
	rsh_source_keep(s, toy, NULL, free);
	f = rc == 0 && toy ? fmemopen(data, len, "r") : NULL;
	while (f && rc == 0 && toy->n < MOST &&
	       (n = fscanf(f, "%63s %63s %" SCNu64 "%" SCNu64 " %63s %" SCNu64,
			   t->name, t->type, &t->dims[0], &t->dims[1], t->file,
			   &t->offset)) == 6 &&
	       rsh_mul_u64(t->dims[0], t->dims[1], &t->bytes) &&
	       rsh_mul_u64(t->bytes, rsh_dtype_size(toy_type(t)), &t->bytes) &&
	       t->bytes > 0) {
		rc = rsh_source_list(s, &(struct rsh_checkpoint){
			.rank = toy->n, .name = t->file });
		toy->files[toy->n++] = t++->file;
	}
	rsh_source_take_list(s, "the toy");
	if (f)
		fclose(f);
	free(data);
	if (f && rc == 0 && n != EOF)
		return rsh_error_set(err, EBADMSG, "%s/toy.txt: line %u is no "
				     "matrix", rsh_source_path(s), toy->n + 1);
	return f && rc == 0 ? 0 : rc && !f ? rc : rsh_error_nomem(err);
}

static int toy_scan(const struct rsh_scan_job *job, struct rsh_ckpt_index **out,
		    struct rsh_error *err)
{
	const struct toy *toy = rsh_source_state(job->source);
	const struct toy_tensor *t = &toy->t[job->file];
	const struct rsh_byte_source *bytes = job->bytes;
	struct rsh_ckpt_index *ix = rsh_ckpt_index_new(1, 1, 2);
	uint32_t twice;

	if (!ix)
		return rsh_error_nomem(err);
	*ix->records = (struct rsh_record){
		.name = rsh_names_add(job->names, t->name, strlen(t->name)),
		.dtype = (uint8_t)toy_type(t), .n_dims = 2, .n_extents = 1,
		.content_bytes = t->bytes };
	*ix->extents = (struct rsh_extent){ t->offset, t->bytes };
	memcpy(ix->dims, t->dims, sizeof(t->dims));
	ix->n_records = ix->n_extents = 1;
	ix->n_dims = 2;
	ix->file_bytes = bytes ? bytes->size : job->stored->file_bytes;
	/* toy.txt may have changed since. */
	if (job->stored) {
		twice = !rsh_ckpt_index_equal(ix, job->stored);
		rsh_ckpt_index_free(ix);
		return twice ? -ESTALE : 0;
	}
	if (t->bytes <= bytes->size && t->offset <= bytes->size - t->bytes)
		return rsh_ckpt_index_sort(*out = ix, &twice);
	rsh_ckpt_index_free(ix);
	return rsh_error_set(err, EBADMSG, "%s: it ends within %s", bytes->path,
			     t->name);
}

static int toy_read(const struct rsh_read_job *job, struct rsh_offers *out,
		    struct rsh_error *err)
{
	const struct toy *toy = rsh_source_state(job->source);
	struct rsh_catalogue *cat = rsh_catalogue_new(job->view);
	struct rsh_offer *o = rsh_arena_array(job->arena, struct rsh_offer, MOST);
	int rc = cat && o ? 0 : rsh_error_nomem(err);

	*out = (struct rsh_offers){ cat, o, 0 };
	for (uint32_t i = 0; i < toy->n && rc == 0; i++) {
		const struct rsh_ckpt_index *ix = job->view->index[i];
		struct rsh_tensor t = { .name = ix ? ix->records->name : 0,
			.dtype = toy_type(&toy->t[i]), .n_dims = 2,
			.dims = toy->t[i].dims };
		uint32_t number = 0;

		if (!rsh_plan_wants(job->opts, toy->t[i].name))
			continue;
		t.cut = rsh_catalogue_keep_cut(
			cat, rsh_cut_of_grid(rsh_grid_make_whole(2)));
		if (t.cut)
			t.copies = rsh_catalogue_keep_copies(cat, t.cut,
				&(struct rsh_holder){ 0, i, 0 }, 1, true);
		if (!ix)
			rc = rsh_error_set(err, ENOENT, "%s is lacking",
					   toy->t[i].name);
		else if (!t.copies || rsh_catalogue_add(cat, &t, &number))
			rc = rsh_error_nomem(err);
		o[out->n++] = (struct rsh_offer){ .name = t.name,
			.dtype = t.dtype, .n_dims = 2, .dims = t.dims,
			.same = number + 1 };
	}
	if (rc)
		rsh_catalogue_free(cat);
	return rc;
}

static int toy_list(const struct rsh_list_job *job, struct rsh_listed *out,
		    struct rsh_error *err)
{
	const struct toy *toy = rsh_source_state(job->source);
	struct rsh_listed_tensor *t = rsh_arena_array(
		job->arena, struct rsh_listed_tensor, MOST);
	struct rsh_listed_chunk *c = rsh_arena_array(
		job->arena, struct rsh_listed_chunk, MOST);
	static const uint64_t from[2];

	for (uint32_t i = 0; t && c && i < toy->n; i++) {
		c[i] = (struct rsh_listed_chunk){ from, toy->t[i].dims,
			toy->t[i].file, true, toy->t[i].offset,
			toy->t[i].bytes, 0, 0, NULL, NULL };
		t[i] = (struct rsh_listed_tensor){ .name = toy->t[i].name,
			.dtype = toy_type(&toy->t[i]), .n_dims = 2,
			.dims = toy->t[i].dims, .n_chunks = 1, .chunks = &c[i] };
		if (job->part == RSH_LIST_RECORDS && i > 0 &&
		    strcmp(toy->t[i - 1].name, toy->t[i].name) > 0)
			t[i].wrong = rsh_arena_format(job->arena, "%s is out of "
						      "order", toy->t[i].name);
	}
	out->tensors = t;
	out->files = toy->files;
	out->n_tensors = out->n_files = toy->n;
	return t && c ? 0 : rsh_error_nomem(err);
}

static const struct rsh_format toy_format = {
	.name = "toy", .says = "toy", .layout = RSH_LAYOUT_WHOLE,
	.owner = RSH_OWNER_NOBODY, .shown = RSH_SHOWN_HF, .bid = toy_bid,
	.open = toy_open, .scan = toy_scan, .read = toy_read, .list = toy_list,
};

const struct rsh_format *const rsh_formats[] = {
	&rsh_ckpt_format, &rsh_torch_format, &rsh_tensorflow_format,
	&rsh_megatron_format, &rsh_dcp_format, &rsh_checkpoint2_format,
	&rsh_hf_format, &rsh_ms_parts_format, &toy_format, NULL,
};
