/* SPDX-License-Identifier: Apache-2.0 */
/* storage/objects/objects_i.h - what the files of this room share: an address and its
 * keys, and requests that a thread of the room carries out. */
#ifndef RSH_STORAGE_OBJECTS_I_H
#define RSH_STORAGE_OBJECTS_I_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "curl_i.h"
#include "rsh/storage/objects.h"
#include "rsh/util/secret.h"
#include "rsh/wire/http_answer.h"
#include "rsh/wire/object_listing.h"

/* ---- settings (objects.c) ---- */

/* Gives what a variable of the environment says, NULL if that is nothing. */
const char *rsh_object_env(const char *name);
/* Gives the first of the texts that says something, or NULL. */
const char *rsh_object_first(const char *a, const char *b, const char *c);

/* ---- keys (keys.c) ---- */

/* The values lie in secret memory; an id of NULL means that nothing is
 * signed. */
struct object_keys {
	char *id, *secret, *token;
	int64_t expires; /* seconds since 1970, 0: never */
};
void rsh_object_keys_clear(struct object_keys *k);

/* Where keys came from, and so where they are renewed. */
enum keys_origin {
	KEYS_NONE,    /* nothing is signed */
	KEYS_FIXED,   /* the environment's */
	KEYS_PROFILE, /* files that somebody may write anew */
	KEYS_CONTAINER, KEYS_INSTANCE, /* services */
};

/* What a profile sets, besides keys; in secret memory. */
struct keys_settings {
	char *region, *endpoint, *ca_file, *style;
	char *services; /* the section in which the endpoint may be */
	char *ignores;  /* "true": endpoints of files and environment count
			 * for nothing */
};
void rsh_object_settings_clear(struct keys_settings *s);

/* ---- an opened address ---- */

struct object_loop;

struct rsh_objects {
	bool is_s3;
	char *url;      /* as it is shown */
	char *base; /* http[s]://HOST[/BUCKET], objects' addresses begin so */
	char *prefix;   /* of all names: "" or with a slash at its end */
	char *query; /* secret: what follows the '?' of an address; or NULL */
	char *user;     /* secret: NAME:PASSWORD of an address; or NULL */
	char *region;
	char *signing;  /* what libcurl wants to know to sign */
	char *ca_file;  /* NULL: libcurl's */
	char *index;    /* NULL: the usual ones */
	uint16_t port;
	bool has_proxy;
	unsigned requests, stall_ms, timeout_ms;

	enum keys_origin origin;
	char *profile;
	char *credentials, *config; /* paths of files */
	char *service; /* address of a service of credentials */
	char *service_token; /* secret: what it wants to see; or NULL */

	pthread_mutex_t lock; /* guards what follows */
	struct object_keys keys;
	unsigned keys_number; /* counts the renewals */
	bool renewing;
	pthread_cond_t renewed;
	struct object_loop *loop; /* NULL: not started */

	atomic_uint_fast64_t n_requests, n_retries, n_bytes, n_connections;
};

/* Fills in keys, origin and settings from options and environment. */
int rsh_object_keys_find(struct rsh_objects *o,
			 const struct rsh_objects_options *opts,
			 struct keys_settings *out, struct rsh_error *err);
/* Gets new keys, unless somebody has since `number`, or is doing so: then it
 * waits for that.  0 or -errno with a sentence. */
int rsh_object_keys_renew(struct rsh_objects *o, unsigned number,
			  uint64_t deadline, struct rsh_error *err);
/* Are the keys still to be had (a service), or about to expire? */
bool rsh_object_keys_are_due(struct rsh_objects *o, unsigned *number);

/* Makes url, base, prefix and the like from an address.  It is done in two
 * steps since the profile, which the address does not need, may say where the
 * endpoint is. */
int rsh_object_url_parse(struct rsh_objects *o, const char *url,
			 const struct rsh_objects_options *opts,
			 struct rsh_error *err);
int rsh_object_url_finish(struct rsh_objects *o, const char *url,
			  const char *endpoint, enum rsh_objects_style style,
			  struct rsh_error *err);
/* Gives the address of an object or of a listing's page, which the caller frees
 * by rsh_secret_free(); NULL means out of memory. */
char *rsh_object_address(const struct rsh_objects *o, const char *name);
/* Gives the address of the place itself, without a slash at its end. */
char *rsh_object_own_address(const struct rsh_objects *o);
char *rsh_object_list_address(const struct rsh_objects *o, const char *prefix,
			      const char *token);

/* ---- requests (loop.c, request.c, why.c) ---- */

struct object_request;
struct object_transfer;

#define OBJECT_PATIENCES 5

/* Takes bytes of a body that was found right, of a range no more than are
 * missing; false ends the request, and has set its rc and sentence. */
typedef bool object_sink(struct object_request *q, const char *data,
			 size_t len);
/* Judges an answer's headers. */
typedef enum rsh_http_verdict object_judge(const struct object_transfer *t,
					   const char **why);

struct object_request {
	/* The caller sets these, and keeps them until the request is done. */
	const char *address;
	const char *what;  /* for sentences */
	uint64_t deadline; /* of rsh_clock_ns() */
	uint64_t patience; /* 0: the deadline stands.  Otherwise it is so far
			    * away again whenever the source gets on with
			    * this, but for OBJECT_PATIENCES times at most */
	uint64_t since;    /* those that wait go in this order; 0: at once */
	bool sign;         /* with the keys of the address */
	bool is_put;       /* for a service of credentials */
	const char *const *headers; /* further ones, NULL at the end; or NULL */
	object_judge *judge; /* NULL: by the status alone */
	object_sink *sink;
	/* What is still missing of a range.  Both move on as the sink takes
	 * bytes, and may go back; it finds the bytes' place by them. */
	bool has_range;
	uint64_t first, len;
	/* Requests of ranges of the same object may be joined to one; NULL:
	 * this one is not. */
	const struct rsh_object *object;
	/* Takes the end of a body that came whole; false ends the request as
	 * above.  NULL: nothing is left to do. */
	bool (*finish)(struct object_request *q);
	/* Forgets what came, for sinks that have no range. */
	void (*restart)(struct object_request *q);
	const char *etag; /* of If-Match, NULL: none */
	int64_t unmodified_since; /* 0: none */
	void *ctx;

