/* SPDX-License-Identifier: Apache-2.0 */
/* read/reader_i.h has the inside of a reader, which body.c makes, and what its
 * ways of reading share; for this room only.  Any thread may call all. */
#ifndef RSH_READ_READER_I_H
#define RSH_READ_READER_I_H

#include <stdatomic.h>

#include "gather_i.h"
#include "loads_i.h"

struct rsh_reader {
	const struct rsh_plan *plan;
	struct rsh_source *source;
	struct rsh_reader_options options;
	struct rsh_tiles *tiles;
	struct rsh_gathers *gathers;
	struct rsh_loading *loading;
};

/* What all loads of a reader share (load.c). */
struct rsh_loading {
	pthread_mutex_t lock; /* guards all of it, and the state of each load;
			       * not held while anything is read */
	struct rsh_loads loads;
	unsigned blocked; /* of RSH_BLOCKED_ONE: how many tasks sleep */
};

/* Does the file need lost slices?  Then whoever wants to know is told, and it
 * must not be read. */
bool rsh_reader_is_lost(const struct rsh_reader *r, uint32_t file);

/* Reads something once.  The pieces are to be asked for with `avoid`, and read
 * by rsh_reader_gather().  Returns 0 or -errno. */
typedef int rsh_reader_walk_fn(const struct rsh_reader *r, void *ctx,
			       const atomic_bool *avoid);
/* Calls walk() until it goes well or nothing else can be tried: files that fail
 * are avoided, if the reader takes replicas.  Returns 0 or what walk() said. */
int rsh_reader_walk(const struct rsh_reader *r, rsh_reader_walk_fn *walk,
		    void *ctx);
struct rsh_gather *rsh_reader_gather(const struct rsh_reader *r,
				     const atomic_bool *avoid);

#endif
