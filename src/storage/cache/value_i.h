/* SPDX-License-Identifier: Apache-2.0 */
/* storage/cache/value_i.h describes the value of a block on a server; for this
 * layer only.
 *
 * The name of a value is printable: "rsh2-", four bytes that distinguish keys
 * of --cache-key-file, "-", and the 16 bytes of the digest.  The bytes are in
 * hexadecimal digits.  All numbers are little-endian:
 *
 *    0  HMAC-SHA256 of all bytes after it; without a key their 128 bits of
 *       xxh3, and zeros
 *   32  "rshval2\n"
 *   40  digest of the block's key, 16 bytes
 *   56  length of the block, 8 bytes
 *   64  the content, to the end, or the result of rsh_pack() if that is
 *       shorter
 *
 * The number after "rsh" changes when names are distributed to servers in
 * another way, so that no program waits for a value on a server where another
 * program does not store it.
 *
 * A name without a block may have a lease as its value: the node that stored it
 * is loading the block.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "rsh/util/error.h"

#define RSH_VALUE_HEADER 64
#define RSH_VALUE_DIGEST 16
#define RSH_VALUE_NAME_MAX 48
#define RSH_VALUE_LEASE "rshlease"

struct rsh_value_key {
	uint8_t *bytes; /* NULL: no key */
	size_t n;
	uint8_t print[4];
};

/* Reads the file; without a path (NULL) makes an empty key.  Returns 0, or
 * -errno with a sentence. */
int rsh_value_key_read(const char *path, struct rsh_value_key *out,
		       struct rsh_error *err);
void rsh_value_key_clear(struct rsh_value_key *key);

/* Makes the digest of a block.  `file` is the name of its file on all nodes,
 * and `words` identify the block. */
void rsh_value_digest(const uint64_t file[2], const uint64_t words[5],
		      uint8_t digest[RSH_VALUE_DIGEST]);
void rsh_value_name(const struct rsh_value_key *key,
		    const uint8_t digest[RSH_VALUE_DIGEST],
		    char name[RSH_VALUE_NAME_MAX]);

/* Fills in the header of a value of a block of `len` bytes, which has `stored`
 * bytes after the header. */
void rsh_value_seal(const struct rsh_value_key *key,
		    const uint8_t digest[RSH_VALUE_DIGEST], uint8_t *value,
		    uint32_t stored, uint32_t len);
/* Returns whether these n bytes are the value of this block as it was
 * sealed. */
bool rsh_value_check(const struct rsh_value_key *key,
		     const uint8_t digest[RSH_VALUE_DIGEST],
		     const uint8_t *value, size_t n, uint32_t len);
