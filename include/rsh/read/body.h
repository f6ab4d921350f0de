/* SPDX-License-Identifier: Apache-2.0 */
/* read/body.h - the body (content) of a virtual file.
 *
 * There are two kinds: files of a plan, which a reader assembles from the files
 * of a source, and texts.  A body is a plain value and owns nothing: what it
 * reads from has to outlive it.
 *
 * Threads: any thread may read any body.  Errors are -errno.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "rsh/plan/plan.h"
#include "rsh/source/source.h"

/* Where bytes are read to: `data` if `area` is NULL.  Otherwise the read
 * chooses a place in the first page of `area`, so that copies from and to it
 * are fast (util/place.h), and sets `data`; `area` has room for RSH_PLACE_MAX
 * bytes more than are read.  `wait`: whether to wait for files that cannot be
 * reached (storage/store.h). */
struct rsh_target {
	uint8_t *area;
	uint8_t *data;
	const struct rsh_wait *wait;
};

struct rsh_body {
	uint64_t size;
	/* Reads bytes [offset, offset+len), which are in the file.  Returns 0
	 * or -errno. */
	int (*read)(const struct rsh_body *b, struct rsh_target *to,
		    size_t len, uint64_t offset);
	/* Only `read` uses these two. */
	const void *of;
	uint32_t file;
};

/* Reads bytes [offset, offset+len) of the file, cut at its end.  Returns the
 * number of bytes written to buf, or -errno. */
ssize_t rsh_body_read(const struct rsh_body *b, void *buf, size_t len,
		      uint64_t offset);

struct rsh_body rsh_body_of_text(const char *text, uint64_t size);

/* ---- files of a plan ---- */

/* Assembles the files of a plan from those of a source. */
struct rsh_reader;

/* The most threads that read object storage for other threads. */
#define RSH_READ_HELPERS 64

struct rsh_reader_options {
	/* True: replicas are read instead of a file that failed. */
	bool replicas;
	/* Called before a read of a file fails because slices are lost; NULL if
	 * the plan has no lost slices. */
	void (*tell_lost)(void *ctx, uint32_t file);
	void *ctx;
};

/* The plan and the source have to outlive the reader.  Returns 0 or -ENOMEM. */
int rsh_reader_new(const struct rsh_plan *p, struct rsh_source *s,
		   const struct rsh_reader_options *o, struct rsh_reader **out);
/* No read may be running when the reader is freed. */
void rsh_reader_free(struct rsh_reader *r);
struct rsh_body rsh_body_of_plan(const struct rsh_reader *r, uint32_t file);
