/* SPDX-License-Identifier: Apache-2.0 */
/* plan/factored.c makes the factored parts of a mapping.
 *
 * Factors that are contiguous on both sides are merged.  For example, if whole
 * heads [n d, h] are the same on both sides, the factors n, d and h become
 * one. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "factored_i.h"
#include "rsh/util/checked.h"
#include "rsh/util/mem.h"

#define FACTORED_MOST (UINT64_C(1) << 62)
/* Comparing two parts of a real model takes one or two steps. */
#define FACTORED_BUDGET (1u << 22)

static const struct rsh_tensor *
factored_tensor(const struct rsh_mapping_build *k,
		const struct rsh_factored_part *r)
{
	return k->p->cat->tensors[r->tensor];
}

/* Returns whether the part has no elements. */
static bool factored_is_empty(const struct rsh_factored_part *r)
{
	for (uint32_t i = 0; i < r->n_factors; i++)
		if (r->factors[i].size == 0)
			return true;
	return false;
}

/* ---- boxes and factored parts ---- */

/* Rewrites a part as a box.  False: the part is not a box. */
static bool factored_as_box(const struct rsh_mapping_build *k,
			    const struct rsh_factored_part *r,
			    struct rsh_recipe_part *out)
{
	const struct rsh_tensor *in;
	bool followed[RSH_MAX_DIMS] = { false };
	const uint32_t n = k->t->n_dims;

	if (r->tensor >= k->p->cat->n_tensors)
		return false;
	in = factored_tensor(k, r);
	*out = (struct rsh_recipe_part){ .tensor = r->tensor };
	out->box.n_dims = n;
	for (uint32_t d = 0; d < n; d++) {
		out->box.from[d] = r->shown_from[d];
		out->box.size[d] = 1;
	}
	memset(out->axis, RSH_FIXED, sizeof(out->axis));
	for (uint32_t i = 0; i < in->n_dims; i++)
		out->base[i] = r->from[i];
	for (uint32_t i = 0; i < r->n_factors; i++) {
		const struct rsh_factor *f = &r->factors[i];

		if (f->shown_dim >= n || f->dim >= in->n_dims)
			return false;
		if (f->size == 1)
			continue;
		if (!f->size || f->shown_step != 1 || f->step != 1 ||
		    out->axis[f->dim] != RSH_FIXED || followed[f->shown_dim])
			return false;
		out->box.size[f->shown_dim] = f->size;
		out->axis[f->dim] = f->shown_dim;
		followed[f->shown_dim] = true;
	}
	for (uint32_t d = 0; d < n && d < in->n_dims; d++)
		if (out->axis[d] == RSH_FIXED && !followed[d])
			out->axis[d] = (uint8_t)d;
	return n == in->n_dims && (n == 0 || out->axis[n - 1] == n - 1);
}

bool rsh_factored_as_boxes(struct rsh_mapping_build *k, bool *failed)
{
	const struct rsh_recipe *r = &k->t->recipe;
	struct rsh_recipe_part *parts;
	struct rsh_recipe_part first;

	*failed = false;
	/* If some part of a recipe is not a box, then mostly the first part is
	 * not.  So it is checked before memory is allocated. */
	if (!factored_as_box(k, &r->factored[0], &first))
		return false;
	parts = rsh_arena_array(&k->p->arena, struct rsh_recipe_part,
				r->n_factored);
	*failed = !parts;
	for (uint32_t i = 0; parts && i < r->n_factored; i++)
		if (!factored_as_box(k, &r->factored[i], &parts[i]))
			return false;
	k->other = *k->t;
	k->other.recipe = (struct rsh_recipe){
		.n_parts = r->n_factored, .parts = parts, .codec = r->codec,
	};
	k->t = &k->other;
	return parts;
}

static int factored_of_box(struct rsh_mapping_build *k,
			   const struct rsh_recipe_part *r,
			   struct rsh_factored_part *out)
{
	struct rsh_arena *a = &k->p->arena;
	const uint32_t n = k->p->cat->tensors[r->tensor]->n_dims;
	uint64_t *from = rsh_arena_array(a, uint64_t, n + k->t->n_dims);
	struct rsh_factor *f = rsh_arena_array(a, struct rsh_factor, n);

