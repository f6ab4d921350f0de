/* SPDX-License-Identifier: Apache-2.0 */
/* weights/weights.h converts the weights of a model between two forms: from a
 * rule table (wire/rule_table.h) and the source tensors it makes the tensors of
 * the other form, each with its recipe.
 *
 * A rule says where both sides have the same elements, so a rule has no
 * direction.  Each pair of a tensor and an alternative is one part
 * (plan/blueprint.h); rules make nothing else.  Sizes come from `let`, then
 * from shapes; a size that is known twice must agree.
 *
 * A tensor is assigned to the first rule, with the first of its prefixes, that
 * names it.  If other tensors of that rule are missing, it is an error, and no
 * later rule is tried.  Numbers in names are written without leading zeros.
 * The original of an `also` may lack a number that the copy's name has.  Then
 * there is a copy for each made tensor whose name begins as the copy's name
 * does, up to that number.
 *
 * Quantised tensors are made dense before (weights/quantised.h).
 *
 * This is arithmetic, and no file is read; one thread converts.
 */
#pragma once

#include "rsh/util/arena.h"
#include "rsh/wire/model_config.h"
#include "rsh/wire/rule_table.h"
#include "rsh/plan/writer.h"

/* The word for --vocab-multiple in `let` lines. */
#define RSH_VOCAB_MULTIPLE "vocab_multiple"

struct rsh_weights_options {
	const struct rsh_rule_table *table;
	const struct rsh_model_config *config; /* NULL: there is no
					        * config.json */
	enum rsh_side from;
	/* The side for rsh_weights_choose(): 1 more than it, or 0 if the names
	 * tell it. */
	int given;
	/* This decides about tensors that no rule names: they are an error, as
	 * parameters that a strategy does not list; they are copied under their
	 * own names; or they are left out. */
	enum rsh_unlisted unlisted;
	/* The value of RSH_VOCAB_MULTIPLE in `let`; 0: it has none. */
	uint64_t vocab_multiple;
	/* A tensor that is tied is made from its original if the source lacks
	 * it. */
	bool untie;
	/* Returns 1 if two offers of one type and shape have the same elements,
	 * 0 if not, -ENOTSUP if this cannot be found out, or another -errno
	 * with a sentence.  NULL: tied tensors are not left out. */
	int (*same)(void *ctx, const struct rsh_offer *a,
		    const struct rsh_offer *b, struct rsh_error *err);
	/* The source is a whole model, so that it has all that the config says.
	 * The functions that choose do not use it. */
	bool is_whole;
	/* The optimizer's states that `state` lines name are left out. */
	bool leave_states;
	/* Tensors for which this returns false are not made, and tensors that
	 * only those need may be missing.  `name` is a name of the form that is
	 * made.  NULL: all tensors are wanted. */
	bool (*wanted)(void *ctx, const char *name);
	/* This is called for each instance, such as a layer, with the size of a
	 * letter that is a `let` of one key.  `key` is the key of the config
	 * that gave the size.  If the config has none, the size comes from
	 * shapes, and `key` is the first key of the `let`.  It may be NULL. */
	void (*sized)(void *ctx, uint32_t let, const char *key, uint64_t size);
	/* This is called with a sentence about what is skipped; it may be
	 * NULL. */
	void (*note)(void *ctx, const char *sentence);
	/* rsh_weights_choose() calls this with the reason for each table that
	 * it does not choose; it may be NULL. */
	void (*refused)(void *ctx, const struct rsh_rule_table *t,
			const char *why);
	void *ctx;
};

/* Finds which side's names the tensors have, by the number of tensors that
 * rules name; with `rest` lines, also by the longest prefix of one, and then no
 * such name means the left side.  `given` is that of rsh_weights_options: the
 * side is only compared.  *told, which may be NULL, is whether a name says the
 * side.  Returns 0, or -EINVAL with a sentence if both sides
 * or none fit, or the other one. */
int rsh_weights_side(const struct rsh_rule_table *table, int given,
		     const struct rsh_offer *in, uint32_t n,
		     const struct rsh_names *names, enum rsh_side *out,
		     bool *told, struct rsh_error *err);

