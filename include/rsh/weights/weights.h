/* SPDX-License-Identifier: Apache-2.0 */
/* weights/weights.h - the weights of one model in two forms: a rule table
 * (wire/rule_table.h) and the tensors that are there become the tensors of the
 * other form, each with the recipe that makes it.
 *
 * A rule says where the same elements are on both sides, so that it has no
 * direction.  Each pair of a tensor and an alternative is one factored part
 * (plan/blueprint.h), and nothing else comes of a rule.  Sizes follow from
 * `let`, then from shapes; what is known twice has to agree.
 *
 * A tensor goes to the first rule, below the first of its prefixes, that names
 * it; a rule whose other tensors are not there is an error, not passed by.
 * Numbers in names are written without zeros before them.  What `also` makes a
 * copy of may lack a number that the copy's name has: then there is a copy for
 * each of the tensors that are made whose names begin as the copy's does, up to
 * that number.
 *
 * This is arithmetic, which reads no file; one thread converts. */
#ifndef RSH_WEIGHTS_WEIGHTS_H
#define RSH_WEIGHTS_WEIGHTS_H

#include "rsh/util/arena.h"
#include "rsh/wire/model_config.h"
#include "rsh/wire/rule_table.h"
#include "rsh/plan/writer.h"

struct rsh_weights_options {
	const struct rsh_rule_table *table;
	const struct rsh_model_config *config; /* NULL: there is none */
	enum rsh_side from;
	/* What becomes of tensors that no rule names: an error, as of
	 * parameters that a strategy does not list; copied under their own
	 * names; or left out. */
	enum rsh_unlisted unlisted;
	/* Tensors that these leave out are not made, and what only they would
	 * need may be missing.  NULL: all are wanted; names are those of the
	 * form that is made. */
	bool (*wanted)(void *ctx, const char *name);
	/* Gets the size of a letter that is a `let` of one key, for each layer
	 * and the like: that key of the config or, where this says nothing,
	 * what shapes tell of its first one.  May be NULL. */
	void (*sized)(void *ctx, uint32_t let, const char *key, uint64_t size);
	/* Gets a sentence on what is skipped; may be NULL. */
	void (*note)(void *ctx, const char *sentence);
	void *ctx;
};

/* Says which side's names the tensors have, by how many of them rules name.
 * 0, or -EINVAL with a sentence where neither or both do. */
int rsh_weights_side(const struct rsh_rule_table *table,
		     const struct rsh_offer *in, uint32_t n,
		     const struct rsh_names *names, enum rsh_side *out,
		     struct rsh_error *err);

/* Makes the offers of the other form, whose recipes are of tensors of the same
 * catalogue; new names are added to the catalogue's.  They live as long as
 * `arena`, and so must what `in` points to.  The order is that
 * of the names, with numbers in them as numbers.  0,
 * -ENOMEM, or -EINVAL or -ENOTSUP with a sentence that names tensor and rule:
 * what is missing, left over, named twice, or of another size than the rule and
 * the config say. */
int rsh_weights_convert(const struct rsh_weights_options *o,
			const struct rsh_offers *in, struct rsh_arena *arena,
			struct rsh_offers *out, struct rsh_error *err);

/* Gets what a check finds; each function may be NULL. */
struct rsh_weights_watch {
	/* This tensor would be made, by this rule (NULL: copied under its own
	 * name), of those of the `in` at these n places.  The offer lives as
	 * long as the arena. */
	void (*made)(void *ctx, const struct rsh_offer *offer,
		     const struct rsh_rule *rule, const uint32_t *sources,
		     uint32_t n);
	/* Nothing is made of this one.  The rule is an `also` or a `skip`, or
	 * one of which nothing is wanted; NULL: no rule names it, and it is a
	 * scale of fp8 blocks, an optimizer's, or left out as unlisted. */
	void (*passed)(void *ctx, uint32_t source, const struct rsh_rule *rule);
	/* This is wrong: what is missing, left over, named twice, or of another
	 * size.  The check continues with the next rule or tensor. */
	void (*wrong)(void *ctx, const char *sentence);
	void *ctx;
};

/* Walks through a conversion as rsh_weights_convert() does, tells what goes
 * where, in the order in which it is shown, and does not stop at what is wrong.
 * 0: nothing is; -EINVAL: all of it was told; -ENOMEM; the latter two with a
 * sentence. */
int rsh_weights_check(const struct rsh_weights_options *o,
		      const struct rsh_offers *in, struct rsh_arena *arena,
		      const struct rsh_weights_watch *watch,
		      struct rsh_error *err);

/* Looks for what is wrong in a table by itself, and tells `say` a sentence on
 * each, which names the lines: names that two rules have on one side (`wrong`:
 * the later rule never gets a tensor of it), and what only looks odd (not
 * `wrong`), as a `let` that nothing uses.  0: nothing is wrong; -EINVAL; or
 * -ENOMEM. */
int rsh_weights_check_table(const struct rsh_rule_table *table,
			    void (*say)(void *ctx, bool wrong,
					const char *sentence),
			    void *ctx);

#endif
