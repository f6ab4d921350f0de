/* SPDX-License-Identifier: Apache-2.0 */
/* read/gather_i.h reads many pieces of source files together.  It is for this
 * layer only. */
#pragma once

#include <stdbool.h>

#include "rsh/plan/plan.h"
#include "rsh/read/body.h"
#include "rsh/source/source.h"
#include "tiles_i.h"

/* The gathers of a reader: states and buffers, kept for the next requests. */
struct rsh_gathers;

/* The source and its tiles have to outlive the gathers.  `far`: the latency of
 * a read is longer than its transfer, so all reads of a request are sent at
 * once.  Returns 0 or -ENOMEM. */
int rsh_gathers_new(struct rsh_source *s, struct rsh_tiles *tiles, bool far,
		    struct rsh_gathers **out);
void rsh_gathers_free(struct rsh_gathers *all);

/* The pieces of a request.  Neighbouring runs of one source file are read in
 * one request and copied to their destinations.  Pieces of tiles are copied
 * from the tiles. */
struct rsh_gather;

/* `wait` says whether to wait for files that cannot be reached
 * (storage/store.h); it has to stay valid until the end.  Any thread may call
 * this; only this thread may use the result.  Returns NULL if memory is
 * exhausted. */
struct rsh_gather *rsh_gather_begin(struct rsh_gathers *all,
				    const struct rsh_wait *wait);
/* Adds the bytes of the iterator's pieces, in order; `len` is their total.  The
 * target has to stay valid until the end; only the first target may have an
 * area.  Returns 0 or -errno. */
int rsh_gather_add(struct rsh_gather *g, struct rsh_piece_iter *it,
		   struct rsh_target *to, size_t len);
/* Reads what has not been read yet, unless rc is an error, which drops all
 * pieces.  Returns 0 or -errno; an error does not say which target failed. */
int rsh_gather_end(struct rsh_gathers *all, struct rsh_gather *g, int rc);
