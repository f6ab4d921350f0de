/* SPDX-License-Identifier: Apache-2.0 */
/* plan/mixed_radix.c computes with sets of mixed-radix numbers: the indexes
 * that the factors of one dimension have. */
#include "parts_i.h"
#include "rsh/util/checked.h"

void rsh_mixed_radix_add(struct rsh_mixed_radix *v, uint64_t size,
			 uint64_t step)
{
	uint32_t i = v->n++;

	for (; i > 0 && v->of[i - 1].step < step; i--)
		v->of[i] = v->of[i - 1];
	v->of[i] = (struct rsh_digit){ size, step };
}

bool rsh_mixed_radix_valid(const struct rsh_mixed_radix *v, uint64_t limit)
{
	uint64_t reach, last = v->base;

	for (uint32_t i = 0; i < v->n; i++) {
		const struct rsh_digit *d = &v->of[i];

		if (d->step == 0 || !rsh_mul_u64(d->size, d->step, &reach) ||
		    (i > 0 && v->of[i - 1].step < reach) ||
		    !rsh_add_u64(last, reach - d->step, &last))
			return false;
	}
	return last < limit;
}

uint64_t rsh_mixed_radix_last(const struct rsh_mixed_radix *v)
{
	uint64_t last = v->base;

	for (uint32_t i = 0; i < v->n; i++)
		last += (v->of[i].size - 1) * v->of[i].step;
	return last;
}

static uint64_t digits_below(const struct rsh_mixed_radix *v, uint64_t to)
{
	uint64_t all = 1, n = 0;

	if (to <= v->base)
		return 0;
	to -= v->base;
	for (uint32_t i = 0; i < v->n; i++)
		all *= v->of[i].size;
	for (uint32_t i = 0; i < v->n; i++) {
		const struct rsh_digit *d = &v->of[i];
		uint64_t k = to / d->step;

		all /= d->size;
		if (k >= d->size)
			return n + d->size * all;
		n += k * all;
		to -= k * d->step;
	}
	return n + (to > 0);
}

uint64_t rsh_mixed_radix_between(const struct rsh_mixed_radix *v, uint64_t from,
				 uint64_t to)
{
	return digits_below(v, to) - digits_below(v, from);
}

/* ---- intersection ---- */

/* Copies all digits but the first, and sets another base. */
static void digits_rest(const struct rsh_mixed_radix *v, uint64_t base,
			struct rsh_mixed_radix *out)
{
	out->base = base;
	out->n = v->n - 1;
	for (uint32_t i = 0; i < out->n; i++)
		out->of[i] = v->of[i + 1];
}

/* Divides the numbers of v into `whole`, whose first digit has this larger
 * step, and the rest, `over`.  False: there is no rest. */
static bool digits_split(const struct rsh_mixed_radix *v, uint64_t step,
			 struct rsh_mixed_radix *whole,
			 struct rsh_mixed_radix *over)
{
	const struct rsh_digit lead = v->of[0];
	const uint64_t q = step / lead.step;

	whole->base = v->base;
	whole->n = v->n + 1;
	whole->of[0] = (struct rsh_digit){ lead.size / q, step };
	whole->of[1] = (struct rsh_digit){ q, lead.step };
	for (uint32_t i = 1; i < v->n; i++)
		whole->of[i + 1] = v->of[i];
	digits_rest(v, v->base + lead.size / q * step, over);
	if (lead.size % q == 0)
		return false;
	if (lead.size % q > 1)
		rsh_mixed_radix_add(over, lead.size % q, lead.step);
	return true;
}

/* Does the same as rsh_mixed_radix_meet() for sets whose first digits have the
 * same step.  The other digits can compensate only small differences between
 * the first digits, so few differences are tried. */
static bool digits_meet_alike(const struct rsh_mixed_radix *a,
			      const struct rsh_mixed_radix *b, uint32_t *budget)
{
	const int64_t step = (int64_t)a->of[0].step;
	const int64_t off = (int64_t)b->base - (int64_t)a->base;
	const int64_t most_a = (int64_t)a->of[0].size - 1;
	const int64_t most_b = (int64_t)b->of[0].size - 1;

	for (int64_t k = off / step - 1; k <= off / step + 1; k++) {
		struct rsh_mixed_radix x, y;

		if (k > most_a || -k > most_b)
			continue;
		digits_rest(a, a->base + (uint64_t)(k > 0 ? k * step : 0), &x);
		digits_rest(b, b->base + (uint64_t)(k < 0 ? -k * step : 0), &y);
		if (rsh_mixed_radix_meet(&x, &y, budget))
			return true;
	}
	return false;
}

/* Does the same as rsh_mixed_radix_meet().  a has the larger step, so its
 * numbers form groups with gaps between them.  Only the groups near b are
 * checked. */
static bool digits_meet_near(const struct rsh_mixed_radix *a,
			     const struct rsh_mixed_radix *b, uint32_t *budget)
{
	const struct rsh_digit d = a->of[0];
	struct rsh_mixed_radix x;
	uint64_t width, last = rsh_mixed_radix_last(b), k = 0;

	digits_rest(a, a->base, &x);
	width = rsh_mixed_radix_last(&x) - a->base;
	if (b->base > a->base + width)
		k = (b->base - a->base - width + d.step - 1) / d.step;
	for (; k < d.size && a->base + k * d.step <= last; k++) {
		x.base = a->base + k * d.step;
		if (rsh_mixed_radix_meet(&x, b, budget))
			return true;
	}
	return false;
}

bool rsh_mixed_radix_meet(const struct rsh_mixed_radix *a,
			  const struct rsh_mixed_radix *b, uint32_t *budget)
{
	const struct rsh_mixed_radix *swap = a;
	const uint64_t step_a = a->n ? a->of[0].step : 0;
	const uint64_t step_b = b->n ? b->of[0].step : 0;
	struct rsh_mixed_radix whole, over;

	if (*budget == 0)
		return true;
	--*budget;
	if (rsh_mixed_radix_last(a) < b->base ||
	    rsh_mixed_radix_last(b) < a->base)
		return false;
	if (!a->n && !b->n)
		return true;
	if (step_a == step_b)
		return digits_meet_alike(a, b, budget);
	if (step_a < step_b) {
		a = b;
		b = swap;
	}
	if (!b->n || a->of[0].step % b->of[0].step ||
	    b->of[0].size <= a->of[0].step / b->of[0].step ||
	    b->n == RSH_MAX_FACTORS)
		return digits_meet_near(a, b, budget);
	return (digits_split(b, a->of[0].step, &whole, &over) &&
		rsh_mixed_radix_meet(a, &over, budget)) ||
	       rsh_mixed_radix_meet(a, &whole, budget);
}
