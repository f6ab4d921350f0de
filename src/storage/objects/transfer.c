/* SPDX-License-Identifier: Apache-2.0 */
/* storage/objects/transfer.c sets libcurl's options for a request, and makes
 * its result from the answer: bytes, a failure with its sentence, or a retry
 * after a pause. */
#include "config.h"

#include "objects_i.h"

#include <errno.h>
#include <locale.h>
#include <stdio.h>
#include <string.h>

#include "rsh/util/checked.h"
#include "rsh/util/clock.h"
#include "rsh/util/log.h"
#include "rsh/util/mem.h"
#include "rsh/util/text.h"
#include "rsh/util/thread.h"

#define MS UINT64_C(1000000)
/* The most wrong answers for a request, and attempts without a server. */
#define REQUEST_WRONG_MAX 3
#define REQUEST_ABSENT_MAX 5
/* The pause between attempts, which doubles each time, and its maximum. */
#define REQUEST_PAUSE_MS 50
#define REQUEST_PAUSE_MAX_MS 5000
/* The most bytes that are read of an error response. */
#define REQUEST_REFUSAL_MAX ((size_t)16 << 10)
/* With libcurl's header this is an allocation of 128 KiB. */
#define REQUEST_BUFFER ((128L << 10) - 64)

/* ---- headers that are sent ---- */

static void transfer_append(struct object_transfer *t, struct curl_slist **list,
			    const char *text)
{
	struct curl_slist *grown =
		text && !t->failed ? rsh_curl.slist_append(*list, text) : NULL;

	if (grown)
		*list = grown;
	t->failed |= !grown;
}

static void transfer_add_header(struct object_transfer *t, const char *header)
{
	transfer_append(t, &t->list, header);
}

/* Formats the date as HTTP requires it, in any locale.  CURLOPT_TIMECONDITION
 * is not used: libcurl also compares it with the answer, and treats the same
 * second as too late. */
static void transfer_add_date(struct object_transfer *t)
{
	const time_t since = t->requests->unmodified_since;
	struct tm tm;
	char text[96];
	locale_t c;

	if (!since || !gmtime_r(&since, &tm))
		return;
	c = newlocale(LC_ALL_MASK, "C", (locale_t)0);
	strftime_l(text, sizeof(text),
		   "If-Unmodified-Since: %a, %d %b %Y %T GMT", &tm, c);
	freelocale(c);
	transfer_add_header(t, text);
}

/* If-Match never matches a weak tag, so it is not sent; the answer's tag is
 * still compared. */
static bool request_has_condition(const struct object_request *q)
{
	return q->etag ? strncmp(q->etag, "W/", 2) != 0 :
			 q->unmodified_since != 0;
}

/* Adds the range and the condition. */
static void transfer_add_asked(struct object_transfer *t)
{
	const struct object_request *q = t->requests;
	char text[RSH_ETAG_MAX + 96];

	if (q->has_range) {
		snprintf(text, sizeof(text), "Range: bytes=%llu-%llu",
			 (unsigned long long)t->first,
			 (unsigned long long)(t->first + t->len - 1));
		transfer_add_header(t, text);
	}
	if (!request_has_condition(q))
		return;
	if (!q->etag) {
		transfer_add_date(t);
		return;
	}
	snprintf(text, sizeof(text), "If-Match: %s", q->etag);
	transfer_add_header(t, text);
}

/* ---- received bytes ---- */

static size_t transfer_take_header(char *line, size_t one, size_t len,
				   void *ctx)
{
	struct object_transfer *t = ctx;

	(void)one;
	t->heard = rsh_clock_ns();
	rsh_http_answer_line(&t->answer, line, len, time(NULL));
	return len;
}

