/* SPDX-License-Identifier: Apache-2.0 */
/* storage/objects/sign.c signs requests (AWS Signature Version 4).  libcurl can
 * sign as well, but right from 7.87 on only, and 8.14 signs a '+' of a query
 * wrong. */
#include "config.h"

#include "objects_i.h"

#include <errno.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include "rsh/util/library.h"
#include "rsh/util/secret.h"

enum { SHA256_BYTES = 32, HEX_BYTES = 2 * SHA256_BYTES + 1, DAY = 8 };

static struct {
	const void *(*sha256)(void);
	int (*digest)(const void *data, size_t n, uint8_t *out, unsigned *n_out,
		      const void *hash, void *engine);
	uint8_t *(*hmac)(const void *hash, const void *key, int n_key,
			 const uint8_t *data, size_t n, uint8_t *out,
			 unsigned *n_out);
} crypto;

/* ---- hashes ---- */

static bool sign_digest(const char *text, char hex[HEX_BYTES])
{
	uint8_t out[SHA256_BYTES];
	unsigned n = 0;

	if (!crypto.digest(text, strlen(text), out, &n, crypto.sha256(), NULL) ||
	    n != sizeof(out))
		return false;
	for (size_t i = 0; i < sizeof(out); i++)
		snprintf(hex + 2 * i, 3, "%02x", out[i]);
	return true;
}

/* The next key, or the signature, from a key; they may be one. */
static bool sign_next(const void *key, size_t n_key, const char *text, size_t n,
		      uint8_t out[SHA256_BYTES])
{
	uint8_t next[SHA256_BYTES];
	unsigned n_next = 0;
	const bool ok = crypto.hmac(crypto.sha256(), key, (int)n_key,
				    (const uint8_t *)text, n, next, &n_next) &&
			n_next == sizeof(next);

	memcpy(out, next, sizeof(next));
	rsh_secret_wipe(next, sizeof(next));
	return ok;
}

int rsh_object_sign_start(const char *url, struct rsh_error *err)
{
	const struct rsh_library_symbol symbols[] = {
		{ "EVP_sha256", &crypto.sha256 },
		{ "EVP_Digest", &crypto.digest },
		{ "HMAC", &crypto.hmac },
	};
	char hex[HEX_BYTES];
	uint8_t key[SHA256_BYTES];
	int rc = rsh_library_load_crypto(url, symbols,
					 sizeof(symbols) / sizeof(symbols[0]),
					 err);

	if (rc)
		return rc;
	/* The library opens its own files now, and not when it is too late. */
	if (!sign_digest("", hex) || !sign_next("", 0, "", 0, key))
		return rsh_error_set(err, EIO, "%s: libcrypto cannot compute "
				     "SHA-256", url);
	return 0;
}

/* ---- the parts of a signature ---- */

/* Finds the parts of http[s]://HOST[:PORT]/PATH[?QUERY].  libcurl sends no port
 * that is the scheme's own. */
struct sign_address {
	const char *host, *path, *query;
	size_t n_host, n_path;
};

static void sign_split(const char *address, struct sign_address *a)
{
	const bool is_tls = !strncmp(address, "https:", 6);
	const char *own = is_tls ? ":443" : ":80";
	const size_t n = strlen(own);

	a->host = strstr(address, "://") + 3;
	a->n_host = strcspn(a->host, "/?");
	a->path = a->host + a->n_host;
	a->n_path = strcspn(a->path, "?");
	a->query = a->path + a->n_path;
	a->query += *a->query == '?';
	if (a->n_host > n && !strncmp(a->path - n, own, n))
		a->n_host -= n;
	if (!a->n_path) {
		a->path = "/";
		a->n_path = 1;
	}
}

static const char *sign_names(const struct object_keys *keys, bool pays)
{
	static const char *const names[2][2] = {
		{ "host;x-amz-content-sha256;x-amz-date",
		  "host;x-amz-content-sha256;x-amz-date;x-amz-security-token" },
		{ "host;x-amz-content-sha256;x-amz-date;x-amz-request-payer",
		  "host;x-amz-content-sha256;x-amz-date;x-amz-request-payer;"
		  "x-amz-security-token" },
	};

	return names[pays][keys->token != NULL];
}

/* The hash of the request as a signature has it. */
static bool sign_request(const struct sign_address *a,
			 const struct object_keys *keys, bool pays,
			 const char *date, char hex[HEX_BYTES])
{
	const char *token = keys->token ? keys->token : "";
	const size_t size = strlen(a->host) + strlen(token) + 512;
	cleanup_secret char *text = rsh_secret_alloc(size);

	if (!text)
		return false;
	snprintf(text, size,
		 "GET\n%.*s\n%s\nhost:%.*s\nx-amz-content-sha256:%s\n"
		 "x-amz-date:%s\n%s%s%s%s\n%s\n%s",
		 (int)a->n_path, a->path, a->query, (int)a->n_host, a->host,
		 RSH_OBJECT_NO_BODY, date,
		 pays ? RSH_OBJECT_PAYS "\n" : "",
		 keys->token ? "x-amz-security-token:" : "", token,
		 keys->token ? "\n" : "", sign_names(keys, pays),
		 RSH_OBJECT_NO_BODY);
	return sign_digest(text, hex);
}

/* The key of a day, a region and S3. */
static bool sign_key(const struct object_keys *keys, const char *region,
		     const char *date, uint8_t key[SHA256_BYTES])
{
	const size_t size = strlen(keys->secret) + sizeof("AWS4");
	cleanup_secret char *first = rsh_secret_alloc(size);

	if (!first)
		return false;
	snprintf(first, size, "AWS4%s", keys->secret);
	return sign_next(first, size - 1, date, DAY, key) &&
	       sign_next(key, SHA256_BYTES, region, strlen(region), key) &&
	       sign_next(key, SHA256_BYTES, "s3", 2, key) &&
	       sign_next(key, SHA256_BYTES, "aws4_request", 12, key);
}

/* ---- the header ---- */

static char *sign_header(const struct object_keys *keys, bool pays,
			 const char *scope,
			 const uint8_t signature[SHA256_BYTES])
{
	const size_t size = strlen(keys->id) + strlen(scope) + 256;
	char *header = rsh_secret_alloc(size);
	int n;

	if (!header)
		return NULL;
	n = snprintf(header, size, "Authorization: AWS4-HMAC-SHA256 "
		     "Credential=%s/%s, SignedHeaders=%s, Signature=",
		     keys->id, scope, sign_names(keys, pays));
	for (size_t i = 0; i < SHA256_BYTES; i++)
		n += snprintf(header + n, size - (size_t)n, "%02x",
			      signature[i]);
	return header;
}

char *rsh_object_sign(const char *address, const char *region,
		      const struct object_keys *keys, bool pays,
		      const char *date)
{
	char scope[256], text[512], hex[HEX_BYTES];
	uint8_t key[SHA256_BYTES];
	struct sign_address a;
	char *header = NULL;
	int n;

	sign_split(address, &a);
	n = snprintf(scope, sizeof(scope), "%.*s/%s/s3/aws4_request", DAY, date,
		     region);
	if (n >= (int)sizeof(scope) || !sign_request(&a, keys, pays, date, hex) ||
	    !sign_key(keys, region, date, key))
		return NULL;
	n = snprintf(text, sizeof(text), "AWS4-HMAC-SHA256\n%s\n%s\n%s", date,
		     scope, hex);
	if (sign_next(key, sizeof(key), text, (size_t)n, key))
		header = sign_header(keys, pays, scope, key);
	rsh_secret_wipe(key, sizeof(key));
	return header;
}
