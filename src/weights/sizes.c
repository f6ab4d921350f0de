/* SPDX-License-Identifier: Apache-2.0 */
/* weights/sizes.c finds the sizes of letters: first from `let`, then from the
 * shapes of the source tensors, one unknown letter of a dimension at a time,
 * and last from the number of tensors in a stack. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "rsh/util/checked.h"
#include "weights_i.h"

#define WEIGHTS_SHAPE 160

/* This is the equation of a dimension with at most one unknown letter x: outer
 * * (c0 + c1 * x), or outer * c0 * x if x is outside the alternatives. */
struct weights_equation {
	uint64_t outer, c0, c1;
	bool outside;
	bool too_large;
	uint32_t unknown;   /* the letter */
	uint32_t n_unknown; /* number of unknown letters; 2: two or more */
};

/* Returns the product of the known factors; *has is set if a factor is
 * unknown. */
static uint64_t weights_known(const struct weights_instance *x,
			      struct weights_equation *e,
			      const struct rsh_rule_product *p, bool *has)
{
	uint64_t product = 1;

	for (uint32_t i = 0; i < p->n; i++) {
		const uint32_t k = weights_letter(x->u, p->factors[i]);

		if (x->known[k]) {
			if (!rsh_mul_u64(product, x->sizes[k], &product))
				e->too_large = true;
			continue;
		}
		if (e->n_unknown == 0 || e->unknown != k)
			e->n_unknown++;
		e->unknown = k;
		*has = true;
	}
	return product;
}

static void weights_set_up(const struct weights_instance *x,
			   const struct rsh_rule_dim *dim,
			   struct weights_equation *e)
{
	uint64_t before, after;

	*e = (struct weights_equation){ .c0 = !dim->n_alternatives };
	before = weights_known(x, e, &dim->before, &e->outside);
	after = weights_known(x, e, &dim->after, &e->outside);
	if (!rsh_mul_u64(before, after, &e->outer))
		e->too_large = true;
	for (uint32_t i = 0; i < dim->n_alternatives; i++) {
		bool has = false;
		uint64_t c = weights_known(x, e, &dim->alternatives[i], &has);
		uint64_t *to = has ? &e->c1 : &e->c0;

		if (!rsh_add_u64(*to, c, to))
			e->too_large = true;
	}
}

/* Solves the equation for the unknown letter.  Returns false if no size solves
 * it; if every size does, the letter stays unknown. */
static bool weights_solve_one(struct weights_instance *x,
			      const struct weights_equation *e, uint64_t dim)
{
	uint64_t per = e->outer, value = dim;

	if (e->outside && !rsh_mul_u64(per, e->c0, &per))
		return false;
	if (per == 0)
		return dim == 0;
	if (value % per)
		return false;
	value /= per;
	if (!e->outside && e->c1 == 0)
		return value == e->c0;
	if (!e->outside) {
		if (value < e->c0 || (value - e->c0) % e->c1)
			return false;
		value = (value - e->c0) / e->c1;
	}
	x->sizes[e->unknown] = value;
	x->known[e->unknown] = true;
	return true;
}

/* ---- sentences ---- */

static const char *weights_shape_text(const struct rsh_offer *o, char *text)
{
	return rsh_dims_text(o->dims, o->n_dims, text, WEIGHTS_SHAPE);
}

/* The sentence has the sizes that are known, and the keys of config.json that
 * they come from. */
static int weights_contradiction(struct weights_work *w,
				 struct weights_instance *x, uint32_t match,
				 uint32_t dim, const struct weights_equation *e,
				 struct rsh_error *err)
{
	const uint32_t source = x->m[match].source;
	char shape[WEIGHTS_SHAPE], sizes[512] = "", keys[512] = "", of[64] = "";
	size_t n = 0, k = 0;

	weights_shape_text(&w->in[source], shape);
	for (uint32_t i = 0; i < x->u->n_letters; i++) {
		const char *letter = x->u->letters[i];
		char from[192];

		if (x->known[i] && n + 64 < sizeof(sizes))
			n += (size_t)snprintf(sizes + n, sizeof(sizes) - n,
					      "%s%.24s %" PRIu64, n ? ", " : "",
					      letter, x->sizes[i]);
		weights_let_text(w, letter, from, sizeof(from));
		if (*from && k + 256 < sizeof(keys))
			k += (size_t)snprintf(keys + k, sizeof(keys) - k,
					      "%s%.24s is of %s", k ? "; " : ": ",
					      letter, from);
	}
	if (e->n_unknown)
		snprintf(of, sizeof(of), ", whatever %.24s is",
			 x->u->letters[e->unknown]);
	return weights_bad(w, x->u->rule, err, "%s has shape %s, whose "
			   "dimension %u is not what the rule says%s (%s)%s",
			   weights_text(w, source), shape, dim, of,
			   *sizes ? sizes : "no size is known", keys);
}

/* ---- one tensor of the rule ---- */

/* Checks that all tensors of a stack have the same shape. */
static int weights_check_shapes(struct weights_work *w,
				struct weights_instance *x, uint32_t tensor,
				struct rsh_error *err)
{
	const struct rsh_rule_tensor *t = &x->u->rule->tensors[w->from][tensor];
	const uint32_t first = x->first[tensor];
	const struct rsh_offer *a = &w->in[x->m[first].source];
	char shape[WEIGHTS_SHAPE], other[WEIGHTS_SHAPE];

