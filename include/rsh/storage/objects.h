/* SPDX-License-Identifier: Apache-2.0 */
/* storage/objects.h - objects on HTTP servers, read in ranges: S3 and
 * compatible servers, and plain web servers with a file that lists their files.
 *
 *   s3://BUCKET/PREFIX       listed by the server; requests are signed
 *   https://HOST/PATH/       listed by an index file (below)
 *
 *   rsh_objects_open()       environment and credentials; no network, no thread
 *   rsh_objects_list()       names, sizes, identities
 *   rsh_objects_read()       ranges, by many threads at once
 *   rsh_objects_free()
 *
 * Identity: each request for a range has If-Match, and the answer's ETag, range
 * and size are compared with the listing, so that bytes of two objects are
 * never mixed.  Failed requests are retried until the deadline, from the byte
 * where they broke off.
 *
 * The first request starts a thread that carries out all requests and blocks
 * all signals.  A reader sleeps until its bytes have arrived.
 *
 * Secrets are in memory that is excluded from core files and is wiped when it
 * is freed.  No message contains them.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/uio.h>

#include "rsh/util/error.h"
#include "rsh/util/option.h"
#include "rsh/wire/object_listing.h"

struct rsh_objects;

/* The position of the bucket in the addresses of objects. */
enum rsh_objects_style {
	RSH_OBJECTS_STYLE_AUTO, /* the style of the profile; else host for
				 * clouds that require it, else path */
	RSH_OBJECTS_STYLE_PATH, /* https://ENDPOINT/BUCKET/KEY */
	RSH_OBJECTS_STYLE_HOST, /* https://BUCKET.ENDPOINT/KEY */
};

/* The credentials for signatures. */
enum rsh_objects_keys {
	/* Keys of the environment or a profile, or of a credentials service if
	 * the environment has its endpoint. */
	RSH_OBJECTS_KEYS_AUTO,
	RSH_OBJECTS_KEYS_NONE, /* requests are not signed */
	/* The machine's metadata service, if there are no others. */
	RSH_OBJECTS_KEYS_INSTANCE,
};

/* All texts are copied. */
struct rsh_objects_options {
	/* NULL: AWS_ENDPOINT_URL_S3, AWS_ENDPOINT_URL, endpoint_url of s3 in
	 * the section of services that the profile names, endpoint_url of the
	 * profile, or Amazon's of the region. */
	const char *endpoint;
	char *user, *query;  /* what rsh_objects_hide() removed from the
			      * address */
	const char *region;  /* NULL: AWS_REGION, AWS_DEFAULT_REGION, profile,
			      * us-east-1 */
	const char *profile; /* NULL: AWS_PROFILE; a profile given here has
			      * priority over keys of the environment */
	enum rsh_objects_style style;
	enum rsh_objects_keys keys;
	bool requester_pays; /* S3: for requests and bytes, instead of the
			      * owner of the bucket */
	const char *ca_file; /* NULL: AWS_CA_BUNDLE, SSL_CERT_FILE, or the
			      * system's */
	const char *index;   /* http(s): the index file, below the address;
			      * NULL: model.safetensors.index.json, or else
			      * model.safetensors alone */
	unsigned requests;   /* most requests in progress; 0:
			      * RSH_OBJECTS_REQUESTS */
	unsigned stall_ms;   /* a request without a byte for this time is
			      * repeated; the time doubles, up to 8 times this,
			      * as long as no content arrives; 0: 5,000 */
	unsigned timeout_ms; /* timeout of a request of a listing, and of a read
			      * without a deadline while no byte arrives; 0:
			      * 60,000 */
};

#define RSH_OBJECTS_REQUESTS 64

/* The options of the command line. */
extern const struct rsh_option rsh_objects_rows[];

/* Returns whether `place` is an address of object storage, not a path; also in
 * a build without object storage. */
static inline bool rsh_objects_is_url(const char *place)
{
	return strncmp(place, "s3://", 5) == 0 ||
	       strncmp(place, "http://", 7) == 0 ||
	       strncmp(place, "https://", 8) == 0;
}

/* Returns whether an address is `of`, or below it. */
static inline bool rsh_objects_is_in(const char *address, const char *of)
{
	size_t n = strlen(of);

	while (n > 0 && of[n - 1] == '/')
		n--;
	return strncmp(address, of, n) == 0 &&
	       (address[n] == '/' || !address[n]);
}

/* Moves what may be secret from an address to *opts: a name with a password
 * and, of an HTTP address, a query.  They are in secret memory until
 * rsh_objects_options_clear().  A text that is not an address stays as it is.
 * Returns 0 or -ENOMEM. */
int rsh_objects_hide(char *url, struct rsh_objects_options *opts);
void rsh_objects_options_clear(struct rsh_objects_options *opts);

