/* SPDX-License-Identifier: Apache-2.0 */
/* objects/request.c makes of a request what libcurl is told, and of the answer
 * a result: bytes, a failure, or another attempt after a while. */
#include "config.h"

#include "objects_i.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "rsh/util/clock.h"
#include "rsh/util/log.h"

#define MS UINT64_C(1000000)
/* So often an answer may be wrong, or a server not be there. */
#define REQUEST_WRONG_MAX 3
#define REQUEST_ABSENT_MAX 5
/* Between attempts there is a pause of this, doubled each time. */
#define REQUEST_PAUSE_MS 50
#define REQUEST_PAUSE_MAX_MS 5000
/* So much is read of an answer that is none. */
#define REQUEST_REFUSAL_MAX ((size_t)16 << 10)
/* With libcurl's own head it is a piece of 128 KiB. */
#define REQUEST_BUFFER ((128L << 10) - 64)

/* ---- headers that are sent ---- */

static int request_add_header(struct object_request *q, const char *header)
{
	struct curl_slist *grown = rsh_curl.slist_append(q->list, header);

	if (!grown)
		return -ENOMEM;
	q->list = grown;
	return 0;
}

static int request_add_range(struct object_request *q)
{
	char text[96];

	if (!q->has_range)
		return 0;
	snprintf(text, sizeof(text), "Range: bytes=%llu-%llu",
		 (unsigned long long)q->first,
		 (unsigned long long)(q->first + q->len - 1));
	return request_add_header(q, text);
}

/* As HTTP has it, whatever the locale. */
static int request_add_date(struct object_request *q)
{
	static const char days[] = "SunMonTueWedThuFriSat";
	static const char months[] = "JanFebMarAprMayJunJulAugSepOctNovDec";
	time_t t = q->unmodified_since;
	struct tm tm;
	char text[96];

	if (!t || !gmtime_r(&t, &tm))
		return 0;
	snprintf(text, sizeof(text),
		 "If-Unmodified-Since: %.3s, %02d %.3s %04d %02d:%02d:%02d GMT",
		 days + 3 * tm.tm_wday, tm.tm_mday, months + 3 * tm.tm_mon,
		 tm.tm_year + 1900, tm.tm_hour, tm.tm_min, tm.tm_sec);
	return request_add_header(q, text);
}

/* A weak tag never matches; the answer's is looked at all the same. */
static int request_add_condition(struct object_request *q)
{
	char text[RSH_ETAG_MAX + 16];

	if (!q->etag)
		return request_add_date(q);
	if (!strncmp(q->etag, "W/", 2))
		return 0;
	snprintf(text, sizeof(text), "If-Match: %s", q->etag);
	return request_add_header(q, text);
}

static int request_add_headers(struct object_request *q)
{
	int rc = request_add_range(q);

	if (rc == 0)
		rc = request_add_condition(q);
	for (size_t i = 0; q->headers && q->headers[i] && rc == 0; i++)
		rc = request_add_header(q, q->headers[i]);
	return rc;
}

/* ---- what comes ---- */

static size_t request_take_header(char *line, size_t one, size_t len, void *ctx)
{
	struct object_request *q = ctx;

	(void)one;
	q->heard = rsh_clock_ns();
	rsh_http_answer_line(&q->answer, line, len, time(NULL));
	return len;
}

static void request_judge(struct object_request *q)
{
	q->is_judged = true;
	q->why = "gives no answer";
	q->verdict = q->judge ? q->judge(q, &q->why) :
				rsh_http_judge_status(q->answer.status,
						      &q->why);
}

/* A body that is too long is not believed in any of its bytes. */
static bool request_too_long(struct object_request *q)
{
	q->len += q->first - q->answer_from;
	q->first = q->answer_from;
	q->verdict = RSH_HTTP_WRONG;
	q->why = "sends more than it says";
	return false;
}

static bool request_take_right(struct object_request *q, const char *data,
			       size_t len)
{
	if (q->has_range && len > q->len)
		return request_too_long(q);
	if (!q->sink(q, data, len))
		return false;
	q->first += len;
	q->len -= q->has_range ? len : 0;
	atomic_fetch_add_explicit(&q->objects->n_bytes, len,
				  memory_order_relaxed);
	return true;
}

