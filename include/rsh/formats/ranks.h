/* SPDX-License-Identifier: Apache-2.0 */
/* formats/ranks.h - reads rank files, and a model in one file or in parts, for
 * the general writer: every tensor in the files is offered whole, with the cut
 * that the source's strategy gives.
 *
 * It does not follow MindSpore's converter; see plan/conversion.h for
 * that. */
#pragma once

#include "rsh/plan/writer.h"
#include "rsh/source/format.h"
#include "rsh/strategy/grid.h"
#include "rsh/strategy/strategy.h"
#include "rsh/util/arena.h"

struct rsh_ranks_options {
	enum rsh_grid_rule rule; /* where the optimizer shards are */
	/* ranks with the same content replace each other */
	bool replicas;
	/* if a stage has no files, its parameters are left out, with a
	 * warning */
	bool allow_missing;
};

/* Makes the catalogue and an offer for each tensor, in the order of the files,
 * lower ranks first.  Records that are not in the strategy are whole.  Without
 * a strategy all are whole, and all files must agree.  Strings are not tensors;
 * they are left out, and this is logged.  The plan that needs a slice finds out
 * whether any file has it.
 *
 * The caller owns the catalogue.  The offers are valid as long as it and
 * `arena` are.  rsh_write_plan() keeps it as part of the plan.  Returns 0, or
 * -errno with a sentence that names file and parameter: -EINVAL if files
 * contradict the strategy or each other, -ENOENT if no rank of a parameter has
 * a file, or there is nothing to offer. */
int rsh_ranks_read(const struct rsh_source_view *view,
		   const struct rsh_strategy *src,
		   const struct rsh_ranks_options *opts,
		   struct rsh_arena *arena, struct rsh_offers *out,
		   struct rsh_error *err);

/* This is the member `read` of formats whose records have the parameters'
 * names. */
int rsh_ranks_offer(const struct rsh_read_job *job, struct rsh_offers *out,
		    struct rsh_error *err);
