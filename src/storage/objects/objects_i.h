/* SPDX-License-Identifier: Apache-2.0 */
/* storage/objects/objects_i.h - what the files of this directory share: an
 * address, its credentials, and requests that a thread carries out. */
#pragma once

#include <curl/curl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#include "rsh/storage/objects.h"
#include "rsh/util/arena.h"
#include "rsh/util/error.h"
#include "rsh/util/secret.h"
#include "rsh/wire/http_answer.h"

/* ---- settings (url.c) ---- */

/* Returns the value of the first of these environment variables that is set and
 * not empty, or NULL. */
const char *rsh_object_env_of(const char *const *names);
#define rsh_object_env(...) \
	rsh_object_env_of((const char *const[]){ __VA_ARGS__, NULL })
/* Returns the first of texts that is neither NULL nor empty, or the last. */
const char *rsh_object_first_of(const char *const *texts, size_t n);
#define rsh_object_first(...)                                   \
	rsh_object_first_of((const char *const[]){ __VA_ARGS__ }, \
			    sizeof((const char *const[]){ __VA_ARGS__ }) / \
			    sizeof(char *))

/* ---- credentials (keys.c) ---- */

/* The values are in secret memory.  If `id` is NULL requests are not signed. */
struct object_keys {
	char *id, *secret, *token;
	int64_t expires; /* seconds since 1970; 0: never */
};
void rsh_object_keys_clear(struct object_keys *k);

/* The source of the keys, from which they are also renewed. */
enum keys_origin {
	KEYS_NONE,    /* requests are not signed */
	KEYS_FIXED,   /* environment variables */
	KEYS_PROFILE, /* files, which may be rewritten */
	KEYS_CONTAINER, KEYS_INSTANCE, /* credentials services */
	KEYS_WEB_IDENTITY, /* the token service */
};

/* Settings of a profile other than keys; in secret memory. */
struct keys_settings {
	char *region, *endpoint, *ca_file, *style;
	char *services; /* the section that may have the endpoint */
	char *role, *token_file, *session; /* of a web identity */
	char *ignores;  /* "true": endpoints of files and of the environment are
			 * ignored */
};
void rsh_object_settings_clear(struct keys_settings *s);

/* ---- names of servers (request.c) ---- */

/* The addresses of a server that were looked up outside the sandbox. */
struct object_name {
	char *server;    /* HOST:PORT; NULL: none */
	char *addresses; /* separated by commas; NULL: unknown */
	uint64_t asked;  /* time of rsh_clock_ns() */
};
#define OBJECT_NAMES 8

void rsh_object_names_clear(struct rsh_objects *o);

/* ---- an opened address ---- */

struct object_loop;

struct rsh_objects {
	struct rsh_arena texts; /* those below that are neither secret nor
				 * renewed; none is added after opening */
	bool is_s3;
	char *url;      /* address for messages */
	char *base; /* http[s]://HOST[/BUCKET], the begin of all objects'
		     * addresses */
	char *prefix;   /* prefix of all names: "" or with a slash at its end */
	char *query; /* secret: the text after the '?' of an address; or NULL */
	char *user;     /* secret: NAME:PASSWORD of an address; or NULL */
	char *region;
	char *ca_file;  /* NULL: libcurl's default */
	char *index;    /* NULL: the default index files */
	uint16_t port;
	char *proxy; /* its address, without a password; NULL: none */
	bool has_proxy;
	bool pays; /* the requester pays, not the owner of the bucket */
	unsigned requests, stall_ms, timeout_ms;

	enum keys_origin origin;
	char *profile;
	char *credentials, *config; /* absolute paths of files */
	char *token_file; /* that of the token for the service; or NULL */
	struct rsh_objects_opener opener; /* open NULL: none */
	char *service; /* address of a credentials or token service */
	char *service_token; /* secret: token for the service; or NULL */
	char *role, *session; /* what the token service is asked for */

	pthread_mutex_t lock; /* guards all below */
	struct object_keys keys;
	unsigned keys_number; /* number of renewals */
	bool renewing;
	pthread_cond_t renewed;
	/* The file of certificates as it was read anew, and how often; NULL:
	 * libcurl has read it. */
	char *ca_text;
	size_t ca_length;
	unsigned ca_number;
	struct object_name names[OBJECT_NAMES];
	struct object_loop *loop; /* NULL: not started */

	/* It refuses requests with conditions; and tags of its listings are not
	 * those of its answers. */
	atomic_bool no_conditions, tags_agree, tags_differ;
	atomic_uint_fast64_t n_requests, n_retries, n_bytes, n_connections;
};