	/* The result: 0 or -errno with a sentence. */
	int rc;
	bool is_refused; /* with -EACCES: other keys may do */
	struct rsh_error err;
	struct rsh_http_answer answer; /* the last one */

	/* These are the loop's. */
	struct object_loop *loop;
	struct object_request *next;
	bool is_done;
	pthread_cond_t done;
	const char *why;       /* what the server does wrong; NULL: nothing has
				* gone wrong */
	const char *detail;    /* what libcurl calls it; NULL: nothing */
	uint64_t due;          /* when it begins */
	uint64_t got;          /* when the source last got on with it, or with
				* others before its first turn; 0: never */
	uint64_t transfer_from; /* where its range began in this transfer */
	unsigned tries, wrong; /* transfers so far; of them with no good
				* answer */
	unsigned keys_number;
};

/* An attempt to get what a request asks for, or several whose ranges follow
 * each other. */
struct object_transfer {
	struct object_transfer *next;
	struct rsh_objects *objects;
	struct object_loop *loop;
	CURL *easy;
	struct curl_slist *list;
	/* Those that are not done, in the order of their ranges: the first one
	 * takes the bytes that come. */
	struct object_request *requests;
	uint64_t first, len; /* what is asked for */
	bool has_taken;      /* bytes of the body have been right */
	uint64_t heard;      /* when the last byte came */
	uint64_t got;        /* when that was a right one of a body; 0: never */
	struct rsh_http_answer answer;
	enum rsh_http_verdict verdict;
	bool is_judged;
	const char *why;
	struct rsh_listing_parser *refusal;
	struct rsh_listing_page page;
	size_t refusal_len;
	unsigned keys_number;
};

/* Hands a request to the thread, which is started where it is not.  0 or
 * -errno, and nothing is under way then. */
int rsh_object_submit(struct rsh_objects *o, struct object_request *q);
/* Waits for it, and gives its result. */
int rsh_object_wait(struct object_request *q);
/* Does both, and gets new keys where the old ones are refused. */
int rsh_object_carry_out(struct rsh_objects *o, struct object_request *q);
/* Ends all that is under way with -ECANCELED, and the thread. */
void rsh_object_loop_free(struct object_loop *l);

/* These are called by the loop, in its thread. */

/* Prepares a transfer, whose requests and handle are set.  0, -ENOMEM, or -ENOTSUP
 * if this libcurl cannot sign. */
int rsh_object_transfer_begin(struct object_transfer *t);
/* Looks at what came of a transfer, before the first of the two below. */
void rsh_object_transfer_end(struct object_transfer *t, CURLcode code);
/* Looks at what came for one request: true means that it is done, and false
 * that it is tried again from q->due on. */
bool rsh_object_transfer_ends(const struct object_transfer *t,
			      struct object_request *q, CURLcode code);
/* Gives up what a transfer had besides the handle. */
void rsh_object_transfer_clear(struct object_transfer *t);
/* Says what follows "the server" where there is no answer, or none that is
 * whole; and what the system or libcurl calls that.  Both are constant texts.
 */
const char *rsh_object_why(CURLcode code);
const char *rsh_object_detail(const struct object_transfer *t, CURLcode code);
/* Puts scheme, host and port of an address. */
void rsh_object_put_server(char *to, size_t size, const char *address);
/* Says "the server WHY (DETAIL)" of the last attempt, which the server may call
 * `code`. */
void rsh_object_say(const struct object_request *q, const char *code,
		    char *to, size_t size);
/* Sets the result of a request whose time is over. */
void rsh_object_expire(struct object_request *q);

/* This is called by a transfer that goes on: the first of its requests is done,
 * and no more of it. */
void rsh_object_first_done(struct object_transfer *t);

/* Does a GET of a whole body, of at most `max` bytes, into secret memory, with
 * a NUL behind it. */
struct object_get {
	const char *address, *what;
	const char *const *headers;
	bool sign, is_put;
	uint64_t deadline;
	size_t max;
	char *data; /* the result, for rsh_secret_free() */
	size_t len;
};
int rsh_object_get(struct rsh_objects *o, struct object_get *g,
		   struct rsh_error *err);

/* Returns "NAME: VALUE" in secret memory, for rsh_secret_free(); NULL means out of
 * memory. */
char *rsh_object_header(const char *name, const char *value);

/* Returns the deadline of a call that was given none. */
uint64_t rsh_object_deadline(const struct rsh_objects *o);

/* ---- listings (list.c, index.c) ---- */

/* Returns whether this is a path below the address without "." and "..". */
bool rsh_object_is_name(const char *name);
/* Adds to *list what an index file names, with size and identity from the server.
 * Returns 0 or -errno with a sentence. */
int rsh_object_list_index(struct rsh_objects *o, const char *prefix,
			  struct rsh_object_listing *list,
			  struct rsh_error *err);
/* Returns whether the address is that of a file. */
bool rsh_object_is_file(struct rsh_objects *o);

#endif
