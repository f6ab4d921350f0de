/* SPDX-License-Identifier: Apache-2.0 */
/* wire/http_answer.h - parses a server's answer to a request for a range, and
 * checks whether the answer fits the request.  All functions are pure; any
 * thread may call them. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <time.h>

#define RSH_ETAG_MAX 256

/* An answer whose bytes are all zero is empty: nothing was received. */
struct rsh_http_answer {
	int status;
	bool has_length, has_range, has_total;
	uint64_t length;      /* of the body */
	uint64_t first, last; /* of the range, both within it */
	uint64_t total;       /* of the whole object */
	bool is_encoded;      /* the body is compressed */
	bool is_multipart;
	bool is_page;         /* a web page, by its type */
	/* a header above is not valid, or occurs twice with different values */
	bool is_broken;
	bool has_wait;        /* the server says when to retry */
	uint32_t wait_s;
	int64_t modified;     /* seconds since 1970; 0: not given */
	/* with its quotes; "" if there is none, or it is too long */
	char etag[RSH_ETAG_MAX];
	char region[64];      /* the region of a bucket in another region */
};

/* Parses one header line, with or without its line end.  A status line begins a
 * new answer, as after a redirection. `now` is used to compute a duration from
 * the date in Retry-After. */
void rsh_http_answer_line(struct rsh_http_answer *a, const char *line,
			  size_t len, time_t now);

/* Parses "Sun, 06 Nov 1994 08:49:37 GMT", or "2009-10-12T17:50:30.000Z". The
 * fraction of the second form goes to *ns (which may be NULL).  Returns false
 * for anything else. */
bool rsh_http_date(const char *text, size_t len, int64_t *out, long *ns);

struct rsh_http_asked {
	uint64_t first, len; /* of the range, len > 0 */
	uint64_t size;       /* of the whole object */
	/* NULL: it has none; `modified` is compared then */
	const char *etag;
	int64_t modified;    /* when it was modified; 0: unknown */
	/* The tag is that of a listing.  Some servers put other tags, or none,
	 * into answers, so size and date decide if they are known. */
	bool is_listed;
	/* Content-Encoding is a label that whoever stored the object has given
	 * it, and the bytes are sent as they were stored. */
	bool is_label;
};

/* Larger bodies are not read to get a part of them. */
#define RSH_HTTP_WHOLE_MAX (UINT64_C(8) << 20)

enum rsh_http_verdict {
	RSH_HTTP_RIGHT,   /* the body has the requested bytes */
	RSH_HTTP_CHANGED, /* the body has bytes of another object */
	RSH_HTTP_LATER,   /* the server cannot answer now */
	RSH_HTTP_REFUSED, /* access is denied */
	RSH_HTTP_GONE,    /* there is no such object */
	RSH_HTTP_WRONG,   /* the answer does not fit the request */
	RSH_HTTP_UNSUPPORTED, /* the server never answers such requests */
};

/* Checks an answer after its headers were received.  For all results but
 * RSH_HTTP_RIGHT, *why is the end of a sentence that begins with "the
 * server". */
enum rsh_http_verdict rsh_http_judge(const struct rsh_http_answer *a,
				     const struct rsh_http_asked *asked,
				     const char **why);
/* Checks the status only, for a request without a range. */
enum rsh_http_verdict rsh_http_judge_status(int status, const char **why);
