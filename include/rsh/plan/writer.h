/* SPDX-License-Identifier: Apache-2.0 */
/* plan/writer.h - the general writer: what any catalogue holds, wanted whole,
 * in parts, or cut for the ranks of a strategy.
 *
 * This is the writer's own policy (policy.h).  It knows no framework and copies
 * nothing as it stands: every tensor that is shown is made by a recipe of
 * tensors of the catalogue.  (MindSpore's own rank files have a policy of their
 * own, which follows the habits of MindSpore's converter:
 * converter/conversion.h.)
 *
 * With a strategy each rank's file has the tensors that the strategy lists for
 * the rank's stage, cut as it says, and with RSH_UNLISTED_COPY those that it
 * does not list at all, whole; in the order in which they are offered.  A cast
 * leaves alone, besides what it leaves alone everywhere, flattened states
 * of optimizers (rsh_is_flattened_state()).
 */
#ifndef RSH_PLAN_WRITER_H
#define RSH_PLAN_WRITER_H

#include "rsh/plan/blueprint.h"
#include "rsh/plan/options.h"
#include "rsh/strategy/strategy.h"

/* A tensor that can be shown, and how it is made.  No two have one name. */
struct rsh_offer {
	uint32_t name;
	enum rsh_dtype dtype;  /* as it is stored */
	uint32_t n_dims;
	const uint64_t *dims;
	uint32_t n_parts;
	const struct rsh_recipe_part *parts;
	/* Instead of those, parts that make no boxes. */
	uint32_t n_factored;
	const struct rsh_factored_part *factored;
};

/* Offers of one catalogue. */
struct rsh_offers {
	struct rsh_catalogue *cat; /* the caller's */
	struct rsh_offer *v;
	uint32_t n;
};

/* Plans the files.  Of the options, framing, division, part_bytes, replicas,
 * allow_missing, unlisted, wanted, rename, cast, remove_redundancy and
 * report_lost count.  Takes the catalogue over, also on failure; the offers
 * need not live on, their names, those of the catalogue's table, must, and
 * `dst` too.  Returns what rsh_write_by_policy() does. */
int rsh_write_plan(struct rsh_catalogue *cat, const struct rsh_offer *offers,
		   uint32_t n, const struct rsh_strategy *dst,
		   const struct rsh_plan_options *opts,
		   struct rsh_plan **out, struct rsh_error *err);

#endif
