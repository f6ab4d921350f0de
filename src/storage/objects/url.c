/* SPDX-License-Identifier: Apache-2.0 */
/* storage/objects/url.c takes addresses apart and makes those of objects, and
 * reads the environment: settings, and the proxy of an address. */
#include "config.h"

#include "objects_i.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "rsh/util/mem.h"
#include "rsh/util/secret.h"
#include "rsh/util/text.h"

/* ---- the environment ---- */

const char *rsh_object_env_of(const char *const *names)
{
	const char *v = NULL;

	while (*names && !(v && *v))
		v = getenv(*names++);
	return v && *v ? v : NULL;
}

const char *rsh_object_first_of(const char *const *texts, size_t n)
{
	while (--n && !(*texts && **texts))
		texts++;
	return *texts;
}

/* Returns whether a list as no_proxy has it names the host, or may do so: of
 * networks this is not decided here. */
static bool env_is_exempt(const char *list, const char *host, size_t n)
{
	while (list && *list) {
		const size_t len = strcspn(list, ", ");
		const char *word = *list == '.' ? list + 1 : list;
		const size_t m = len - (size_t)(word - list);

		if ((len == 1 && *list == '*') || memchr(list, '/', len) ||
		    (m && m <= n && !strncasecmp(host + n - m, word, m) &&
		     (m == n || host[n - m - 1] == '.')))
			return true;
		list += len;
		list += strspn(list, ", ");
	}
	return false;
}

char *rsh_object_proxy(const char *address)
{
	const char *host = strstr(address, "://") + 3;
	const char *given = !strncmp(address, "https:", 6) ?
		rsh_object_env("https_proxy", "HTTPS_PROXY", "all_proxy",
			       "ALL_PROXY") :
		rsh_object_env("http_proxy", "all_proxy", "ALL_PROXY");
	const char *list = rsh_object_env("no_proxy", "NO_PROXY");
	const char *scheme = given ? strstr(given, "://") : NULL;
	const char *at;

	if (!given || env_is_exempt(list, host, strcspn(host, ":/?")))
		return NULL;
	at = strrchr(given, '@');
	return rsh_text_format("%.*s%s",
			       scheme ? (int)(scheme - given) + 3 : 0, given,
			       at ? at + 1 : scheme ? scheme + 3 : given);
}

/* ---- texts that grow ---- */

/* A text in secret memory; one that has failed stays NULL. */
struct url_text {
	char *s;
	size_t len, room;
	bool failed;
};

static void url_put(struct url_text *t, const char *s, size_t n)
{
	if (t->failed)
		return;
	if (t->room - t->len <= n) {
		const size_t room = 2 * (t->len + n) + 256;
		char *grown = rsh_secret_realloc(t->s, room);

		if (!grown) {
			t->failed = true;
			return;
		}
		t->s = grown;
		t->room = room;
	}
	memcpy(t->s + t->len, s, n);
	t->len += n;
	t->s[t->len] = '\0';
}

static void url_add(struct url_text *t, const char *s)
{
	url_put(t, s, strlen(s));
}

static bool url_is_plain(char c)
{
	return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') ||
	       (c >= '0' && c <= '9') || c == '-' || c == '.' || c == '_' ||
	       c == '~';
}

/* Puts a text as it has to stand in an address, and as a signature wants it. */
static void url_encode(struct url_text *t, const char *s, bool is_path)
{
	static const char digits[] = "0123456789ABCDEF";

	for (; *s; s++) {
		unsigned char c = (unsigned char)*s;
		const char hex[3] = { '%', digits[c >> 4], digits[c & 15] };

		if (url_is_plain(*s) || (is_path && *s == '/'))
			url_put(t, s, 1);
		else
			url_put(t, hex, 3);
	}
}

/* Adds the query of the address, if it has one, and returns the text. */
static char *url_take(struct url_text *t, const char *query)
{
	if (query) {
		url_add(t, "?");
		url_add(t, query);
	}
	if (!t->failed)
		return t->s;
	rsh_secret_free(t->s);
	return NULL;
}

/* ---- addresses of objects ---- */

char *rsh_object_what(const struct rsh_objects *o, const char *name)
{
	return rsh_text_format("%s%s%s", o->url, *name ? "/" : "", name);
}

char *rsh_object_address(const struct rsh_objects *o, const char *name)
{
	struct url_text t = { NULL };

	url_add(&t, o->base);
	if (*name || o->prefix[0])
		url_add(&t, "/");
	url_encode(&t, o->prefix, true);
	url_encode(&t, name, true);
	if (!*name && t.s && t.s[t.len - 1] == '/')
		t.s[--t.len] = '\0';
	return url_take(&t, o->query);
}

/* The parameters stand in the order of the alphabet, since they are signed so.
 */
