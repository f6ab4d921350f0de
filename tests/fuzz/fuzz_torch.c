/* SPDX-License-Identifier: Apache-2.0 */
/* fuzz/fuzz_torch.c - whatever the bytes, a file of torch.save() ends in a
 * sentence or in tensors all of whose elements lie in it. */
#include "config.h"

#include "fuzz_support.h"

#include <errno.h>

#include "rsh/formats/torch.h"

static void check_tensor(const struct rsh_torch_file *f,
			 const struct rsh_torch_tensor *t)
{
	const struct rsh_torch_storage *s = &f->storages[t->storage];
	const unsigned width = rsh_dtype_size(t->dtype);
	uint64_t last = t->from;

	require(t->storage < f->n_storages && t->n_dims <= RSH_MAX_DIMS);
	require(s->offset <= f->file_bytes &&
		s->bytes <= f->file_bytes - s->offset);
	for (uint32_t d = 0; d < t->n_dims && t->elements > 0; d++)
		last += (t->dims[d] - 1) * t->strides[d];
	require(t->elements == 0 || width == 0 || last < s->bytes / width);
}

static void check_index(struct rsh_torch_file *f)
{
	struct rsh_names *names = rsh_names_new();
	struct rsh_error err = RSH_ERROR_INIT;
	struct rsh_ckpt_index *ix = NULL;

	require(names && rsh_torch_index(f, NULL, false, false, names, &ix,
					 &err) == 0);
	for (uint32_t i = 0; i < ix->n_records; i++)
		require(rsh_record_end(ix, &ix->records[i]) <= f->file_bytes);
	rsh_ckpt_index_free(ix);
	rsh_names_free(names);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct fuzz_bytes b = { data, size };
	const struct rsh_byte_source src = { fuzz_pread_within, &b, size,
					     "fuzz" };
	struct rsh_error err = RSH_ERROR_INIT;
	struct rsh_torch_file *f;
	uint32_t n_unsummed;
	int rc = rsh_torch_file_read(&src, NULL, &f, &err);

	if (rc) {
		require((rc == -EBADMSG || rc == -ENOTSUP) && *err.text);
		return 0;
	}
	for (uint32_t i = 0; i < f->n_tensors; i++)
		check_tensor(f, &f->tensors[i]);
	for (uint32_t i = 0; i < f->n_values; i++)
		require(f->values[i].name && !(f->values[i].plain.pickle &&
					       f->values[i].make));
	check_index(f);
	rc = rsh_torch_file_check(&src, f, &n_unsummed, &err);
	require(rc == 0 || rc == -EBADMSG);
	rsh_torch_file_free(f);
	return 0;
}
