/* SPDX-License-Identifier: Apache-2.0 */
/* util/crew.h - threads that share a list of things to do. */
#ifndef RSH_UTIL_CREW_H
#define RSH_UTIL_CREW_H

#include <stddef.h>

#include "rsh/util/error.h"

/* Thing number i; 0, or -errno with a sentence.  Any thread. */
typedef int rsh_crew_work(void *ctx, size_t i, struct rsh_error *err);

/* Runs work(ctx, i) for all i below n, in ascending order, by so many threads,
 * of which the caller's is one (0: as many as there are processors), until one
 * fails.  0, or the first failure with its sentence. */
int rsh_crew_run(unsigned n_threads, size_t n, rsh_crew_work *work, void *ctx,
		 struct rsh_error *err);

#endif