char *rsh_object_list_address(const struct rsh_objects *o, const char *prefix,
			      const struct object_list_at *at)
{
	struct url_text t = { NULL };

	url_add(&t, o->base);
	url_add(&t, "/?");
	if (!at->is_first_version && *at->after) {
		url_add(&t, "continuation-token=");
		url_encode(&t, at->after, false);
		url_add(&t, "&");
	}
	if (!at->is_plain)
		url_add(&t, "encoding-type=url&");
	if (!at->is_first_version)
		url_add(&t, "list-type=2&");
	if (at->is_first_version && *at->after) {
		url_add(&t, "marker=");
		url_encode(&t, at->after, false);
		url_add(&t, "&");
	}
	url_add(&t, "prefix=");
	url_encode(&t, o->prefix, false);
	if (prefix)
		url_encode(&t, prefix, false);
	return url_take(&t, NULL);
}

char *rsh_object_form(const struct object_parameter *parameters)
{
	struct url_text t = { NULL };

	for (; parameters->name; parameters++) {
		url_add(&t, t.len ? "&" : "");
		url_add(&t, parameters->name);
		url_add(&t, "=");
		url_encode(&t, parameters->value, false);
	}
	return url_take(&t, NULL);
}

/* ---- what is given ---- */

static bool url_has_blanks(const char *url)
{
	for (; *url; url++)
		if ((unsigned char)*url <= ' ' || *url == 0x7f)
			return true;
	return false;
}

static void url_cut_slashes(char *s)
{
	size_t n = strlen(s);

	while (n && s[n - 1] == '/')
		s[--n] = '\0';
}

/* Cuts those of an address, but for the two that it has in any case. */
static void url_cut_end(char *url)
{
	url_cut_slashes(strstr(url, "://") + 3);
}

bool rsh_object_port(const char *s, size_t n, uint16_t usual, uint16_t *out)
{
	const char *bracket = *s == '[' ? memchr(s, ']', n) : NULL;
	size_t host = bracket ? (size_t)(bracket - s) + 1 : strcspn(s, ":[]/");
	unsigned long v;
	char *end;

	*out = usual;
	if (host == n || host == (bracket ? 2 : 0))
		return host > (bracket ? 2 : 0);
	v = strtoul(s + host + 1, &end, 10);
	*out = (uint16_t)v;
	return s[host] == ':' && end == s + n && v > 0 && v <= UINT16_MAX;
}

#define PLACE_NO_HOST "no host, or not a valid port"

static int url_bad(const char *what, const char *why, struct rsh_error *err)
{
	return rsh_error_set(err, EINVAL, "%s: %s", what, why);
}

/* Replaces a secret by a copy. */
static int url_keep(char **to, const char *from)
{
	rsh_secret_free(*to);
	*to = rsh_secret_dup(from);
	return *to ? 0 : -ENOMEM;
}

/* Takes name, password and query, which may be secret, off an address; `text`
 * is changed.  In that of a bucket '?' and '#' are as other characters. */
static int url_split(char *text, char **user, char **query)
{
	char *host = strstr(text, "://") + 3;
	char *mark = *text == 'h' ? strpbrk(host, "?#") : NULL;
	size_t len;
	char *at;
	int rc = 0;

	if (mark && *mark == '?') {
		rc = url_keep(query, mark + 1);
		if (rc == 0)
			(*query)[strcspn(*query, "#")] = '\0';
	}
	if (mark)
		rsh_secret_wipe(mark, strlen(mark));
	at = memrchr(host, '@', strcspn(host, "/"));
	if (!at || rc)
		return rc;
	*at = '\0';
	rc = url_keep(user, host);
	len = strlen(at + 1);
	memmove(host, at + 1, len);
	/* What has moved ends before where it did. */
	rsh_secret_wipe(host + len, (size_t)(at + 1 - host));
	return rc;
}

int rsh_objects_hide(char *url, struct rsh_objects_options *opts)
{
	if (!rsh_objects_is_url(url))
		return 0;
	return url_split(url, &opts->user, &opts->query);
}

void rsh_objects_options_clear(struct rsh_objects_options *opts)
{
	rsh_secret_free(opts->user);
	rsh_secret_free(opts->query);
	opts->user = opts->query = NULL;
}

static int url_of_http(struct rsh_objects *o, const char *url,
		       const struct rsh_objects_options *opts,
		       struct rsh_error *err)
{
	char *text = rsh_secret_dup(url);
	const char *host;
	int rc;

	if (!text)
		return rsh_error_nomem(err);
	rc = url_split(text, &o->user, &o->query) ||
	     (opts->user && url_keep(&o->user, opts->user)) ||
	     (opts->query && url_keep(&o->query, opts->query)) ?
		rsh_error_nomem(err) : 0;
	if (rc == 0) {
		url_cut_end(text);
		o->url = o->base = rsh_object_keep(o, text);
		o->prefix = rsh_object_keep(o, "");
	}
	rsh_secret_free(text);
	if (rc || o->texts.failed)
		return rc ?: rsh_error_nomem(err);
	if (url_has_blanks(o->url) || (o->query && url_has_blanks(o->query)))
		return url_bad(o->url,
			       "this address contains blanks: write %20", err);
	host = strstr(o->base, "://") + 3;
	if (!rsh_object_port(host, strcspn(host, "/"), o->base[4] == 's' ? 443 : 80,
		      &o->port))
		return url_bad(o->url, PLACE_NO_HOST, err);
	return 0;
}

