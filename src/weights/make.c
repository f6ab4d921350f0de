/* SPDX-License-Identifier: Apache-2.0 */
/* weights/make.c makes the tensors of each instance. */
#include <errno.h>
#include <string.h>

#include "rsh/util/checked.h"
#include "rsh/util/mem.h"
#include "weights_i.h"

/* Returns the prefix of an instance's names on this side: that of its optimizer
 * state, or "" for weights. */
static const char *weights_prefix(const struct weights_work *w,
				  const struct weights_instance *x,
				  enum rsh_side side)
{
	return x->m->state ?
	       w->o->table->states[x->m->state - 1].prefix[side] : "";
}

/* ---- making a tensor ---- */

static int weights_new(struct weights_work *w, const char *text,
		       struct weights_made **out, struct rsh_error *err)
{
	struct weights_made *m;

	if (w->n_made == WEIGHTS_MADE_MAX)
		return rsh_error_set(err, EINVAL, "%s makes more than %u "
				     "tensors", w->o->table->path,
				     WEIGHTS_MADE_MAX);
	if (rsh_room(w->made, w->made_cap, (size_t)w->n_made + 1))
		return rsh_error_nomem(err);
	m = &w->made[w->n_made];
	memset(m, 0, sizeof(*m));
	m->offer.name = rsh_names_add(w->cat->names, text, strlen(text));
	if (m->offer.name == RSH_NAME_NONE)
		return rsh_error_nomem(err);
	m->text = rsh_names_text(w->cat->names, m->offer.name);
	*out = m;
	return 0;
}

int weights_make_copy(struct weights_work *w, const char *text,
		      const struct rsh_rule *rule, const uint32_t *source,
		      struct rsh_error *err)
{
	struct weights_made *m;
	int rc;

	if (!weights_is_wanted(w, text))
		return 0;
	rc = weights_new(w, text, &m, err);
	if (rc)
		return rc;
	weights_make_same(w, *source, &m->offer);
	m->rule = rule;
	m->sources = source;
	m->n_sources = 1;
	w->n_made++;
	return 0;
}

static int weights_make_one(struct weights_work *w, struct weights_instance *x,
			    uint32_t tensor, const uint64_t *numbers,
			    const char *text, struct rsh_error *err)
{
	struct weights_made *m;
	int rc = weights_new(w, text, &m, err);

	if (rc == 0 && x->u->rule->tensors[w->to][tensor].has_dims)
		rc = weights_make_parts(w, x, tensor, numbers, &m->offer, err);
	else if (rc == 0)
		weights_make_same(w, x->m->source, &m->offer);
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
			   uint32_t tensor, bool make, struct rsh_error *err)
{
	const struct weights_name *n = &x->u->names[w->to][tensor];
	uint64_t numbers[WEIGHTS_HOLES_MAX] = { 0 }, holes[WEIGHTS_HOLES_MAX];
	uint32_t letters[WEIGHTS_HOLES_MAX];
	const uint32_t count = weights_stacks(x->u, n, letters);
	const uint64_t size = weights_stack_size(x, letters, count);
	char text[WEIGHTS_TEXT];
	int rc = 0;

	if (size > WEIGHTS_MADE_MAX)
		return weights_bad(w, x->u->rule, err, "%s would become more "
				   "than %u tensors",
				   weights_text(w, x->m->source),
				   WEIGHTS_MADE_MAX);
	memcpy(numbers, x->m->numbers, x->u->n_shared * sizeof(*numbers));
	for (uint64_t i = 0; i < size && rc == 0; i++) {
		weights_spread(x->u, n, numbers, holes);
		if (!weights_print(n, holes, weights_prefix(w, x, w->to), text))
			return weights_bad(w, x->u->rule, err, "a number in "
					   "the name of what becomes of %s is "
					   "not known or too large",
					   weights_text(w, x->m->source));
		if (weights_is_wanted(w, text))
			rc = !make ? WEIGHTS_FOUND :
			     weights_make_one(w, x, tensor, numbers, text, err);
		(void)weights_next(x, letters, count, numbers + x->u->n_shared);
	}
	return rc;
}

static int weights_each_made(struct weights_work *w, struct weights_instance *x,
			     bool make, struct rsh_error *err)
{
	int rc = 0;

	for (uint32_t i = 0; rc == 0 && i < x->u->rule->n_tensors[w->to]; i++)
		rc = weights_each_of(w, x, i, make, err);
	return rc;
}

/* ---- completeness ---- */

