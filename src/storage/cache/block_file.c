/* SPDX-License-Identifier: Apache-2.0 */
/* storage/cache/block_file.c writes and reads the format of a block on disk.
 *
 * The key is in the file besides being hashed in its name: a name is short
 * enough for two keys to meet, and a file can be renamed. */
#include "config.h"

#include "cache_i.h"

#include <endian.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include "rsh/util/xxh3.h"

static const char magic[8] = { 'r', 's', 'h', 'b', 'l', 'k', '3', '\n' };

enum {
	FILE_WORDS = offsetof(struct rsh_cache_file_id, memory_only) / 8,
	KEY_WORDS = FILE_WORDS + 2,
	KEY_AT = 8,
	STORED_AT = KEY_AT + 8 * KEY_WORDS,
	BYTES_HASH_AT = STORED_AT + 8,
	HASH_AT = BYTES_HASH_AT + 8,
};

static void block_word_put(uint8_t *at, uint64_t v)
{
	v = htole64(v);
	memcpy(at, &v, sizeof(v));
}

static void block_key_write(const struct rsh_block_key *key, uint8_t *out)
{
	uint64_t words[KEY_WORDS];

	memcpy(words, &key->file, sizeof(words[0]) * FILE_WORDS);
	words[FILE_WORDS] = key->offset;
	words[FILE_WORDS + 1] = key->len;
	for (size_t i = 0; i < KEY_WORDS; i++)
		block_word_put(out + 8 * i, words[i]);
}

void rsh_block_file_name(const struct rsh_block_key *key,
			 char name[RSH_BLOCK_FILE_NAME_MAX])
{
	uint8_t bytes[8 * KEY_WORDS];
	XXH128_hash_t hash;

	block_key_write(key, bytes);
	hash = XXH3_128bits(bytes, sizeof(bytes));
	snprintf(name, RSH_BLOCK_FILE_NAME_MAX, "%016llx%016llx%s",
		 (unsigned long long)hash.high64,
		 (unsigned long long)hash.low64, RSH_BLOCK_FILE_SUFFIX);
}

bool rsh_block_file_is_name(const char *name)
{
	return strspn(name, "0123456789abcdef") == 32 &&
	       strcmp(name + 32, RSH_BLOCK_FILE_SUFFIX) == 0;
}

void rsh_block_file_header(const struct rsh_block_key *key,
			   const void *bytes, uint32_t n,
			   uint8_t header[RSH_BLOCK_FILE_HEADER])
{
	memcpy(header, magic, sizeof(magic));
	block_key_write(key, header + KEY_AT);
	block_word_put(header + STORED_AT, n);
	block_word_put(header + BYTES_HASH_AT, XXH3_64bits(bytes, n));
	block_word_put(header + HASH_AT, XXH3_64bits(header, HASH_AT));
}

bool rsh_block_file_check(const uint8_t header[RSH_BLOCK_FILE_HEADER],
			  const struct rsh_block_key *key,
			  const void *bytes, uint32_t n)
{
	uint8_t wanted[RSH_BLOCK_FILE_HEADER];

	rsh_block_file_header(key, bytes, n, wanted);
	return n > 0 && n <= key->len &&
	       memcmp(header, wanted, sizeof(wanted)) == 0;
}
