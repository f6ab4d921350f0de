/* SPDX-License-Identifier: Apache-2.0 */
/* plan/factored_stand.c finds an element of a tensor that is made of factored
 * parts: its digits along the factors say where it is on both sides. */
#include "factored_i.h"
#include "rsh/util/checked.h"

/* This is where an element is in the source, told by in-spans. */
struct factored_place {
	uint64_t digit[RSH_MAX_FACTORS];
	uint64_t at[RSH_MAX_DIMS];
	uint64_t from[RSH_MAX_DIMS], to[RSH_MAX_DIMS]; /* of the cell */
	uint64_t stride[RSH_MAX_DIMS];                 /* in the cell */
};

static bool factored_has(const struct rsh_walk *w, const struct rsh_factored *f,
			 const uint64_t *at, uint64_t *digit)
{
	for (uint32_t g = 0; g < w->n_spans; g++) {
		uint64_t left = at[g] - f->from[g];

		if (at[g] < f->from[g] || at[g] >= f->to[g])
			return false;
		for (uint32_t i = f->first[g]; i < f->first[g + 1]; i++) {
			const struct rsh_factor *x = &f->factors[i];

			digit[i] = left / x->shown_step;
			if (digit[i] >= x->size)
				return false;
			left -= digit[i] * x->shown_step;
		}
		if (left)
			return false;
	}
	return true;
}

/* Finds the part of an element by the span by which parts are sorted. */
static const struct rsh_factored *
factored_search(const struct rsh_walk *w, const uint64_t *at, uint64_t *digit)
{
	const uint64_t v = w->n_spans ? at[w->by] : 0;
	uint32_t lo = 0, hi = w->n_parts;

	while (w->n_spans && hi - lo > 1) {
		const uint32_t mid = lo + (hi - lo) / 2;

		if (w->factored[mid].from[w->by] <= v)
			lo = mid;
		else
			hi = mid;
	}
	for (lo++; lo-- > 0 && (!w->n_spans || w->reach[lo] > v);)
		if (factored_has(w, &w->factored[lo], at, digit))
			return &w->factored[lo];
	return NULL;
}

/* Finds the part of an element, which mostly is the last one or a neighbour of
 * it. */
static bool factored_part_of(const struct rsh_walk *w, const uint64_t *at,
			     struct rsh_stand *s, uint64_t *digit)
{
	const struct rsh_factored *last = s->factored, *f = last;
	const struct rsh_factored *end = w->factored + w->n_parts;

	if (last && factored_has(w, last, at, digit))
		return true;
	if (last && last + 1 < end && factored_has(w, last + 1, at, digit))
		f = last + 1;
	else if (last > w->factored && factored_has(w, last - 1, at, digit))
		f = last - 1;
	else
		f = factored_search(w, at, digit);
	if (!f)
		return false;
	s->factored = f;
	s->tensor = f->tensor;
	s->replica = rsh_cut_replica(f->tensor->cut, s->member);
	return true;
}

/* ---- the cell of the source ---- */

static void factored_in_grid(struct rsh_stand *s, struct factored_place *p)
{
	const struct rsh_factored *f = s->factored;

	s->cell = 0;
	s->src = 0;
	for (uint32_t h = 0; h < f->n_in; h++) {
		const struct rsh_in_span *in = &f->in[h];
		const uint64_t cell = p->at[h] / in->len;

		p->from[h] = cell * in->len;
		p->to[h] = p->from[h] + in->len;
		p->stride[h] = in->stride;
		s->cell += (uint32_t)cell * in->weight;
		s->src += (p->at[h] - p->from[h]) * in->stride;
	}
}

static bool factored_in_boxes(struct rsh_stand *s, struct factored_place *p)
{
	const struct rsh_factored *f = s->factored;
	uint64_t at[RSH_MAX_DIMS] = { 0 }, stride = 1;
	struct rsh_box box;

	for (uint32_t h = 0; h < f->n_in; h++)
		at[f->in[h].lead] = p->at[h] / f->in[h].inner;
	if (!rsh_cut_find(f->tensor->cut, f->tensor->dims, at, &s->cell, &box))
		return false;
	s->src = 0;
	for (uint32_t h = f->n_in; h-- > 0;) {
		const struct rsh_in_span *in = &f->in[h];

		p->from[h] = box.from[in->lead] * in->inner;
		p->to[h] = p->from[h] + box.size[in->lead] * in->inner;
		p->stride[h] = stride;
		s->src += (p->at[h] - p->from[h]) * stride;
		stride *= p->to[h] - p->from[h];
	}
	return true;
}

/* ---- what follows ---- */

/* This is a range of a factor's digits. */
struct digit_range {
	uint64_t from, to;
};

/* Cuts a range, which has `digit`, to those of the digits that stand in
 * from <= place < to; that of `digit` is `at`. */
static void range_cut(struct digit_range *r, uint64_t digit, uint64_t at,
		      uint64_t step, uint64_t from, uint64_t to)
{
	const uint64_t before = (at - from) / step;

	if (digit > before)
		r->from = rsh_max_u64(r->from, digit - before);
	r->to = rsh_min_u64(r->to, digit + (to - 1 - at) / step + 1);
}

/* Finds the elements that follow along x: a run, or some that lie apart, which
 * are rows of one element. */
static void factored_run(const struct factored_place *p, const uint64_t *at,
			 struct rsh_stand *s)
{
	const struct rsh_factored *f = s->factored;
	const struct rsh_factor *x = &f->factors[f->x];
	const uint32_t g = x->shown_dim, h = x->dim;
	struct digit_range xs = { 0, x->size };

	range_cut(&xs, p->digit[f->x], at[g], 1, s->from[g],
		  s->from[g] + s->len[g]);
	range_cut(&xs, p->digit[f->x], p->at[h], x->step, p->from[h],
		  p->to[h]);
	if (f->x == f->y) {
		s->run = xs.to - p->digit[f->x];
		return;
	}
	s->rows = xs.to - p->digit[f->x] - 1;
	s->stride = x->step * p->stride[h];
}

bool rsh_factored_find(const struct rsh_walk *w, const uint64_t *at,
		       struct rsh_stand *s)
{
	const struct rsh_factored *f;
	struct factored_place p;

	if (!factored_part_of(w, at, s, p.digit))
		return false;
	f = s->factored;
	for (uint32_t h = 0; h < f->n_in; h++)
		p.at[h] = f->in[h].base;
	for (uint32_t i = 0; i < f->n; i++)
		p.at[f->factors[i].dim] += p.digit[i] * f->factors[i].step;
	s->run = 1;
	s->rows = 0;
	if (rsh_cut_grid(f->tensor->cut))
		factored_in_grid(s, &p);
	else if (!factored_in_boxes(s, &p))
		return false;
	if (f->x != RSH_NO_FACTOR)
		factored_run(&p, at, s);
	return true;
}
