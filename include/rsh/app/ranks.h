/* SPDX-License-Identifier: Apache-2.0 */
/* app/ranks.h reads operands that name ranks, "3" or "4-7", for
 * commands. */
#ifndef RSH_APP_RANKS_H
#define RSH_APP_RANKS_H

#include "rsh/app/options.h"
#include "rsh/plan/plan.h"

/* Checks that the operands from number `skip` on are ranks.  Returns 0, or
 * -EINVAL with a sentence. */
int rsh_ranks_check(const struct rsh_options *o, unsigned skip,
		    struct rsh_error *err);
/* Marks in wanted[0..n) the ranks that the operands from number `skip` on name,
 * or all ranks if there are no such operands.  Returns 0, or -EINVAL with a
 * sentence if a rank does not exist. */
int rsh_ranks_mark(const struct rsh_options *o, unsigned skip, uint32_t n,
		   bool *wanted, struct rsh_error *err);
/* Marks the files of the ranks that the operands from number `skip` on name, in
 * an array by the files of a plan.  The caller owns the array (from malloc).
 * Returns 0, -EINVAL or -ENOMEM with a sentence. */
int rsh_ranks_mark_files(const struct rsh_options *o, unsigned skip,
			 const struct rsh_plan *plan, bool **wanted,
			 struct rsh_error *err);

#endif
