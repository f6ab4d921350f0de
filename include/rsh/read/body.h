/* SPDX-License-Identifier: Apache-2.0 */
/* read/body.h offers the body of a virtual file to whoever reads it: its bytes,
 * wherever they come from.
 *
 * There are two kinds.  The bytes of a file of a plan lie in the files of a
 * source, and a reader puts them together; other files are texts.  Whoever
 * reads a body need not know which it is.  A body is a plain value and owns
 * nothing: what it reads from has to outlive it.
 *
 * Threads: any thread may read any body.  Errors are -errno.
 */
#ifndef RSH_READ_BODY_H
#define RSH_READ_BODY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "rsh/plan/plan.h"
#include "rsh/source/source.h"

/* Says where bytes are read to.  If `area` is NULL, that is `data`.  Otherwise
 * it is any place in the page that begins at `area` and after it, where there
 * has to be room for RSH_PLACE_MAX bytes more than are read; the place is
 * chosen so that copies from and to it are fast (util/place.h), and `data` is
 * set to it.  Files that cannot be reached are waited for as `wait` says
 * (storage/store.h). */
struct rsh_target {
	uint8_t *area;
	uint8_t *data;
	const struct rsh_wait *wait;
};

struct rsh_body {
	uint64_t size;
	/* Reads bytes [offset, offset+len), all of which the file has.  Returns
	 * 0 or -errno. */
	int (*read)(const struct rsh_body *b, struct rsh_target *to,
		    size_t len, uint64_t offset);
	/* Only `read` looks at these two. */
	const void *of;
	uint32_t file;
};

/* Reads bytes [offset, offset+len) of the file, cut at its end.  Returns the
 * number of bytes written to buf, or -errno. */
ssize_t rsh_body_read(const struct rsh_body *b, void *buf, size_t len,
		      uint64_t offset);

struct rsh_body rsh_body_of_text(const char *text, uint64_t size);

/* ---- files of a plan ---- */

/* Puts the files of a plan together from those of a source. */
struct rsh_reader;

/* From far away so many threads help those who read a source, at most. */
#define RSH_READ_HELPERS 64

struct rsh_reader_options {
	/* True: what a file that fails was to give is read from its
	 * replicas. */
	bool replicas;
	/* Is called before a read of a file fails because slices that it needs
	 * are lost; a plan that has lost nothing needs none. */
	void (*tell_lost)(void *ctx, uint32_t file);
	void *ctx;
};

/* The plan and the source have to outlive the reader.  Returns 0 or -ENOMEM. */
int rsh_reader_new(const struct rsh_plan *p, struct rsh_source *s,
		   const struct rsh_reader_options *o, struct rsh_reader **out);
/* No read may be running when the reader is freed. */
void rsh_reader_free(struct rsh_reader *r);
struct rsh_body rsh_body_of_plan(const struct rsh_reader *r, uint32_t file);

#endif