/* Counts the tensors that no rule of a side names, and the names of its rules
 * that no tensor has.  Optimizer states count as their weights.  Returns 0, or
 * -errno with a sentence. */
int rsh_weights_count_names(const struct rsh_rule_table *table,
			    enum rsh_side side, const struct rsh_offer *in,
			    uint32_t n, const struct rsh_names *names,
			    uint32_t *unnamed, uint32_t *unused,
			    struct rsh_error *err);

/* Does what rsh_weights_side() does, for the table and `given` of `o`.  If no
 * name says the side, shapes do: the side from which the table converts the
 * tensors.  Returns -EINVAL with a sentence also if the table makes other
 * tensors of them from each side. */
int rsh_weights_find_side(const struct rsh_weights_options *o,
			  const struct rsh_offers *in, enum rsh_side *out,
			  bool *told, struct rsh_error *err);

/* Makes the offers of the other form.  Their recipes use tensors of the same
 * catalogue, and new names are added to the catalogue's.  They are valid as
 * long as `arena`, and the memory to which `in` points must be valid as long.
 * They are sorted by name, with numbers in names compared as numbers.  Returns
 * 0, -ENOMEM, or -EINVAL or -ENOTSUP with a sentence that names tensor and
 * rule: a tensor is missing, left over, named twice, or has another size than
 * the rule and the config say. */
int rsh_weights_convert(const struct rsh_weights_options *o,
			const struct rsh_offers *in, struct rsh_arena *arena,
			struct rsh_offers *out, struct rsh_error *err);

/* Chooses one of n tables: the first one that converts all tensors of `in`, or
 * the first one if none does, so that its error can be reported.  Of `o` the
 * table and the callbacks except `wanted` and `refused` are not used, and a
 * tensor that no rule names is an error.  Returns 0 or -ENOMEM with a
 * sentence. */
int rsh_weights_choose(const struct rsh_weights_options *o,
		       struct rsh_rule_table *const *tables, size_t n,
		       const struct rsh_offers *in,
		       const struct rsh_rule_table **out,
		       struct rsh_error *err);

/* Gets the results of a check; each function may be NULL. */
struct rsh_weights_watch {
	/* This tensor would be made, by this rule (NULL: copied under its own
	 * name), from the tensors of `in` at these n indexes.  The offer is
	 * valid as long as the arena. */
	void (*made)(void *ctx, const struct rsh_offer *offer,
		     const struct rsh_rule *rule, const uint32_t *sources,
		     uint32_t n);
	/* Nothing is made of this tensor.  The rule is an `also` or a `skip`,
	 * or makes nothing that is wanted.  NULL: no rule names the tensor, and
	 * it is an optimizer state, or left out as unlisted. */
	void (*passed)(void *ctx, uint32_t source, const struct rsh_rule *rule);
	/* This is an error: a tensor is missing, left over, named twice, or has
	 * another size.  The check continues with the next rule or tensor. */
	void (*wrong)(void *ctx, const char *sentence);
	void *ctx;
};

/* Runs a conversion as rsh_weights_convert() does, reports each result in the
 * order of the output, and does not stop at an error.  Returns 0 if there is no
 * error; -EINVAL if all errors were reported; or -ENOMEM; the latter two with a
 * sentence. */
int rsh_weights_check(const struct rsh_weights_options *o,
		      const struct rsh_offers *in, struct rsh_arena *arena,
		      const struct rsh_weights_watch *watch,
		      struct rsh_error *err);

/* Checks a table without a source, and calls `say` with a sentence for each
 * finding, which names the lines.  It is an error (`wrong`) if two rules have
 * the same name on one side, because the later rule never gets such a tensor.
 * Other findings are warnings (not `wrong`), such as a `let` that is not used.
 * Returns 0 if there is no error; -EINVAL; or -ENOMEM. */
int rsh_weights_check_table(const struct rsh_rule_table *table,
			    void (*say)(void *ctx, bool wrong,
					const char *sentence), void *ctx);