static void transfer_judge(struct object_transfer *t)
{
	object_judge *judge = t->requests->judge;

	t->is_judged = true;
	t->why = "gives no answer";
	t->verdict = judge ? judge(t, &t->why) :
			     rsh_http_judge_status(t->answer.status, &t->why);
	if (t->verdict == RSH_HTTP_WRONG && t->answer.status < 300 &&
	    t->answer.is_page)
		t->why = RSH_OBJECT_PAGE;
	if (t->answer.status == 412 && !request_has_condition(t->requests)) {
		t->verdict = RSH_HTTP_UNSUPPORTED;
		t->why = "refuses a request without a condition";
	}
	t->is_whole = t->requests->has_range && t->answer.status == 200;
	t->skip = t->first;
}

/* The body is too long.  What this transfer has brought for its unfinished
 * request is not trusted, and is read again. */
static bool transfer_too_long(struct object_transfer *t)
{
	struct object_request *q = t->requests;

	q->len += q->first - q->transfer_from;
	q->first = q->transfer_from;
	t->verdict = RSH_HTTP_WRONG;
	t->why = "sends more than it says";
	return false;
}

static bool transfer_give(struct object_transfer *t, const char *data,
			  size_t len)
{
	struct object_request *q = t->requests;

	if (!q->sink(q, data, len))
		return false;
	q->first += len;
	q->len -= q->has_range ? len : 0;
	t->has_taken = true;
	t->got = t->heard;
	atomic_fetch_add_explicit(&t->objects->n_bytes, len,
				  memory_order_relaxed);
	return true;
}

/* Gives bytes of a correct body to the requests.  A request is done when it has
 * its bytes; the last one waits for the end of the body. */
static bool transfer_take_right(struct object_transfer *t, const char *data,
				size_t len)
{
	struct object_request *q = t->requests;

	if (t->is_whole) {
		const size_t n = (size_t)rsh_min_u64(t->skip, len);

		t->skip -= n;
		data += n;
		len = (size_t)rsh_min_u64(len - n,
					  t->first + t->len - q->first);
		if (!len)
			return true;
	}
	while (q->has_range && len > q->len && q->next) {
		const size_t part = (size_t)q->len;

		if (part && !transfer_give(t, data, part))
			return false;
		t->first_done(t);
		q = t->requests;
		data += part;
		len -= part;
	}
	if (q->has_range && len > q->len)
		return transfer_too_long(t);
	if (!transfer_give(t, data, len))
		return false;
	if (q->has_range && q->len == 0 && q->next)
		t->first_done(t);
	return true;
}

/* Parses the XML of an error response; other text has no result. */
static bool transfer_take_refusal(struct object_transfer *t, const char *data,
				  size_t len)
{
	t->refusal_len += len;
	if (t->refusal_len > REQUEST_REFUSAL_MAX)
		return false;
	if (!t->refusal)
		t->refusal = rsh_listing_parser_new(NULL, &t->page);
	if (t->refusal)
		rsh_listing_parse(t->refusal, data, len, false);
	return true;
}

static size_t transfer_take_body(char *data, size_t one, size_t len, void *ctx)
{
	struct object_transfer *t = ctx;
	bool on;

	(void)one;
	t->heard = rsh_clock_ns();
	if (!t->is_judged)
		transfer_judge(t);
	if (t->verdict == RSH_HTTP_RIGHT)
		on = transfer_take_right(t, data, len);
	else if (t->answer.status >= 300)
		on = transfer_take_refusal(t, data, len);
	else
		on = false;
	return on ? len : 0;
}

/* ---- libcurl ---- */

/* Adds a header, and frees it. */
static void transfer_add_secret(struct object_transfer *t, char *header)
{
	transfer_add_header(t, header);
	rsh_secret_free(header);
}