/* What a refusal says; whatever is no XML says nothing. */
static bool request_take_refusal(struct object_request *q, const char *data,
				 size_t len)
{
	q->refusal_len += len;
	if (q->refusal_len > REQUEST_REFUSAL_MAX)
		return false;
	if (!q->refusal)
		q->refusal = rsh_listing_parser_new(NULL, &q->page);
	if (q->refusal)
		rsh_listing_parse(q->refusal, data, len, false);
	return true;
}

static size_t request_take_body(char *data, size_t one, size_t len, void *ctx)
{
	struct object_request *q = ctx;
	bool on;

	(void)one;
	q->heard = rsh_clock_ns();
	if (!q->is_judged)
		request_judge(q);
	if (q->verdict == RSH_HTTP_RIGHT)
		on = request_take_right(q, data, len);
	else if (q->answer.status >= 300)
		on = request_take_refusal(q, data, len);
	else
		on = false;
	return on ? len : 0;
}

/* ---- libcurl ---- */

/* The hash of a body without bytes.  S3 wants to be told, and not every libcurl
 * does. */
#define REQUEST_NO_BODY "x-amz-content-sha256: " \
	"e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"

static void request_set_keys(struct rsh_objects *o, struct object_request *q,
			     int *rc)
{
	char *header = NULL;
	size_t n;

	*rc = request_add_header(q, REQUEST_NO_BODY);
	pthread_mutex_lock(&o->lock);
	q->keys_number = o->keys_number;
	if (o->keys.id) {
		rsh_curl.easy_setopt(q->easy, CURLOPT_AWS_SIGV4, o->signing);
		rsh_curl.easy_setopt(q->easy, CURLOPT_USERNAME, o->keys.id);
		rsh_curl.easy_setopt(q->easy, CURLOPT_PASSWORD, o->keys.secret);
	}
	if (o->keys.id && o->keys.token) {
		n = strlen(o->keys.token) + 32;
		header = rsh_secret_alloc(n);
		if (header)
			snprintf(header, n, "x-amz-security-token: %s",
				 o->keys.token);
		*rc = header ? *rc : -ENOMEM;
	}
	pthread_mutex_unlock(&o->lock);
	if (header && *rc == 0)
		*rc = request_add_header(q, header);
	rsh_secret_free(header);
}

/* Signs, or gives the name and password of the address. */
static int request_set_identity(struct rsh_objects *o,
				struct object_request *q)
{
	int rc = 0;

	if (!q->sign)
		return 0;
	if (o->is_s3)
		request_set_keys(o, q, &rc);
	else if (o->user)
		rsh_curl.easy_setopt(q->easy, CURLOPT_USERPWD, o->user);
	return rc;
}

static void request_set_callbacks(struct object_request *q)
{
	rsh_curl.easy_setopt(q->easy, CURLOPT_PRIVATE, q);
	rsh_curl.easy_setopt(q->easy, CURLOPT_HEADERFUNCTION, request_take_header);
	rsh_curl.easy_setopt(q->easy, CURLOPT_HEADERDATA, q);
	rsh_curl.easy_setopt(q->easy, CURLOPT_WRITEFUNCTION, request_take_body);
	rsh_curl.easy_setopt(q->easy, CURLOPT_WRITEDATA, q);
}

static void request_set_connection(const struct rsh_objects *o, CURL *e)
{
	rsh_curl.easy_setopt(e, CURLOPT_NOSIGNAL, 1L);
	/* A look-up that hangs must not hold up the others. */
	rsh_curl.easy_setopt(e, CURLOPT_QUICK_EXIT, 1L);
	rsh_curl.easy_setopt(e, CURLOPT_BUFFERSIZE, REQUEST_BUFFER);
	rsh_curl.easy_setopt(e, CURLOPT_HTTP_VERSION, (long)CURL_HTTP_VERSION_2TLS);
	rsh_curl.easy_setopt(e, CURLOPT_TCP_KEEPALIVE, 1L);
	rsh_curl.easy_setopt(e, CURLOPT_DNS_CACHE_TIMEOUT, 300L);
	rsh_curl.easy_setopt(e, CURLOPT_USERAGENT, "reshardfs/" PACKAGE_VERSION);
	rsh_curl.easy_setopt(e, CURLOPT_SSL_VERIFYPEER, 1L);
	rsh_curl.easy_setopt(e, CURLOPT_SSL_VERIFYHOST, 2L);
	/* Certificates of one file are parsed once for all connections. */
	rsh_curl.easy_setopt(e, CURLOPT_CAPATH, NULL);
	if (o->ca_file)
		rsh_curl.easy_setopt(e, CURLOPT_CAINFO, o->ca_file);
}

