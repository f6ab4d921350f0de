/* SPDX-License-Identifier: Apache-2.0 */
/* formats/megatron/framing.c lays out a model_optim_rng.pt, a file of
 * torch.save():
 *
 *   archive/data.pkl     args, version, iteration; for each chunk its tensors
 *   archive/byteorder, archive/version
 *   archive/data/N       the elements of record N
 *   the directory of the archive
 *
 * A record begins on a multiple of RSH_TORCH_ALIGNMENT; bytes between records
 * are zero.  Its name is that of the chunk, a dot, and that of the tensor.  The
 * pickle is as Python 2 and older releases of torch write it, which all loaders
 * accept with weights_only too. */
#include "config.h"

#include "output_i.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "rsh/plan/framing.h"
#include "rsh/util/checked.h"
#include "rsh/util/files.h"
#include "rsh/wire/bytes.h"
#include "rsh/wire/torch_item.h"
#include "rsh/wire/zip_emit.h"

#define NAME_BYTES 64 /* of an entry */

static size_t padding(uint64_t at)
{
	return (size_t)((RSH_TORCH_ALIGNMENT - at % RSH_TORCH_ALIGNMENT) %
			RSH_TORCH_ALIGNMENT);
}

/* ---- records ---- */

static void data_entry(const struct rsh_record_shape *s, uint64_t offset,
		       char name[NAME_BYTES], struct rsh_zip_entry *out)
{
	snprintf(name, NAME_BYTES, RSH_TORCH_DATA_ENTRY "%" PRIu32, s->number);
	*out = (struct rsh_zip_entry){
		.name = name, .bytes = s->content_bytes, .offset = offset,
	};
}

static size_t megatron_write_header(const struct rsh_record_shape *s,
				    uint64_t at, uint64_t chunk_bytes,
				    uint32_t crc, uint8_t *buf)
{
	struct rsh_zip_entry e;
	char name[NAME_BYTES];

	(void)at, (void)chunk_bytes, (void)crc;
	data_entry(s, 0, name, &e);
	return rsh_zip_local(&e, RSH_TORCH_ALIGNMENT, buf);
}

static size_t megatron_write_trailer(const struct rsh_record_shape *s,
				     uint64_t at, uint64_t chunk_bytes,
				     uint32_t crc, uint8_t *buf)
{
	(void)at, (void)chunk_bytes, (void)crc;
	memset(buf, 0, padding(s->content_bytes));
	return padding(s->content_bytes);
}

static void megatron_chunks(const struct rsh_record_shape *s,
			    struct rsh_chunks *out)
{
	uint8_t header[RSH_ZIP_ENTRY_MAX(NAME_BYTES)];

	*out = (struct rsh_chunks){
		.n = 1, .content_bytes = s->content_bytes,
		.last_header = megatron_write_header(s, 0, s->content_bytes, 0,
						     header),
		.last_trailer = padding(s->content_bytes),
	};
	out->full_header = out->last_header;
	out->full_trailer = out->last_trailer;
}

/* ---- the pickle ---- */

static void put_text(struct rsh_pickle_out *o, const char *text)
{
	rsh_pickle_put_text(o, text, strlen(text));
}

/* Finds the shape that Megatron has (output_i.h).  Returns its dimensions. */
static unsigned true_shape(const struct rsh_record_shape *s,
			   uint64_t dims[RSH_MAX_DIMS])
{
	const char *fc1 = strstr(s->name, ".linear_fc1.");
	const bool bias = fc1 && strncmp(fc1 + 12, "bias", 4) == 0;
	unsigned n = s->n_dims, from = 0;

	for (unsigned d = 0; d < n; d++)
		dims[d] = (uint64_t)s->dims[d];
	if (rsh_has_suffix(s->name, RSH_MEGATRON_WEIGHT1) && n > 2) {
		/* [n, h, ...] becomes [h, n * ...]. */
		dims[0] = (uint64_t)s->dims[1];
		dims[1] = (uint64_t)s->dims[0];
		from = 1;
	} else if (!(rsh_has_suffix(s->name, RSH_MEGATRON_WEIGHT2) && n > 2) &&
		   !(fc1 && n == (bias ? 2 : 3))) {
		return n;
	}
	while (n > (bias ? 1 : 2)) {
		dims[from] *= dims[from + 1];
		n--;
		for (unsigned d = from + 1; d < n; d++)
			dims[d] = dims[d + 1];
	}
	return n;
}