static void transfer_sign(struct object_transfer *t,
			  const struct object_keys *keys)
{
	static const char name[] = "x-amz-date: ";
	const time_t now = time(NULL);
	char text[64];
	struct tm tm;

	t->failed |= !gmtime_r(&now, &tm);
	if (t->failed)
		return;
	memcpy(text, name, sizeof(name));
	strftime(text + sizeof(name) - 1, sizeof(text) - sizeof(name),
		 "%Y%m%dT%H%M%SZ", &tm);
	transfer_add_header(t, text);
	if (keys->token)
		transfer_add_secret(t, rsh_secret_format(
			"x-amz-security-token: %s", keys->token));
	transfer_add_secret(t, rsh_object_sign(
		t->requests->address, t->objects->region, keys,
		t->objects->pays, text + sizeof(name) - 1));
}

/* Signs the request, or sends the name and password of the address. */
static void transfer_set_identity(struct object_transfer *t)
{
	struct rsh_objects *o = t->objects;

	if (!t->requests->sign)
		return;
	if (!o->is_s3) {
		if (o->user)
			rsh_curl.easy_setopt(t->easy, CURLOPT_USERPWD, o->user);
		return;
	}
	transfer_add_header(t, "x-amz-content-sha256: " RSH_OBJECT_NO_BODY);
	if (o->pays)
		transfer_add_header(t, RSH_OBJECT_PAYS);
	rsh_hold_lock(&o->lock);
	t->keys_number = o->keys_number;
	if (o->keys.id)
		transfer_sign(t, &o->keys);
}

/* libcurl reads the file of certificates at the first connection, and keeps
 * what it has read: later the file may be another one, which the sandbox does
 * not open.  If the kept certificates do not suffice, those of a text are
 * used. */
static void transfer_set_certificates(struct object_transfer *t)
{
	struct rsh_objects *o = t->objects;
	struct curl_blob blob = { .flags = CURL_BLOB_COPY };

	/* With one file for all certificates they are parsed once for all
	 * connections. */
	rsh_curl.easy_setopt(t->easy, CURLOPT_CAPATH, NULL);
	rsh_curl.easy_setopt(t->easy, RSH_CURLOPT_CA_CACHE_TIMEOUT, -1L);
	if (o->ca_file)
		rsh_curl.easy_setopt(t->easy, CURLOPT_CAINFO, o->ca_file);
	rsh_hold_lock(&o->lock);
	t->ca_number = o->ca_number;
	blob.data = o->ca_text;
	blob.len = o->ca_length;
	if (o->ca_text)
		rsh_curl.easy_setopt(t->easy, RSH_CURLOPT_CAINFO_BLOB, &blob);
}

/* Lists the addresses of servers that are known. */
static void transfer_add_names(struct object_transfer *t)
{
	struct rsh_objects *o = t->objects;

	rsh_hold_lock(&o->lock);
	for (const struct object_name *n = o->names;
	     n < o->names + OBJECT_NAMES; n++) {
		cleanup_free char *old = NULL, *new = NULL;

		if (!n->addresses)
			continue;
		/* Old versions keep the addresses of a server that they
		 * know. */
		old = rsh_text_format("-%s", n->server);
		new = rsh_text_format("%s:%s", n->server, n->addresses);
		transfer_append(t, &t->names, old);
		transfer_append(t, &t->names, new);
	}
}

static void transfer_set_protocols(CURL *e, bool is_tls)
{
	const long all = CURLPROTO_HTTP | CURLPROTO_HTTPS;

	if (rsh_curl.easy_setopt(e, CURLOPT_PROTOCOLS_STR, "http,https") ==
	    CURLE_OK) {
		rsh_curl.easy_setopt(e, CURLOPT_REDIR_PROTOCOLS_STR,
				     is_tls ? "https" : "http,https");
		return;
	}
	/* libcurl before 7.85 */
	rsh_curl.easy_setopt(e, RSH_CURLOPT_PROTOCOLS, all);
	rsh_curl.easy_setopt(e, RSH_CURLOPT_REDIR_PROTOCOLS,
			     is_tls ? (long)CURLPROTO_HTTPS : all);
}

