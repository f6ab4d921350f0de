/* SPDX-License-Identifier: Apache-2.0 */
/* wire/http_answer.h - what a server answers to a request for a range, and
 * whether the answer fits the request.  All functions are pure; any thread may
 * call them. */
#ifndef RSH_WIRE_HTTP_ANSWER_H
#define RSH_WIRE_HTTP_ANSWER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <time.h>

#define RSH_ETAG_MAX 256

/* An answer whose bytes are all zero is one of which nothing has come. */
struct rsh_http_answer {
	int status;
	bool has_length, has_range, has_total;
	uint64_t length;      /* of the body */
	uint64_t first, last; /* of the range, both within it */
	uint64_t total;       /* of the whole object */
	bool is_encoded;      /* the body is compressed */
	bool is_multipart;
	bool is_broken;       /* a header of these cannot be understood, or
			       * is there twice with two meanings */
	bool has_wait;        /* the server says when to come again */
	uint32_t wait_s;
	int64_t modified;     /* seconds since 1970, 0 if it does not say */
	char etag[RSH_ETAG_MAX]; /* with its quotes; "" where there is none, or
				  * none of a reasonable length */
	char region[64];      /* the region of a bucket that is elsewhere */
};

/* Takes one line, with or without its end.  A status line begins a new answer,
 * as after a redirection. `now` turns the date of Retry-After into seconds. */
void rsh_http_answer_line(struct rsh_http_answer *a, const char *line,
			  size_t len, time_t now);

/* Reads "Sun, 06 Nov 1994 08:49:37 GMT", or "2009-10-12T17:50:30.000Z", whose
 * fraction goes to *ns (which may be NULL).  False for anything else. */
bool rsh_http_date(const char *text, size_t len, int64_t *out, long *ns);

struct rsh_http_asked {
	uint64_t first, len; /* of the range, len > 0 */
	uint64_t size;       /* of the whole object */
	const char *etag;    /* NULL: it has none, and is known by .. */
	int64_t modified;    /* .. when it was modified; 0: unknown */
};

enum rsh_http_verdict {
	RSH_HTTP_RIGHT,   /* the body has the requested bytes */
	RSH_HTTP_CHANGED, /* they would be those of another object */
	RSH_HTTP_LATER,   /* the server is not able to answer now */
	RSH_HTTP_REFUSED, /* access is denied */
	RSH_HTTP_GONE,    /* there is no such object */
	RSH_HTTP_WRONG,   /* this is no answer to what was asked */
};

/* Judges an answer whose headers are there.  *why is the end of a sentence that
 * begins with "the server" for all but RSH_HTTP_RIGHT. */
enum rsh_http_verdict rsh_http_judge(const struct rsh_http_answer *a,
				     const struct rsh_http_asked *asked,
				     const char **why);
/* Judges the status alone, where no range was requested. */
enum rsh_http_verdict rsh_http_judge_status(int status, const char **why);

#endif