/* Loads the libraries that addresses need.  Returns 0, or -errno with a
 * sentence: one is missing, or the program was built without object storage. */
int rsh_objects_find_libraries(struct rsh_error *err);
/* Opens an address: only reads the environment and the files that it names.
 * The caller frees the object; `opts` may be NULL, like zeros.  Returns 0, or
 * with a sentence -EINVAL for an invalid address or option, -ENOENT for a
 * missing profile, -ENOSYS in a build without object storage, or another
 * -errno. */
int rsh_objects_open(const char *url, const struct rsh_objects_options *opts,
		     struct rsh_objects **out, struct rsh_error *err);
/* No call may be running; o may be NULL. */
void rsh_objects_free(struct rsh_objects *o);
/* Returns a text (from malloc) that differs if the address may mean other
 * objects, by the environment, by profiles or by what rsh_objects_hide()
 * removed: server, proxy and account.  It has no secret.  NULL: the address
 * cannot be opened, or memory is out. */
char *rsh_objects_identity(const char *url,
			   const struct rsh_objects_options *opts);

/* Returns the address without user, password, query and trailing slashes. */
const char *rsh_objects_url(const struct rsh_objects *o);

/* ---- what a sandbox has to allow, known after rsh_objects_open() ---- */

/* Calls fn for each file with certificates or credentials that may be read
 * later, except those by which libc resolves names. */
void rsh_objects_each_file(const struct rsh_objects *o,
			   void (*fn)(void *ctx, const char *path), void *ctx);
/* Opens files by their present names outside the sandbox, in which a file that
 * was renamed into place later cannot be opened: `open` returns a descriptor or
 * -errno, and is given a path of rsh_objects_each_file().  `look_up` does what
 * rsh_objects_look_up() does.  Call this before the first request. */
struct rsh_objects_opener {
	int (*open)(void *ctx, const char *path);
	int (*look_up)(void *ctx, const char *host, char *to, size_t size);
	void *ctx;
};
void rsh_objects_set_opener(struct rsh_objects *o,
			    const struct rsh_objects_opener *opener);
/* Writes the addresses of a host, separated by commas.  Returns 0, or -errno if
 * the name is unknown. */
int rsh_objects_look_up(const char *host, char *to, size_t size);
/* Puts the TCP ports that may be connected to into ports[max] and returns their
 * number; 0 means any port, as with a proxy. */
size_t rsh_objects_ports(const struct rsh_objects *o, uint16_t *ports,
			 size_t max);

/* ---- the listing ---- */

/* Lists the objects below the address whose names begin with `prefix` (NULL:
 * all).  An S3 server needs one request for each 1,000 objects.  Keys that end
 * in a slash, or have an empty, "." or ".." component, are left out.  Names are
 * those below the address, without a slash at their begin, and sorted as
 * strcmp() compares.  The caller clears the listing.  Returns 0 or -errno (see
 * rsh_objects_read()) with a sentence; -ENOENT if there are no objects. */
int rsh_objects_list(struct rsh_objects *o, const char *prefix,
		     struct rsh_object_listing *out, struct rsh_error *err);
/* Does the same for the single object with that name; "": the address itself.
 * -ENOENT: there is none.  This takes one request. */
int rsh_objects_list_single(struct rsh_objects *o, const char *name,
			    struct rsh_object_listing *out,
			    struct rsh_error *err);

/* ---- bytes ---- */

/* [offset, offset + sum of the vectors) of an object of a listing. */
struct rsh_object_range {
	const struct rsh_object *object;
	uint64_t offset;
	const struct iovec *iov;
	int n;
};

/* Reads a range, which must be within the size of the object.  `deadline` is a
 * time of rsh_clock_ns() at which it returns; 0: timeout_ms after the call, or
 * after the last progress of this read or of reads that it waits for, at most
 * five times as long.  Any thread may call this.  Returns 0 if all bytes were
 * read, or, with a sentence in err unless that is NULL,
 *
 *   -EREMCHG    the object is not the one that was listed
 *   -ENOENT     it was removed
 *   -EACCES     access denied
 *   -ETIMEDOUT  no answer until the deadline
 *   -EIO        the answer is wrong: range, length, status
 *   -ECONNREFUSED, -EHOSTUNREACH, -EPROTO (TLS), -EINVAL, -ENOMEM
 */
int rsh_objects_read(struct rsh_objects *o, const struct rsh_object_range *r,
		     uint64_t deadline, struct rsh_error *err);

struct rsh_objects_stats {
	uint64_t requests, retries; /* all requests; those that are retries */
	uint64_t bytes;             /* bytes of bodies */
	uint64_t connections;       /* connections that were opened */
};
void rsh_objects_stats_get(const struct rsh_objects *o,
			   struct rsh_objects_stats *out);