/* Returns a copy of a text that lives as long as `o`; NULL of NULL. */
static inline char *rsh_object_keep(struct rsh_objects *o, const char *text)
{
	return text ? rsh_arena_strndup(&o->texts, text, strlen(text)) : NULL;
}
/* Returns such a copy of a path, made absolute without following links. */
char *rsh_object_absolute(struct rsh_objects *o, const char *path);

/* Sets keys, origin and settings from options and environment. */
int rsh_object_keys_find(struct rsh_objects *o,
			 const struct rsh_objects_options *opts,
			 struct keys_settings *out, struct rsh_error *err);

/* Calls fn for the file, or for all files that may be the one, of which libcurl
 * has its certificates. */
void rsh_object_each_ca_file(void (*fn)(void *ctx, const char *path),
			     void *ctx);

/* Set url, base, prefix and related members from an address.  There are two
 * steps, because the first one does not need the profile, and the profile may
 * set the endpoint for the second one. */
int rsh_object_url_parse(struct rsh_objects *o, const char *url,
			 const struct rsh_objects_options *opts,
			 struct rsh_error *err);
int rsh_object_url_finish(struct rsh_objects *o, const char *url,
			  const char *endpoint, enum rsh_objects_style style,
			  struct rsh_error *err);
/* Reads a host and the port behind it, which are s[0 .. n). */
bool rsh_object_port(const char *s, size_t n, uint16_t usual, uint16_t *out);
/* Returns the address of an object, or with "" the opened address itself
 * without a slash at its end, which the caller frees by rsh_secret_free().
 * NULL means out of memory. */
char *rsh_object_address(const struct rsh_objects *o, const char *name);
/* Returns the name of an object for messages, from malloc; NULL means out of
 * memory. */
char *rsh_object_what(const struct rsh_objects *o, const char *name);
/* How a page of a listing is asked for. */
struct object_list_at {
	bool is_first_version; /* of the protocol, which has keys for tokens */
	bool is_plain;         /* keys are not to be URL-encoded */
	/* the token of the next page or, in version 1, the key before it */
	char after[RSH_LISTING_TOKEN_MAX];
};
char *rsh_object_list_address(const struct rsh_objects *o, const char *prefix,
			      const struct object_list_at *at);
struct object_parameter {
	const char *name, *value; /* both NULL at the end */
};
/* Returns parameters as the body of a POST, for rsh_secret_free(); NULL means
 * out of memory. */
char *rsh_object_form(const struct object_parameter *parameters);

/* ---- requests (transfer.c, loop.c, request.c) ---- */

struct object_request;
struct object_transfer;

#define OBJECT_PATIENCES 5

/* Takes bytes of a body whose headers were correct; of a range, no more than
 * are missing.  Returns false, with rc and sentence set, to end the request. */
typedef bool object_sink(struct object_request *q, const char *data,
			 size_t len);
/* Checks the headers of an answer. */
typedef enum rsh_http_verdict object_judge(const struct object_transfer *t,
					   const char **why);

struct object_request {
	/* The caller sets these, and keeps them until the request is done. */
	const char *address;
	const char *what;  /* name for messages */
	uint64_t deadline; /* time of rsh_clock_ns() */
	/* 0: the deadline is fixed.  Otherwise the deadline is at least this
	 * long after the last progress, but it is extended by at most
	 * (OBJECT_PATIENCES - 1) times this. */
	uint64_t patience;
	uint64_t since;    /* waiting requests are in this order; 0: first */
	bool sign;         /* use the credentials of the address */
	bool is_put;       /* a PUT, for a credentials service */
	const char *form;  /* the body of a POST; NULL: none */
	bool direct;       /* without a proxy, which would see its secrets */
	const char *const *headers; /* additional headers, NULL at the end; or
				     * NULL */
	object_judge *judge; /* NULL: only the status is checked */
	object_sink *sink;
	/* The part of a range that is still missing.  Both change when the sink
	 * takes bytes, and may be reset for a retry.  The sink computes the
	 * position of bytes from them. */
	bool has_range;
	uint64_t first, len;
	/* Requests for ranges of the same object may be joined in one transfer;
	 * NULL: this request is not joined. */
	const struct rsh_object *object;
	/* Called when a body is complete.  Returns false to end the request
	 * like a sink.  NULL: not needed. */
	bool (*finish)(struct object_request *q);
	/* Drops what was received, for sinks without a range. */
	void (*restart)(struct object_request *q);
	const char *etag; /* for If-Match; NULL: none */
	int64_t unmodified_since; /* 0: none */
	void *ctx;