static void transfer_reset(struct object_transfer *t)
{
	struct object_request *q;

	memset(&t->answer, 0, sizeof(t->answer));
	memset(&t->page, 0, sizeof(t->page));
	t->is_judged = t->has_taken = t->is_whole = false;
	t->failed = false;
	t->refusal_len = 0;
	t->got = 0;
	t->first = t->requests->first;
	t->len = 0;
	for (q = t->requests; q; q = q->next) {
		q->transfer_from = q->first;
		t->len += q->len;
	}
}

int rsh_object_transfer_begin(struct object_transfer *t)
{
	const struct object_request *q = t->requests;
	const char *const *more = q->headers;
	CURL *const e = t->easy;

	transfer_reset(t);
	transfer_add_asked(t);
	for (; more && *more; more++)
		transfer_add_header(t, *more);
	transfer_set_identity(t);
	transfer_add_names(t);
	if (t->failed)
		return -ENOMEM;
#define SET(option, value) rsh_curl.easy_setopt(e, CURLOPT_##option, value)
	SET(RESOLVE, t->names);
	/* If there was no connection, the server may have another address than
	 * the one that libcurl keeps. */
	SET(DNS_CACHE_TIMEOUT, q->is_unconnected ? 0L : 300L);
	SET(PRIVATE, t);
	SET(HEADERFUNCTION, transfer_take_header);
	SET(HEADERDATA, t);
	SET(WRITEFUNCTION, transfer_take_body);
	SET(WRITEDATA, t);
	SET(NOSIGNAL, 1L);
	/* A name lookup that hangs must not delay other requests. */
	SET(QUICK_EXIT, 1L);
	SET(BUFFERSIZE, REQUEST_BUFFER);
	SET(HTTP_VERSION, (long)CURL_HTTP_VERSION_2TLS);
	SET(TCP_KEEPALIVE, 1L);
	SET(USERAGENT, "reshardfs/" PACKAGE_VERSION);
	SET(SSL_VERIFYPEER, 1L);
	SET(SSL_VERIFYHOST, 2L);
	transfer_set_certificates(t);
	SET(URL, q->address);
	/* Otherwise libcurl removes "." and "..". */
	SET(PATH_AS_IS, 1L);
	transfer_set_protocols(e, !strncmp(q->address, "https:", 6));
	/* Redirects of an S3 server are not followed, because the signature is
	 * valid only for this server. */
	SET(FOLLOWLOCATION, t->objects->is_s3 ? 0L : 1L);
	SET(MAXREDIRS, 5L);
	if (q->direct)
		SET(NOPROXY, "*");
	if (q->form)
		SET(POSTFIELDS, q->form);
	if (q->is_put) {
		SET(POSTFIELDS, "");
		SET(CUSTOMREQUEST, "PUT");
	}
	SET(HTTPHEADER, t->list);
#undef SET
	atomic_fetch_add(&t->objects->n_requests, 1);
	if (q->tries)
		atomic_fetch_add(&t->objects->n_retries, 1);
	return 0;
}

void rsh_object_transfer_clear(struct object_transfer *t)
{
	rsh_curl.slist_free_all(t->list);
	rsh_curl.slist_free_all(t->names);
	t->list = t->names = NULL;
	rsh_listing_parser_free(t->refusal);
	t->refusal = NULL;
}

/* ---- sentences ---- */

void rsh_object_put_server(char *to, size_t size, const char *address)
{
	const char *host = strstr(address, "://");
	int n = host ? (int)(host - address) + 3 +
		       (int)strcspn(host + 3, "/?") : 0;

	snprintf(to, size, "%.*s", n, address);
}

