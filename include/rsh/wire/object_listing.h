/* SPDX-License-Identifier: Apache-2.0 */
/* wire/object_listing.h - parses the XML in which S3 servers list objects and
 * report errors, while it is received.
 *
 * Each page adds objects to a listing.  One thread uses a listing. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <time.h>

#include "rsh/util/arena.h"
#include "rsh/util/error.h"

struct rsh_object {
	const char *name; /* in a page: its key */
	const char *etag; /* as it was given; NULL: none */
	uint64_t size;
	struct timespec mtime; /* Last-Modified; zero: unknown */
	bool is_listed; /* the tag is that of a listing */
	/* The tag of the first answer with bytes of it, "" if it had none;
	 * NULL: there was no such answer.  From malloc; any thread may set it
	 * once, as rsh_objects_read() does. */
	_Atomic(char *) held;
};

/* A listing whose bytes are all zero is empty. */
struct rsh_object_listing {
	struct rsh_object *objects; /* in the order of the pages */
	size_t n, cap;
	struct rsh_arena arena;
};
void rsh_object_listing_clear(struct rsh_object_listing *l);

#define RSH_LISTING_TOKEN_MAX 4096

/* This is the content of a page except the objects. */
struct rsh_listing_page {
	bool is_listing; /* false: the server refused */
	bool more;       /* there are further pages */
	/* The token with which to request the next page, or the key after which
	 * it begins; "": none, as version 1 of the protocol has no token. */
	char next[RSH_LISTING_TOKEN_MAX], marker[RSH_LISTING_TOKEN_MAX];
	char code[64];     /* code of a refusal: NoSuchKey, SlowDown, .. */
	char region[64];   /* region of the bucket, in a refusal */
	char endpoint[200]; /* the server of the bucket, in a refusal */
};

/* Loads the XML library.  Call this before any function below; any thread may
 * do so.  Returns 0, or -ENOENT with a sentence. */
int rsh_listing_start(struct rsh_error *err);

struct rsh_listing_parser;

/* Begins a page.  Objects are added to *l (NULL: none are expected), all else
 * goes to *page, which is zeroed.  Returns NULL if out of memory. */
struct rsh_listing_parser *
rsh_listing_parser_new(struct rsh_object_listing *l,
		       struct rsh_listing_page *page);
/* Parses the next bytes.  `last` is true for the last bytes; their number may
 * be 0.  Returns 0; -ENOMEM; or -EBADMSG if the text is not such XML: an
 * unknown root element, an invalid number, an object without a key, a document
 * type, or more depth or length than servers write.  After a failure the parser
 * can only be freed. */
int rsh_listing_parse(struct rsh_listing_parser *p, const void *data,
		      size_t len, bool last);
void rsh_listing_parser_free(struct rsh_listing_parser *p);