static bool url_is_bucket(const char *s, size_t n)
{
	for (size_t i = 0; i < n; i++)
		if (!url_is_plain(s[i]) || s[i] == '~')
			return false;
	return n > 0 && n <= 255 && s[0] != '.' && s[0] != '-';
}

static int url_of_s3(struct rsh_objects *o, const char *url,
		     const struct rsh_objects_options *opts,
		     struct rsh_error *err)
{
	const char *bucket = url + 5, *key;
	size_t n = strcspn(bucket, "/");

	o->is_s3 = true;
	o->url = rsh_object_keep(o, url);
	if (!o->url || url_split(o->url, &o->user, &o->query))
		return rsh_error_nomem(err);
	url_cut_end(o->url);
	if (o->user || opts->user)
		return url_bad(o->url,
			       "an S3 address cannot contain keys: set them in "
			       "the environment or a profile", err);
	if (!url_is_bucket(bucket, n))
		return url_bad(o->url,
			       "not a valid bucket: use s3://BUCKET or "
			       "s3://BUCKET/PREFIX", err);
	key = bucket + n + strspn(bucket + n, "/");
	o->prefix = rsh_arena_format(&o->texts, "%s/", key);
	if (!o->prefix)
		return rsh_error_nomem(err);
	url_cut_slashes(o->prefix);
	if (o->prefix[0])
		strcat(o->prefix, "/");
	return 0;
}

int rsh_object_url_parse(struct rsh_objects *o, const char *url,
			 const struct rsh_objects_options *opts,
			 struct rsh_error *err)
{
	if (!rsh_objects_is_url(url))
		return url_bad(url, "not an address of object storage", err);
	if (!strncmp(url, "s3://", 5))
		return url_of_s3(o, url, opts, err);
	return url_of_http(o, url, opts, err);
}

/* ---- where the endpoint is ---- */

static int url_endpoint(const struct rsh_objects *o, const char *given,
			char **out, struct rsh_error *err)
{
	const char *china = strncmp(o->region, "cn-", 3) ? "" : ".cn";

	if (!given || !*given)
		*out = rsh_text_format("https://s3.%s.amazonaws.com%s",
				       o->region, china);
	else
		*out = rsh_text_format("%s%s", strstr(given, "://") ? "" :
				       "https://", given);
	if (!*out)
		return rsh_error_nomem(err);
	url_cut_end(*out);
	if (url_has_blanks(*out) || strpbrk(*out, "?#@") ||
	    !rsh_objects_is_url(*out) || !strncmp(*out, "s3:", 3))
		return url_bad("the endpoint",
			       "not an address of a server", err);
	return 0;
}

/* These want buckets as hosts, as their names below the endpoint's. */
static const char *const host_style[] = {
	".amazonaws.com", ".amazonaws.com.cn", ".myhuaweicloud.com",
	".aliyuncs.com", ".myqcloud.com", ".volces.com",
};

/* A bucket with dots would not fit a certificate for one name below the
 * endpoint's. */
static bool url_host_style(const char *endpoint, const char *bucket,
			   size_t n, enum rsh_objects_style style)
{
	const size_t len = strlen(endpoint);

	if (style != RSH_OBJECTS_STYLE_AUTO)
		return style == RSH_OBJECTS_STYLE_HOST;
	for (size_t i = 0; i < sizeof(host_style) / sizeof(*host_style); i++) {
		const size_t tail = strlen(host_style[i]);

		if (len > tail && !strcmp(endpoint + len - tail, host_style[i]))
			return !memchr(bucket, '.', n);
	}
	return false;
}

int rsh_object_url_finish(struct rsh_objects *o, const char *url,
			  const char *given, enum rsh_objects_style style,
			  struct rsh_error *err)
{
	cleanup_free char *endpoint = NULL;
	const char *bucket = url + 5, *host;
	int n = (int)strcspn(bucket, "/");
	int rc;

	if (!o->is_s3)
		return 0;
	rc = url_endpoint(o, given, &endpoint, err);
	if (rc)
		return rc;
	host = strstr(endpoint, "://") + 3;
	if (!rsh_object_port(host, strcspn(host, "/"), endpoint[4] == 's' ? 443 : 80,
		      &o->port))
		return url_bad(endpoint, PLACE_NO_HOST, err);
	if (url_host_style(endpoint, bucket, (size_t)n, style))
		o->base = rsh_arena_format(&o->texts, "%.*s%.*s.%s",
					   (int)(host - endpoint), endpoint, n,
					   bucket, host);
	else
		o->base = rsh_arena_format(&o->texts, "%s/%.*s", endpoint, n,
					   bucket);
	return o->base ? 0 : rsh_error_nomem(err);
}