void rsh_object_say(const struct object_request *q, const char *code,
		    char *to, size_t size)
{
	const bool is_s3 = !strncmp(q->what, "s3:", 3);
	const int status = q->answer.status;
	/* The connection to the proxy, or its answer, is the cause. */
	const bool is_proxy = q->proxy && (q->is_unconnected || status == 407);
	char server[300] = "", detail[160], by[256] = "";

	if (!status || is_s3)
		rsh_object_put_server(server, sizeof(server), q->address);
	if (is_proxy)
		snprintf(server, sizeof(server), "%s", q->proxy);
	else if (q->proxy)
		snprintf(by, sizeof(by), ", by the proxy %s", q->proxy);
	if (status)
		snprintf(detail, sizeof(detail), "HTTP %d%s%s", status,
			 *code ? " " : "", code);
	else
		snprintf(detail, sizeof(detail), "%s",
			 q->detail ? q->detail : "no answer");
	if (q->is_cut_off && status != 407) {
		rsh_object_put_server(server, sizeof(server), q->address);
		snprintf(to, size, "the proxy %s does not connect to %s (%s); "
			 "http_proxy or https_proxy sets the proxy", q->proxy,
			 server, detail);
		return;
	}
	if (q->redirect[0]) {
		snprintf(to, size, "the server %s redirects to %s (%s)%s%s",
			 server, q->redirect, detail, by, is_s3 ?
			 "; AWS_ENDPOINT_URL sets the server" : "");
		return;
	}
	snprintf(to, size, "the %s%s%s %s (%s)%s%s",
		 is_proxy ? "proxy" : "server", *server ? " " : "", server,
		 status == 407 && is_proxy ? "wants a name and a password" :
		 q->why, detail, by,
		 is_proxy ? "; http_proxy or https_proxy sets the proxy" :
		 is_s3 && !status ? "; AWS_ENDPOINT_URL sets the server" : "");
}

/* ---- results ---- */

/* Ends the request with a sentence: the object, the reason, and the server's
 * error code. */
static bool request_fail(const struct object_transfer *t,
			 struct object_request *q, int code, const char *why)
{
	char text[RSH_ERROR_TEXT_MAX];

	q->why = why;
	rsh_object_say(q, t->page.code, text, sizeof(text));
	rsh_error_set(&q->err, code, "%s: %s", q->what, text);
	q->rc = -code;
	return true;
}

/* Schedules a retry after a pause, which is at least `least_ms`, as the server
 * requests. */
static bool request_again(const struct object_transfer *t,
			  struct object_request *q, uint64_t least_ms)
{
	unsigned doubled = q->tries < 10 ? q->tries : 10;
	uint64_t ms = REQUEST_PAUSE_MS << doubled;
	uint64_t now = rsh_clock_ns();

	if (ms > REQUEST_PAUSE_MAX_MS)
		ms = REQUEST_PAUSE_MAX_MS;
	/* The low digits of the clock are random enough for the pause. */
	ms = ms / 2 + now / 1000 % (ms / 2 + 1);
	if (ms < least_ms)
		ms = least_ms;
	q->tries++;
	q->due = now + ms * MS;
	if (least_ms && q->due >= q->deadline)
		return request_fail(t, q, ETIMEDOUT, "is overloaded, and wants a later retry");
	if (!q->has_range && q->restart)
		q->restart(q);
	return false;
}

static bool request_wrong_again(const struct object_transfer *t,
				struct object_request *q, const char *why)
{
	q->why = why;
	if (++q->wrong >= REQUEST_WRONG_MAX)
		return request_fail(t, q, EIO, why);
	return request_again(t, q, 0);
}

