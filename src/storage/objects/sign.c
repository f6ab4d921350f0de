/* SPDX-License-Identifier: Apache-2.0 */
/* storage/objects/sign.c signs requests (AWS Signature Version 4).  libcurl can
 * sign as well, but right from 7.87 on only, and 8.14 signs a '+' of a query
 * wrong. */
#include "config.h"

#include "objects_i.h"

#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include "rsh/util/library.h"
#include "rsh/util/secret.h"
#include "rsh/util/text.h"

enum { HEX_BYTES = 2 * RSH_SHA256_BYTES + 1, DAY = 8 };

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
	cleanup_secret char *text = rsh_secret_format(
		"GET\n%.*s\n%s\nhost:%.*s\nx-amz-content-sha256:%s\n"
		"x-amz-date:%s\n%s%s%s%s\n%s\n%s",
		(int)a->n_path, a->path, a->query, (int)a->n_host, a->host,
		RSH_OBJECT_NO_BODY, date,
		pays ? RSH_OBJECT_PAYS "\n" : "",
		keys->token ? "x-amz-security-token:" : "", token,
		keys->token ? "\n" : "", sign_names(keys, pays),
		RSH_OBJECT_NO_BODY);
	uint8_t hash[RSH_SHA256_BYTES];

	if (!text || !rsh_sha256(text, strlen(text), hash))
		return false;
	rsh_text_hex(hex, hash, RSH_SHA256_BYTES);
	return true;
}

/* Makes the next key, or the signature, of a key. */
static bool sign_next(uint8_t key[RSH_SHA256_BYTES], const char *text)
{
	return rsh_hmac_sha256(key, RSH_SHA256_BYTES, text, strlen(text), key);
}

/* The key of a day, a region and S3. */
static bool sign_key(const struct object_keys *keys, const char *region,
		     const char *date, uint8_t key[RSH_SHA256_BYTES])
{
	cleanup_secret char *first = rsh_secret_format("AWS4%s", keys->secret);

	return first &&
	       rsh_hmac_sha256(first, strlen(first), date, DAY, key) &&
	       sign_next(key, region) && sign_next(key, "s3") &&
	       sign_next(key, "aws4_request");
}

char *rsh_object_sign(const char *address, const char *region,
		      const struct object_keys *keys, bool pays,
		      const char *date)
{
	char scope[256], text[512], hex[HEX_BYTES];
	uint8_t key[RSH_SHA256_BYTES];
	struct sign_address a;
	char *header = NULL;
	int n;

	sign_split(address, &a);
	n = snprintf(scope, sizeof(scope), "%.*s/%s/s3/aws4_request", DAY, date,
		     region);
	if (n >= (int)sizeof(scope) || !sign_request(&a, keys, pays, date, hex) ||
	    !sign_key(keys, region, date, key))
		return NULL;
	snprintf(text, sizeof(text), "AWS4-HMAC-SHA256\n%s\n%s\n%s", date,
		 scope, hex);
	if (sign_next(key, text)) {
		rsh_text_hex(hex, key, RSH_SHA256_BYTES);
		header = rsh_secret_format(
			"Authorization: AWS4-HMAC-SHA256 Credential=%s/%s, "
			"SignedHeaders=%s, Signature=%s", keys->id, scope,
			sign_names(keys, pays), hex);
	}
	rsh_secret_wipe(key, sizeof(key));
	return header;
}
