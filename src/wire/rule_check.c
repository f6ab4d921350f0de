/* SPDX-License-Identifier: Apache-2.0 */
/* wire/rule_check.c checks that both sides of a rule describe the same
 * elements.  If only one side had a letter, some elements would have no source.
 *
 * A hole with the same letter on both sides is a number; the rule applies to
 * each of its values.  A hole of one side only is a further axis of the tensor:
 * each place on that axis is a separate tensor.
 *
 * rule_bad() keeps the first error, so the checks go on after one. */
#include "rule_table_i.h"
#include "rsh/util/mem.h"

#include <string.h>

/* These are the letters of a tensor in one alternative that are axes. */
struct rule_letters {
	uint32_t n;
	const char *list[RULE_LETTERS_MAX];
};

static bool rule_name_has(const struct rsh_rule_name *n, const char *letter)
{
	return rsh_any(i, n->n_holes, strcmp(n->holes[i].letter, letter) == 0);
}

#define RULE_SHARED_MAX (2 * RULE_HOLES_MAX)

/* This is a rule with one of its prefixes. */
struct rule_reading {
	struct rule_parse *p;
	const struct rsh_rule *r;
	const struct rsh_rule_under *under; /* NULL: none */
	const char *shared[RULE_SHARED_MAX]; /* the holes of both sides */
	uint32_t n_shared;
};

static const struct rsh_rule_name *
rule_prefix(const struct rule_reading *x, enum rsh_side side)
{
	return x->under ? &x->under->prefix[side] : NULL;
}

/* Returns how many tensors of a side have the hole. */
static uint32_t rule_count_holes(const struct rule_reading *x,
				 enum rsh_side side, const char *letter)
{
	const struct rsh_rule_name *prefix = rule_prefix(x, side);
	uint32_t n = 0;

	for (uint32_t i = 0; i < x->r->n_tensors[side]; i++) {
		const struct rsh_rule_name *name = &x->r->tensors[side][i].name;

		n += rule_name_has(name, letter) ||
		     (rule_is_under(name) && prefix &&
		      rule_name_has(prefix, letter));
	}
	return n;
}

static bool rule_is_shared(const struct rule_reading *x, const char *letter)
{
	return rsh_any(i, x->n_shared, strcmp(x->shared[i], letter) == 0);
}

/* A hole of both sides is in all names, so one name is enough to find it. */
static void rule_list_shared(struct rule_reading *x)
{
	const struct rsh_rule_name *first = &x->r->tensors[RSH_SIDE_HF]->name;
	const struct rsh_rule_name *names[] = {
		first, rule_is_under(first) ? rule_prefix(x, RSH_SIDE_HF) :
					      NULL,
	};

	for (uint32_t k = 0; k < 2; k++)
		for (uint32_t i = 0; names[k] && i < names[k]->n_holes; i++) {
			const char *letter = names[k]->holes[i].letter;

			if (rule_count_holes(x, RSH_SIDE_MINDSPORE, letter))
				x->shared[x->n_shared++] = letter;
		}
}

/* ---- letters ---- */

static void rule_add_letter(const struct rule_reading *x, const char *letter,
			    struct rule_letters *out)
{
	for (uint32_t i = 0; i < out->n; i++)
		if (strcmp(out->list[i], letter) == 0)
			rule_bad(x->p, "%s is twice in one tensor", letter);
	if (out->n == RULE_LETTERS_MAX)
		rule_bad(x->p, "more than %d letters in one tensor",
			 RULE_LETTERS_MAX);
	else
		out->list[out->n++] = letter;
}

static void rule_add_product(const struct rule_reading *x,
			     const struct rsh_rule_product *f,
			     struct rule_letters *out)
{
	for (uint32_t i = 0; i < f->n; i++) {
		if (rule_is_shared(x, f->factors[i]))
			rule_bad(x->p,
				 "%s is a number in names of both sides, "
				 "so it cannot be a factor",
				 f->factors[i]);
		rule_add_letter(x, f->factors[i], out);
	}
}