/* Checks that the tensors of a stack are complete, numbered from 0.  If the
 * size of the stack is unknown, one tensor is enough. */
static int weights_check_tensor(struct weights_work *w,
				struct weights_instance *x, uint32_t tensor,
				struct rsh_error *err)
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
		return weights_bad(w, x->u->rule, err, "%s is one more than "
				   "the rule names", weights_text(w,
							x->m[at].source));
	if (size == 0)
		return 0;
	weights_spread(x->u, n, numbers, holes);
	(void)weights_print(n, holes, weights_prefix(w, x, w->from), text);
	return weights_bad(w, x->u->rule, err, "%.400s is missing, which the "
			   "rule wants beside %.400s", text,
			   weights_text(w, x->m->source));
}

/* Returns the tensor of the first part of an offer; NULL: it has none. */
static const struct rsh_tensor *weights_stored(const struct weights_work *w,
					       const struct rsh_offer *o)
{
	return o->n_factored ? w->cat->tensors[o->factored->tensor] :
	       o->n_parts ? w->cat->tensors[o->parts->tensor] : NULL;
}

static bool weights_has_scales(const struct rsh_tensor *t)
{
	return t->quantised && t->quantised->scales;
}

/* Checks that all sources have one type and one form. */
static int weights_check_types(struct weights_work *w,
			       struct weights_instance *x,
			       struct rsh_error *err)
{
	const uint32_t first = x->m->source;
	const struct rsh_offer *a = &w->in[first];
	const struct rsh_tensor *one = weights_stored(w, a);

	for (uint32_t i = 1; i < x->n; i++) {
		const uint32_t source = x->m[i].source;
		const struct rsh_offer *b = &w->in[source];
		const struct rsh_tensor *other = weights_stored(w, b);

		if (a->dtype != b->dtype)
			return weights_bad(w, x->u->rule, err, "%.400s is %s, "
					   "and %.400s is %s",
					   weights_text(w, source),
					   rsh_dtype_name(b->dtype),
					   weights_text(w, first),
					   rsh_dtype_name(a->dtype));
		if (one && other &&
		    weights_has_scales(one) != weights_has_scales(other))
			return weights_bad(w, x->u->rule, err, "one of %.400s "
					   "and %.400s has scales, and the "
					   "other has none",
					   weights_text(w, source),
					   weights_text(w, first));
		if (one && other && one->wide_bf16 != other->wide_bf16)
			return weights_bad(w, x->u->rule, err, "one of %.400s "
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
				 struct weights_instance *x,
				 struct rsh_error *err)
{
	struct rsh_error sizes = RSH_ERROR_INIT;
	int solved, rc;

	if (x->m->state && w->o->leave_states) {
		for (uint32_t i = 0; i < x->n; i++)
			weights_passed(w, x->m[i].source, x->u->rule);
		w->a_left = x->m->source;
		w->n_left += x->n;
		return 0;
	}
	solved = weights_solve(w, x, &sizes);
	if (solved == -ENOMEM)
		return rsh_error_nomem(err);
	rc = weights_each_made(w, x, false, err);
	if (rc == 0) {
		for (uint32_t i = 0; i < x->n; i++)
			weights_passed(w, x->m[i].source, x->u->rule);
	}
	if (rc != WEIGHTS_FOUND)
		return rc;
	rc = 0;
	for (uint32_t i = 0; rc == 0 && i < x->u->rule->n_tensors[w->from];
	     i++)
		rc = weights_check_tensor(w, x, i, err);
	rc = rc ?: weights_check_types(w, x, err);
	if (rc == 0 && solved)
		return rsh_error_set(err, -solved, "%s", sizes.text);
	return rc ?: weights_each_made(w, x, true, err);
}

int weights_make(struct weights_work *w, struct rsh_error *err)
{
	uint32_t *sources = rsh_arena_array(w->arena, uint32_t, w->matches.n);
	const uint32_t most = 2 * WEIGHTS_TENSORS_MAX * WEIGHTS_AXES_MAX;
	struct weights_instance x = {
		.known = rsh_arena_array(&w->scratch, bool, most),
		.sizes = rsh_arena_array(&w->scratch, uint64_t, most),
	};
	int rc = 0;

	if (!sources || !x.known || !x.sizes)
		return rsh_error_nomem(err);
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
		rc = weights_wrong(w, weights_make_instance(w, &x, err), err);
	}
	weights_note(w, w->n_left, w->a_left, "of an optimizer's state are "
		     "left out: --optimizer keep shows them");
	return rc;
}
