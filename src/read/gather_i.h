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

/* The source and its tiles have to outlive the gathers.  Returns 0 or
 * -ENOMEM. */
int rsh_gathers_new(struct rsh_source *s, struct rsh_tiles *tiles,
		    struct rsh_gathers **out);
void rsh_gathers_free(struct rsh_gathers *all);

/* Reads what the iterator's pieces stand for, in order; `len` is their total.
 * Neighbouring runs of one source file are read in one request and scattered;
 * what comes from tiles is copied from these.
 * With `wait` files that cannot be reached are waited for, as rsh_source_read()
 * does.  Returns 0 or -errno.  Any thread may call it, each with an iterator of
 * its own. */
int rsh_gather(struct rsh_gathers *all, struct rsh_piece_iter *it,
	       struct rsh_target *to, size_t len, bool wait);

#endif