/* The error code of an S3 server may be more precise than the status. */
static void transfer_reconsider(struct object_transfer *t)
{
	static const struct {
		const char *code;
		enum rsh_http_verdict verdict;
		const char *why;
	} codes[] = {
		{ "ExpiredToken", RSH_HTTP_REFUSED,
		  "reports that the credentials have expired" },
		{ "InvalidToken", RSH_HTTP_REFUSED,
		  "rejects the session token" },
		{ "InvalidAccessKeyId", RSH_HTTP_REFUSED,
		  "does not know the access key" },
		{ "SignatureDoesNotMatch", RSH_HTTP_REFUSED,
		  "rejects the signature: check the secret key" },
		{ "RequestTimeTooSkewed", RSH_HTTP_REFUSED,
		  "rejects the time of the request: check this machine's clock" },
		{ "ExpiredTokenException", RSH_HTTP_REFUSED,
		  "reports that the token has expired" },
		{ "InvalidIdentityToken", RSH_HTTP_REFUSED,
		  "rejects the token: is its issuer an identity provider of the account?" },
		{ "IDPRejectedClaim", RSH_HTTP_REFUSED,
		  "rejects the token: its issuer does not accept it" },
		{ "ValidationError", RSH_HTTP_REFUSED,
		  "does not accept the name of the role or of the session" },
		{ "RequestTimeout", RSH_HTTP_LATER, "timed out" },
		{ "SlowDown", RSH_HTTP_LATER, "limits the rate of requests" },
		{ "NoSuchBucket", RSH_HTTP_GONE, "has no such bucket" },
		{ "InvalidObjectState", RSH_HTTP_REFUSED,
		  "has archived this object" },
		{ "SecondLevelDomainForbidden", RSH_HTTP_REFUSED,
		  "wants the bucket in its name: use --source-style host" },
		{ "InvalidPathAccess", RSH_HTTP_REFUSED,
		  "wants the bucket in its name: use --source-style host" },
		{ "MethodNotAllowed", RSH_HTTP_UNSUPPORTED,
		  "may want the bucket in its name: try --source-style host" },
		{ "InvalidArgument", RSH_HTTP_UNSUPPORTED,
		  "finds the request wrong" },
	};

	for (size_t i = 0; i < sizeof(codes) / sizeof(codes[0]); i++)
		if (!strcmp(t->page.code, codes[i].code)) {
			t->verdict = codes[i].verdict;
			t->why = codes[i].why;
		}
}

/* Checks whether the server reports that the bucket is in another region. */
static bool request_is_elsewhere(const struct object_transfer *t,
				 struct object_request *q)
{
	const char *region = t->answer.region[0] ? t->answer.region :
						   t->page.region;

	if ((t->answer.status != 301 && t->answer.status != 307 &&
	     t->answer.status != 400) || !region[0])
		return false;
	rsh_error_set(&q->err, EINVAL,
		      "%s: the bucket is in region \"%s\"; set AWS_REGION",
		      q->what, region);
	q->rc = -EINVAL;
	return true;
}

/* Returns whether the request ends, so that its caller looks up the name of the
 * server once more. */
static bool request_is_lost(const struct object_transfer *t,
			    struct object_request *q, CURLcode code)
{
	char *at = NULL;

	if (!t->objects->opener.look_up || q->is_lost ||
	    (!q->is_unconnected && code != CURLE_COULDNT_RESOLVE_HOST))
		return false;
	/* A request that was redirected is at another address. */
	rsh_curl.easy_getinfo(t->easy, CURLINFO_EFFECTIVE_URL, &at);
	if (q->proxy && q->is_unconnected)
		snprintf(q->lost, sizeof(q->lost), "%s", q->proxy);
	else
		rsh_object_put_server(q->lost, sizeof(q->lost),
				      at ? at : q->address);
	q->is_lost = true;
	return true;
}

