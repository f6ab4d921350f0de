/* SPDX-License-Identifier: Apache-2.0 */
/* fuzz/fuzz_formats_check.c - the checks of other frameworks' files: whatever the
 * bytes, they come to an end within the file and say why they refuse. */
#include "config.h"

#include "fuzz_support.h"

#include <errno.h>

#include "formats/ckpt/ckpt_i.h"
#include "formats/tensorflow/index_i.h"
#include "rsh/formats/torch.h"

static void expect_reason(int rc, const struct rsh_error *err)
{
	require(rc == 0 || ((rc == -EBADMSG || rc == -ENOTSUP) && *err->text));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct fuzz_bytes b = { data, size };
	const struct rsh_byte_source src = { fuzz_pread_within, &b, size,
					     "fuzz" };
	const struct rsh_byte_source *const shards[] = { &src, &src };
	struct rsh_error err = RSH_ERROR_INIT;
	bool unsummed;
	int rc;

	expect_reason(rsh_torch_check(&src, size & 1, &unsummed, &err), &err);
	err = (struct rsh_error)RSH_ERROR_INIT;
	expect_reason(rsh_tf_index_check(&src, shards, 2, size & 1, &err),
		      &err);
	err = (struct rsh_error)RSH_ERROR_INIT;
	rc = rsh_encrypted_check(&src, &err);
	if (rc != -ENOTSUP)
		expect_reason(rc, &err);
	return 0;
}
