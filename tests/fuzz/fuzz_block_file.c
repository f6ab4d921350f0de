/* SPDX-License-Identifier: Apache-2.0 */
/* fuzz/fuzz_block_file.c - blocks in a cache directory: whatever the bytes, no
 * more is read than there is, and what is accepted is what would be written. */
#include "config.h"

#include "fuzz_support.h"

#include <xxhash.h>

#include "cache/block_file_i.h"

/* What a fuzzer would not guess: the hashes, if the first byte says so. */
static void sign(uint8_t *file, size_t size)
{
	uint64_t hash = XXH3_64bits(file + RSH_BLOCK_FILE_HEADER,
				    size - RSH_BLOCK_FILE_HEADER);

	memcpy(file + 80, &hash, sizeof(hash));
	hash = XXH3_64bits(file, 88);
	memcpy(file + 88, &hash, sizeof(hash));
}

static void check(const uint8_t *file, size_t size)
{
	uint8_t again[RSH_BLOCK_FILE_HEADER];
	char name[RSH_BLOCK_FILE_NAME_MAX];
	struct rsh_block_key key;
	uint64_t hash;

	if (!rsh_block_file_parse(file, &key, &hash))
		return;
	if (key.len == 0 || key.len > RSH_BLOCK_MAX ||
	    key.offset + key.len > key.file.size)
		abort();
	rsh_block_file_name(&key, name);
	if (!rsh_block_file_is_name(name))
		abort();
	/* As the cache does, which looks at the size before. */
	if (key.len != size - RSH_BLOCK_FILE_HEADER ||
	    !rsh_block_file_check(file, &key, file + RSH_BLOCK_FILE_HEADER))
		return;
	rsh_block_file_header(&key, file + RSH_BLOCK_FILE_HEADER, again);
	if (memcmp(again, file, sizeof(again)) != 0)
		abort();
	key.file.step++;
	if (rsh_block_file_check(file, &key, file + RSH_BLOCK_FILE_HEADER))
		abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	uint8_t *file;

	if (size < 1 + RSH_BLOCK_FILE_HEADER)
		return 0;
	file = malloc(--size);
	if (!file)
		return 0;
	memcpy(file, data + 1, size);
	if (data[0] & 1)
		sign(file, size);
	check(file, size);
	free(file);
	return 0;
}
