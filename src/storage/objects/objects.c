/* SPDX-License-Identifier: Apache-2.0 */
/* storage/objects/objects.c opens addresses and says what they need. */
#include "config.h"

#include "objects_i.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

#include "rsh/util/blake3.h"
#include "rsh/util/library.h"
#include "rsh/util/text.h"

#define OBJECTS_REQUESTS_MAX 4096
#define OBJECTS_STALL_MS 5000
#define OBJECTS_TIMEOUT_MS 60000
#define OBJECTS_REGION "us-east-1"

/* ---- opening ---- */

/* A daemon looks at it later, and from another directory. */
static int objects_ca_file(struct rsh_objects *o,
			   const struct rsh_objects_options *opts,
			   const struct keys_settings *s, struct rsh_error *err)
{
	const char *ca = rsh_object_first(
		opts->ca_file, rsh_object_env("AWS_CA_BUNDLE"), s->ca_file,
		rsh_object_env("SSL_CERT_FILE"));

	if (ca && access(ca, F_OK) != 0)
		return rsh_error_set(err, errno, "CA file %s: %s", ca,
				     strerror(errno));
	o->ca_file = rsh_object_absolute(o, ca);
	return 0;
}

static void objects_settings(struct rsh_objects *o,
			     const struct rsh_objects_options *opts,
			     const struct keys_settings *s)
{
	o->requests = opts->requests ?: RSH_OBJECTS_REQUESTS;
	if (o->requests > OBJECTS_REQUESTS_MAX)
		o->requests = OBJECTS_REQUESTS_MAX;
	o->stall_ms = opts->stall_ms ?: OBJECTS_STALL_MS;
	o->timeout_ms = opts->timeout_ms ?: OBJECTS_TIMEOUT_MS;
	o->index = rsh_object_keep(o, opts->index);
	o->region = rsh_object_keep(o, rsh_object_first(
		opts->region, rsh_object_env("AWS_REGION", "AWS_DEFAULT_REGION"),
		s->region, OBJECTS_REGION));
}

static bool objects_ignores(const struct keys_settings *s)
{
	return !strcasecmp("true", rsh_object_first(
		rsh_object_env("AWS_IGNORE_CONFIGURED_ENDPOINT_URLS"),
		s->ignores, ""));
}

/* As an option says, or else the profile. */
static int objects_style(const struct rsh_objects *o,
			 const struct rsh_objects_options *opts,
			 const struct keys_settings *s,
			 enum rsh_objects_style *out, struct rsh_error *err)
{
	*out = opts->style;
	if (opts->style != RSH_OBJECTS_STYLE_AUTO || !s->style ||
	    !strcmp(s->style, "auto"))
		return 0;
	if (!strcmp(s->style, "path"))
		*out = RSH_OBJECTS_STYLE_PATH;
	else if (!strcmp(s->style, "virtual"))
		*out = RSH_OBJECTS_STYLE_HOST;
	else
		return rsh_error_set(err, EINVAL,
				     "profile \"%s\": addressing_style is "
				     "path, virtual or auto, and not \"%s\"",
				     o->profile, s->style);
	return 0;
}

static int objects_fill(struct rsh_objects *o, const char *url,
			const struct rsh_objects_options *opts,
			struct rsh_error *err)
{
	struct keys_settings s = { NULL };
	enum rsh_objects_style style;
	const char *endpoint;
	bool ignores;
	int rc = rsh_object_url_parse(o, url, opts, err) ?:
		 rsh_object_keys_find(o, opts, &s, err) ?:
		 objects_ca_file(o, opts, &s, err);

	if (rc == 0)
		objects_settings(o, opts, &s);
	if (rc == 0 && o->texts.failed)
		rc = rsh_error_nomem(err);
	o->pays = o->is_s3 && opts->requester_pays;
	if (rc == 0 && o->pays && o->origin == KEYS_NONE)
		rc = rsh_error_set(err, EINVAL, "%s: --requester-pays needs "
				   "credentials", o->url);
	ignores = objects_ignores(&s);
	endpoint = ignores ? opts->endpoint : rsh_object_first(
		opts->endpoint,
		rsh_object_env("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL"),
		s.endpoint);
	rc = rc ?: rsh_object_sts_find(o, ignores, err) ?:
		   objects_style(o, opts, &s, &style, err) ?:
		   rsh_object_url_finish(o, url, endpoint, style, err);
	rsh_object_settings_clear(&s);
	if (rc == 0)
		o->proxy = rsh_object_proxy(o->base);
	/* A proxy may be named in either case of letters, or for everything. */
	o->has_proxy = rsh_object_env("http_proxy", "https_proxy", "HTTPS_PROXY",
				      "all_proxy", "ALL_PROXY");
	return rc;
}

int rsh_objects_find_libraries(struct rsh_error *err)
{
	return rsh_library_load(RSH_LIBRARY_CURL, "s3:// and https://", NULL, 0,
				err) ?:
	       rsh_listing_start(err) ?:
	       rsh_crypto_load("s3:// with keys", err);
}

