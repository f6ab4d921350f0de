/* SPDX-License-Identifier: Apache-2.0 */
/* plan/policy.h - the functions by which a policy controls the writer of plans.
 * The policy decides which tensors a stage shows, which records the file of a
 * rank has and in which order, and which records are copied from one source
 * file.
 *
 * The writer makes every plan (except that of --resume, which shows whole
 * files).  It applies the name filter, iterates over stages and ranks, removes
 * redundancy, adds files and finishes the plan.  There are two policies: that
 * of writer.h shows the offers of a format; that of plan/conversion.h does
 * what MindSpore's converter does with rank files.
 */
#pragma once

#include "rsh/plan/blueprint.h"
#include "rsh/plan/name_filter.h"
#include "rsh/plan/options.h"
#include "rsh/strategy/grid.h"
#include "rsh/strategy/strategy.h"

/* The state of the writer.  A policy reads it, and sets `shown`. */
struct rsh_writer_state {
	struct rsh_catalogue *cat;
	struct rsh_plan *plan;
	const struct rsh_name_filter *filter;
	const struct rsh_plan_options *o;
	/* [name]: the tensor that the plan shows to the ranks of the current
	 * stage; RSH_COPIED, as at the beginning of each stage: none. */
	uint32_t *shown;
};

/* The names of a file's records, in order; the policy owns them. */
struct rsh_file_names {
	const uint32_t *names;
	uint32_t n;
	bool added; /* the policy has added the file itself */
};

/* Functions that return int return 0 or -errno with a message; `ctx` is the
 * first argument of each. */
struct rsh_policy {
	void *ctx;
	/* The plan calls these until it is freed, with a ctx of its own. */
	struct rsh_plan_ops ops;
	/* The writer fills the filter; ops.free() clears it. */
	struct rsh_name_filter *filter;
	const uint32_t *names; /* that are filtered; NULL: all */
	uint32_t n_names;      /* length of `names` */
	uint32_t n_stages;     /* of the destination */
	uint32_t stage_ranks;
	/* The writer calls this once after it has filled the filter.  May be
	 * NULL. */
	int (*begin)(void *ctx, struct rsh_writer_state *w,
		     struct rsh_error *err);
	/* Shows the tensors of a stage (w->shown). */
	int (*stage)(void *ctx, uint32_t stage, struct rsh_error *err);
	/* Returns whether redundancy removal applies to a parameter of the
	 * destination in this stage. */
	bool (*is_deduplicated)(void *ctx, uint32_t stage,
			 const struct rsh_strategy_param *p);
	/* Gives the names that a file may have; each is shown or copied. */
	int (*file)(void *ctx, struct rsh_shown_file *f,
		    struct rsh_file_names *out, struct rsh_error *err);
	/* The writer calls this for each record of a file.  It fills the shape
	 * of a copied record (the writer has filled the shape of a shown one),
	 * and sets *taken to false to leave the record out.  NULL: no record is
	 * copied or left out. */
	int (*record)(void *ctx, struct rsh_shown_file *f, uint32_t name,
		      struct rsh_record_shape *shape, bool *taken,
		      struct rsh_error *err);
	/* Adds notes to the finished plan.  0 or -ENOMEM. */
	int (*end)(void *ctx);
};

/* Plans the files of every rank of `dst`, which must outlive the plan; NULL: a
 * whole model.  Takes over the catalogue and what ops.free() frees, also on
 * failure.  0, or -errno with a message: an error of the policy, -EFBIG for a
 * file larger than files can be, -ENOTSUP for a parameter that the file's
 * format cannot hold, -ENOENT for slices that no file holds. */
int rsh_write_plan_by(struct rsh_catalogue *cat,
			const struct rsh_policy *policy,
			const struct rsh_strategy *dst,
			const struct rsh_plan_options *opts,
			struct rsh_plan **out, struct rsh_error *err);

/* Makes the cut of a layout, which the catalogue owns, and sets the sizes of
 * the whole tensor.  A NULL layout means one rank with the whole tensor.
 * Returns what rsh_item_cut() does. */
int rsh_layout_cut(struct rsh_catalogue *cat,
		   const struct rsh_strategy_item *item,
		   const struct rsh_grid_sizes *sizes, enum rsh_grid_rule rule,
		   const struct rsh_cut **out, uint64_t *whole,
		   struct rsh_error *err);
