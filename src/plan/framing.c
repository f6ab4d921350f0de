/* SPDX-License-Identifier: Apache-2.0 */
/* plan/framing.c computes the layout of files.  A .ckpt file consists of
 * records, and each chunk of a record follows its own header.  A safetensors
 * file has one header and then the contents, in the order of that format. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "rsh/plan/framing.h"
#include "rsh/util/checked.h"
#include "rsh/util/mem.h"
#include "rsh/wire/safetensors.h"

int rsh_layout_too_large(const struct rsh_record_shape *s,
			 struct rsh_error *err)
{
	return rsh_error_set(err, EFBIG, "parameter %s makes the file of a "
			     "rank too large", s->name);
}

static int ckpt_lay_out(struct rsh_file_layout *f, struct rsh_error *err)
{
	uint64_t at = 0, bytes;

	for (uint32_t i = 0; i < f->n; i++) {
		if (!rsh_dtype_in_mindspore(f->shapes[i].dtype))
			return rsh_error_set(err, ENOTSUP, "parameter \"%s\" is "
					     "of type %s, which MindSpore does "
					     "not have; --drop leaves it out",
					     f->shapes[i].name,
					     rsh_dtype_name(f->shapes[i].dtype));
		f->slots[i].offset = at;
		if (!rsh_ckpt_emit_size(&f->shapes[i], &bytes) ||
		    !rsh_add_u64(at, bytes, &at) || at > INT64_MAX)
			return rsh_layout_too_large(&f->shapes[i], err);
	}
	f->header = NULL;
	f->header_bytes = 0;
	f->bytes = at;
	return 0;
}

static void ckpt_chunks(const struct rsh_record_shape *s,
			struct rsh_chunks *out)
{
	const uint64_t n = rsh_ckpt_emit_chunks(s->content_bytes);
	const uint64_t before_last = (n - 1) * RSH_CKPT_CHUNK_BYTES;

	*out = (struct rsh_chunks){
		.n = n,
		.content_bytes = RSH_CKPT_CHUNK_BYTES,
		.full_header = rsh_ckpt_header_size(s, RSH_CKPT_CHUNK_BYTES),
		.last_header = rsh_ckpt_header_size(
			s, s->content_bytes - before_last),
	};
}

static size_t ckpt_write_header(const struct rsh_record_shape *s, uint64_t at,
				uint64_t chunk_bytes, uint32_t crc,
				uint8_t *buf)
{
	(void)at, (void)crc;
	return rsh_ckpt_header_write(s, chunk_bytes, buf);
}

const struct rsh_framing rsh_ckpt_framing = {
	.type = RSH_FILE_CKPT,
	.lay_out = ckpt_lay_out,
	.chunks = ckpt_chunks,
	.write_header = ckpt_write_header,
};

/* Puts slots and shapes in the order of the file. */
static int sort(struct rsh_file_layout *f)
{
	cleanup_free uint32_t *order = rsh_alloc_array(f->n, sizeof(*order));
	cleanup_free struct rsh_slot *slots =
		rsh_alloc_array(f->n, sizeof(*slots));
	cleanup_free struct rsh_record_shape *shapes =
		rsh_alloc_array(f->n, sizeof(*shapes));

	if (!order || !slots || !shapes)
		return -ENOMEM;
	rsh_safetensors_order(f->shapes, f->n, order);
	for (uint32_t i = 0; i < f->n; i++) {
		slots[i] = f->slots[order[i]];
		shapes[i] = f->shapes[order[i]];
	}
	for (uint32_t i = 0; i < f->n; i++) {
		f->slots[i] = slots[i];
		f->shapes[i] = shapes[i];
	}
	return 0;
}

/* Int4 is stored as I8.  Only a note in the metadata distinguishes the two. */
static int make_header(struct rsh_file_layout *f, const char *format,
		       const struct rsh_hf_form *form, struct rsh_error *err)
{
	const uint32_t n_form = form ? form->n : 0;
	cleanup_free struct rsh_safetensors_entry *entries =
		rsh_alloc_array((size_t)f->n + n_form + 2, sizeof(*entries));
	uint32_t n = n_form;

	if (!entries)
		return rsh_error_nomem(err);
	if (form)
		memcpy(entries, form->entries, n * sizeof(*entries));
	else
		entries[n++] = (struct rsh_safetensors_entry){ "format",
							       format };
	if (f->remove_redundancy)
		entries[n++] = (struct rsh_safetensors_entry){
			"remove_redundancy", "True"
		};
	for (uint32_t i = 0; i < f->n; i++)
		if (f->shapes[i].dtype == RSH_DTYPE_INT4)
			entries[n++] = (struct rsh_safetensors_entry){
				f->shapes[i].name, "Int4"
			};
	return rsh_safetensors_header(&(struct rsh_safetensors_contents){
		.shapes = f->shapes, .n = f->n,
		.entries = entries, .n_entries = n,
	}, &f->header, &f->header_bytes, err);
}

static int safetensors_lay_out(struct rsh_file_layout *f, const char *format,
			       const struct rsh_hf_form *form,
			       struct rsh_error *err)
{
	uint64_t at;
	int rc = sort(f) ? rsh_error_nomem(err) :
		 make_header(f, format, form, err);

	if (rc)
		return rc;
	at = f->header_bytes;
	for (uint32_t i = 0; i < f->n; i++) {
		f->slots[i].offset = at;
		if (!rsh_add_u64(at, f->shapes[i].content_bytes, &at) ||
		    at > INT64_MAX) {
			free(f->header);
			f->header = NULL;
			return rsh_layout_too_large(&f->shapes[i], err);
		}
	}
	f->bytes = at;
	return 0;
}

static int lay_out_ms(struct rsh_file_layout *f, struct rsh_error *err)
{
	return safetensors_lay_out(f, "ms", NULL, err);
}

/* Hugging Face's loaders accept a file only if its metadata names the framework
 * whose conventions the tensors follow. */
static int lay_out_pt(struct rsh_file_layout *f, struct rsh_error *err)
{
	return safetensors_lay_out(f, "pt", f->form, err);
}

static void safetensors_chunks(const struct rsh_record_shape *s,
			       struct rsh_chunks *out)
{
	(void)s;
	*out = (struct rsh_chunks){ .n = 1, .content_bytes = UINT64_MAX };
}

const struct rsh_framing rsh_safetensors_framing = {
	.type = RSH_FILE_SAFETENSORS,
	.lay_out = lay_out_ms,
	.chunks = safetensors_chunks,
};

const struct rsh_framing rsh_hf_framing = {
	.type = RSH_FILE_SAFETENSORS,
	.lay_out = lay_out_pt,
	.chunks = safetensors_chunks,
};
