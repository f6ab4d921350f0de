/* SPDX-License-Identifier: Apache-2.0 */
/* storage/cache/value_i.h says how a block is a value of a server; for this room only.
 *
 * A value's name is printable: "rsh2-", four bytes that tell keys of
 * --cache-key-file apart, "-", and the 16 bytes of the digest, both in
 * hexadecimal digits.  All numbers are little-endian:
 *
 *    0  HMAC-SHA256 of all that follows; without a key its 128 bits of xxh3,
 *       and zeros
 *   32  "rshval2\n"
 *   40  digest of the block's key, 16 bytes
 *   56  length of the block, 8 bytes
 *   64  the content, to the end; or, if that is shorter, what rsh_pack() made
 *       of it
 *
 * The number after "rsh" is another one where names are dealt out to servers in
 * another way, so that no program waits for a value on a server where another
 * does not put it.
 *
 * A name without a block may have a lease for a value: whoever put it there is
 * loading the block.
 */
#ifndef RSH_STORAGE_VALUE_I_H
#define RSH_STORAGE_VALUE_I_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "rsh/util/error.h"

#define RSH_VALUE_HEADER 64
#define RSH_VALUE_DIGEST 16
#define RSH_VALUE_NAME_MAX 48
#define RSH_VALUE_LEASE "rshlease"

struct rsh_value_key {
	uint8_t *bytes; /* NULL: there is no key */
	size_t n;
	uint8_t print[4];
};

/* Reads the file, or makes no key of NULL.  0 or -errno with a sentence. */
int rsh_value_key_read(const char *path, struct rsh_value_key *out,
		       struct rsh_error *err);
void rsh_value_key_clear(struct rsh_value_key *key);

/* Says what a block is called.  `file` is what all nodes call its file, and
 * `words` what else tells it from others. */
void rsh_value_digest(const uint64_t file[2], const uint64_t words[5],
		      uint8_t digest[RSH_VALUE_DIGEST]);
void rsh_value_name(const struct rsh_value_key *key,
		    const uint8_t digest[RSH_VALUE_DIGEST],
		    char name[RSH_VALUE_NAME_MAX]);

/* Fills in the header of a value of a block of `len` bytes, behind which `stored`
 * bytes stand. */
void rsh_value_seal(const struct rsh_value_key *key,
		    const uint8_t digest[RSH_VALUE_DIGEST], uint8_t *value,
		    uint32_t stored, uint32_t len);
/* Is that, of n bytes, the value of this block, as it was sealed? */
bool rsh_value_check(const struct rsh_value_key *key,
		     const uint8_t digest[RSH_VALUE_DIGEST],
		     const uint8_t *value, size_t n, uint32_t len);

#endif
