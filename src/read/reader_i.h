/* SPDX-License-Identifier: Apache-2.0 */
/* read/reader_i.h has the inside of a reader, which body.c makes, and what its
 * ways of reading share; for this room only.  Any thread may call all. */
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

/* What all loads of a reader share (record_loader.c). */
struct rsh_loading {
	pthread_mutex_t lock; /* guards all of it, and the state of each load;
			       * not held while anything is read */
	struct rsh_load_limit loads;
	unsigned blocked; /* of RSH_BLOCKED_ONE: how many tasks sleep */
};

/* Does the file need lost slices?  Then whoever wants to know is told, and it
 * must not be read. */
bool rsh_reader_is_lost(const struct rsh_reader *r, uint32_t file);

/* These are the attempts to read something, each without the files that have
 * failed so far if the reader takes replicas:
 *
 *	struct rsh_reader_attempts a = { 0 };
 *
 *	while (rsh_reader_attempt(r, &a))
 *		a.rc = ...;
 *	return a.rc;
 *
 * The pieces are to be asked for with `avoid`, and read by rsh_reader_gather().
 * `rc` is 0 or -errno. */
struct rsh_reader_attempts {
	const atomic_bool *avoid; /* NULL: the last attempt, with all files */
	int rc;
	/* The rest is the reader's. */
	unsigned n, marks;
};
/* Returns false when an attempt has gone well or nothing else can be tried. */
bool rsh_reader_attempt(const struct rsh_reader *r,
			struct rsh_reader_attempts *a);
struct rsh_gather *rsh_reader_gather(const struct rsh_reader *r,
				     const struct rsh_reader_attempts *a,
				     const struct rsh_wait *wait);

#endif
