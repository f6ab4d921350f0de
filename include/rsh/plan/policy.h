/* SPDX-License-Identifier: Apache-2.0 */
/* plan/policy.h - what a kind of source has a say in where its files are
 * planned: which tensors a stage shows, which records a rank's file has and in
 * which order, and which of them are copied as they stand.
 *
 * The writer makes every plan: it asks the options of names, goes from stage to
 * stage and from rank to rank, deals replicas out, lays files out, and ends the
 * plan.  It asks a policy on the way.  Its own one takes what is offered
 * (writer.h); that of MindSpore's rank files is converter/conversion.h.
 */
#ifndef RSH_PLAN_POLICY_H
#define RSH_PLAN_POLICY_H

#include "rsh/plan/blueprint.h"
#include "rsh/plan/name_filter.h"
#include "rsh/plan/options.h"
#include "rsh/strategy/strategy.h"

/* This is a plan while it is made.  A policy reads it, and sets `shown`. */
struct rsh_writing {
	struct rsh_catalogue *cat;
	struct rsh_plan *plan;
	const struct rsh_name_filter *filter;
	const struct rsh_plan_options *o;
	/* [name]: the tensor that the plan shows to the ranks of the stage at
	 * hand; RSH_COPIED, as at the beginning of each stage: none. */
	uint32_t *shown;
};

/* These are the names of a file's records, in order; the policy owns them. */
struct rsh_file_names {
	const uint32_t *names;
	uint32_t n;
	bool added; /* the policy has added the file, and there is nothing left
		     * to do */
};

/* Functions that return int return 0 or -errno with a sentence; `ctx` is the
 * first argument of each. */
struct rsh_policy {
	void *ctx;
	/* The plan asks this as long as it lives, with a ctx of its own. */
	struct rsh_writer asked;
	/* The writer fills this, which asked.free() clears. */
	struct rsh_name_filter *filter;
	const uint32_t *names; /* that the options are asked of; NULL: those
				* from 0 on */
	uint32_t n_names;      /* with `names` */
	uint32_t n_stages;     /* of the files that are shown */
	uint32_t stage_ranks;
	/* Begins, once the options were asked of the names; may be NULL. */
	int (*begin)(void *ctx, struct rsh_writing *w, struct rsh_error *err);
	/* Shows the tensors of a stage (w->shown). */
	int (*stage)(void *ctx, uint32_t stage, struct rsh_error *err);
	/* Is a parameter of the destination one that the replicas of this stage
	 * deal out?  It is asked where redundancy is to be removed. */
	bool (*is_dealt)(void *ctx, uint32_t stage,
			 const struct rsh_strategy_param *p);
	/* Gives the names that a file may have: each is shown, or copied. */
	int (*file)(void *ctx, struct rsh_shown_file *f,
		    struct rsh_file_names *out, struct rsh_error *err);
	/* Has its say on a record that a file is to have: fills the shape of
	 * one that is copied, which that of one that is shown is already, and
	 * sets *taken to false where the file is not to have it.  NULL: none is
	 * copied, and all are taken. */
	int (*record)(void *ctx, struct rsh_shown_file *f, uint32_t name,
		      struct rsh_record_shape *shape, bool *taken,
		      struct rsh_error *err);
	/* Adds notes to a plan that stands.  0 or -ENOMEM. */
	int (*end)(void *ctx);
};

/* Plans the files of every rank of `dst`, which has to outlive the plan; NULL:
 * a whole model.  Takes over the catalogue and what asked.free() frees, also on
 * failure.  0, or -errno with a sentence: what the policy says, -EFBIG for a
 * file that would be larger than files can be, -ENOTSUP for a parameter that
 * its form cannot hold, -ENOENT for slices that no file holds. */
int rsh_write_by_policy(struct rsh_catalogue *cat,
			const struct rsh_policy *policy,
			const struct rsh_strategy *dst,
			const struct rsh_plan_options *opts,
			struct rsh_plan **out, struct rsh_error *err);

#endif
