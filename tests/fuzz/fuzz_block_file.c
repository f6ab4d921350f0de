/* SPDX-License-Identifier: Apache-2.0 */
/* fuzz/fuzz_block_file.c - blocks in a cache directory: whatever the bytes, no
 * more is read than there is, and what is accepted is what would be written. */
#include "config.h"

#include "fuzz_support.h"

#include <xxhash.h>

#include "storage/cache/cache_i.h"
#include "rsh/util/pack.h"

/* What a fuzzer would not guess: the hashes, if the first byte says so. */
static void sign(uint8_t *file, size_t size)
{
	uint64_t hash = XXH3_64bits(file + RSH_BLOCK_FILE_HEADER,
				    size - RSH_BLOCK_FILE_HEADER);

	memcpy(file + 96, &hash, sizeof(hash));
	hash = XXH3_64bits(file, 104);
	memcpy(file + 104, &hash, sizeof(hash));
}

/* What is in the file, if it is compressed, takes no more than the block. */
static void unpack(const uint8_t *bytes, uint32_t n, uint32_t len)
{
	uint8_t *out = malloc(len), *part = malloc(len);
	const uint32_t at = len / 3, want = len / 2;

	if (out && part && rsh_unpack(bytes, n, out, len) &&
	    (!rsh_unpack_part(bytes, n, len, at, part, want) ||
	     memcmp(out + at, part, want) != 0))
		abort();
	free(out);
	free(part);
}

static void check(const uint8_t *file, size_t size)
{
	uint8_t again[RSH_BLOCK_FILE_HEADER];
	char name[RSH_BLOCK_FILE_NAME_MAX];
	const uint8_t *const bytes = file + RSH_BLOCK_FILE_HEADER;
	const uint32_t n = (uint32_t)(size - RSH_BLOCK_FILE_HEADER);
	struct rsh_block_key key = { 0 };

	/* The key that the file says, as it stands in the header. */
	memcpy(&key.file, file + 8, 64);
	memcpy(&key.offset, file + 72, 8);
	memcpy(&key.len, file + 80, 4);
	rsh_block_file_name(&key, name);
	if (!rsh_block_file_is_name(name))
		abort();
	if (key.len > RSH_BLOCK_MAX ||
	    !rsh_block_file_check(file, &key, bytes, n))
		return;
	if (n < key.len)
		unpack(bytes, n, key.len);
	rsh_block_file_header(&key, bytes, n, again);
	if (memcmp(again, file, sizeof(again)) != 0)
		abort();
	key.file.step++;
	if (rsh_block_file_check(file, &key, bytes, n))
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
