/* SPDX-License-Identifier: Apache-2.0 */
/* weights/make.c makes the tensors of each instance. */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "rsh/util/checked.h"
#include "rsh/util/mem.h"
#include "weights_i.h"

/* ---- the sizes of letters ---- */

/* They are found first from `let`, then from the shapes of the source tensors,
 * one unknown letter of a dimension at a time, and last from the number of
 * tensors in a stack. */

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
				 uint32_t dim, const struct weights_equation *e)
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
	return weights_bad(w, x->u->rule, "%s has shape %s, whose "
			   "dimension %u is not what the rule says%s (%s)%s",
			   weights_text(w, source), shape, dim, of,
			   *sizes ? sizes : "no size is known", keys);
}

/* ---- one tensor of the rule ---- */

/* Checks that all tensors of a stack have the same shape. */
static int weights_check_shapes(struct weights_work *w,
				struct weights_instance *x, uint32_t tensor)
{
	const struct rsh_rule_tensor *t = &x->u->rule->tensors[w->from][tensor];
	const uint32_t first = x->first[tensor];
	const struct rsh_offer *a = &w->in[x->m[first].source];
	char shape[WEIGHTS_SHAPE], other[WEIGHTS_SHAPE];

	if (a->n_dims != t->n_dims)
		return weights_bad(w, x->u->rule, "%s has shape %s, and "
				   "the rule has %u dimensions",
				   weights_text(w, x->m[first].source),
				   weights_shape_text(a, shape), t->n_dims);
	for (uint32_t i = first + 1; i < x->first[tensor + 1]; i++) {
		const struct rsh_offer *b = &w->in[x->m[i].source];

		if (rsh_dims_equal(a->dims, a->n_dims, b->dims, b->n_dims))
			continue;
		return weights_bad(w, x->u->rule, "%s has shape %s, and "
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
				bool *more)
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
			return weights_contradiction(w, x, first, d, &e);
		*more |= e.n_unknown == 1 && x->known[e.unknown];
	}
	return 0;
}

/* ---- stacks ---- */

/* Takes the size of a stack from its tensors; *more is set if a letter became
 * known. */
static int weights_count_stack(struct weights_work *w,
			       struct weights_instance *x, uint32_t tensor,
			       bool *more)
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
			return weights_bad(w, x->u->rule, "%s numbers "
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
			 uint32_t tensor, bool *more);

static int weights_each_tensor(struct weights_work *w,
			       struct weights_instance *x, weights_step *step,
			       bool *more)
{
	int rc = 0;

	*more = false;
	for (uint32_t i = 0; rc == 0 && i < x->u->rule->n_tensors[w->from];
	     i++)
		if (x->first[i] < x->first[i + 1])
			rc = step(w, x, i, more);
	return rc;
}

/* Finds the sizes of an instance's letters.  If there is an error, sizes that
 * cannot be found stay unknown. */
