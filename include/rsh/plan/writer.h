/* SPDX-License-Identifier: Apache-2.0 */
/* plan/writer.h - plans files that show the offers of a format: a whole model,
 * parts of it, or slices for the ranks of a strategy.
 *
 * This policy of the writer (policy.h) depends on no framework and copies no
 * records: a recipe makes every tensor that is shown.
 *
 * With a strategy the file of a rank has the tensors that the strategy lists
 * for the rank's stage, cut as the strategy says.  With RSH_UNLISTED_COPY it
 * also has the tensors that the strategy does not list; these are whole.  The
 * records are in the order of the offers.  A cast does not change flattened
 * optimizer states (rsh_is_flattened_state()).
 */
#pragma once

#include "rsh/plan/blueprint.h"
#include "rsh/plan/options.h"
#include "rsh/strategy/strategy.h"
#include "rsh/util/arena.h"

/* A tensor that can be shown, and its recipe.  Names are unique. */
struct rsh_offer {
	uint32_t name;
	enum rsh_dtype dtype;  /* as it is stored */
	uint32_t n_dims;
	const uint64_t *dims;
	uint32_t n_parts;
	const struct rsh_recipe_part *parts;
	/* Each part is a box on both sides: factor d is the only one of
	 * dimension d and of a dimension of the tensor, and its steps are 1. */
	bool boxes;
	/* 1 + the number of the tensor that is shown as it is, for which a part
	 * would take memory; 0: the offer has parts. */
	uint32_t same;
	int8_t add; /* to each element: 1, 0 or -1 */
};

/* Return the tensor of the catalogue that an offer is unchanged, or of which it
 * is the first rows, with nothing added; NULL if the offer is made in another
 * way. */
const struct rsh_tensor *rsh_offer_tensor(const struct rsh_catalogue *c,
					  const struct rsh_offer *o);
const struct rsh_tensor *rsh_offer_rows_of(const struct rsh_catalogue *c,
					   const struct rsh_offer *o);

/* Offers of one catalogue. */
struct rsh_offers {
	struct rsh_catalogue *cat; /* the caller's */
	struct rsh_offer *v;
	uint32_t n;
};

/* Gives an offer, whose dimensions are set, one part, as rsh_recipe_whole()
 * makes it.  The tensor may have more elements at the end of its dimensions.  0
 * or -ENOMEM. */
int rsh_offer_whole(const struct rsh_catalogue *c, struct rsh_arena *arena,
		    uint32_t tensor, const uint8_t *order, struct rsh_offer *o);

/* Gives parts to the offers that have none, for who looks at parts.  Returns 0
 * or -ENOMEM. */
int rsh_offers_expand(struct rsh_offers *offers, struct rsh_arena *arena);

/* Finds offers by their names; it is valid as long as the arena and the places
 * of the offers. */
struct rsh_offer_index {
	struct rsh_names *names;
	uint32_t n;   /* of names */
	uint32_t *of; /* [name]: 1 + the number of the offer; 0: none */
};
/* Returns 0 or -ENOMEM. */
int rsh_offers_index(const struct rsh_offers *offers, struct rsh_arena *arena,
		     struct rsh_offer_index *out);
/* Returns 1 + the number of the offer with a name, which is a text as of
 * printf(); 0: there is none. */
uint32_t rsh_offer_number(const struct rsh_offer_index *x, const char *fmt, ...)
	__attribute__((format(printf, 2, 3)));

/* Change the shape of an offer, which has parts and elements
 * (rsh_offers_expand()): divide dimension d into two, of which the second has
 * `inner` of its elements, which divides it; or join dimensions d and d + 1.
 * Memory is the arena's.  Return 0, -ENOMEM, or -ENOTSUP if there would be too
 * many dimensions or parts (unfold.c). */
int rsh_offer_divide(const struct rsh_catalogue *c, struct rsh_arena *arena,
		     struct rsh_offer *o, uint32_t d, uint64_t inner);
int rsh_offer_join(const struct rsh_catalogue *c, struct rsh_arena *arena,
		   struct rsh_offer *o, uint32_t d);

/* Where files of ranks have an offer. */
struct rsh_placed {
	uint32_t stage;
	/* How it is cut over the ranks of the stage, which count modulo the
	 * ranks of the cut; the catalogue owns it. */
	const struct rsh_cut *cut;
	uint32_t block;   /* of ranks that have it; RSH_EVERY_BLOCK: all */
	uint32_t written; /* number of the name in the files */
};
#define RSH_EVERY_BLOCK UINT32_MAX

/* A layout of offers that no strategy has.  A rank r of a stage is in block
 * r / block_ranks % n_blocks. */
struct rsh_placement {
	uint32_t n_stages, stage_ranks;
	uint32_t block_ranks, n_blocks; /* > 0 */
	const struct rsh_placed *places; /* [offer] */
};

/* Plans files in which offers have these places, with all offers and under the
 * names of the placement: the options wanted, rename and unlisted have no
 * effect.  Does else what rsh_write_plan() does; the placement need not outlive
 * the plan. */
int rsh_write_placed(const struct rsh_offers *offers,
		     const struct rsh_placement *placement,
		     const struct rsh_plan_options *opts,
		     struct rsh_plan **out, struct rsh_error *err);

/* Plans the files.  The options compat and n_shown_ranks have no effect.  Takes
 * the catalogue over, also on failure.  The catalogue's names and `dst` must
 * outlive the plan; the offers need not.  Returns what rsh_write_plan_by()
 * does. */
int rsh_write_plan(const struct rsh_offers *offers,
		   const struct rsh_strategy *dst,
		   const struct rsh_plan_options *opts,
		   struct rsh_plan **out, struct rsh_error *err);