	if (!from || !f)
		return -ENOMEM;
	*out = (struct rsh_factored_part){
		.tensor = r->tensor, .factors = f, .shown_from = from,
		.from = from + k->t->n_dims,
	};
	for (uint32_t d = 0; d < k->t->n_dims; d++)
		*from++ = r->box.from[d];
	for (uint32_t i = 0; i < n; i++) {
		*from++ = r->base[i];
		if (r->axis[i] == RSH_FIXED)
			continue;
		f[out->n_factors++] = (struct rsh_factor){
			.size = r->box.size[r->axis[i]],
			.shown_step = 1, .step = 1,
			.shown_dim = r->axis[i], .dim = (uint8_t)i,
		};
	}
	return 0;
}

int rsh_factored_of_boxes(struct rsh_mapping_build *k)
{
	const struct rsh_recipe *r = &k->t->recipe;
	struct rsh_factored_part *parts =
		rsh_arena_array(&k->p->arena, struct rsh_factored_part,
				r->n_parts);

	for (uint32_t i = 0; parts && i < r->n_parts; i++)
		if (factored_of_box(k, &r->parts[i], &parts[i]))
			return -ENOMEM;
	k->other = *k->t;
	k->other.recipe = (struct rsh_recipe){
		.n_factored = r->n_parts, .factored = parts,
		.codec = r->codec,
	};
	k->t = &k->other;
	return parts ? 0 : -ENOMEM;
}

/* ---- checking each part ---- */

/* Checks the factors of one dimension, of the shown tensor or of the
 * catalogue's. */
static bool factored_check_dim(const struct rsh_factored_part *r, bool shown,
			       uint32_t d, uint64_t size)
{
	struct rsh_mixed_radix v = { .base = shown ? r->shown_from[d]
						   : r->from[d] };

	for (uint32_t i = 0; i < r->n_factors; i++) {
		const struct rsh_factor *f = &r->factors[i];

		if (f->size == 1 || (shown ? f->shown_dim : f->dim) != d)
			continue;
		if (v.n == RSH_MAX_FACTORS)
			return false;
		rsh_mixed_radix_add(&v, f->size,
				    shown ? f->shown_step : f->step);
	}
	return rsh_mixed_radix_valid(&v, size);
}

static int factored_check_dims(const struct rsh_mapping_build *k,
			       const struct rsh_factored_part *r,
			       struct rsh_error *err)
{
	const struct rsh_tensor *in = factored_tensor(k, r);
	uint32_t n = 0;

	for (uint32_t i = 0; i < r->n_factors; i++) {
		const struct rsh_factor *f = &r->factors[i];

		if (f->shown_dim >= k->t->n_dims || f->dim >= in->n_dims)
			return rsh_error_set(err, EINVAL, "its part follows "
					     "dimension %u", f->shown_dim);
		n += f->size > 1;
	}
	for (uint32_t d = 0; d < k->t->n_dims; d++)
		if (!factored_check_dim(r, true, d, k->t->dims[d]))
			return rsh_error_set(err, EINVAL, "the factors of its "
					     "part do not fit dimension %u of "
					     "size %llu", d,
					     (unsigned long long)k->t->dims[d]);
	for (uint32_t i = 0; i < in->n_dims; i++)
		if (!factored_check_dim(r, false, i, in->dims[i]))
			return rsh_error_set(err, EINVAL, "the factors of its "
					     "part leave dimension %u of size "
					     "%llu", i,
					     (unsigned long long)in->dims[i]);
	return n <= RSH_MAX_FACTORS ? 0 :
		rsh_error_set(err, EINVAL, "its part has %u factors", n);
}

static bool factored_size(const uint64_t *dims, uint32_t n, uint64_t *out)
{
	*out = 1;
	for (uint32_t d = 0; d < n; d++)
		if (!rsh_mul_u64(*out, dims[d], out) || *out > FACTORED_MOST)
			return false;
	return true;
}

