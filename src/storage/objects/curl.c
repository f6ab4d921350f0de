/* SPDX-License-Identifier: Apache-2.0 */
/* storage/objects/curl.c loads libcurl and starts it, with all of its memory
 * secret. */
#include "config.h"

#include "objects_i.h"

#include <errno.h>

#include "rsh/util/library.h"

#define CURL_OLDEST 0x073d00

struct object_curl rsh_curl;

static CURLcode curl_started;

static void curl_start(void)
{
	curl_started = rsh_curl.global_init_mem(CURL_GLOBAL_DEFAULT,
						rsh_secret_alloc,
						rsh_secret_free,
						rsh_secret_realloc,
						rsh_secret_dup,
						rsh_secret_calloc);
}

static int curl_load(struct rsh_error *err)
{
	static const struct rsh_library_symbol symbols[] = {
#define CURL_SYMBOL(name) { "curl_" #name, &rsh_curl.name },
		RSH_CURL_FUNCTIONS(CURL_SYMBOL)
#undef CURL_SYMBOL
	};
	const curl_version_info_data *v;
	int rc = rsh_library_load(RSH_LIBRARY_CURL, "object storage", symbols,
				  sizeof(symbols) / sizeof(symbols[0]), err);

	if (rc)
		return rc;
	v = rsh_curl.version_info(CURLVERSION_NOW);
	if (v->version_num < CURL_OLDEST)
		return rsh_error_set(err, ENOENT,
				     "object storage needs libcurl 7.61 or later, and this is %s",
				     v->version);
	return 0;
}

int rsh_object_curl_start(struct rsh_error *err)
{
	static pthread_once_t once = PTHREAD_ONCE_INIT;
	int rc = curl_load(err);

	if (rc)
		return rc;
	pthread_once(&once, curl_start);
	if (curl_started != CURLE_OK)
		return rsh_error_set(err, EIO, "libcurl cannot be started: %s",
				     rsh_curl.easy_strerror(curl_started));
	return 0;
}

/* ---- its certificates ---- */

#ifdef HAVE_CURL_VERSION_INFO_DATA_CAINFO

void rsh_object_each_ca_file(void (*fn)(void *ctx, const char *path), void *ctx)
{
	const curl_version_info_data *v =
		rsh_curl.version_info(CURLVERSION_NOW);

	if (v->age >= CURLVERSION_SEVENTH && v->cainfo)
		fn(ctx, v->cainfo);
}

#else

/* libcurl does not say which file it was built for: these are Debian's and Red
 * Hat's. */
void rsh_object_each_ca_file(void (*fn)(void *ctx, const char *path), void *ctx)
{
	fn(ctx, "/etc/ssl/certs/ca-certificates.crt");
	fn(ctx, "/etc/pki/tls/certs/ca-bundle.crt");
}

#endif
