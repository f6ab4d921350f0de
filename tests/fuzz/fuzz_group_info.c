/* SPDX-License-Identifier: Apache-2.0 */
/* Whatever the bytes are, the reader of group information ends in a list that
 * is all there, and no longer than the file can say, or in a sentence. */
#include "fuzz_support.h"

#include "rsh/wire/strategy_file.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct rsh_error err = RSH_ERROR_INIT;
	uint32_t *ranks, n, sum = 0;

	if (rsh_group_info_parse(data, size, "f", &ranks, &n, &err)) {
		if (!err.code || !err.text[0])
			abort();
		return 0;
	}
	if (n > size)
		abort();
	for (uint32_t i = 0; i < n; i++)
		sum += ranks[i];
	*(volatile uint32_t *)&sum = sum;
	free(ranks);
	return 0;
}