static void put_tensor(struct rsh_pickle_out *o,
		       const struct rsh_record_shape *s, uint32_t number,
		       struct rsh_torch_memo *memo)
{
	uint64_t dims[RSH_MAX_DIMS], strides[RSH_MAX_DIMS], stride = 1;
	const unsigned n = true_shape(s, dims);
	char key[16];

	for (unsigned d = n; d-- > 0;) {
		strides[d] = stride;
		stride *= rsh_max_u64(dims[d], 1);
	}
	snprintf(key, sizeof(key), "%" PRIu32, number);
	put_text(o, strchr(s->name, '.') + 1);
	rsh_torch_put_tensor(o, &(struct rsh_torch_view){
		.dtype = s->dtype, .n_dims = n, .sizes = dims,
		.strides = strides, .key = key, .bytes = s->content_bytes,
	}, memo);
}

static void put_args(struct rsh_pickle_out *o,
		     const struct rsh_megatron_form *form)
{
	put_text(o, "args");
	rsh_pickle_put_global(o, "argparse", "Namespace");
	rsh_pickle_put(o, RSH_PICKLE_OP_EMPTY_TUPLE);
	rsh_pickle_put(o, RSH_PICKLE_OP_NEWOBJ);
	rsh_pickle_put(o, RSH_PICKLE_OP_EMPTY_DICT);
	rsh_pickle_put(o, RSH_PICKLE_OP_MARK);
	for (uint32_t i = 0; i < form->n_args; i++) {
		const struct rsh_megatron_said *a = &form->args[i];

		put_text(o, a->name);
		if (a->kind == RSH_MEGATRON_NUMBER)
			rsh_pickle_put_number(o, a->value);
		else
			rsh_pickle_put(o, a->kind == RSH_MEGATRON_NONE ?
				       RSH_PICKLE_OP_NONE : a->value ?
				       RSH_PICKLE_OP_TRUE :
				       RSH_PICKLE_OP_FALSE);
	}
	rsh_pickle_put(o, RSH_PICKLE_OP_SETITEMS);
	rsh_pickle_put(o, RSH_PICKLE_OP_BUILD);
}

/* Writes the pickle of a file, whose records are in the order of chunks. */
static void put_file(struct rsh_pickle_out *o, const struct rsh_file_layout *f)
{
	const struct rsh_megatron_form *form = f->form;
	struct rsh_torch_memo memo = { .dictionary = 0 };
	uint32_t next = 0;
	char chunk[24] = "model";
	size_t n;

	rsh_pickle_begin(o);
	rsh_pickle_put(o, RSH_PICKLE_OP_EMPTY_DICT);
	rsh_pickle_put(o, RSH_PICKLE_OP_MARK);
	if (form->n_args > 0)
		put_args(o, form);
	put_text(o, "checkpoint_version");
	rsh_pickle_put_real(o, 3);
	put_text(o, "iteration");
	rsh_pickle_put_number(o, form->iteration);
	for (uint32_t i = 0; i < form->n_chunks; i++) {
		if (form->n_chunks > 1)
			snprintf(chunk, sizeof(chunk), "model%" PRIu32, i);
		put_text(o, chunk);
		rsh_pickle_put(o, RSH_PICKLE_OP_EMPTY_DICT);
		rsh_pickle_put(o, RSH_PICKLE_OP_MARK);
		for (n = strlen(chunk); next < f->n &&
		     strncmp(f->shapes[next].name, chunk, n) == 0 &&
		     f->shapes[next].name[n] == '.'; next++)
			put_tensor(o, &f->shapes[next], next, &memo);
		rsh_pickle_put(o, RSH_PICKLE_OP_SETITEMS);
	}
	rsh_pickle_put(o, RSH_PICKLE_OP_SETITEMS);
	rsh_pickle_end(o);
}

/* ---- the file ---- */

/* The entries before the first record. */
enum { ENTRY_PICKLE, ENTRY_BYTEORDER, ENTRY_VERSION, N_FIRST };

struct first_entry {
	struct rsh_zip_entry e;
	const void *content;
};

