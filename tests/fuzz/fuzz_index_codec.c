/* SPDX-License-Identifier: Apache-2.0 */
/* Whatever the bytes are, an index that is read from them is sound and gives
 * the same bytes again.  The checksum is made right first: else nothing would
 * come past it. */
#include "fuzz_support.h"

#define XXH_INLINE_ALL
#include <xxhash.h>

#include "rsh/wire/index_codec.h"

#define SUM_BYTES 8

static void check_record(const struct rsh_ckpt_index *ix,
			 const struct rsh_record *r)
{
	uint64_t sum = 0;

	if (rsh_ckpt_find(ix, r->name) != r)
		abort();
	for (uint32_t i = 0; i < r->n_extents; i++) {
		const struct rsh_extent *e = &ix->extents[r->first_extent + i];

		if (e->offset >= ix->file_bytes ||
		    e->length > ix->file_bytes - e->offset)
			abort();
		sum += e->length;
	}
	if (sum != r->content_bytes)
		abort();
}

static void check(const struct rsh_ckpt_index *ix,
		  const struct rsh_names *names, const uint8_t *data,
		  size_t size)
{
	uint8_t *again;
	size_t len;

	for (uint32_t i = 0; i < ix->n_records; i++)
		check_record(ix, &ix->records[i]);
	if (rsh_index_encode(ix, names, &again, &len))
		return;
	if (len != size || memcmp(again, data, size))
		abort();
	free(again);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct rsh_names *names = rsh_names_new();
	uint8_t *copy = malloc(size ? size : 1);
	struct rsh_ckpt_index *ix;

	if (names && copy) {
		if (size)
			memcpy(copy, data, size);
		if (size >= SUM_BYTES) {
			uint64_t sum = XXH3_64bits(copy + SUM_BYTES,
						   size - SUM_BYTES);

			memcpy(copy, &sum, sizeof(sum));
		}
		if (rsh_index_decode(copy, size, names, &ix) == 0) {
			check(ix, names, copy, size);
			rsh_ckpt_index_free(ix);
		}
	}
	free(copy);
	rsh_names_free(names);
	return 0;
}