/* What libcurl says of a request that had no answer. */
static const struct broken {
	CURLcode code;
	int error; /* 0: it is tried again, in any case */
	bool again; /* it is tried again a few times */
	const char *why; /* what comes after "the server" */
} broken[] = {
	{ CURLE_COULDNT_RESOLVE_HOST, EHOSTUNREACH, true, "cannot be found" },
	{ CURLE_COULDNT_RESOLVE_PROXY, EHOSTUNREACH, true, "cannot be found" },
	{ CURLE_COULDNT_CONNECT, ECONNREFUSED, true, "cannot be reached" },
	{ CURLE_SSL_CONNECT_ERROR, EPROTO, true,
	  "does not answer by TLS: is it an http:// server?" },
	{ CURLE_SSL_CIPHER, EPROTO, false,
	  "does not answer by TLS: is it an http:// server?" },
	{ RSH_CURLE_UNVERIFIED, EPROTO, false,
	  "has a certificate that is not trusted: see --ca-file" },
	{ CURLE_SSL_CACERT_BADFILE, EPROTO, false,
	  "cannot be verified, because the CA file cannot be read" },
	{ CURLE_TOO_MANY_REDIRECTS, EIO, false, "redirects too often" },
	{ CURLE_UNSUPPORTED_PROTOCOL, EIO, false,
	  "redirects to an address that cannot be followed" },
	{ CURLE_URL_MALFORMAT, EIO, false,
	  "redirects to an address that cannot be followed" },
	{ CURLE_GOT_NOTHING, 0, true,
	  "closes the connection without an answer" },
	{ CURLE_PARTIAL_FILE, 0, true, "closed the connection too early" },
	{ CURLE_RECV_ERROR, 0, true, "closed the connection too early" },
	{ CURLE_SEND_ERROR, 0, true, "closed the connection too early" },
	/* libcurl did not send the request: a retry would fail in the same
	 * way. */
	{ CURLE_BAD_FUNCTION_ARGUMENT, ENOTSUP, false, "" },
	{ CURLE_FAILED_INIT, ENOTSUP, false, "" },
	{ CURLE_NOT_BUILT_IN, ENOTSUP, false, "" },
	{ CURLE_UNKNOWN_OPTION, ENOTSUP, false, "" },
	{ CURLE_OK, 0, true, "sent an incomplete answer" }, /* others */
};

/* Ends or retries a request without a complete answer. */
static bool request_end_broken(const struct object_transfer *t,
			       struct object_request *q, CURLcode code)
{
	const struct broken *b = broken;
	const char *system = NULL;
	long number = 0;

	while (b->code != code && b->code != CURLE_OK)
		b++;
	if (code == CURLE_OPERATION_TIMEDOUT && !t->has_taken)
		q->silent++;
	q->why = q->is_unconnected && code == CURLE_OPERATION_TIMEDOUT ?
		"cannot be reached" : b->why;
	rsh_curl.easy_getinfo(t->easy, CURLINFO_OS_ERRNO, &number);
	if (code == CURLE_COULDNT_CONNECT && number)
		system = strerror((int)number);
	q->detail = system ? system : rsh_curl.easy_strerror(code);
	if (request_is_lost(t, q, code)) {
		q->tries++;
		return request_fail(t, q, EHOSTUNREACH, q->why);
	}
	/* The proxy has answered in place of the server. */
	if (q->is_cut_off && t->answer.status < 500)
		return request_fail(t, q, EACCES, "cannot be reached");
	if (b->error == ENOTSUP) {
		q->rc = rsh_error_set(&q->err, ENOTSUP, "%s: libcurl %s does "
				      "not make this request (%s)", q->what,
				      rsh_curl.version_info(CURLVERSION_NOW)->
				      version, q->detail);
		return true;
	}
	q->is_untrusted |= code == RSH_CURLE_UNVERIFIED ||
			   code == CURLE_SSL_CACERT_BADFILE;
	return b->error && (!b->again || q->tries >= REQUEST_ABSENT_MAX) ?
	       request_fail(t, q, b->error, q->why) : request_again(t, q, 0);
}

