/* SPDX-License-Identifier: Apache-2.0 */
/* formats/ranks.h - the reader of rank files, and of a model in one file or in
 * parts, for the general writer: every tensor that the files hold, whole, with
 * the cut that the source's strategy says.
 *
 * What MindSpore's converter would do of it is of no concern here; see
 * converter/conversion.h for that.
 */
#ifndef RSH_FORMATS_RANKS_H
#define RSH_FORMATS_RANKS_H

#include "rsh/plan/writer.h"
#include "rsh/source/format.h"
#include "rsh/strategy/grid.h"
#include "rsh/strategy/strategy.h"
#include "rsh/util/arena.h"

struct rsh_ranks_options {
	enum rsh_grid_rule rule; /* where the optimizer's shards lie */
	bool replicas;           /* ranks that hold the same make up for each
				  * other */
	bool allow_missing;      /* parameters of a stage without any file are
				  * left out, with a warning */
};

/* Makes the catalogue and an offer for each tensor, in the order in which files
 * have them, lower ranks first.  Records that the strategy does not list are
 * whole, and so are all of them without a strategy; then all files have to
 * agree.  Strings are no tensors and left out, which the log says.  Slices that
 * no file holds are found out by the plan that needs them.
 *
 * The catalogue is the caller's, and the offers live as long as it and `arena`
 * do; rsh_write_plan() leaves it alive, as part of the plan.  0, or -errno with
 * a sentence that names file and parameter: -EINVAL for files that contradict
 * the strategy or each other, -ENOENT for a parameter none of whose ranks has a
 * file, or where nothing is left to be offered. */
int rsh_ranks_read(const struct rsh_source_view *view,
		   const struct rsh_strategy *src,
		   const struct rsh_ranks_options *opts,
		   struct rsh_arena *arena, struct rsh_offers *out,
		   struct rsh_error *err);

/* These are the members `read` and `plan` of formats whose records have the
 * parameters' names: rsh_ranks_read(), and what MindSpore's converter would
 * do. */
int rsh_ranks_offer(const struct rsh_read_job *job, struct rsh_offers *out,
		    struct rsh_error *err);
int rsh_ranks_plan(const struct rsh_read_job *job, struct rsh_plan **out,
		   struct rsh_error *err);

#endif