/* A server of S3 is not followed elsewhere: the signature is for it alone. */
static void request_set_address(const struct rsh_objects *o,
				const struct object_request *q)
{
	bool is_tls = !strncmp(q->address, "https:", 6);

	rsh_curl.easy_setopt(q->easy, CURLOPT_URL, q->address);
	rsh_curl.easy_setopt(q->easy, CURLOPT_PATH_AS_IS, 1L);
	rsh_curl.easy_setopt(q->easy, CURLOPT_PROTOCOLS_STR, "http,https");
	rsh_curl.easy_setopt(q->easy, CURLOPT_REDIR_PROTOCOLS_STR,
			 is_tls ? "https" : "http,https");
	rsh_curl.easy_setopt(q->easy, CURLOPT_FOLLOWLOCATION, o->is_s3 ? 0L : 1L);
	rsh_curl.easy_setopt(q->easy, CURLOPT_MAXREDIRS, 5L);
	if (q->is_put) {
		rsh_curl.easy_setopt(q->easy, CURLOPT_POSTFIELDS, "");
		rsh_curl.easy_setopt(q->easy, CURLOPT_CUSTOMREQUEST, "PUT");
	}
}

int rsh_object_attempt_begin(struct rsh_objects *o, struct object_request *q)
{
	int rc = request_add_headers(q);

	memset(&q->answer, 0, sizeof(q->answer));
	memset(&q->page, 0, sizeof(q->page));
	q->objects = o;
	q->is_judged = false;
	q->refusal_len = 0;
	q->answer_from = q->first;
	if (rc == 0)
		rc = request_set_identity(o, q);
	if (rc)
		return rc;
	request_set_callbacks(q);
	request_set_connection(o, q->easy);
	request_set_address(o, q);
	rsh_curl.easy_setopt(q->easy, CURLOPT_HTTPHEADER, q->list);
	atomic_fetch_add(&o->n_requests, 1);
	if (q->tries)
		atomic_fetch_add(&o->n_retries, 1);
	return 0;
}

void rsh_object_attempt_clear(struct object_request *q)
{
	rsh_curl.slist_free_all(q->list);
	q->list = NULL;
	rsh_listing_parser_free(q->refusal);
	q->refusal = NULL;
}

/* ---- what came of it ---- */

/* Ends the request with a sentence: who, what of it, and what the server calls
 * that. */
static bool request_fail(struct object_request *q, int code, const char *why)
{
	const char *name = q->page.code;

	if (q->answer.status)
		rsh_error_set(&q->err, code, "%s: the server %s (HTTP %d%s%s)",
			      q->what, why, q->answer.status, *name ? " " : "",
			      name);
	else
		rsh_error_set(&q->err, code, "%s: %s", q->what, why);
	q->rc = -code;
	return true;
}

/* Has it tried again after a pause, which the server may want to be longer. */
static bool request_again(struct object_request *q, uint64_t least_ms)
{
	unsigned doubled = q->tries < 10 ? q->tries : 10;
	uint64_t ms = REQUEST_PAUSE_MS << doubled;
	uint64_t now = rsh_clock_ns();

	if (ms > REQUEST_PAUSE_MAX_MS)
		ms = REQUEST_PAUSE_MAX_MS;
	/* The clock's last digits are as good as dice here. */
	ms = ms / 2 + now / 1000 % (ms / 2 + 1);
	if (ms < least_ms)
		ms = least_ms;
	q->tries++;
	q->due = now + ms * MS;
	if (least_ms && q->due >= q->deadline)
		return request_fail(q, ETIMEDOUT, "asks to come again later");
	if (!q->has_range && q->restart)
		q->restart(q);
	return false;
}