static int weights_solve(struct weights_work *w, struct weights_instance *x)
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
			rc = weights_check_shapes(w, x, i);
	while (rc == 0 && more) {
		rc = weights_each_tensor(w, x, weights_solve_tensor, &more);
		if (rc == 0 && !more)
			rc = weights_each_tensor(w, x, weights_count_stack,
						 &more);
	}
	for (uint32_t i = 0; rc == 0 && i < x->u->n_letters; i++)
		if (!x->known[i])
			rc = weights_bad(w, x->u->rule, "neither `let` "
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

/* Returns the prefix of an instance's names on this side: that of its optimizer
 * state, or "" for weights. */
static const char *weights_prefix(const struct weights_work *w,
				  const struct weights_instance *x,
				  enum rsh_side side)
{
	return x->m->state ?
	       w->o->table->pairs[RSH_RULE_STATE][x->m->state - 1].side[side] :
	       "";
}

/* ---- making a tensor ---- */

static int weights_new(struct weights_work *w, const char *text,
		       struct weights_made **out)
{
	struct weights_made *m;

	if (w->n_made == WEIGHTS_MADE_MAX)
		return rsh_error_set(w->err, EINVAL, "%s makes more than %u "
				     "tensors", w->o->table->path,
				     WEIGHTS_MADE_MAX);
	if (rsh_room(w->made, w->made_cap, (size_t)w->n_made + 1))
		return rsh_error_nomem(w->err);
	m = &w->made[w->n_made];
	memset(m, 0, sizeof(*m));
	m->offer.name = rsh_names_add(w->cat->names, text, strlen(text));
	if (m->offer.name == RSH_NAME_NONE)
		return rsh_error_nomem(w->err);
	m->text = rsh_names_text(w->cat->names, m->offer.name);
	*out = m;
	return 0;
}

int weights_make_copy(struct weights_work *w, const char *text,
		      const struct rsh_rule *rule, const uint32_t *source)
{
	struct weights_made *m;
	int rc;

	if (!weights_is_wanted(w, text))
		return 0;
	rc = weights_new(w, text, &m);
	if (rc)
		return rc;
	weights_make_same(w, *source, &m->offer);
	m->rule = rule;
	m->sources = source;
	m->n_sources = 1;
	w->n_made++;
	return 0;
}

/* A master weight would change as its weight does, and a mean of gradients
 * would not. */
static int weights_add(struct weights_work *w, const struct weights_instance *x,
		       struct rsh_offer *o)
{
	if (x->m->state)
		return weights_bad(w, x->u->rule, "%s is the state of a "
				   "weight to which 1 is added, and is not "
				   "converted: --drop leaves it out",
				   weights_text(w, x->m->source));
	if (o->add)
		return weights_bad(w, x->u->rule, "1 was added to %s "
				   "already", weights_text(w, x->m->source));
	o->add = w->to == RSH_SIDE_HF ? 1 : -1;
	return 0;
}

static int weights_make_one(struct weights_work *w, struct weights_instance *x,
			    uint32_t tensor, const uint64_t *numbers,
			    const char *text)
{
	struct weights_made *m;
	int rc = weights_new(w, text, &m);

	if (rc == 0 && x->u->rule->tensors[w->to][tensor].has_dims)
		rc = weights_make_parts(w, x, tensor, numbers, &m->offer);
	else if (rc == 0)
		weights_make_same(w, x->m->source, &m->offer);
	if (rc == 0 && x->u->rule->adds_one)
		rc = weights_add(w, x, &m->offer);
	if (rc)
		return rc;
	m->rule = x->u->rule;
	m->sources = x->sources;
	m->n_sources = x->n;
	w->n_made++;
	return 0;
}

/* ---- all tensors of an instance ---- */

#define WEIGHTS_FOUND 1

/* Sets the next numbers of a stack; returns false after the last ones. */
static bool weights_next(const struct weights_instance *x,
			 const uint32_t *letters, uint32_t n, uint64_t *numbers)
{
	while (n-- > 0) {
		if (++numbers[n] < x->sizes[letters[n]])
			return true;
		numbers[n] = 0;
	}
	return false;
}

/* Returns how many tensors a stack has; an unknown size counts as 1. */
static uint64_t weights_stack_size(const struct weights_instance *x,
				   const uint32_t *letters, uint32_t n)
{
	uint64_t size = 1;

	for (uint32_t i = 0; i < n; i++)
		if (x->known[letters[i]] &&
		    !rsh_mul_u64(size, x->sizes[letters[i]], &size))
			return UINT64_MAX;
	return size;
}

/* Makes each wanted tensor of an instance for a tensor of the rule; without
 * `make`, returns WEIGHTS_FOUND if there is one. */
static int weights_each_of(struct weights_work *w, struct weights_instance *x,
			   uint32_t tensor, bool make)
{
	const struct weights_name *n = &x->u->names[w->to][tensor];
	uint64_t numbers[WEIGHTS_HOLES_MAX] = { 0 }, holes[WEIGHTS_HOLES_MAX];
	uint32_t letters[WEIGHTS_HOLES_MAX];
	const uint32_t count = weights_stacks(x->u, n, letters);
	const uint64_t size = weights_stack_size(x, letters, count);
	char text[WEIGHTS_TEXT];
	int rc = 0;

	if (size > WEIGHTS_MADE_MAX)
		return weights_bad(w, x->u->rule, "%s would become more than "
				   "%u tensors", weights_text(w, x->m->source),
				   WEIGHTS_MADE_MAX);
	memcpy(numbers, x->m->numbers, x->u->n_shared * sizeof(*numbers));
	for (uint64_t i = 0; i < size && rc == 0; i++) {
		weights_spread(x->u, n, numbers, holes);
		if (!weights_print(n, holes, weights_prefix(w, x, w->to), text))
			return weights_bad(w, x->u->rule, "a number in "
					   "the name of what becomes of %s is "
					   "not known or too large",
					   weights_text(w, x->m->source));
		if (weights_is_wanted(w, text))
			rc = !make ? WEIGHTS_FOUND :
			     weights_make_one(w, x, tensor, numbers, text);
		(void)weights_next(x, letters, count, numbers + x->u->n_shared);
	}
	return rc;
}

static int weights_each_made(struct weights_work *w, struct weights_instance *x,
			     bool make)
{
	int rc = 0;

	for (uint32_t i = 0; rc == 0 && i < x->u->rule->n_tensors[w->to]; i++)
		if (!x->u->rule->tensors[w->to][i].again) {
			rc = weights_each_of(w, x, i, make);
		} else if (make) {
			w->n_again++;
			w->a_again = x->m->source;
		}
	return rc;
}

/* ---- completeness ---- */

/* Checks that the tensors of a stack are complete, numbered from 0.  If the
 * size of the stack is unknown, one tensor is enough. */
static int weights_check_tensor(struct weights_work *w,
				struct weights_instance *x, uint32_t tensor)
{
	const struct weights_name *n = &x->u->names[w->from][tensor];
	const uint32_t shared = x->u->n_shared;
	uint64_t numbers[WEIGHTS_HOLES_MAX] = { 0 }, holes[WEIGHTS_HOLES_MAX];
	uint32_t letters[WEIGHTS_HOLES_MAX], at = x->first[tensor];
	const uint32_t count = weights_stacks(x->u, n, letters);
	uint64_t size = weights_stack_size(x, letters, count);
	char text[WEIGHTS_TEXT] = "a tensor";

	memcpy(numbers, x->m->numbers, shared * sizeof(*numbers));
	for (uint32_t i = 0; i < count && at < x->first[tensor + 1]; i++)
		if (!x->known[letters[i]])
			return 0;
	for (; size > 0 && at < x->first[tensor + 1]; size--, at++) {
		if (memcmp(numbers, x->m[at].numbers, sizeof(numbers)) != 0)
			break;
		(void)weights_next(x, letters, count, numbers + shared);
	}
	if (at < x->first[tensor + 1] && size == 0)
		return weights_bad(w, x->u->rule, "%s is one more than "
				   "the rule names", weights_text(w,
							x->m[at].source));
	if (size == 0)
		return 0;
	weights_spread(x->u, n, numbers, holes);
	(void)weights_print(n, holes, weights_prefix(w, x, w->from), text);
	return weights_bad(w, x->u->rule, "%.400s is missing, which the "
			   "rule wants beside %.400s", text,
			   weights_text(w, x->m->source));
}

/* Returns the tensor of the first part of an offer; NULL: it has none. */
static const struct rsh_tensor *weights_stored(const struct weights_work *w,
					       const struct rsh_offer *o)
{
	return o->n_parts ? w->cat->tensors[o->parts->tensor] : NULL;
}

static bool weights_has_scales(const struct rsh_tensor *t)
{
	return t->quantised && t->quantised->scales;
}

/* Checks that all sources have one type and one form. */
static int weights_check_types(struct weights_work *w,
			       struct weights_instance *x)
{
	const uint32_t first = x->m->source;
	const struct rsh_offer *a = &w->in[first];
	const struct rsh_tensor *one = weights_stored(w, a);

	for (uint32_t i = 1; i < x->n; i++) {
		const uint32_t source = x->m[i].source;
		const struct rsh_offer *b = &w->in[source];
		const struct rsh_tensor *other = weights_stored(w, b);

		if (a->dtype != b->dtype)
			return weights_bad(w, x->u->rule, "%.400s is %s, "
					   "and %.400s is %s",
					   weights_text(w, source),
					   rsh_dtype_name(b->dtype),
					   weights_text(w, first),
					   rsh_dtype_name(a->dtype));
		if (one && other &&
		    weights_has_scales(one) != weights_has_scales(other))
			return weights_bad(w, x->u->rule, "one of %.400s and "
					   "%.400s has scales, and the other "
					   "has none", weights_text(w, source),
					   weights_text(w, first));
		if (one && other && one->wide_bf16 != other->wide_bf16)
			return weights_bad(w, x->u->rule, "one of %.400s "
					   "and %.400s is stored as Float32, "
					   "and the other is not",
					   weights_text(w, source),
					   weights_text(w, first));
	}
	return 0;
}

/* ---- instances ---- */

/* An instance of which no tensor is wanted is skipped.  An error of the sizes
 * is reported only if no tensor is missing, because a missing tensor may be its
 * cause. */
static int weights_make_instance(struct weights_work *w,
				 struct weights_instance *x)
{
	struct rsh_error sizes = RSH_ERROR_INIT, *err = w->err;
	int solved, rc;

	if (x->m->state && w->o->leave_states) {
		for (uint32_t i = 0; i < x->n; i++)
			weights_passed(w, x->m[i].source, x->u->rule);
		w->a_left = x->m->source;
		w->n_left += x->n;
		return 0;
	}
	w->err = &sizes;
	solved = weights_solve(w, x);
	w->err = err;
	if (solved == -ENOMEM)
		return rsh_error_nomem(w->err);
	rc = weights_each_made(w, x, false);
	if (rc == 0) {
		for (uint32_t i = 0; i < x->n; i++)
			weights_passed(w, x->m[i].source, x->u->rule);
	}
	if (rc != WEIGHTS_FOUND)
		return rc;
	rc = 0;
	for (uint32_t i = 0; rc == 0 && i < x->u->rule->n_tensors[w->from];
	     i++)
		rc = weights_check_tensor(w, x, i);
	rc = rc ?: weights_check_types(w, x);
	if (rc == 0 && solved)
		return rsh_error_set(w->err, -solved, "%s", sizes.text);
	return rc ?: weights_each_made(w, x, true);
}

int weights_make(struct weights_work *w)
{
	uint32_t *sources = rsh_arena_array(w->arena, uint32_t, w->matches.n);
	const uint32_t most = 2 * WEIGHTS_TENSORS_MAX * WEIGHTS_AXES_MAX;
	struct weights_instance x = {
		.known = rsh_arena_array(&w->scratch, bool, most),
		.sizes = rsh_arena_array(&w->scratch, uint64_t, most),
	};
	int rc = 0;

	if (!sources || !x.known || !x.sizes)
		return rsh_error_nomem(w->err);
	for (uint32_t i = 0; i < w->matches.n; i++)
		sources[i] = weights_given(w, w->matches.m[i].source);
	w->sources = sources;
	for (uint32_t at = 0; rc == 0 && at < w->matches.n; at += x.n) {
		const uint32_t n_tensors = w->units[w->matches.m[at].unit]
						   .rule->n_tensors[w->from];
		uint32_t n = 0;

		x.u = &w->units[w->matches.m[at].unit];
		x.m = &w->matches.m[at];
		x.sources = w->sources + at;
		while (at + n < w->matches.n && x.m[n].unit == x.m->unit &&
		       x.m[n].state == x.m->state &&
		       memcmp(x.m[n].numbers, x.m->numbers,
			      x.m->n_shared * sizeof(*x.m->numbers)) == 0)
			n++;
		x.n = n;
		for (uint32_t t = 0, i = 0; t <= n_tensors; t++) {
			while (i < n && x.m[i].tensor < t)
				i++;
			x.first[t] = i;
		}
		rc = weights_wrong(w, weights_make_instance(w, &x));
	}
	weights_note(w, w->n_again, w->a_again, "repeat a part, by config.json: "
		     "the second one is left out");
	weights_note(w, w->n_left, w->a_left, "of an optimizer's state are "
		     "left out: --optimizer keep shows them");
	return rc;
}
