/* SPDX-License-Identifier: Apache-2.0 */
/* wire/object_listing.h - the XML in which S3 servers list objects and say what
 * went wrong, read as it comes in.
 *
 * A listing grows by one page after the other; it belongs to one thread. */
#ifndef RSH_WIRE_OBJECT_LISTING_H
#define RSH_WIRE_OBJECT_LISTING_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <time.h>

#include "rsh/util/arena.h"
#include "rsh/util/error.h"

struct rsh_listed {
	const char *key, *etag; /* etag NULL: it has none */
	uint64_t size;
	struct timespec mtime;
};

/* One whose bytes are all zero is empty. */
struct rsh_object_listing {
	struct rsh_listed *objects; /* in the order of the pages */
	size_t n, cap;
	struct rsh_arena arena;
};
void rsh_object_listing_clear(struct rsh_object_listing *l);

#define RSH_LISTING_TOKEN_MAX 4096

/* This is what a page says besides objects. */
struct rsh_listing_page {
	bool is_listing; /* rather than a refusal */
	bool more;       /* there are further pages */
	char next[RSH_LISTING_TOKEN_MAX]; /* with which to ask for the next */
	char code[64];     /* of a refusal: NoSuchKey, SlowDown, .. */
	char region[64];   /* of a refusal: the region of the bucket */
};

/* Loads the library that reads XML, and is called before anything below; any
 * thread may do so.  0, or -ENOENT with a sentence. */
int rsh_listing_start(struct rsh_error *err);

struct rsh_listing_parser;

/* Begins a page.  Objects go to *l (NULL: none are expected), all else to
 * *page, which is zeroed.  NULL means out of memory. */
struct rsh_listing_parser *
rsh_listing_parser_new(struct rsh_object_listing *l,
		       struct rsh_listing_page *page);
/* Takes the next bytes; `last` with the last of them, of which there may be
 * none.  0; -EBADMSG if that is no XML of this kind: no such element, a number
 * that is none, an object without a key, a document type, deeper or longer than
 * servers write; or -ENOMEM.  After a failure nothing but the freeing is left
 * to do. */
int rsh_listing_parse(struct rsh_listing_parser *p, const void *data,
		      size_t len, bool last);
void rsh_listing_parser_free(struct rsh_listing_parser *p);

#endif