static bool request_wrong_again(struct object_request *q)
{
	if (++q->wrong >= REQUEST_WRONG_MAX)
		return request_fail(q, EIO, q->why);
	return request_again(q, 0);
}

/* Some of what S3 servers answer says more than its status. */
static void request_reconsider(struct object_request *q)
{
	static const struct {
		const char *code;
		enum rsh_http_verdict verdict;
		const char *why;
	} codes[] = {
		{ "ExpiredToken", RSH_HTTP_REFUSED,
		  "says that the keys have expired" },
		{ "InvalidToken", RSH_HTTP_REFUSED,
		  "does not know the session of these keys" },
		{ "InvalidAccessKeyId", RSH_HTTP_REFUSED,
		  "does not know these keys" },
		{ "SignatureDoesNotMatch", RSH_HTTP_REFUSED,
		  "finds the signature wrong: the secret key may be" },
		{ "RequestTimeTooSkewed", RSH_HTTP_REFUSED,
		  "has another time than this machine's clock" },
		{ "RequestTimeout", RSH_HTTP_LATER, "has waited too long" },
		{ "SlowDown", RSH_HTTP_LATER, "is asked too much" },
		{ "NoSuchBucket", RSH_HTTP_GONE, "has no such bucket" },
		{ "InvalidObjectState", RSH_HTTP_REFUSED,
		  "has this object in an archive" },
	};

	for (size_t i = 0; i < sizeof(codes) / sizeof(codes[0]); i++)
		if (!strcmp(q->page.code, codes[i].code)) {
			q->verdict = codes[i].verdict;
			q->why = codes[i].why;
		}
}

/* The bucket may lie in another region, which the server then names. */
static bool request_is_elsewhere(struct object_request *q)
{
	const char *region = q->answer.region[0] ? q->answer.region :
						   q->page.region;

	if ((q->answer.status != 301 && q->answer.status != 307 &&
	     q->answer.status != 400) || !region[0])
		return false;
	rsh_error_set(&q->err, EINVAL,
		      "%s: the bucket lies in region \"%s\", which has to be given",
		      q->what, region);
	q->rc = -EINVAL;
	return true;
}

static bool request_end_judged(struct object_request *q)
{
	if (q->refusal)
		rsh_listing_parse(q->refusal, "", 0, true);
	request_reconsider(q);
	switch (q->verdict) {
	case RSH_HTTP_CHANGED:
		return request_fail(q, EREMCHG, q->why);
	case RSH_HTTP_GONE:
		return request_fail(q, ENOENT, q->why);
	case RSH_HTTP_REFUSED:
		q->is_refused = true;
		return request_fail(q, EACCES, q->why);
	case RSH_HTTP_LATER:
		return request_again(q, q->answer.has_wait ?
				     q->answer.wait_s * UINT64_C(1000) : 0);
	default:
		return request_is_elsewhere(q) || request_wrong_again(q);
	}
}

/* There is no answer, or it broke off. */
static bool request_end_broken(struct object_request *q, CURLcode code)
{
	bool absent = q->tries >= REQUEST_ABSENT_MAX;

	q->why = rsh_curl.easy_strerror(code);
	switch (code) {
	case CURLE_PEER_FAILED_VERIFICATION:
	case CURLE_SSL_CACERT_BADFILE:
	case CURLE_SSL_CIPHER:
		return request_fail(q, EPROTO, q->why);
	case CURLE_SSL_CONNECT_ERROR:
		return absent ? request_fail(q, EPROTO, q->why) :
				request_again(q, 0);
	case CURLE_COULDNT_RESOLVE_HOST:
	case CURLE_COULDNT_RESOLVE_PROXY:
		return absent ? request_fail(q, EHOSTUNREACH, q->why) :
				request_again(q, 0);
	case CURLE_COULDNT_CONNECT:
		return absent ? request_fail(q, ECONNREFUSED, q->why) :
				request_again(q, 0);
	case CURLE_UNSUPPORTED_PROTOCOL:
	case CURLE_URL_MALFORMAT:
	case CURLE_TOO_MANY_REDIRECTS:
		return request_fail(q, EIO, q->why);
	default:
		return request_again(q, 0);
	}
}

