/* SPDX-License-Identifier: Apache-2.0 */
/* app/ranks.h reads operands that name ranks, "3" or "4-7", for
 * commands. */
#ifndef RSH_APP_RANKS_H
#define RSH_APP_RANKS_H

#include "rsh/app/options.h"
#include "rsh/plan/plan.h"

/* Checks that operands number `skip` and up are ranks.  Returns 0, or -EINVAL
 * with a sentence. */
int rsh_ranks_check(const struct rsh_options *o, unsigned skip,
		    struct rsh_error *err);
/* Marks in wanted[0..n) the ranks that those operands name, or all if there are
 * no such operands.  Returns 0, or -EINVAL with a sentence if there is no such
 * rank. */
int rsh_ranks_mark(const struct rsh_options *o, unsigned skip, uint32_t n,
		   bool *wanted, struct rsh_error *err);
/* Likewise marks the files of these ranks in an array by the files of a plan,
 * which is the caller's (from malloc).  Also returns -ENOMEM. */
int rsh_ranks_mark_files(const struct rsh_options *o, unsigned skip,
			 const struct rsh_plan *plan, bool **wanted,
			 struct rsh_error *err);

#endif