static int factored_check_part(const struct rsh_mapping_build *k,
			       const struct rsh_factored_part *r,
			       uint64_t *have, struct rsh_error *err)
{
	const struct rsh_tensor *in;
	uint64_t n = 1;
	int rc;

	if (r->tensor >= k->p->cat->n_tensors)
		return rsh_error_set(err, EINVAL, "its part is of no tensor");
	in = factored_tensor(k, r);
	if (!rsh_recipe_types_fit(k->t, in))
		return rsh_error_set(err, EINVAL,
			"its elements have another type");
	if (!rsh_quantised_fits(in))
		return rsh_error_set(err, EINVAL,
			"its scales do not fit its elements");
	if (factored_is_empty(r))
		return 0;
	if (!factored_size(in->dims, in->n_dims, &n))
		return rsh_error_set(err, EINVAL, "its part is too large");
	rc = factored_check_dims(k, r, err);
	if (rc)
		return rc;
	/* This does not overflow, since each element is in the tensor once. */
	n = 1;
	for (uint32_t i = 0; i < r->n_factors; i++)
		n *= r->factors[i].size;
	if (!rsh_add_u64(*have, n, have))
		*have = UINT64_MAX;
	return 0;
}

int rsh_factored_check(const struct rsh_mapping_build *k, struct rsh_error *err)
{
	const struct rsh_recipe *r = &k->t->recipe;
	uint64_t all, have = 0;

	if (!factored_size(k->t->dims, k->t->n_dims, &all))
		return rsh_error_set(err, EINVAL, "it is too large");
	for (uint32_t i = 0; i < r->n_factored; i++) {
		int rc = factored_check_part(k, &r->factored[i], &have, err);

		if (rc)
			return rc;
	}
	return have == all ? 0 :
		rsh_error_set(err, EINVAL, "its parts have %llu of %llu "
			      "elements", (unsigned long long)have,
			      (unsigned long long)all);
}

/* ---- contiguous dimensions ---- */

/* Returns the only factor of a dimension; NULL: there are none or several. */
static const struct rsh_factor *
factored_only(const struct rsh_factored_part *r, bool shown, uint32_t d)
{
	const struct rsh_factor *only = NULL;

	for (uint32_t i = 0; i < r->n_factors; i++) {
		const struct rsh_factor *f = &r->factors[i];

		if (f->size == 1 || (shown ? f->shown_dim : f->dim) != d)
			continue;
		if (only)
			return NULL;
		only = f;
	}
	return only;
}

bool rsh_factored_goes_on(const struct rsh_mapping_build *k, uint32_t d)
{
	const struct rsh_recipe *r = &k->t->recipe;
	const uint64_t size = k->t->dims[d];

	if (size == 0 || !rsh_cut_is_whole(k->t->cut, k->t->dims, d))
		return false;
	for (uint32_t i = 0; size > 1 && i < r->n_factored; i++) {
		const struct rsh_factored_part *part = &r->factored[i];
		const struct rsh_tensor *in = factored_tensor(k, part);
		const struct rsh_factor *f;

		if (factored_is_empty(part))
			continue;
		f = factored_only(part, true, d);
		if (!f || f->size != size || f->dim == 0 ||
		    in->dims[f->dim] != size ||
		    factored_only(part, false, f->dim) != f ||
		    !rsh_cut_is_whole(in->cut, in->dims, f->dim))
			return false;
	}
	return true;
}

/* Returns whether dimension i of the source belongs to the same in-span as
 * dimension i - 1. */
static bool factored_in_joined(const struct rsh_mapping_build *k,
			       const struct rsh_factored_part *r, uint32_t i)
{
	const struct rsh_factor *f;

	if (i == 0 || factored_tensor(k, r)->dims[i] == 1)
		return i > 0;
	f = factored_only(r, false, i);
	return f && k->joined[f->shown_dim];
}

/* ---- parts ---- */

/* A part while it is made. */
struct factoring {
	struct rsh_mapping_build *k;
	const struct rsh_factored_part *r;
	struct rsh_factored *out;
	uint64_t inner[RSH_MAX_DIMS]; /* [the source's dimension] */
	uint32_t span_of[RSH_MAX_DIMS];
	struct rsh_factor *f;
	struct rsh_in_span *in;
};

