/* SPDX-License-Identifier: Apache-2.0 */
/* util/parallel.h - threads that share a list of things to do, for loads of
 * many files.  Each call starts and joins threads of its own, so any thread may
 * call. */
#ifndef RSH_UTIL_PARALLEL_H
#define RSH_UTIL_PARALLEL_H

#include <stddef.h>

#include "rsh/util/error.h"

/* Does thing number i.  Returns 0, or -errno with a sentence.  Several threads
 * of the crew call it at once, each with another i. */
typedef int rsh_parallel_work(void *ctx, size_t i, struct rsh_error *err);

/* Runs work(ctx, i) for all i below n, begun in ascending order, by at most
 * n_threads threads (0: as many as there are processors).  The caller's thread
 * is one of them.  A failure stops the crew: what is under way is finished, and
 * nothing else begun.  Returns 0, or what the first failure returned, with its
 * sentence in err, which must not be NULL. */
int rsh_parallel_for(unsigned n_threads, size_t n, rsh_parallel_work *work,
		     void *ctx, struct rsh_error *err);

#endif