	if (a->n_dims != t->n_dims)
		return weights_bad(w, x->u->rule, err, "%s has shape %s, and "
				   "the rule has %u dimensions",
				   weights_text(w, x->m[first].source),
				   weights_shape_text(a, shape), t->n_dims);
	for (uint32_t i = first + 1; i < x->first[tensor + 1]; i++) {
		const struct rsh_offer *b = &w->in[x->m[i].source];

		if (b->n_dims == a->n_dims &&
		    memcmp(a->dims, b->dims, a->n_dims * sizeof(*a->dims)) == 0)
			continue;
		return weights_bad(w, x->u->rule, err, "%s has shape %s, and "
				   "%s has %s", weights_text(w, x->m[i].source),
				   weights_shape_text(b, shape),
				   weights_text(w, x->m[first].source),
				   weights_shape_text(a, other));
	}
	return 0;
}

/* Uses all dimensions of a tensor; *more is set if a letter became known. */
static int weights_solve_tensor(struct weights_work *w,
				struct weights_instance *x, uint32_t tensor,
				bool *more, struct rsh_error *err)
{
	const struct rsh_rule_tensor *t = &x->u->rule->tensors[w->from][tensor];
	const uint32_t first = x->first[tensor];
	const struct rsh_offer *o = &w->in[x->m[first].source];

	for (uint32_t d = 0; d < t->n_dims; d++) {
		struct weights_equation e;
		uint64_t size;
		bool fits = true;

		weights_set_up(x, &t->dims[d], &e);
		if (e.too_large)
			fits = false;
		else if (e.n_unknown == 0)
			fits = rsh_mul_u64(e.outer, e.c0, &size) &&
			       size == o->dims[d];
		else if (e.n_unknown == 1)
			fits = weights_solve_one(x, &e, o->dims[d]);
		if (!fits)
			return weights_contradiction(w, x, first, d, &e, err);
		*more |= e.n_unknown == 1 && x->known[e.unknown];
	}
	return 0;
}

/* ---- stacks ---- */

/* Takes the size of a stack from its tensors; *more is set if a letter became
 * known. */
static int weights_count_stack(struct weights_work *w,
			       struct weights_instance *x, uint32_t tensor,
			       bool *more, struct rsh_error *err)
{
	uint32_t letters[WEIGHTS_HOLES_MAX];
	const uint32_t n = weights_stacks(x->u, &x->u->names[w->from][tensor],
					  letters);

	for (uint32_t s = 0; s < n; s++) {
		const uint32_t letter = letters[s];
		uint64_t most = 0;

		for (uint32_t i = x->first[tensor]; i < x->first[tensor + 1];
		     i++) {
			const uint64_t k = x->m[i].numbers[x->u->n_shared + s];

			most = rsh_max_u64(most, k);
		}
		if (most >= WEIGHTS_MADE_MAX)
			return weights_bad(w, x->u->rule, err, "%s numbers "
					   "more than %u tensors",
					   x->u->letters[letter],
					   WEIGHTS_MADE_MAX);
		if (x->known[letter])
			continue;
		x->sizes[letter] = most + 1;
		x->known[letter] = true;
		*more = true;
	}
	return 0;
}

/* ---- the instance ---- */

typedef int weights_step(struct weights_work *w, struct weights_instance *x,
			 uint32_t tensor, bool *more, struct rsh_error *err);

static int weights_each_tensor(struct weights_work *w,
			       struct weights_instance *x, weights_step *step,
			       bool *more, struct rsh_error *err)
{
	int rc = 0;

	*more = false;
	for (uint32_t i = 0; rc == 0 && i < x->u->rule->n_tensors[w->from];
	     i++)
		if (x->first[i] < x->first[i + 1])
			rc = step(w, x, i, more, err);
	return rc;
}

int weights_solve(struct weights_work *w, struct weights_instance *x,
		  struct rsh_error *err)
{
	bool more = true;
	int rc = 0;

	if (!x->u->rule->tensors[0][0].has_dims)
		return 0;
	for (uint32_t i = 0; i < x->u->n_letters; i++)
		x->known[i] = weights_let(w, x->u->letters[i], &x->sizes[i]);
	for (uint32_t i = 0; rc == 0 && i < x->u->rule->n_tensors[w->from];
	     i++)
		if (x->first[i] < x->first[i + 1])
			rc = weights_check_shapes(w, x, i, err);
	while (rc == 0 && more) {
		rc = weights_each_tensor(w, x, weights_solve_tensor, &more,
					 err);
		if (rc == 0 && !more)
			rc = weights_each_tensor(w, x, weights_count_stack,
						 &more, err);
	}
	for (uint32_t i = 0; rc == 0 && i < x->u->n_letters; i++)
		if (!x->known[i])
			rc = weights_bad(w, x->u->rule, err, "neither `let` "
					 "nor a shape says what %s is, of %s%s",
					 x->u->letters[i],
					 weights_text(w, x->m[0].source),
					 w->o->config ? "" :
					 " (there is no config.json)");
	if (rc == 0 && w->o->sized) {
		for (uint32_t k = 0; k < w->o->table->n_lets; k++) {
			const struct rsh_rule_let *l = &w->o->table->lets[k];
			const uint32_t i = weights_letter(x->u, l->name);
			const char *key = w->let_terms[k] ?
				weights_let_key(w, l->name) :
				rsh_rule_let_key(w->o->table, l, 0);

			if (i < x->u->n_letters && x->known[i] && key)
				w->o->sized(w->o->ctx, k, key, x->sizes[i]);
		}
	}
	return rc;
}
