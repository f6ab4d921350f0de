/* SPDX-License-Identifier: Apache-2.0 */
/* wire/rule_check.c checks that both sides of a rule describe the same
 * elements.  If only one side had a letter, some elements would have no source.
 *
 * A hole with the same letter on both sides is a number; the rule applies to
 * each of its values.  A hole of one side only is a further axis of the tensor:
 * each place on that axis is a separate tensor. */
#include "rule_table_i.h"

#include <string.h>

/* These are the letters of a tensor in one alternative that are axes. */
struct rule_letters {
	uint32_t n;
	const char *list[RULE_LETTERS_MAX];
};

static bool rule_name_has(const struct rsh_rule_name *n, const char *letter)
{
	for (uint32_t i = 0; i < n->n_holes; i++)
		if (strcmp(n->holes[i].letter, letter) == 0)
			return true;
	return false;
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
	for (uint32_t i = 0; i < x->n_shared; i++)
		if (strcmp(x->shared[i], letter) == 0)
			return true;
	return false;
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

static int rule_add_letter(const struct rule_reading *x, const char *letter,
			   struct rule_letters *out)
{
	for (uint32_t i = 0; i < out->n; i++)
		if (strcmp(out->list[i], letter) == 0)
			return rule_bad(x->p, "%s is twice in one tensor",
					letter);
	if (out->n == RULE_LETTERS_MAX)
		return rule_bad(x->p, "more than %d letters in one tensor",
				RULE_LETTERS_MAX);
	out->list[out->n++] = letter;
	return 0;
}

static int rule_add_product(const struct rule_reading *x,
			    const struct rsh_rule_product *f,
			    struct rule_letters *out)
{
	int rc = 0;

	for (uint32_t i = 0; i < f->n && rc == 0; i++) {
		if (rule_is_shared(x, f->factors[i]))
			return rule_bad(x->p, "%s is a number in names of both "
					"sides, so it cannot be a factor",
					f->factors[i]);
		rc = rule_add_letter(x, f->factors[i], out);
	}
	return rc;
}

static int rule_add_holes(const struct rule_reading *x,
			  const struct rsh_rule_name *n,
			  struct rule_letters *out)
{
	int rc = 0;

	for (uint32_t i = 0; n && i < n->n_holes && rc == 0; i++)
		if (!rule_is_shared(x, n->holes[i].letter))
			rc = rule_add_letter(x, n->holes[i].letter, out);
	return rc;
}

static int rule_list_letters(const struct rule_reading *x, enum rsh_side side,
			     uint32_t i, uint32_t alternative,
			     struct rule_letters *out)
{
	const struct rsh_rule_tensor *t = &x->r->tensors[side][i];
	int rc = rule_add_holes(x, &t->name, out);

	if (rc == 0 && rule_is_under(&t->name))
		rc = rule_add_holes(x, rule_prefix(x, side), out);
	for (uint32_t d = 0; d < t->n_dims && rc == 0; d++) {
		const struct rsh_rule_dim *dim = &t->dims[d];

		rc = rule_add_product(x, &dim->before, out);
		if (rc == 0 && dim->n_alternatives)
			rc = rule_add_product(x,
					      &dim->alternatives[alternative],
					      out);
		rc = rc ?: rule_add_product(x, &dim->after, out);
	}
	return rc;
}

static int rule_check_within(const struct rule_reading *x,
			     const struct rule_letters *a,
			     const struct rule_letters *b)
{
	for (uint32_t i = 0; i < a->n; i++) {
		uint32_t k = 0;

		while (k < b->n && strcmp(a->list[i], b->list[k]) != 0)
			k++;
		if (k == b->n)
			return rule_bad(x->p, "%s is on one side only",
					a->list[i]);
	}
	return 0;
}

/* ---- holes ---- */

/* A hole of both sides must be in all names, once. */
static int rule_check_name(const struct rule_reading *x, enum rsh_side side,
			   const struct rsh_rule_name *n)
{
	for (uint32_t i = 0; n && i < n->n_holes; i++) {
		const char *letter = n->holes[i].letter;

		for (uint32_t k = 0; k < i; k++)
			if (strcmp(n->holes[k].letter, letter) == 0)
				return rule_bad(x->p, "{%s} is twice in "
						"one name", letter);
		if (rule_is_shared(x, letter) &&
		    rule_count_holes(x, side, letter) !=
		    x->r->n_tensors[side])
			return rule_bad(x->p, "{%s} is not in all names of "
					"its side", letter);
	}
	return 0;
}

static int rule_check_prefix(const struct rule_reading *x, enum rsh_side side,
			     const struct rsh_rule_name *n)
{
	const struct rsh_rule_name *prefix = rule_prefix(x, side);

	for (uint32_t i = 0; prefix && i < prefix->n_holes; i++)
		if (rule_name_has(n, prefix->holes[i].letter))
			return rule_bad(x->p, "{%s} is twice in one name, below "
					"its prefix", prefix->holes[i].letter);
	return 0;
}

static int rule_check_holes(const struct rule_reading *x)
{
	for (int s = 0; s < RSH_N_SIDES; s++) {
		int rc = rule_check_name(x, s, rule_prefix(x, s));

		for (uint32_t i = 0; i < x->r->n_tensors[s] && rc == 0; i++) {
			const struct rsh_rule_name *n =
				&x->r->tensors[s][i].name;

			rc = rule_check_name(x, s, n);
			if (rc == 0 && rule_is_under(n))
				rc = rule_check_prefix(x, s, n);
		}
		if (rc)
			return rc;
	}
	return 0;
}

/* The numbers of an instance say which tensor a `when` means. */
static int rule_check_when(const struct rule_reading *x)
{
	for (int s = 0; x->r->when && x->under && s < RSH_N_SIDES; s++) {
		const struct rsh_rule_name *n = &x->under->prefix[s];

		for (uint32_t i = 0; i < n->n_holes; i++)
			if (!rule_is_shared(x, n->holes[i].letter))
				return rule_bad(x->p, "{%s} is not a number of "
						"both sides, which `when` "
						"needs", n->holes[i].letter);
	}
	return 0;
}

/* A copy may have a hole that its original does not have.  The other way round
 * it would not be known which tensor to copy. */
static int rule_check_also(const struct rule_reading *x)
{
	const enum rsh_side right = RSH_SIDE_MINDSPORE;
	struct rule_letters letters = { 0 };
	int rc = rule_list_letters(x, right, 0, 0, &letters);

	if (rc == 0 && letters.n)
		rc = rule_bad(x->p, "{%s} is on the right alone",
			      letters.list[0]);
	return rc;
}

static int rule_check_pairs(const struct rule_reading *x, uint32_t n)
{
	int rc = 0;

	for (uint32_t i = 0; i < n && rc == 0; i++) {
		struct rule_letters side[RSH_N_SIDES] = { { 0 }, { 0 } };

		for (int s = 0; s < RSH_N_SIDES && rc == 0; s++)
			rc = rule_list_letters(x, s, x->r->n_tensors[s] > 1 ?
					       i : 0, i, &side[s]);
		rc = rc ?: rule_check_within(x, &side[0], &side[1]) ?:
			   rule_check_within(x, &side[1], &side[0]);
	}
	return rc;
}

/* ---- the rule ---- */

/* Counts the alternatives of one side, which has at most one list of them. */
static int rule_count_alternatives(struct rule_parse *p,
				   const struct rsh_rule *r, enum rsh_side side,
				   uint32_t *n)
{
	*n = 0;
	for (uint32_t i = 0; i < r->n_tensors[side]; i++) {
		const struct rsh_rule_tensor *t = &r->tensors[side][i];

		for (uint32_t d = 0; d < t->n_dims; d++) {
			if (!t->dims[d].n_alternatives)
				continue;
			if (*n)
				return rule_bad(p, "two lists of alternatives "
						"on one side");
			*n = t->dims[d].n_alternatives;
		}
	}
	return 0;
}

/* If a side has a list, the other side has a tensor for each alternative, or
 * one tensor with a list of as many alternatives. */
static int rule_check_counts(struct rule_parse *p, const struct rsh_rule *r,
			     uint32_t *n_pairs)
{
	uint32_t n[RSH_N_SIDES];
	int rc = 0;

	for (int s = 0; s < RSH_N_SIDES && rc == 0; s++)
		rc = rule_count_alternatives(p, r, s, &n[s]);
	if (rc)
		return rc;
	*n_pairs = n[0] ? n[0] : n[1] ? n[1] : 1;
	if (n[0] && n[1] && n[0] != n[1])
		return rule_bad(p, "%u alternatives on the left and %u on the "
				"right", n[0], n[1]);
	for (int s = 0; s < RSH_N_SIDES; s++)
		if (n[s] && (r->n_tensors[s] != 1 ||
			     (!n[!s] && r->n_tensors[!s] != n[s])))
			return rule_bad(p, "%u alternatives and %u tensors on "
					"the other side, %u on their own",
					n[s], r->n_tensors[!s],
					r->n_tensors[s]);
	if (*n_pairs == 1 && (r->n_tensors[0] != 1 || r->n_tensors[1] != 1))
		return rule_bad(p, "several tensors, and no list (a | b) that "
				   "says where each of them is");
	return 0;
}

static int rule_check_brackets(struct rule_parse *p, const struct rsh_rule *r)
{
	const bool has = r->tensors[0][0].has_dims;

	for (int s = 0; s < RSH_N_SIDES; s++)
		for (uint32_t i = 0; i < r->n_tensors[s]; i++)
			if (r->tensors[s][i].has_dims != has)
				return rule_bad(p, "some tensors have "
						"dimensions, some none");
	if (has && r->kind != RSH_RULE_SAME)
		return rule_bad(p, "dimensions, where only names are wanted");
	return 0;
}

int rule_check(struct rule_parse *p, const struct rsh_rule *r)
{
	uint32_t n_pairs = 1;
	int rc = rule_check_brackets(p, r);

	if (rc == 0 && r->kind == RSH_RULE_SAME)
		rc = rule_check_counts(p, r, &n_pairs);
	for (uint32_t u = 0; rc == 0 && u < (r->n_under ? r->n_under : 1);
	     u++) {
		struct rule_reading x = {
			.p = p,
			.r = r,
			.under = r->n_under ? &r->under[u] : NULL,
		};

		rule_list_shared(&x);
		rc = rule_check_holes(&x) ?: rule_check_when(&x);
		if (rc == 0 && r->kind == RSH_RULE_SAME)
			rc = rule_check_pairs(&x, n_pairs);
		else if (rc == 0 && r->kind == RSH_RULE_ALSO)
			rc = rule_check_also(&x);
	}
	return rc;
}