static int make_header(struct rsh_file_layout *f, struct first_entry v[N_FIRST])
{
	size_t most = RSH_TORCH_ALIGNMENT, n = 0;

	for (unsigned i = 0; i < N_FIRST; i++)
		most += RSH_ZIP_ENTRY_MAX(NAME_BYTES) + v[i].e.bytes;
	f->header = calloc(1, most);
	if (!f->header)
		return -ENOMEM;
	for (unsigned i = 0; i < N_FIRST; i++) {
		v[i].e.offset = n;
		v[i].e.crc = rsh_crc32(0, v[i].content, v[i].e.bytes);
		n += rsh_zip_local(&v[i].e, 0, f->header + n);
		memcpy(f->header + n, v[i].content, v[i].e.bytes);
		n += v[i].e.bytes;
	}
	f->header_bytes = n + padding(n);
	return 0;
}

/* Writes the directory, which is at f->bytes. */
static int make_trailer(struct rsh_file_layout *f,
			const struct first_entry v[N_FIRST])
{
	const size_t most = ((size_t)f->n + N_FIRST) *
			    RSH_ZIP_ENTRY_MAX(NAME_BYTES) + RSH_ZIP_END_MAX;
	uint8_t *p = malloc(most);
	struct rsh_zip_entry e;
	char name[NAME_BYTES];
	size_t n = 0;

	f->trailer = p;
	if (!p)
		return -ENOMEM;
	for (unsigned i = 0; i < N_FIRST; i++)
		n += rsh_zip_central(&v[i].e, p + n);
	for (uint32_t i = 0; i < f->n; i++) {
		data_entry(&f->shapes[i], f->slots[i].offset, name, &e);
		n += rsh_zip_central(&e, p + n);
	}
	n += rsh_zip_end(f->bytes, n, (uint64_t)f->n + N_FIRST, p + n);
	f->trailer_bytes = n;
	return 0;
}

/* Sets the offsets of the records, and the end of the last one. */
static int place_records(struct rsh_file_layout *f, struct rsh_error *err)
{
	uint64_t at = f->header_bytes;

	for (uint32_t i = 0; i < f->n; i++) {
		struct rsh_record_shape *s = &f->shapes[i];
		struct rsh_chunks k;

		s->number = i;
		megatron_chunks(s, &k);
		f->slots[i].offset = at;
		if (!rsh_add_u64(at, k.last_header + k.last_trailer, &at) ||
		    !rsh_add_u64(at, s->content_bytes, &at) || at > INT64_MAX)
			return rsh_layout_too_large(s, err);
	}
	f->bytes = at;
	return 0;
}

static int megatron_lay_out(struct rsh_file_layout *f, struct rsh_error *err)
{
	struct rsh_pickle_out pickle = { .data = NULL };
	struct first_entry v[N_FIRST];
	int rc = 0;

	for (uint32_t i = 0; i < f->n && rc == 0; i++)
		rc = rsh_torch_check_dtype(&f->shapes[i], err);
	if (rc)
		return rc;
	put_file(&pickle, f);
	if (pickle.failed) {
		rsh_pickle_clear(&pickle);
		return rsh_error_nomem(err);
	}
	v[ENTRY_PICKLE] = (struct first_entry){
		{ .name = RSH_TORCH_PICKLE_ENTRY, .bytes = pickle.n },
		pickle.data };
	v[ENTRY_BYTEORDER] = (struct first_entry){
		{ .name = RSH_TORCH_ORDER_ENTRY, .bytes = 6 }, "little" };
	v[ENTRY_VERSION] = (struct first_entry){
		{ .name = RSH_TORCH_VERSION_ENTRY, .bytes = 2 }, "3\n" };
	rc = make_header(f, v) ? rsh_error_nomem(err) : 0;
	rsh_pickle_clear(&pickle);
	rc = rc ?: place_records(f, err);
	if (rc == 0 && make_trailer(f, v))
		rc = rsh_error_nomem(err);
	if (rc) {
		free(f->header);
		free(f->trailer);
		return rc;
	}
	f->bytes += f->trailer_bytes;
	return 0;
}

const struct rsh_framing rsh_megatron_framing = {
	.type = RSH_FILE_OTHER,
	.lay_out = megatron_lay_out,
	.chunks = megatron_chunks,
	.write_header = megatron_write_header,
	.write_trailer = megatron_write_trailer,
};
