/* SPDX-License-Identifier: Apache-2.0 */
/* read/record_loader.h reads many ranges of records straight to where their
 * reader wants them, by several threads: no file is put together, and headers
 * are left out.
 *
 * What holds for reads of bodies (read/body.h) holds here: replicas stand in
 * for files that fail, and no byte of a source file that changed is given.
 */
#ifndef RSH_READ_RECORD_LOADER_H
#define RSH_READ_RECORD_LOADER_H

#include "rsh/read/body.h"

/* Bytes [offset, offset+bytes) of the content of a record, all of which it has,
 * and where they are wanted.  Destinations do not overlap. */
struct rsh_want {
	uint32_t file, record; /* as the plan counts them */
	uint64_t offset, bytes;
	uint8_t *to;
};

struct rsh_records_load_options {
	unsigned threads; /* 0: as many as pays */
	/* NULL, or called by the thread that called rsh_records_load() and no
	 * other, every 50 ms or so and once at the end; what is not 0 cancels.
	 */
	int (*progress)(void *ctx, uint64_t done, uint64_t all);
	void *ctx;
};

/* Says which want could not be had, and from which byte of the record on. */
struct rsh_records_load_failure {
	const struct rsh_want *want; /* NULL: it was no want's fault */
	uint64_t offset;
};

/* Loads the n wants.  When it returns none of its threads is left.  Any thread
 * may call it.  Returns 0; -ECANCELED; or -errno as reads of a body, and which
 * want it was.  What the destinations hold after a failure is undefined. */
int rsh_records_load(const struct rsh_reader *r, const struct rsh_want *wants,
		     size_t n, const struct rsh_records_load_options *o,
		     struct rsh_records_load_failure *failure);

#endif
