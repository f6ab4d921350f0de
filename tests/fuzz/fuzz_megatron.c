/* SPDX-License-Identifier: Apache-2.0 */
/* fuzz/fuzz_megatron.c - whatever the bytes, a file of one rank and the states
 * beside it end in a sentence, or in tensors whose elements lie in the files.
 * What they describe, with all other files of their mesh lost, has boxes that
 * are in the tensors.
 *
 * An input is the length of the first file in four bytes, and both files. */
#include "config.h"

#include "fuzz_support.h"

#include <errno.h>
#include <string.h>

#include "formats/megatron/megatron_i.h"

static void check_file(const struct rsh_megatron_file *f,
		       const struct rsh_ckpt_index *ix, uint64_t size)
{
	for (uint32_t i = 0; i < f->n; i++) {
		const struct rsh_megatron_entry *e = &f->v[i];

		require(e->name && e->key && e->n_dims <= RSH_MAX_DIMS);
		require(e->offset <= size && e->bytes <= size - e->offset);
		require(rsh_megatron_find(f, e->chunk, e->name, e->state));
	}
	for (uint32_t i = 0; i < ix->n_records; i++)
		require(rsh_record_end(ix, &ix->records[i]) <= size);
}

/* Reads file 0 or 1, and keeps it.  Returns whether it can be used. */
static bool read_file(struct rsh_source_megatron *st, uint32_t file,
		      const uint8_t *data, size_t size, struct rsh_names *names)
{
	struct fuzz_bytes b = { data, size };
	const struct rsh_byte_source src = { fuzz_pread_within, &b, size,
					     "fuzz" };
	struct rsh_error err = RSH_ERROR_INIT;
	struct rsh_ckpt_index *ix = NULL;
	int rc = rsh_megatron_files.read(st, file, &src, false, names,
					 &st->all.files[file], &ix, &err);

	if (rc)
		require((rc == -EBADMSG || rc == -ENOTSUP) && *err.text);
	else
		check_file(st->all.files[file], ix, size);
	rsh_ckpt_index_free(ix);
	return rc == 0;
}

static void check_description(const struct rsh_source_megatron *st)
{
	const struct rsh_dcp *d = st->all.dcp.pub;

	for (uint32_t i = 0; i < d->n_tensors; i++) {
		const struct rsh_dcp_tensor *t = &d->tensors[i];

		require(i == 0 || strcmp(d->tensors[i - 1].name, t->name) < 0);
		for (uint32_t k = 0; k < t->n_chunks; k++) {
			const struct rsh_dcp_chunk *c = &t->chunks[k];

			require(c->file < d->n_files && c->key);
			for (uint32_t n = 0; n < t->n_dims; n++)
				require(c->from[n] <= t->dims[n] &&
					c->size[n] <= t->dims[n] - c->from[n]);
		}
	}
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct rsh_megatron_listed listed[] = {
		{ .n_numbers = 1 }, { .n_numbers = 1 },
	};
	struct rsh_source_megatron *st = rsh_joined_new(
		&rsh_megatron_files, sizeof(*st), NULL, 2);
	struct rsh_names *names = rsh_names_new();
	struct rsh_error err = RSH_ERROR_INIT;
	uint32_t first = 0;

	if (size >= sizeof(first))
		memcpy(&first, data, sizeof(first));
	if (size >= sizeof(first) && first <= size - sizeof(first)) {
		rsh_joined_add_file(&st->all, "model");
		rsh_joined_add_file(&st->all, "states");
		st->n = 1;
		st->listed = listed;
		data += sizeof(first);
		size -= sizeof(first);
		if (read_file(st, 0, data, first, names)) {
			const struct rsh_megatron_file *f = st->all.files[0];
			const uint64_t *args = f->args;

			for (unsigned i = 0; i < 2; i++)
				listed[i].n_numbers +=
					(args[RSH_MEGATRON_PIPELINE] > 1) +
					(args[RSH_MEGATRON_EXPERT] > 1);
			read_file(st, 1, data + first, size - first, names);
			if (rsh_joined_describe(&st->all, &err) == 0)
				check_description(st);
			else
				require(*err.text);
		}
	}
	rsh_joined_free(st);
	rsh_names_free(names);
	return 0;
}