static void rule_add_holes(const struct rule_reading *x,
			   const struct rsh_rule_name *n,
			   struct rule_letters *out)
{
	for (uint32_t i = 0; n && i < n->n_holes; i++)
		if (!rule_is_shared(x, n->holes[i].letter))
			rule_add_letter(x, n->holes[i].letter, out);
}

static void rule_list_letters(const struct rule_reading *x, enum rsh_side side,
			      uint32_t i, uint32_t alternative,
			      struct rule_letters *out)
{
	const struct rsh_rule_tensor *t = &x->r->tensors[side][i];

	rule_add_holes(x, &t->name, out);
	if (rule_is_under(&t->name))
		rule_add_holes(x, rule_prefix(x, side), out);
	for (uint32_t d = 0; d < t->n_dims; d++) {
		const struct rsh_rule_dim *dim = &t->dims[d];

		rule_add_product(x, &dim->before, out);
		if (dim->n_alternatives)
			rule_add_product(x, &dim->alternatives[alternative],
					 out);
		rule_add_product(x, &dim->after, out);
	}
}

static void rule_check_within(const struct rule_reading *x,
			      const struct rule_letters *a,
			      const struct rule_letters *b)
{
	for (uint32_t i = 0; i < a->n; i++)
		if (!rsh_any(k, b->n, strcmp(a->list[i], b->list[k]) == 0))
			rule_bad(x->p, "%s is on one side only", a->list[i]);
}

/* ---- holes ---- */

/* A hole of both sides must be in all names, once. */
static void rule_check_name(const struct rule_reading *x, enum rsh_side side,
			    const struct rsh_rule_name *n)
{
	for (uint32_t i = 0; n && i < n->n_holes; i++) {
		const char *letter = n->holes[i].letter;

		for (uint32_t k = 0; k < i; k++)
			if (strcmp(n->holes[k].letter, letter) == 0)
				rule_bad(x->p, "{%s} is twice in one name",
					 letter);
		if (rule_is_shared(x, letter) &&
		    rule_count_holes(x, side, letter) != x->r->n_tensors[side])
			rule_bad(x->p, "{%s} is not in all names of its side",
				 letter);
	}
}

static void rule_check_holes(const struct rule_reading *x, enum rsh_side side)
{
	const struct rsh_rule_name *prefix = rule_prefix(x, side);

	rule_check_name(x, side, prefix);
	for (uint32_t i = 0; i < x->r->n_tensors[side]; i++) {
		const struct rsh_rule_name *n = &x->r->tensors[side][i].name;

		rule_check_name(x, side, n);
		for (uint32_t k = 0;
		     prefix && rule_is_under(n) && k < prefix->n_holes; k++)
			if (rule_name_has(n, prefix->holes[k].letter))
				rule_bad(x->p,
					 "{%s} is twice in one name, "
					 "below its prefix",
					 prefix->holes[k].letter);
	}
}

/* The numbers of an instance say which tensor a `when` means. */
static void rule_check_when(const struct rule_reading *x, enum rsh_side side)
{
	const struct rsh_rule_name *n = rule_prefix(x, side);

	for (uint32_t i = 0; x->r->when && n && i < n->n_holes; i++)
		if (!rule_is_shared(x, n->holes[i].letter))
			rule_bad(x->p,
				 "{%s} is not a number of both sides, "
				 "which `when` needs",
				 n->holes[i].letter);
}

/* A copy may have a hole that its original does not have.  The other way round
 * it would not be known which tensor to copy. */
static void rule_check_also(const struct rule_reading *x)
{
	struct rule_letters letters = { 0 };

	rule_list_letters(x, RSH_SIDE_MINDSPORE, 0, 0, &letters);
	if (letters.n)
		rule_bad(x->p, "{%s} is on the right alone", letters.list[0]);
}

