/* SPDX-License-Identifier: Apache-2.0 */
/* fuzz/fuzz_dcp_metadata.c - whatever the bytes, a .metadata ends in a sentence
 * or in a checkpoint all of whose boxes lie in their tensors, and which can be
 * joined with itself. */
#include "config.h"

#include <errno.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "rsh/wire/dcp.h"

struct bytes {
	const uint8_t *data;
	size_t size;
};

static ssize_t pread_bytes(void *ctx, void *buf, size_t len, uint64_t offset)
{
	const struct bytes *b = ctx;

	/* A reader that reads beyond the end did not look at the size. */
	if (offset > b->size || len > b->size - offset)
		abort();
	memcpy(buf, b->data + offset, len);
	return (ssize_t)len;
}

static void expect(bool right)
{
	if (!right)
		abort();
}

static void check_tensor(const struct rsh_dcp *d,
			 const struct rsh_dcp_tensor *t)
{
	expect(strlen(t->name) > 0 && t->n_dims <= RSH_MAX_DIMS);
	for (uint32_t i = 0; i < t->n_chunks; i++) {
		const struct rsh_dcp_chunk *c = &t->chunks[i];
		struct rsh_box box;

		rsh_dcp_box(t, c, &box);
		for (uint32_t k = 0; k < t->n_dims; k++)
			expect(box.from[k] <= t->dims[k] &&
			       box.size[k] <= t->dims[k] - box.from[k]);
		expect(c->file < d->n_files || c->file == RSH_DCP_NO_FILE);
		expect(c->length == RSH_DCP_BY_NAME ||
		       c->length <= INT64_MAX - c->offset);
	}
}

static void check(const struct rsh_dcp *d)
{
	for (uint32_t i = 0; i < d->n_files; i++)
		expect(!strchr(d->files[i], '/') && strcmp(d->files[i], ".."));
	for (uint32_t i = 0; i < d->n_tensors; i++) {
		check_tensor(d, &d->tensors[i]);
		expect(i == 0 || strcmp(d->tensors[i - 1].name,
					d->tensors[i].name) < 0);
	}
	for (uint32_t i = 0; i < d->n_values; i++)
		expect(!d->values[i].file || !strchr(d->values[i].file, '/'));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct bytes b = { data, size };
	const struct rsh_byte_source src = { pread_bytes, &b, size, "fuzz" };
	struct rsh_error err = RSH_ERROR_INIT;
	struct rsh_dcp *d, *joined;
	int rc = rsh_dcp_parse(&src, &d, &err);

	if (rc) {
		expect((rc == -EBADMSG || rc == -ENOTSUP) && *err.text);
		return 0;
	}
	check(d);
	expect(rsh_dcp_join((const struct rsh_dcp *const[]){ d, d }, 2, "fuzz",
			    &joined, &err) == 0);
	check(joined);
	expect(joined->n_tensors == d->n_tensors &&
	       joined->n_values == d->n_values);
	rsh_dcp_free(joined);
	rsh_dcp_free(d);
	return 0;
}