	/* The result: 0, or -errno with a sentence. */
	int rc;
	bool is_refused; /* with -EACCES: other keys may be accepted */
	bool is_unconnected; /* there was no connection to server or proxy */
	/* There was none at the first time: the server may have another
	 * address. */
	bool is_lost;
	bool is_cut_off; /* the proxy does not connect to the server */
	bool is_untrusted; /* no known certificate has signed the server's */
	bool is_unsupported; /* the server never answers such requests */
	struct rsh_error err;
	struct rsh_http_answer answer; /* the last answer */

	/* Only the loop uses these. */
	struct object_loop *loop;
	struct object_request *next;
	bool is_done;
	pthread_cond_t done;
	const char *why;       /* the error of the server; NULL: none */
	const char *detail;    /* libcurl's text for it; NULL: none */
	const char *proxy;     /* as in struct rsh_objects */
	char redirect[200];    /* the server to which the answer leads; or "" */
	char lost[200]; /* with is_lost: the server that was not found */
	uint64_t due;          /* time from which it may begin */
	uint64_t got;          /* time of the last progress of this request, or
				* of other ones before its first attempt; 0:
				* never */
	uint64_t transfer_from; /* begin of its range in this transfer */
	unsigned tries, wrong; /* transfers so far; those of them without a
				* correct answer */
	unsigned silent; /* transfers without a byte of a correct body that
			  * ended after stall_ms; the next one has longer */
	unsigned keys_number, ca_number;
};

/* Lets a request begin again from what it has. */
static inline void rsh_object_again(struct object_request *q)
{
	q->rc = 0;
	q->is_refused = q->is_untrusted = q->is_unsupported = false;
	q->tries = q->wrong = 0;
	q->due = 0;
}

/* An attempt to carry out a request, or several requests with consecutive
 * ranges. */
struct object_transfer {
	struct object_transfer *next;
	struct rsh_objects *objects;
	struct object_loop *loop;
	CURL *easy;
	struct curl_slist *list, *names;
	/* Requests that are not done, in the order of their ranges.  Received
	 * bytes belong to the first one. */
	struct object_request *requests;
	uint64_t first, len; /* the range of the transfer */
	bool has_taken;      /* bytes of a correct body were received */
	bool is_whole;       /* the body is the whole object, of which... */
	uint64_t skip;       /* ...so many bytes come before the range */
	uint64_t heard;      /* time of the last byte */
	uint64_t got;        /* time of the last byte of a correct body; 0:
			      * never */
	struct rsh_http_answer answer;
	enum rsh_http_verdict verdict;
	bool is_judged;
	const char *why;
	struct rsh_listing_parser *refusal;
	struct rsh_listing_page page;
	size_t refusal_len;
	unsigned keys_number, ca_number;
	bool failed; /* out of memory */
	/* A transfer that continues calls this when its first request is done.
	 * It must not use that request again. */
	void (*first_done)(struct object_transfer *t);
};

/* Submits a request to the thread, and starts the thread if needed.  Returns 0
 * or -errno; after an error the request is not in progress. */
int rsh_object_submit(struct rsh_objects *o, struct object_request *q);
/* Waits for a request and returns its result. */
int rsh_object_wait(struct object_request *q);
/* Submits a request and waits for it. */
typedef int object_perform(struct rsh_objects *o, struct object_request *q);
object_perform rsh_object_once;
/* Does the same, and gets new keys and retries if the keys are refused
 * (keys.c). */
object_perform rsh_object_carry_out;
/* Ends the thread.  No request may be in progress. */
void rsh_object_loop_free(struct object_loop *l);

/* The loop calls these functions in its thread. */

/* Prepares a transfer whose requests and handle are set.  Returns 0 or
 * -ENOMEM. */
int rsh_object_transfer_begin(struct object_transfer *t);
/* Evaluates the end of a transfer.  It is called before
 * rsh_object_transfer_ends() or rsh_object_transfer_clear(). */
void rsh_object_transfer_end(struct object_transfer *t, CURLcode code);
/* Evaluates the end of a transfer for one request.  Returns true if the request
 * is done, false if it is retried from q->due on. */
bool rsh_object_transfer_ends(const struct object_transfer *t,
			      struct object_request *q, CURLcode code);
/* Frees what a transfer has, except the handle. */
void rsh_object_transfer_clear(struct object_transfer *t);
/* Returns the proxy that the environment sets for an address (from malloc),
 * without name and password.  NULL: none, or out of memory. */
char *rsh_object_proxy(const char *address);
/* Writes scheme, host and port of an address. */
void rsh_object_put_server(char *to, size_t size, const char *address);
/* Writes "the server WHY (DETAIL)" for the last attempt.  `code` is the
 * server's error code, or "". */
void rsh_object_say(const struct object_request *q, const char *code,
		    char *to, size_t size);
