/* SPDX-License-Identifier: Apache-2.0 */
/* storage/cache/block_file.c writes and reads the format of a block on disk.
 *
 * The key is in the file besides being hashed in its name: a name is short
 * enough for two keys to meet, and a file can be renamed. */
#include "config.h"

#include "block_file_i.h"

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

static uint64_t block_word_get(const uint8_t *at)
{
	uint64_t v;

	memcpy(&v, at, sizeof(v));
	return le64toh(v);
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

bool rsh_block_file_parse(const uint8_t header[RSH_BLOCK_FILE_HEADER],
			  struct rsh_block_key *key, uint32_t *n,
			  uint64_t *hash)
{
	uint64_t words[KEY_WORDS], offset, len, stored;

	if (memcmp(header, magic, sizeof(magic)) != 0 ||
	    block_word_get(header + HASH_AT) != XXH3_64bits(header, HASH_AT))
		return false;
	for (size_t i = 0; i < KEY_WORDS; i++)
		words[i] = block_word_get(header + KEY_AT + 8 * i);
	offset = words[FILE_WORDS];
	len = words[FILE_WORDS + 1];
	stored = block_word_get(header + STORED_AT);
	*key = (struct rsh_block_key){ .offset = offset,
				       .len = (uint32_t)len };
	memcpy(&key->file, words, sizeof(words[0]) * FILE_WORDS);
	if (key->file.mtime_nsec > UINT32_MAX || len == 0 ||
	    len > RSH_BLOCK_MAX || offset > key->file.size ||
	    len > key->file.size - offset || stored == 0 || stored > len)
		return false;
	*n = (uint32_t)stored;
	*hash = block_word_get(header + BYTES_HASH_AT);
	return true;
}

bool rsh_block_file_check(const uint8_t header[RSH_BLOCK_FILE_HEADER],
			  const struct rsh_block_key *key,
			  const void *bytes, uint32_t n)
{
	uint8_t found[8 * KEY_WORDS], wanted[8 * KEY_WORDS];
	struct rsh_block_key in_file;
	uint32_t stored;
	uint64_t hash;

	if (!rsh_block_file_parse(header, &in_file, &stored, &hash))
		return false;
	block_key_write(&in_file, found);
	block_key_write(key, wanted);
	return memcmp(found, wanted, sizeof(found)) == 0 && stored == n &&
	       XXH3_64bits(bytes, n) == hash;
}