static void factored_in_spans(struct factoring *m)
{
	const struct rsh_tensor *t = m->out->tensor;
	const struct rsh_grid *g = rsh_cut_grid(t->cut);
	uint64_t unit = 1, stride = 1;
	uint32_t weight = 1, n = 0;

	for (uint32_t i = t->n_dims; i-- > 0;) {
		const bool joined = factored_in_joined(m->k, m->r, i);

		m->inner[i] = unit;
		unit = joined ? unit * t->dims[i] : 1;
		n += !joined;
	}
	m->out->n_in = n;
	for (uint32_t i = t->n_dims; i-- > 0;) {
		struct rsh_in_span *s = &m->in[n - 1];

		m->span_of[i] = n - 1;
		if (factored_in_joined(m->k, m->r, i))
			continue;
		n--;
		*s = (struct rsh_in_span){
			.lead = i, .axis = RSH_FIXED, .inner = m->inner[i],
			.base = m->r->from[i] * m->inner[i],
			.stride = stride, .weight = weight,
		};
		if (!g)
			continue;
		s->len = t->dims[i] / rsh_grid_split(g, i) * s->inner;
		stride *= s->len;
		weight *= rsh_grid_split(g, i);
	}
}

static int factor_by_shown(const void *a, const void *b)
{
	const struct rsh_factor *x = a, *y = b;

	return rsh_compare_u64(x->shown_dim, y->shown_dim) ?:
	       rsh_compare_u64(y->shown_step, x->shown_step);
}

/* Merges factors that are contiguous on both sides. */
static void factored_merge(struct factoring *m)
{
	struct rsh_factored *out = m->out;

	for (uint32_t i = out->n; i-- > 1;) {
		struct rsh_factor *a = &m->f[i - 1], *b = &m->f[i];

		if (a->shown_dim != b->shown_dim || a->dim != b->dim ||
		    a->shown_step != b->size * b->shown_step ||
		    a->step != b->size * b->step)
			continue;
		b->size *= a->size;
		memmove(a, b, (out->n - i) * sizeof(*b));
		out->n--;
	}
}

static void factored_factors(struct factoring *m)
{
	const struct rsh_mapping_build *k = m->k;
	struct rsh_factored *out = m->out;

	for (uint32_t i = 0; i < m->r->n_factors; i++) {
		const struct rsh_factor *f = &m->r->factors[i];

		if (f->size == 1)
			continue;
		m->f[out->n++] = (struct rsh_factor){
			.size = f->size,
			.shown_step = f->shown_step * k->inner[f->shown_dim],
			.step = f->step * m->inner[f->dim],
			.shown_dim = (uint8_t)k->span_of[f->shown_dim],
			.dim = (uint8_t)m->span_of[f->dim],
		};
	}
	qsort(m->f, out->n, sizeof(*m->f), factor_by_shown);
	factored_merge(m);
	out->factors = m->f;
}

/* Sets where the part begins and ends along each shown span, and which factors
 * have step 1. */
static void factored_ends(struct factoring *m, uint8_t *first, uint64_t *from,
			  uint64_t *to)
{
	const struct rsh_mapping *w = m->k->w;
	struct rsh_factored *out = m->out;
	uint32_t i = 0;

	out->first = first;
	out->from = from;
	out->to = to;
	out->x = out->y = RSH_NO_FACTOR;
	for (uint32_t g = 0; g < w->n_spans; g++) {
		first[g] = (uint8_t)i;
		from[g] = m->r->shown_from[w->spans[g].lead] *
			  w->spans[g].inner;
		to[g] = from[g] + 1;
		for (; i < out->n && m->f[i].shown_dim == g; i++) {
			to[g] += (m->f[i].size - 1) * m->f[i].shown_step;
			if (m->f[i].shown_step == 1 && g + 1 == w->n_spans)
				out->x = i;
			if (m->f[i].step == 1 &&
			    m->f[i].dim + 1u == out->n_in)
				out->y = i;
		}
	}
	first[w->n_spans] = (uint8_t)i;
}

static int factored_make_part(struct rsh_mapping_build *k,
			      const struct rsh_factored_part *r,
			      struct rsh_factored *out)
{
	struct rsh_arena *a = &k->p->arena;
	struct factoring m = { .k = k, .r = r, .out = out };
	const uint32_t n = k->w->n_spans;
	uint64_t *ends = rsh_arena_array(a, uint64_t, 2 * (size_t)n);
	uint8_t *first = rsh_arena_array(a, uint8_t, n + 1);
	uint32_t n_factors = 0;

