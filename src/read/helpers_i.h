/* SPDX-License-Identifier: Apache-2.0 */
/* read/helpers_i.h - threads that help with a read of a source with a long
 * latency, where most of the time is spent waiting.  Only this directory
 * includes it. */
#pragma once

#include <stdatomic.h>
#include <stddef.h>

#include "rsh/util/thread.h"

/* There are at most RSH_READ_HELPERS threads.  If all bytes are zero, none is
 * running. */
struct rsh_helpers {
	atomic_uint n;
};

/* Runs n pieces of work, like rsh_parallel_for(), by this thread and, if
 * possible, by helpers.  Each helper reads on behalf of this thread.  Returns 0
 * or the first -errno of a piece. */
int rsh_helpers_run(struct rsh_helpers *h, size_t n, rsh_parallel_work *work,
		    void *ctx);
