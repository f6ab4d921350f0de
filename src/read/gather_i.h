/* SPDX-License-Identifier: Apache-2.0 */
/* read/gather_i.h offers to read many pieces of a source's files together; it
 * is for this room only. */
#ifndef RSH_READ_GATHER_I_H
#define RSH_READ_GATHER_I_H

#include <stdbool.h>

#include "rsh/plan/plan.h"
#include "rsh/read/body.h"
#include "rsh/source/source.h"
#include "tiles_i.h"

/* The gathers have what requests gather with, and keep it for the next
 * requests. */
struct rsh_gathers;

/* The source and its tiles have to outlive the gathers.  With `far` a read of it
 * waits longer than it reads, so that all of a request go out at once.  Returns
 * 0 or -ENOMEM. */
int rsh_gathers_new(struct rsh_source *s, struct rsh_tiles *tiles, bool far,
		    struct rsh_gathers **out);
void rsh_gathers_free(struct rsh_gathers *all);

/* What is gathered together: neighbouring runs of one source file are read in
 * one request and scattered; what comes from tiles is copied from these. */
struct rsh_gather;

/* Files that cannot be reached are waited for as `wait` says (storage/store.h),
 * which has to stay until the end.  Any thread may call this, and then goes on
 * alone with what it got.  Returns NULL if memory is out. */
struct rsh_gather *rsh_gather_begin(struct rsh_gathers *all,
				    const struct rsh_wait *wait);
/* Adds what the iterator's pieces stand for, in order; `len` is their total.
 * The target has to stay until the end; only the first one may have an area.
 * Returns 0 or -errno. */
int rsh_gather_add(struct rsh_gather *g, struct rsh_piece_iter *it,
		   struct rsh_target *to, size_t len);
/* Reads what has not been read yet, unless rc is an error, with which
 * everything is given up.  Returns 0 or -errno: of an error nobody can say
 * which of the targets it befell. */
int rsh_gather_end(struct rsh_gathers *all, struct rsh_gather *g, int rc);

#endif