/* Makes the object without any library.  Returns 0 and *out, or -errno with a
 * sentence. */
static int objects_new(const char *url, const struct rsh_objects_options *opts,
		       struct rsh_objects **out, struct rsh_error *err)
{
	static const struct rsh_objects_options none = { NULL };
	int rc;

	*out = calloc(1, sizeof(**out));
	if (!*out)
		return rsh_error_nomem(err);
	pthread_mutex_init(&(*out)->lock, NULL);
	pthread_cond_init(&(*out)->renewed, NULL);
	rc = objects_fill(*out, url, opts ? opts : &none, err);
	if (rc) {
		rsh_objects_free(*out);
		*out = NULL;
	}
	return rc;
}

int rsh_objects_open(const char *url, const struct rsh_objects_options *opts,
		     struct rsh_objects **out, struct rsh_error *err)
{
	struct rsh_objects *o;
	int rc = objects_new(url, opts, &o, err);

	if (rc)
		return rc;
	rc = rsh_object_curl_start(err);
	if (rc == 0 && o->is_s3 && o->origin != KEYS_NONE)
		rc = rsh_crypto_load(o->url, err);
	rc = rc ?: rsh_listing_start(err);
	if (rc) {
		rsh_objects_free(o);
		return rc;
	}
	*out = o;
	return 0;
}

void rsh_objects_free(struct rsh_objects *o)
{
	if (!o)
		return;
	rsh_object_loop_free(o->loop);
	rsh_object_keys_clear(&o->keys);
	rsh_object_names_clear(o);
	rsh_secret_free(o->query);
	rsh_secret_free(o->user);
	rsh_arena_clear(&o->texts);
	free(o->ca_text);
	free(o->proxy);
	rsh_secret_free(o->service_token);
	pthread_cond_destroy(&o->renewed);
	pthread_mutex_destroy(&o->lock);
	free(o);
}

/* Adds a text up to a character of `end`, with its number of bytes. */
static void account_add(struct rsh_blake3 *h, const char *text, const char *end)
{
	const size_t len = text ? strcspn(text, end) : 0;

	rsh_blake3_add(h, &len, sizeof(len));
	rsh_blake3_add(h, text, len);
}

/* Hashes who asks, since servers may show other objects under the same name to
 * others.  Keys with a token expire, so those that replace them are of the same
 * account.  A password could be guessed from its hash, so it is left out. */
static uint64_t objects_account(const struct rsh_objects *o)
{
	uint8_t hash[RSH_BLAKE3_BYTES];
	struct rsh_blake3 h;
	uint64_t account;

	rsh_blake3_init(&h);
	account_add(&h, o->keys.token ? NULL : o->keys.id, "");
	account_add(&h, o->service, "");
	account_add(&h, o->role, "");
	account_add(&h, o->user, ":");
	account_add(&h, o->query, "");
	rsh_blake3_end(&h, hash);
	memcpy(&account, hash, sizeof(account));
	return account;
}

char *rsh_objects_identity(const char *url,
			   const struct rsh_objects_options *opts)
{
	struct rsh_error unused = RSH_ERROR_INIT;
	struct rsh_objects *o;
	char *text;

	if (objects_new(url, opts, &o, &unused))
		return NULL;
	text = rsh_text_format("%s proxy=%s account=%016" PRIx64, o->base,
			       o->proxy ?: "", objects_account(o));
	rsh_objects_free(o);
	return text;
}

const char *rsh_objects_url(const struct rsh_objects *o)
{
	return o->url;
}

/* ---- what it needs ---- */

void rsh_objects_each_file(const struct rsh_objects *o,
			   void (*fn)(void *ctx, const char *path), void *ctx)
{
	if (o->ca_file)
		fn(ctx, o->ca_file);
	else
		rsh_object_each_ca_file(fn, ctx);
	if (o->origin == KEYS_PROFILE && o->credentials)
		fn(ctx, o->credentials);
	if (o->origin == KEYS_PROFILE && o->config)
		fn(ctx, o->config);
	if (o->origin > KEYS_PROFILE && o->token_file)
		fn(ctx, o->token_file);
}

void rsh_objects_set_opener(struct rsh_objects *o,
			    const struct rsh_objects_opener *opener)
{
	o->opener = *opener;
}

size_t rsh_objects_ports(const struct rsh_objects *o, uint16_t *ports,
			 size_t max)
{
	/* Where a server sends us on to, and a service's address, may have any
	 * port; and names may be asked for by TCP. */
	if (o->has_proxy || o->service || !o->is_s3 || max < 2)
		return 0;
	ports[0] = o->port;
	ports[1] = 53;
	return 2;
}

void rsh_objects_stats_get(const struct rsh_objects *o,
			   struct rsh_objects_stats *out)
{
	*out = (struct rsh_objects_stats){
		.requests = o->n_requests, .retries = o->n_retries,
		.bytes = o->n_bytes, .connections = o->n_connections,
	};
}
