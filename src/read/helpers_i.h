/* SPDX-License-Identifier: Apache-2.0 */
/* read/helpers_i.h - threads that help those who read, from far away, where a
 * read waits longer than it reads; for this room only. */
#ifndef RSH_READ_HELPERS_I_H
#define RSH_READ_HELPERS_I_H

#include <stdatomic.h>
#include <stddef.h>

#include "rsh/util/thread.h"

/* There are RSH_READ_HELPERS of them at most.  Zero: none is at work. */
struct rsh_helpers {
	atomic_uint n;
};

/* Does n things, as rsh_parallel_for(), by this thread and as many helpers as
 * there is use for, if there are: each of them reads as if it were this thread.
 * Returns 0 or the first -errno of a thing. */
int rsh_helpers_run(struct rsh_helpers *h, size_t n, rsh_parallel_work *work,
		    void *ctx);

#endif