void rsh_object_transfer_end(struct object_transfer *t, CURLcode code)
{
	long made = 0;

	rsh_curl.easy_getinfo(t->easy, CURLINFO_NUM_CONNECTS, &made);
	atomic_fetch_add(&t->objects->n_connections, (uint64_t)made);
	rsh_log_debug("%s: HTTP %d, %s", t->requests->what, t->answer.status,
		      code ? rsh_curl.easy_strerror(code) : "whole");
	if (!t->is_judged && code == CURLE_OK)
		transfer_judge(t);
	if (t->refusal)
		rsh_listing_parse(t->refusal, "", 0, true);
	if (t->is_judged && t->verdict != RSH_HTTP_RIGHT)
		transfer_reconsider(t);
}

/* Sets where the answer leads, by a header or by its text, and whether there
 * was a connection. */
static void request_set_place(const struct object_transfer *t,
			      struct object_request *q, CURLcode code)
{
	char *to = NULL, *peer = NULL;
	long connect = 0;

	q->redirect[0] = '\0';
	rsh_curl.easy_getinfo(t->easy, CURLINFO_PRIMARY_IP, &peer);
	q->is_unconnected = code == CURLE_COULDNT_CONNECT ||
			    code == CURLE_COULDNT_RESOLVE_PROXY ||
			    (code == CURLE_OPERATION_TIMEDOUT &&
			     (!peer || !*peer));
	rsh_curl.easy_getinfo(t->easy, CURLINFO_HTTP_CONNECTCODE, &connect);
	q->is_cut_off = q->proxy && connect >= 300;
	if (!t->objects->is_s3 || t->answer.status < 300 ||
	    t->answer.status >= 400)
		return;
	rsh_curl.easy_getinfo(t->easy, CURLINFO_REDIRECT_URL, &to);
	if (to)
		rsh_object_put_server(q->redirect, sizeof(q->redirect), to);
	else
		snprintf(q->redirect, sizeof(q->redirect), "%s",
			 t->page.endpoint);
	if (strncmp(q->redirect, q->address, strlen(q->redirect)) == 0)
		q->redirect[0] = '\0';
}

bool rsh_object_transfer_ends(const struct object_transfer *t,
			      struct object_request *q, CURLcode code)
{
	q->answer = t->answer;
	q->keys_number = t->keys_number;
	q->ca_number = t->ca_number;
	if (t->is_judged)
		q->why = t->why;
	request_set_place(t, q, code);
	if (q->rc)
		return true;
	if (!t->is_judged)
		return request_end_broken(t, q, code);
	if (t->verdict == RSH_HTTP_RIGHT) {
		static const char less[] = "sends less than it says";

		if (q->has_range ? q->len == 0 : code == CURLE_OK) {
			if (!q->finish || q->finish(q))
				q->rc = 0;
			return true;
		}
		if (code != CURLE_OK)
			return request_end_broken(t, q, code);
		if (!t->has_taken)
			return request_wrong_again(t, q, less);
		q->why = less;
		return request_again(t, q, 0);
	}
	switch (t->verdict) {
	case RSH_HTTP_CHANGED:
		return request_fail(t, q, EREMCHG, t->why);
	case RSH_HTTP_GONE:
		return request_fail(t, q, ENOENT, t->why);
	case RSH_HTTP_REFUSED:
		q->is_refused = true;
		return request_fail(t, q, EACCES, t->why);
	case RSH_HTTP_UNSUPPORTED:
		q->is_unsupported = true;
		return request_fail(t, q, EIO, t->why);
	case RSH_HTTP_LATER:
		return request_again(t, q, t->answer.has_wait ?
				     t->answer.wait_s * UINT64_C(1000) : 0);
	default:
		return request_is_elsewhere(t, q) ||
		       request_wrong_again(t, q, t->why);
	}
}

void rsh_object_expire(struct object_request *q)
{
	char text[RSH_ERROR_TEXT_MAX];
	const bool known = q->tries && q->why;

	if (known)
		rsh_object_say(q, "", text, sizeof(text));
	q->rc = rsh_error_set(&q->err, ETIMEDOUT,
			      "%s: no answer in time (--source-timeout)%s%s",
			      q->what, known ? "; last error: " : "",
			      known ? text : "");
}