/* What a server or a proxy does that wants a login first. */
#define RSH_OBJECT_PAGE "sends a web page, such as one for a login"
/* Sets the result of a request whose deadline has passed. */
void rsh_object_expire(struct object_request *q);

/* A GET of a complete body of at most `max` bytes, into secret memory, with a
 * NUL after it. */
struct object_get {
	struct object_request q; /* its sink is set here */
	size_t max;
	char *data; /* the result, for rsh_secret_free() */
	size_t len;
};
int rsh_object_get(struct rsh_objects *o, struct object_get *g,
		   object_perform *perform, struct rsh_error *err);

/* Sets the address of the token service if the keys are those of a role of a
 * web identity.  If `ignores` is true the environment does not set it. */
int rsh_object_sts_find(struct rsh_objects *o, bool ignores,
			struct rsh_error *err);

/* ---- signatures (sign.c) ---- */

/* The hash of an empty body, which S3 requires as a header. */
#define RSH_OBJECT_NO_BODY \
	"e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"

/* The header with which the requester pays. */
#define RSH_OBJECT_PAYS "x-amz-request-payer:requester"

/* Returns the header "Authorization" of a GET of this address, in secret
 * memory, for rsh_secret_free(); NULL means out of memory.  `date` is the
 * header "x-amz-date" ("20260102T030405Z"); the others that are signed are
 * "x-amz-content-sha256" and, with a token, "x-amz-security-token" and, if the
 * requester pays, RSH_OBJECT_PAYS.  A query
 * has to be encoded, with its parameters in the order of the alphabet. */
char *rsh_object_sign(const char *address, const char *region,
		      const struct object_keys *keys, bool pays,
		      const char *date);

/* Returns the deadline for a call without one. */
uint64_t rsh_object_deadline(const struct rsh_objects *o);

/* ---- listings (list.c, index.c) ---- */

/* Adds the files of an index file to *list, with size and identity from the
 * server.  Returns 0, or -errno with a sentence. */
int rsh_object_list_index(struct rsh_objects *o, const char *prefix,
			  struct rsh_object_listing *list,
			  struct rsh_error *err);
/* Returns whether the address is that of a file. */
bool rsh_object_is_file(struct rsh_objects *o);

/* ---- the functions of libcurl that are called (curl.c) ----
 *
 * The library is loaded when the first address is opened, so that those who
 * mount local files do not wait for it, nor need to have it. */

/* The library is loaded at run time and may be newer than its header here. */
#if !HAVE_DECL_CURLOPT_PROTOCOLS_STR
#define CURLOPT_PROTOCOLS_STR ((CURLoption)10318) /* 7.85 */
#define CURLOPT_REDIR_PROTOCOLS_STR ((CURLoption)10319)
#endif
#if !HAVE_DECL_CURLOPT_QUICK_EXIT
#define CURLOPT_QUICK_EXIT ((CURLoption)322) /* 7.87 */
#endif
/* Older libraries need these options, but newer headers warn of their names. */
#define RSH_CURLOPT_PROTOCOLS ((CURLoption)181)
#define RSH_CURLOPT_CA_CACHE_TIMEOUT ((CURLoption)321) /* 7.87 */
#define RSH_CURLOPT_CAINFO_BLOB ((CURLoption)40309)    /* 7.77 */
#define RSH_CURLOPT_REDIR_PROTOCOLS ((CURLoption)182)
/* CURLE_PEER_FAILED_VERIFICATION, and the separate code that libcurl before
 * 7.62 had for names of hosts; its headers gave that the name of this one. */
#define RSH_CURLE_UNVERIFIED ((CURLcode)60)
#define RSH_CURLE_UNVERIFIED_OLD ((CURLcode)51)

#define RSH_CURL_FUNCTIONS(F) \
	F(global_init_mem) \
	F(version_info) \
	F(slist_append) \
	F(slist_free_all) \
	F(easy_init) \
	F(easy_reset) \
	F(easy_cleanup) \
	F(easy_setopt) \
	F(easy_getinfo) \
	F(easy_strerror) \
	F(multi_init) \
	F(multi_cleanup) \
	F(multi_setopt) \
	F(multi_add_handle) \
	F(multi_remove_handle) \
	F(multi_perform) \
	F(multi_wait) \
	F(multi_info_read)

struct object_curl {
#define RSH_CURL_MEMBER(name) __typeof__(curl_##name) *name;
	RSH_CURL_FUNCTIONS(RSH_CURL_MEMBER)
#undef RSH_CURL_MEMBER
};

/* It is filled in by rsh_object_curl_start(), and nothing is called before. */
extern struct object_curl rsh_curl;

/* Loads libcurl and starts it, once a process; any thread may call this.  0 or
 * -errno with a sentence. */
int rsh_object_curl_start(struct rsh_error *err);
