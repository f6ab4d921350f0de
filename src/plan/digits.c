/* SPDX-License-Identifier: Apache-2.0 */
/* plan/digits.c finds the elements of a part that are in a slice.  From these
 * follow the cells that the slice needs. */
#include "parts_i.h"
#include "rsh/util/checked.h"

/* ---- a slice as boxes of digits ---- */

struct slicing {
	const struct rsh_mapping *w;
	struct rsh_digit_box b;
	rsh_digit_box_fn *each;
	void *ctx;
};

static bool slicing_span(struct slicing *s, uint32_t g);

/* Divides the at-th to (end - 1)-th number of a span, in order, into boxes of
 * digits. */
static bool slicing_numbers(struct slicing *s, uint32_t g, uint64_t at,
			    uint64_t end)
{
	const struct rsh_part *f = s->b.part;
	const uint32_t first = f->first[g], last = f->first[g + 1];

	while (at < end) {
		uint64_t block = 1, rest = at, take = 1;
		bool all = true;

		/* Take as many of the last digits whole as fit. */
		for (uint32_t i = last; i-- > first;) {
			const uint64_t size = f->factors[i].size;
			const uint64_t k = rest % size;

			rest /= size;
			s->b.from[i] = all ? 0 : k;
			s->b.to[i] = all ? size : k + 1;
			if (!all)
				continue;
			if (k == 0 && size <= (end - at) / block) {
				block *= size;
				continue;
			}
			take = rsh_min_u64(size - k, (end - at) / block);
			s->b.from[i] = k;
			s->b.to[i] = k + take;
			all = false;
		}
		if (!slicing_span(s, g + 1))
			return false;
		at += block * take;
	}
	return true;
}

static bool slicing_span(struct slicing *s, uint32_t g)
{
	const struct rsh_span *span = &s->w->spans[g];
	struct rsh_mixed_radix v;
	uint64_t from, to;

	if (g == s->w->n_spans)
		return s->each(s->ctx, &s->b);
	from = s->b.slice->from[span->lead] * span->inner;
	to = from + s->b.slice->size[span->lead] * span->inner;
	rsh_part_digits(s->b.part, g, &v);
	return slicing_numbers(s, g, rsh_mixed_radix_between(&v, 0, from),
			       rsh_mixed_radix_between(&v, 0, to));
}

bool rsh_part_each(const struct rsh_mapping *w, uint32_t part,
		   const struct rsh_box *slice, rsh_digit_box_fn *each,
		   void *ctx)
{
	const struct rsh_part *f = &w->parts[part];
	struct slicing s;

	for (uint32_t g = 0; g < w->n_spans; g++) {
		const struct rsh_span *span = &w->spans[g];
		const uint64_t from = slice->from[span->lead] * span->inner;

		if (from >= f->to[g] || f->from[g] >= from +
		    slice->size[span->lead] * span->inner)
			return true;
	}
	s.w = w;
	s.b.part = f;
	s.b.slice = slice;
	s.each = each;
	s.ctx = ctx;
	return slicing_span(&s, 0);
}

/* ---- boxes of digits in the source ---- */

/* Gives the numbers along an in-span. */
static void digit_box_numbers(const struct rsh_digit_box *b, uint32_t h,
			      struct rsh_mixed_radix *out)
{
	const struct rsh_part *f = b->part;

	out->base = f->in[h].base;
	out->n = 0;
	for (uint32_t i = 0; i < f->n; i++) {
		if (f->factors[i].dim != h)
			continue;
		out->base += b->from[i] * f->factors[i].step;
		if (b->to[i] - b->from[i] > 1)
			rsh_mixed_radix_add(out, b->to[i] - b->from[i],
					    f->factors[i].step);
	}
}

void rsh_digit_box_bounds(const struct rsh_digit_box *b, struct rsh_box *out)
{
	const struct rsh_tensor *t = b->part->tensor;
	struct rsh_mixed_radix v;

	*out = rsh_box_whole(t->dims, t->n_dims);
	for (uint32_t h = 0; h < b->part->n_in; h++) {
		const struct rsh_in_span *in = &b->part->in[h];

		digit_box_numbers(b, h, &v);
		out->from[in->lead] = v.base / in->inner;
		out->size[in->lead] = rsh_mixed_radix_last(&v) / in->inner -
				      out->from[in->lead] + 1;
	}
	for (uint32_t i = 0; i < b->part->n_alike; i++) {
		const struct rsh_alike *x = &b->part->alike[i];

		out->from[x->in_dim] = b->slice->from[x->dim];
		out->size[x->in_dim] = b->slice->size[x->dim];
	}
}

uint64_t rsh_digit_box_count(const struct rsh_digit_box *b,
			     const struct rsh_box *box)
{
	struct rsh_mixed_radix v;
	uint64_t n = 1;

	for (uint32_t h = 0; h < b->part->n_in && n > 0; h++) {
		const struct rsh_in_span *in = &b->part->in[h];
		const uint64_t from = box->from[in->lead] * in->inner;

		digit_box_numbers(b, h, &v);
		n *= rsh_mixed_radix_between(
			&v, from, from + box->size[in->lead] * in->inner);
	}
	return n;
}

