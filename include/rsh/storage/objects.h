/* SPDX-License-Identifier: Apache-2.0 */
/* storage/objects.h - objects behind HTTP, read in ranges: S3 and what speaks
 * it, and plain servers that have a file which names their files.
 *
 *   s3://BUCKET/PREFIX       asked for a listing, requests are signed
 *   https://HOST/PATH/       an index file names what lies there (below)
 *
 *   rsh_objects_open()       environment, credentials, no network, no thread
 *   rsh_objects_list()       what lies there: names, sizes, identities
 *   rsh_objects_read()       ranges of them, by many threads at once
 *   rsh_objects_free()
 *
 * Identity: each range is asked for with If-Match, and the answer's ETag, range
 * and size are held against the listing, so that bytes of two objects are never
 * mixed.  What goes wrong on the way is tried again until the deadline, from
 * the byte where it broke off.
 *
 * Requests run on a thread of the room's own, which the first one starts: it
 * blocks all signals.  A reader sleeps until its bytes are there.
 *
 * Secrets are kept in memory that no core file has, are wiped when they are
 * given up, and stand in no sentence.
 */
#ifndef RSH_STORAGE_OBJECTS_H
#define RSH_STORAGE_OBJECTS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/uio.h>
#include <time.h>

#include "rsh/util/error.h"

struct rsh_objects;

/* How a bucket stands in addresses. */
enum rsh_objects_style {
	RSH_OBJECTS_STYLE_AUTO, /* as the profile says, or host at clouds that
				 * want it, or path */
	RSH_OBJECTS_STYLE_PATH, /* https://ENDPOINT/BUCKET/KEY */
	RSH_OBJECTS_STYLE_HOST, /* https://BUCKET.ENDPOINT/KEY */
};

/* What requests are signed with. */
enum rsh_objects_keys {
	/* Keys of the environment or a profile; a service of credentials is
	 * asked only if the environment names its endpoint. */
	RSH_OBJECTS_KEYS_AUTO,
	RSH_OBJECTS_KEYS_NONE, /* nothing is signed */
	/* The machine's metadata service is asked where nothing else has
	 * any. */
	RSH_OBJECTS_KEYS_INSTANCE,
};

/* Zeroes and NULLs mean what is said of each; all texts are copied. */
struct rsh_objects_options {
	/* NULL: AWS_ENDPOINT_URL_S3, AWS_ENDPOINT_URL, endpoint_url of s3 in
	 * the section of services that the profile names, endpoint_url of the
	 * profile, or Amazon's of the region. */
	const char *endpoint;
	char *user, *query;  /* what rsh_objects_hide() took out of the address,
			      * besides what stands there */
	const char *region;  /* NULL: AWS_REGION, AWS_DEFAULT_REGION, profile,
			      * us-east-1 */
	const char *profile; /* NULL: AWS_PROFILE; one that is named here comes
			      * before keys of the environment */
	enum rsh_objects_style style;
	enum rsh_objects_keys keys;
	const char *ca_file; /* NULL: AWS_CA_BUNDLE, SSL_CERT_FILE, or the
			      * system's */
	const char *index;   /* http(s): the index file, below the address;
			      * NULL: model.safetensors.index.json, or else
			      * model.safetensors alone */
	unsigned requests;   /* under way at once; 0: RSH_OBJECTS_REQUESTS */
	unsigned stall_ms;   /* a request without a byte for so long is begun
			      * anew; 0: 5,000 */
	unsigned timeout_ms; /* of a listing's request, and of reads without a
			      * deadline while nothing comes; 0: 60,000 */
};

#define RSH_OBJECTS_REQUESTS 64

/* Returns whether `place` is an address of object storage, not a path; also in a build
 * without object storage. */
static inline bool rsh_objects_is_url(const char *place)
{
	return strncmp(place, "s3://", 5) == 0 ||
	       strncmp(place, "http://", 7) == 0 ||
	       strncmp(place, "https://", 8) == 0;
}

