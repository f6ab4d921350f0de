/* SPDX-License-Identifier: Apache-2.0 */
/* fuzz/fuzz_intact.c - the checks of other frameworks' files: whatever the
 * bytes, they come to an end within the file and say why they refuse. */
#include "config.h"

#include <errno.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "rsh/wire/intact.h"

struct bytes {
	const uint8_t *data;
	size_t size;
};

static ssize_t pread_bytes(void *ctx, void *buf, size_t len, uint64_t offset)
{
	const struct bytes *b = ctx;

	/* A check that reads beyond the end did not look at the size. */
	if (offset > b->size || len > b->size - offset)
		abort();
	memcpy(buf, b->data + offset, len);
	return (ssize_t)len;
}

static void expect_reason(int rc, const struct rsh_error *err)
{
	if (rc != 0 && (rc != -EBADMSG || !*err->text))
		abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct bytes b = { data, size };
	const struct rsh_byte_source src = { pread_bytes, &b, size, "fuzz" };
	const struct rsh_byte_source *const shards[] = { &src, &src };
	struct rsh_error err = RSH_ERROR_INIT;
	int rc;

	expect_reason(rsh_torch_check(&src, size & 1, &err), &err);
	err = (struct rsh_error)RSH_ERROR_INIT;
	expect_reason(rsh_zip_check(&src, size & 1, &err), &err);
	err = (struct rsh_error)RSH_ERROR_INIT;
	expect_reason(rsh_tf_index_check(&src, shards, 2, size & 1, &err),
		      &err);
	err = (struct rsh_error)RSH_ERROR_INIT;
	rc = rsh_encrypted_check(&src, &err);
	if (rc != -ENOTSUP)
		expect_reason(rc, &err);
	return 0;
}