/* Cuts the digits along an in-span to those of numbers from <= number < to.  It
 * stops at the first digit that keeps several values. */
static void digit_box_cut(struct rsh_digit_box *b, uint32_t h, uint64_t from,
			  uint64_t to)
{
	const struct rsh_part *f = b->part;
	struct rsh_mixed_radix v;

	digit_box_numbers(b, h, &v);
	for (uint32_t at = 0; at < v.n; at++) {
		const uint64_t step = v.of[at].step;
		uint64_t rest = 0, first, last;
		uint32_t i = 0;

		for (uint32_t k = at + 1; k < v.n; k++)
			rest += (v.of[k].size - 1) * v.of[k].step;
		while (f->factors[i].dim != h || f->factors[i].step != step ||
		       b->to[i] - b->from[i] == 1)
			i++;
		first = from > v.base + rest ?
			(from - v.base - rest + step - 1) / step : 0;
		last = rsh_min_u64((to - 1 - v.base) / step, v.of[at].size - 1);
		b->to[i] = b->from[i] + last + 1;
		b->from[i] += first;
		v.base += first * step;
		if (first < last)
			return;
	}
}

void rsh_digit_box_shown(const struct rsh_digit_box *b,
			 const struct rsh_mapping *w,
			 const struct rsh_box *cell, struct rsh_box *out)
{
	const struct rsh_part *f = b->part;
	struct rsh_digit_box cut = *b;

	for (uint32_t h = 0; h < f->n_in; h++) {
		const struct rsh_in_span *in = &f->in[h];
		const uint64_t from = cell->from[in->lead] * in->inner;

		digit_box_cut(&cut, h, from,
			      from + cell->size[in->lead] * in->inner);
	}
	*out = rsh_box_whole(w->dims, w->n_dims);
	for (uint32_t g = 0; g < w->n_spans; g++) {
		const uint64_t inner = w->spans[g].inner;
		uint64_t from = f->from[g], last = f->from[g];

		for (uint32_t i = f->first[g]; i < f->first[g + 1]; i++) {
			from += cut.from[i] * f->factors[i].shown_step;
			last += (cut.to[i] - 1) * f->factors[i].shown_step;
		}
		out->from[w->spans[g].lead] = from / inner;
		out->size[w->spans[g].lead] = last / inner - from / inner + 1;
	}
	for (uint32_t i = 0; i < f->n_alike; i++) {
		const uint32_t d = f->alike[i].dim;

		out->from[d] = b->slice->from[d];
		out->size[d] = b->slice->size[d];
	}
}

/* ---- gaps ---- */

struct digits_held {
	const struct rsh_digit_box *b;
	uint64_t n;
};

static void digits_held_add(void *ctx, uint32_t cell)
{
	struct digits_held *x = ctx;
	const struct rsh_tensor *t = x->b->part->tensor;
	struct rsh_box box;

	rsh_cut_box(t->cut, t->dims, cell, &box);
	x->n += rsh_digit_box_count(x->b, &box);
}

/* Returns the factor with the largest gaps between its digits; RSH_NO_FACTOR:
 * the elements are a box. */
static uint32_t digit_box_apart(const struct rsh_digit_box *b,
				const struct rsh_box *bounds)
{
	const struct rsh_part *f = b->part;
	uint32_t most = RSH_NO_FACTOR;

	for (uint32_t i = 0; i < f->n; i++) {
		const struct rsh_in_span *in = &f->in[f->factors[i].dim];
		const uint64_t from = bounds->from[in->lead] * in->inner;
		struct rsh_mixed_radix v;

		digit_box_numbers(b, f->factors[i].dim, &v);
		if (b->to[i] - b->from[i] > 1 &&
		    rsh_mixed_radix_between(&v, from, UINT64_MAX) <
			    bounds->size[in->lead] * in->inner &&
		    (most == RSH_NO_FACTOR ||
		     f->factors[i].step > f->factors[most].step))
			most = i;
	}
	return most;
}

bool rsh_digit_box_fills(const struct rsh_digit_box *b,
			 const struct rsh_box *bounds)
{
	return digit_box_apart(b, bounds) == RSH_NO_FACTOR;
}

bool rsh_digit_box_gap(const struct rsh_digit_box *b, struct rsh_box *gap)
{
	const struct rsh_tensor *t = b->part->tensor;
	struct digits_held held = { b, 0 };
	struct rsh_digit_box half = *b;
	struct rsh_box bounds;
	uint32_t i;

	rsh_digit_box_bounds(b, &bounds);
	if (!rsh_cut_gap(t->cut, &bounds, gap))
		return false;
	rsh_cut_overlap(t->cut, t->dims, &bounds, digits_held_add, &held);
	if (held.n == rsh_digit_box_count(b, &bounds))
		return false;
	i = digit_box_apart(b, &bounds);
	if (i == RSH_NO_FACTOR)
		return true;
	half.to[i] = b->from[i] + (b->to[i] - b->from[i]) / 2;
	if (rsh_digit_box_gap(&half, gap))
		return true;
	half.from[i] = half.to[i];
	half.to[i] = b->to[i];
	return rsh_digit_box_gap(&half, gap);
}