static bool request_end_right(struct object_request *q, CURLcode code)
{
	if (q->has_range ? q->len == 0 : code == CURLE_OK) {
		if (!q->finish || q->finish(q))
			q->rc = 0;
		return true;
	}
	if (code != CURLE_OK)
		return request_end_broken(q, code);
	q->why = "sends less than it says";
	return q->first > q->answer_from ? request_again(q, 0) :
					   request_wrong_again(q);
}

static void request_log(const struct object_request *q, CURLcode code)
{
	rsh_log_debug("%s: HTTP %d, %s", q->what, q->answer.status,
		      code ? rsh_curl.easy_strerror(code) : "whole");
}

bool rsh_object_attempt_end(struct rsh_objects *o, struct object_request *q,
			    CURLcode code)
{
	long made = 0;

	if (q->easy)
		rsh_curl.easy_getinfo(q->easy, CURLINFO_NUM_CONNECTS, &made);
	atomic_fetch_add(&o->n_connections, (uint64_t)made);
	request_log(q, code);
	if (q->rc)
		return true;
	if (!q->is_judged && code == CURLE_OK)
		request_judge(q);
	if (!q->is_judged)
		return request_end_broken(q, code);
	if (q->verdict == RSH_HTTP_RIGHT)
		return request_end_right(q, code);
	return request_end_judged(q);
}

void rsh_object_expire(struct object_request *q)
{
	const char *why = q->tries ? q->why : NULL;

	q->rc = rsh_error_set(&q->err, ETIMEDOUT,
			      "%s: no answer in time%s%s%s", q->what,
			      why ? " (before that: \"" : "", why ? why : "",
			      why ? "\")" : "");
}

/* ---- with keys ---- */

uint64_t rsh_object_deadline(const struct rsh_objects *o)
{
	return rsh_clock_ns() + o->timeout_ms * MS;
}

static void request_reset(struct object_request *q)
{
	q->rc = 0;
	q->is_refused = false;
	q->tries = q->wrong = 0;
	q->due = 0;
	if (!q->has_range && q->restart)
		q->restart(q);
}

static int request_once(struct rsh_objects *o, struct object_request *q)
{
	int rc = rsh_object_submit(o, q);

	return rc ? rsh_error_nomem(&q->err) : rsh_object_wait(q);
}

int rsh_object_carry_out(struct rsh_objects *o, struct object_request *q)
{
	unsigned number;
	int rc;

	if (q->sign && rsh_object_keys_are_due(o, &number)) {
		rc = rsh_object_keys_renew(o, number, q->deadline, &q->err);
		if (rc && !number)
			return rc;
	}
	rc = request_once(o, q);
	if (!q->sign || !q->is_refused || o->origin <= KEYS_FIXED)
		return rc;
	if (rsh_object_keys_renew(o, q->keys_number, q->deadline, NULL))
		return rc;
	request_reset(q);
	return request_once(o, q);
}

/* ---- whole bodies ---- */

static bool get_take(struct object_request *q, const char *data, size_t len)
{
	struct object_get *g = q->ctx;

	if (len > g->max - g->len) {
		q->rc = rsh_error_set(&q->err, EFBIG, "%s: too large", q->what);
		return false;
	}
	memcpy(g->data + g->len, data, len);
	g->len += len;
	g->data[g->len] = '\0';
	return true;
}

static void get_restart(struct object_request *q)
{
	struct object_get *g = q->ctx;

	g->len = 0;
	g->data[0] = '\0';
}

int rsh_object_get(struct rsh_objects *o, struct object_get *g,
		   struct rsh_error *err)
{
	struct object_request q = {
		.address = g->address, .what = g->what, .ctx = g,
		.deadline = g->deadline, .sign = g->sign, .is_put = g->is_put,
		.headers = g->headers, .sink = get_take,
		.restart = get_restart,
	};
	int rc;

	g->data = rsh_secret_alloc(g->max + 1);
	if (!g->data)
		return rsh_error_nomem(err);
	get_restart(&q);
	rc = rsh_object_carry_out(o, &q);
	if (rc == 0)
		return 0;
	rsh_secret_free(g->data);
	g->data = NULL;
	return rsh_error_set(err, q.err.code, "%s", q.err.text);
}
