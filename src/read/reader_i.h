/* SPDX-License-Identifier: Apache-2.0 */
/* read/reader_i.h - the parts of a reader; only this room includes it.  Any thread may
 * call these functions. */
#ifndef RSH_READ_READER_I_H
#define RSH_READ_READER_I_H

#include <stdatomic.h>

#include "gather_i.h"
#include "load_limit_i.h"

struct rsh_reader {
	const struct rsh_plan *plan;
	struct rsh_source *source;
	struct rsh_reader_options options;
	struct rsh_tiles *tiles;
	struct rsh_gathers *gathers;
	struct rsh_loading *loading;
};

/* Shared by all loads of records of a reader (record_loader.c). */
struct rsh_loading {
	pthread_mutex_t lock; /* guards all of it, and the state of each load;
			       * not held while anything is read */
	struct rsh_load_limit loads;
	unsigned blocked; /* of RSH_BLOCKED_ONE: how many tasks sleep */
};

/* Returns whether the file needs lost slices, after it has called tell_lost(): then it must
 * not be read. */
bool rsh_reader_is_lost(const struct rsh_reader *r, uint32_t file);

/* The attempts of a read, each without the files that have failed so far if replicas are
 * used.  (struct rsh_attempts retries one file in an outage; here the pieces are planned
 * again from other files, so the two loops cannot be one.)
 *
 *	struct rsh_reader_attempts a = { 0 };
 *
 *	while (rsh_reader_attempt(r, &a))
 *		a.rc = ...;
 *	return a.rc;
 *
 * The pieces are planned with `avoid` and read by rsh_reader_gather().  `rc` is 0 or
 * -errno. */
struct rsh_reader_attempts {
	const atomic_bool *avoid; /* NULL: the last attempt, with all files */
	int rc;
	/* The rest is private. */
	unsigned n, marks;
};
/* Returns false after a successful attempt, or when nothing else can be tried. */
bool rsh_reader_attempt(const struct rsh_reader *r,
			struct rsh_reader_attempts *a);
struct rsh_gather *rsh_reader_gather(const struct rsh_reader *r,
				     const struct rsh_reader_attempts *a,
				     const struct rsh_wait *wait);

#endif
