/* SPDX-License-Identifier: Apache-2.0 */
/* formats/deepspeed/compare.c looks whether a conversion to the universal form
 * has mixed up the masters: that of DeepSpeed up to 0.19.8 does if
 * round_robin_gradients was set and there were several ranks. */
#include "config.h"

#include "deepspeed_i.h"

#include <errno.h>
#include <string.h>

#include "rsh/formats/files.h"
#include "rsh/tensor/codec.h"
#include "rsh/util/checked.h"
#include "rsh/wire/bytes.h"

/* So many elements of each parameter are compared. */
#define ELEMENTS 1024

/* Compares the masters of one parameter with the weights of the module. */
static int compare_param(struct rsh_source_ds *st, uint32_t file,
			 const struct rsh_ds_tensor *weights,
			 const struct rsh_byte_source *model, bool *same,
			 struct rsh_error *err)
{
	const struct rsh_ds_reading how = { .role = RSH_DS_STATE };
	uint8_t masters[ELEMENTS * 4], found[ELEMENTS * 4];
	cleanup_format_file struct rsh_format_file f;
	const struct rsh_ds_tensor *t;
	struct rsh_ds_file *of = NULL;
	int rc = rsh_format_file_open(st->all.source, st->all.names[file],
				      &f, err) ?:
		 rsh_ds_file_read(&f.bytes, &how, NULL, &of, NULL, err);
	enum rsh_codec codec;
	uint64_t n;

	if (rc)
		return rc;
	t = of->n_tensors ? of->tensors : NULL;
	codec = t ? rsh_codec_cast(t->dtype, false, weights->dtype) :
		    RSH_CODEC_COUNT;
	if (t && t->dtype == weights->dtype)
		codec = RSH_CODEC_NONE;
	n = t ? rsh_min_u64(rsh_min_u64(t->elements, weights->elements),
			    ELEMENTS) : 0;
	if (n > 0 && codec < RSH_CODEC_COUNT && t->row_major &&
	    weights->row_major && t->dtype == RSH_DTYPE_FLOAT32) {
		const size_t bytes = (size_t)n * rsh_dtype_size(weights->dtype);

		rc = rsh_bytes_read(&f.bytes, masters, (size_t)n * 4, t->offset,
				    err) ?:
		     rsh_bytes_read(model, found, bytes, weights->offset, err);
		rsh_codec_decode(codec, masters, (size_t)n * 4, masters);
		*same &= rc == 0 && memcmp(masters, found, bytes) == 0;
	}
	rsh_ds_file_free(of);
	return rc;
}

int rsh_ds_compare(struct rsh_source_ds *st, bool *same, struct rsh_error *err)
{
	const struct rsh_ds_file *head = st->head_file;
	cleanup_format_file struct rsh_format_file model;
	int rc = rsh_format_file_open(st->all.source,
				      st->all.names[st->model], &model, err);

	*same = true;
	for (uint32_t i = 0; i < st->all.n && rc == 0 && *same; i++) {
		const struct rsh_ds_listed *l = &st->listed[i];
		const struct rsh_ds_tensor *t;

		if (l->is.role != RSH_DS_STATE ||
		    strcmp(l->key, RSH_DS_FP32) != 0 ||
		    !rsh_ds_param_find(st->head, l->param))
			continue;
		t = rsh_ds_tensor_find(head->tensors, head->n_tensors,
				       l->param);
		if (t)
			rc = compare_param(st, i, t, &model.bytes, same, err);
	}
	return rc;
}
