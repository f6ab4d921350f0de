/* SPDX-License-Identifier: Apache-2.0 */
/* read/reader_i.h - the parts of a reader; only this directory includes it.
 * Any thread may call these functions. */
#pragma once

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

/* All loads of records of a reader share this (record_loader.c). */
struct rsh_loading {
	/* guards all of it, and the state of each load; not held while anything
	 * is read */
	pthread_mutex_t lock;
	struct rsh_load_limit loads;
	unsigned blocked; /* mean of tasks that sleep, of RSH_BLOCKED_ONE */
};

/* Returns whether the file needs lost slices, after calling tell_lost().  Such
 * a file must not be read. */
bool rsh_reader_is_lost(const struct rsh_reader *r, uint32_t file);

/* These are the attempts of a read.  If replicas are used, each attempt is made
 * without the files that have failed so far.  (struct rsh_attempts retries one
 * file in an outage.  Here the pieces are planned again from other files, so
 * the two loops cannot be one.)
 *
 *	struct rsh_reader_attempts a = { 0 };
 *
 *	while (rsh_reader_attempt(r, &a))
 *		a.rc = ...;
 *	return a.rc;
 *
 * The pieces are planned with `avoid` and read by rsh_reader_gather(). `rc` is
 * 0 or -errno. */
struct rsh_reader_attempts {
	/* NULL: the last attempt, which uses all files */
	const atomic_bool *avoid;
	int rc;
	/* The members below are private. */
	unsigned n, marks;
};
/* Returns false after a successful attempt, or if no other attempt is
 * possible. */
bool rsh_reader_attempt(const struct rsh_reader *r,
			struct rsh_reader_attempts *a);
struct rsh_gather *rsh_reader_gather(const struct rsh_reader *r,
				     const struct rsh_reader_attempts *a,
				     const struct rsh_wait *wait);