static void rule_check_pair(const struct rule_reading *x, uint32_t i)
{
	struct rule_letters side[RSH_N_SIDES] = { { 0 }, { 0 } };

	for (int s = 0; s < RSH_N_SIDES; s++)
		rule_list_letters(x, s, x->r->n_tensors[s] > 1 ? i : 0, i,
				  &side[s]);
	rule_check_within(x, &side[0], &side[1]);
	rule_check_within(x, &side[1], &side[0]);
}

/* ---- the rule ---- */

/* Counts the alternatives of one side, which has at most one list of them. */
static uint32_t rule_count_alternatives(struct rule_parse *p,
					const struct rsh_rule *r,
					enum rsh_side side)
{
	uint32_t n = 0;

	for (uint32_t i = 0; i < r->n_tensors[side]; i++)
		for (uint32_t d = 0; d < r->tensors[side][i].n_dims; d++) {
			const struct rsh_rule_dim *dim =
				&r->tensors[side][i].dims[d];

			if (n && dim->n_alternatives)
				rule_bad(p, "two lists of alternatives on one "
					    "side");
			n = dim->n_alternatives ? dim->n_alternatives : n;
		}
	return n;
}

/* If a side has a list, the other side has a tensor for each alternative, or
 * one tensor with a list of as many alternatives.  Returns the number of
 * pairs. */
static uint32_t rule_check_counts(struct rule_parse *p,
				  const struct rsh_rule *r)
{
	uint32_t n[RSH_N_SIDES], n_pairs;

	for (int s = 0; s < RSH_N_SIDES; s++)
		n[s] = rule_count_alternatives(p, r, s);
	n_pairs = n[0] ? n[0] : n[1] ? n[1] : 1;
	if (n[0] && n[1] && n[0] != n[1])
		rule_bad(p, "%u alternatives on the left and %u on the right",
			 n[0], n[1]);
	for (int s = 0; s < RSH_N_SIDES; s++)
		if (n[s] && (r->n_tensors[s] != 1 ||
			     (!n[!s] && r->n_tensors[!s] != n[s])))
			rule_bad(p,
				 "%u alternatives and %u tensors on the "
				 "other side, %u on their own",
				 n[s], r->n_tensors[!s], r->n_tensors[s]);
	if (n_pairs == 1 && (r->n_tensors[0] != 1 || r->n_tensors[1] != 1))
		rule_bad(p, "several tensors, and no list (a | b) that says "
			    "where each of them is");
	return n_pairs;
}

static void rule_check_brackets(struct rule_parse *p, const struct rsh_rule *r)
{
	const bool has = r->tensors[0][0].has_dims;

	for (int s = 0; s < RSH_N_SIDES; s++)
		for (uint32_t i = 0; i < r->n_tensors[s]; i++)
			if (r->tensors[s][i].has_dims != has)
				rule_bad(p, "some tensors have dimensions, "
					    "some none");
	if (has && r->kind != RSH_RULE_SAME)
		rule_bad(p, "dimensions, where only names are wanted");
}

int rule_check(struct rule_parse *p, const struct rsh_rule *r)
{
	uint32_t n_pairs = 0;

	rule_check_brackets(p, r);
	if (!p->rc && r->kind == RSH_RULE_SAME)
		n_pairs = rule_check_counts(p, r);
	for (uint32_t u = 0; !p->rc && u < (r->n_under ? r->n_under : 1); u++) {
		struct rule_reading x = {
			.p = p,
			.r = r,
			.under = r->n_under ? &r->under[u] : NULL,
		};

		rule_list_shared(&x);
		for (int s = 0; s < RSH_N_SIDES; s++)
			rule_check_holes(&x, s);
		for (int s = 0; s < RSH_N_SIDES; s++)
			rule_check_when(&x, s);
		for (uint32_t i = 0; i < n_pairs && !p->rc; i++)
			rule_check_pair(&x, i);
		if (r->kind == RSH_RULE_ALSO)
			rule_check_also(&x);
	}
	return p->rc;
}