	out->tensor = factored_tensor(k, r);
	for (uint32_t i = 0; i < r->n_factors; i++)
		n_factors += r->factors[i].size > 1;
	m.f = rsh_arena_array(a, struct rsh_factor, n_factors);
	m.in = rsh_arena_array(a, struct rsh_in_span, out->tensor->n_dims);
	if (!ends || !first || !m.f || !m.in)
		return -ENOMEM;
	out->in = m.in;
	factored_in_spans(&m);
	factored_factors(&m);
	factored_ends(&m, first, ends, ends + n);
	return 0;
}

/* ---- checking that parts do not overlap ---- */

void rsh_factored_digits(const struct rsh_factored *f, uint32_t span,
			 struct rsh_mixed_radix *out)
{
	out->base = f->from[span];
	out->n = 0;
	for (uint32_t i = f->first[span]; i < f->first[span + 1]; i++)
		rsh_mixed_radix_add(out, f->factors[i].size,
				    f->factors[i].shown_step);
}

static bool factored_meet(const struct rsh_mapping *w,
			  const struct rsh_factored *a,
			  const struct rsh_factored *b, uint32_t *budget)
{
	for (uint32_t g = 0; g < w->n_spans; g++)
		if (a->to[g] <= b->from[g] || b->to[g] <= a->from[g])
			return false;
	for (uint32_t g = 0; g < w->n_spans; g++) {
		struct rsh_mixed_radix x, y;

		rsh_factored_digits(a, g, &x);
		rsh_factored_digits(b, g, &y);
		if (!rsh_mixed_radix_meet(&x, &y, budget))
			return false;
	}
	return true;
}

static int factored_by_from(const void *a, const void *b, void *by)
{
	const struct rsh_factored *x = a, *y = b;
	const uint8_t g = *(const uint8_t *)by;

	return rsh_compare_u64(x->from[g], y->from[g]);
}

static int factored_sort(struct rsh_mapping_build *k,
			 struct rsh_factored *parts, struct rsh_error *err)
{
	struct rsh_mapping *w = k->w;
	uint64_t *reach = rsh_arena_array(&k->p->arena, uint64_t, w->n_parts);
	uint32_t budget = FACTORED_BUDGET;
	double best = 0;

	w->reach = reach;
	if (!reach)
		return rsh_error_nomem(err);
	/* Parts are sorted by the span along which they are the shortest,
	 * compared with the length of the span. */
	for (uint32_t g = 0; g < w->n_spans; g++) {
		double sum = 0, longest = 1;

		for (uint32_t i = 0; i < w->n_parts; i++) {
			const struct rsh_factored *f = &w->factored[i];

			sum += (double)(f->to[g] - f->from[g]);
			if ((double)f->to[g] > longest)
				longest = (double)f->to[g];
		}
		sum /= longest;
		if (g == 0 || sum < best) {
			best = sum;
			w->by = (uint8_t)g;
		}
	}
	qsort_r(parts, w->n_parts, sizeof(*parts), factored_by_from, &w->by);
	for (uint32_t i = 0; w->n_spans && i < w->n_parts; i++) {
		reach[i] = parts[i].to[w->by];
		if (i > 0)
			reach[i] = rsh_max_u64(reach[i], reach[i - 1]);
		for (uint32_t j = i + 1; j < w->n_parts &&
		     parts[j].from[w->by] < parts[i].to[w->by]; j++)
			if (factored_meet(w, &parts[i], &parts[j], &budget))
				return rsh_error_set(err, EINVAL, "two of its "
						     "parts have the same "
						     "elements");
	}
	return 0;
}

int rsh_factored_make(struct rsh_mapping_build *k, struct rsh_error *err)
{
	const struct rsh_recipe *r = &k->t->recipe;
	struct rsh_mapping *w = k->w;
	struct rsh_factored *parts = rsh_arena_array(
		&k->p->arena, struct rsh_factored, r->n_factored);

	if (!parts)
		return rsh_error_nomem(err);
	w->factored = parts;
	w->n_parts = 0;
	for (uint32_t i = 0; i < r->n_factored; i++)
		if (!factored_is_empty(&r->factored[i]) &&
		    factored_make_part(k, &r->factored[i],
				       &parts[w->n_parts++]))
			return rsh_error_nomem(err);
	return factored_sort(k, parts, err);
}
