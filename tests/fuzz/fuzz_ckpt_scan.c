/* SPDX-License-Identifier: Apache-2.0 */
/* Whatever the bytes are, the scan ends in an index that stays inside the
 * file, or in a sentence. */
#include "fuzz_support.h"

#include <errno.h>

#include "rsh/wire/ckpt.h"

static void check_record(const struct rsh_ckpt_index *ix,
			 const struct rsh_record *r)
{
	uint64_t sum = 0;

	require(rsh_ckpt_find(ix, r->name) == r);
	require((uint64_t)r->first_dim + r->n_dims <= ix->n_dims);
	for (uint32_t i = 0; i < r->n_extents; i++) {
		const struct rsh_extent *e = &ix->extents[r->first_extent + i];

		require(e->offset <= ix->file_bytes &&
			e->length <= ix->file_bytes - e->offset);
		sum += e->length;
	}
	require(sum == r->content_bytes);
}

static void check_crc(const struct rsh_byte_source *src,
		      const struct rsh_ckpt_index *ix)
{
	struct rsh_error err = RSH_ERROR_INIT;
	int rc = rsh_ckpt_check_crc(src, ix, &err);

	require(rc == 0 || (rc == -EBADMSG && err.text[0]));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct fuzz_bytes bytes = { data, size };
	const struct rsh_byte_source src = { fuzz_pread, &bytes, size, "f" };
	struct rsh_names *names = rsh_names_new();
	struct rsh_error err = RSH_ERROR_INIT;
	struct rsh_ckpt_index *ix = NULL;

	if (rsh_ckpt_scan(&src, names, &ix, &err)) {
		require(err.code && err.text[0]);
	} else {
		for (uint32_t i = 0; i < ix->n_records; i++)
			check_record(ix, &ix->records[i]);
		check_crc(&src, ix);
		rsh_ckpt_index_free(ix);
	}
	rsh_names_free(names);
	return 0;
}
