/* SPDX-License-Identifier: Apache-2.0 */
/* storage/cache/value.c names blocks for servers, and makes and verifies their
 * values.
 *
 * HMAC-SHA256 is libcrypto's: 1.7 GB/s where the processor has instructions for
 * it, and a third of that elsewhere. */
#include "config.h"

#include "cache_i.h"

#include <endian.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>

#include "rsh/util/files.h"
#include "rsh/util/library.h"
#include "rsh/util/mem.h"
#include "rsh/util/secret.h"
#include "rsh/util/text.h"
#include "rsh/util/xxh3.h"

#define KEY_MIN 32
#define KEY_MAX 4096

static const char magic[8] = { 'r', 's', 'h', 'v', 'a', 'l', '2', '\n' };

enum { CHECK_BYTES = RSH_SHA256_BYTES, MAGIC_AT = 32, DIGEST_AT = 40, LENGTH_AT = 56 };

/* ---- the key ---- */

static bool value_hash(const struct rsh_value_key *key, const uint8_t *data,
		       size_t n, uint8_t out[CHECK_BYTES])
{
	XXH128_canonical_t hash;

	if (key->bytes)
		return rsh_hmac_sha256(key->bytes, key->n, data, n, out);
	XXH128_canonicalFromHash(&hash, XXH3_128bits(data, n));
	memset(out, 0, CHECK_BYTES);
	memcpy(out, hash.digest, sizeof(hash.digest));
	return true;
}

int rsh_value_key_read(const char *path, struct rsh_value_key *out,
		       struct rsh_error *err)
{
	static const uint8_t nothing[1];
	uint8_t check[CHECK_BYTES];
	cleanup_fd int fd = -1;
	ssize_t n;
	int rc;

	*out = (struct rsh_value_key){ 0 };
	if (!path)
		return 0;
	rc = rsh_crypto_load("--cache-key-file", err);
	if (rc)
		return rc;
	out->bytes = malloc(KEY_MAX);
	if (!out->bytes)
		return rsh_error_nomem(err);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	n = fd < 0 ? -errno : rsh_read_all(fd, out->bytes, KEY_MAX);
	if (n < 0)
		return rsh_error_file(err, (int)-n, path);
	if (n < KEY_MIN)
		return rsh_error_set(err, EINVAL, "%s: the key has %zd bytes; "
				     "it must have at least %d", path, n, KEY_MIN);
	out->n = (size_t)n;
	if (!value_hash(out, nothing, sizeof(nothing), check))
		return rsh_error_nomem(err);
	memcpy(out->print, check, sizeof(out->print));
	return 0;
}

void rsh_value_key_clear(struct rsh_value_key *key)
{
	if (key->bytes)
		rsh_secret_wipe(key->bytes, KEY_MAX);
	free(key->bytes);
	*key = (struct rsh_value_key){ 0 };
}

/* ---- names ---- */

void rsh_value_digest(const uint64_t file[2], const uint64_t words[5],
		      uint8_t digest[RSH_VALUE_DIGEST])
{
	uint64_t all[7];
	XXH128_canonical_t hash;

	for (size_t i = 0; i < 7; i++)
		all[i] = htole64(i < 2 ? file[i] : words[i - 2]);
	XXH128_canonicalFromHash(&hash, XXH3_128bits(all, sizeof(all)));
	memcpy(digest, hash.digest, RSH_VALUE_DIGEST);
}

void rsh_value_name(const struct rsh_value_key *key,
		    const uint8_t digest[RSH_VALUE_DIGEST],
		    char name[RSH_VALUE_NAME_MAX])
{
	char *at = stpcpy(name, "rsh2-");

	at = rsh_text_hex(at, key->print, sizeof(key->print));
	*at++ = '-';
	rsh_text_hex(at, digest, RSH_VALUE_DIGEST);
}

/* ---- values ---- */

static void value_frame(const uint8_t digest[RSH_VALUE_DIGEST], uint32_t len,
			uint8_t *header)
{
	const uint64_t n = htole64(len);

	memcpy(header + MAGIC_AT, magic, sizeof(magic));
	memcpy(header + DIGEST_AT, digest, RSH_VALUE_DIGEST);
	memcpy(header + LENGTH_AT, &n, sizeof(n));
}

void rsh_value_seal(const struct rsh_value_key *key,
		    const uint8_t digest[RSH_VALUE_DIGEST], uint8_t *value,
		    uint32_t stored, uint32_t len)
{
	value_frame(digest, len, value);
	/* A value whose hash could not be made is refused by all. */
	if (!value_hash(key, value + CHECK_BYTES,
			RSH_VALUE_HEADER - CHECK_BYTES + stored, value))
		memset(value, 0, CHECK_BYTES);
}

bool rsh_value_check(const struct rsh_value_key *key,
		     const uint8_t digest[RSH_VALUE_DIGEST],
		     const uint8_t *value, size_t n, uint32_t len)
{
	uint8_t wanted[RSH_VALUE_HEADER], differs = 0;

	if (n <= RSH_VALUE_HEADER || n > (size_t)RSH_VALUE_HEADER + len)
		return false;
	value_frame(digest, len, wanted);
	if (memcmp(value + MAGIC_AT, wanted + MAGIC_AT,
		   RSH_VALUE_HEADER - MAGIC_AT) != 0 ||
	    !value_hash(key, value + CHECK_BYTES, n - CHECK_BYTES, wanted))
		return false;
	/* How long it takes is not to say how much of a forged one is right. */
	for (size_t i = 0; i < CHECK_BYTES; i++)
		differs |= value[i] ^ wanted[i];
	return differs == 0;
}