/* Takes out of an address what may be secret, a name with a password and, of one
 * of HTTP, a query, and leaves the rest where it lies; *opts has these then, in secret
 * memory, until rsh_objects_options_clear() gives them up.  Another text stays
 * as it is.  0 or -ENOMEM. */
int rsh_objects_hide(char *url, struct rsh_objects_options *opts);
void rsh_objects_options_clear(struct rsh_objects_options *opts);

/* Opens an address.  It reads the environment and the files that this names,
 * and does nothing else.  The object is the caller's; `opts` may be NULL, which
 * is the same as zeroes.  0; -EINVAL for an address
 * or option that cannot be, -ENOENT for a profile that is not there, -ENOSYS
 * where the room was not built in, or another -errno, with a sentence. */
int rsh_objects_open(const char *url, const struct rsh_objects_options *opts,
		     struct rsh_objects **out, struct rsh_error *err);
/* No call may be running; o may be NULL. */
void rsh_objects_free(struct rsh_objects *o);

/* Gives the address without what may be secret in it (user, password, query)
 * and without slashes at its end. */
const char *rsh_objects_url(const struct rsh_objects *o);

/* ---- what a sandbox has to let through, known after rsh_objects_open() ---- */

/* Calls fn for each file that may be read later, of certificates and credentials
 * that are renewed, besides those by which libc looks up names. */
void rsh_objects_each_file(const struct rsh_objects *o,
			   void (*fn)(void *ctx, const char *path), void *ctx);
/* Puts the TCP ports that may be connected to into ports[max] and returns how
 * many there are; 0 means any, as where a proxy stands between. */
size_t rsh_objects_ports(const struct rsh_objects *o, uint16_t *ports,
			 size_t max);

/* ---- the listing ---- */

struct rsh_object {
	const char *name; /* below the address, without a slash at its begin */
	uint64_t size;
	struct timespec mtime; /* Last-Modified; zero where nobody says */
	const char *etag; /* as the server has it, with its quotes; NULL: none */
};

struct rsh_objects_listing {
	struct rsh_object *objects; /* by name, as strcmp() compares */
	size_t n;
	void *owned; /* what the names lie in */
};

/* Lists what lies below the address, or of that what begins with `prefix` (NULL:
 * everything).  Of an S3 server that is a call for each 1,000 objects.  Keys
 * that end in a slash, and those with empty, "." or ".." components, are no
 * files and left out.  The listing is the caller's.  0 or -errno (see
 * rsh_objects_read()) with a sentence; -ENOENT where nothing lies there. */
int rsh_objects_list(struct rsh_objects *o, const char *prefix,
		     struct rsh_objects_listing *out, struct rsh_error *err);
void rsh_objects_listing_free(struct rsh_objects_listing *l);

/* ---- bytes ---- */

/* Reads [offset, offset + sum of the vectors) of an object of a listing, which
 * has to be within its size.  `deadline` is a time of rsh_clock_ns(), by which
 * it has returned; 0: timeout_ms from now on, and again from when the source
 * last got on with this, or with what this waits for, up to five times that.
 * Any thread may call this, any number at once.  0 with all bytes read, or, with
 * a sentence in err unless that is NULL,
 *
 *   -EREMCHG    the object is not the one that was listed
 *   -ENOENT     it is gone
 *   -EACCES     the server does not let us
 *   -ETIMEDOUT  no answer came until the deadline
 *   -EIO        the answer is wrong: range, length, status
 *   -ECONNREFUSED, -EHOSTUNREACH, -EPROTO (TLS), -EINVAL, -ENOMEM */
int rsh_objects_read(struct rsh_objects *o, const struct rsh_object *object,
		     uint64_t offset, const struct iovec *iov, int n,
		     uint64_t deadline, struct rsh_error *err);

struct rsh_objects_stats {
	uint64_t requests, retries; /* sent; of these not the first of a call */
	uint64_t bytes;             /* of bodies */
	uint64_t connections;       /* made */
};
void rsh_objects_stats_get(const struct rsh_objects *o,
			   struct rsh_objects_stats *out);

#endif
