/* SPDX-License-Identifier: Apache-2.0 */
/* read/record_loader.h - reads many ranges of records into the buffers of the
 * caller, by several threads, without headers.
 *
 * As for bodies (read/body.h), replicas replace files that failed, and no byte
 * of a source file that changed is returned.
 */
#pragma once

#include "rsh/read/body.h"

/* Bytes [offset, offset+bytes) of the content of a record, which are in the
 * record, and their destination.  Destinations must not overlap. */
struct rsh_want {
	uint32_t file, record; /* as the plan counts them */
	uint64_t offset, bytes;
	uint8_t *to;
};

struct rsh_records_load_options {
	unsigned threads; /* 0: chosen automatically */
	/* NULL, or called in the thread of rsh_records_load(), about every 50
	 * ms and once at the end; a result other than 0 cancels. */
	int (*progress)(void *ctx, uint64_t done, uint64_t all);
	void *ctx;
};

/* The want that failed, and the offset in the record. */
struct rsh_records_load_failure {
	const struct rsh_want *want; /* NULL: no particular one */
	uint64_t offset;
};

/* Loads the n wants.  All of its threads have ended when it returns.  Any
 * thread may call it.  Returns 0, -ECANCELED, or -errno like reads of a body,
 * with *failure set.  After a failure the destinations are undefined. */
int rsh_records_load(const struct rsh_reader *r, const struct rsh_want *wants,
		     size_t n, const struct rsh_records_load_options *o,
		     struct rsh_records_load_failure *failure);
