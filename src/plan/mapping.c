/* SPDX-License-Identifier: Apache-2.0 */
/* plan/mapping.c makes mappings: from elements of a shown tensor to elements of
 * tensors of the catalogue.
 *
 * Factors that are contiguous on both sides are merged.  For example, if whole
 * heads [n d, h] are the same on both sides, the factors n, d and h become
 * one. */
#include <errno.h>

#include "parts_i.h"
#include "rsh/util/checked.h"
#include "rsh/util/mem.h"

/* Comparing two parts of a real model takes one or two steps. */
#define PARTS_BUDGET (1u << 22)

/* A mapping while it is made. */
struct mapping_build {
	struct rsh_plan *p;
	const struct rsh_shown *t;
	struct rsh_mapping *w;
	uint64_t local[RSH_MAX_DIMS]; /* size of a cell; of the tensor if the
				       * cut is a list of boxes */
	uint64_t unit;                /* of an element, in units */
	bool joined[RSH_MAX_DIMS];    /* it belongs to the span of d - 1 */
	uint64_t inner[RSH_MAX_DIMS]; /* [dim]: units of one step along it
				       * through the dimensions joined to it */
	uint32_t span_of[RSH_MAX_DIMS];
};

static const struct rsh_tensor *part_tensor(const struct mapping_build *k,
					    const struct rsh_recipe_part *r)
{
	return k->p->cat->tensors[r->tensor];
}

/* ---- dimensions and spans ---- */

/* Returns the only factor of a dimension; NULL: there are none or several. */
static const struct rsh_factor *only_factor(const struct rsh_recipe_part *r,
					    bool shown, uint32_t d)
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

/* Returns whether the part is a box on both sides, and neighbours along the
 * last dimension that is shown are neighbours in its tensor. */
static bool lies_together(const struct mapping_build *k,
			  const struct rsh_recipe_part *r)
{
	const struct rsh_tensor *in = part_tensor(k, r);
	const uint32_t last = k->t->n_dims - 1u, in_last = in->n_dims - 1u;
	bool together = false;

	/* Rows of one matrix of a stack are read as they come. */
	if (in->n_dims != k->t->n_dims)
		return false;
	for (uint32_t i = 0; i < r->n_factors; i++) {
		const struct rsh_factor *f = &r->factors[i];

		if (f->size > 1 && (f->shown_step != 1 || f->step != 1 ||
				    only_factor(r, true, f->shown_dim) != f ||
				    only_factor(r, false, f->dim) != f))
			return false;
		if (f->shown_dim == last && f->dim == in_last &&
		    (f->size > 1 || k->t->dims[last] > 1 ||
		     in->dims[in_last] == 1))
			together = true;
	}
	return together;
}

/* Returns whether both sides cut the dimension in the same way, or neither side
 * cuts it. */
static bool are_cut_alike(const struct mapping_build *k, uint32_t d,
			  const struct rsh_tensor *in, uint32_t i)
{
	const struct rsh_grid *a = rsh_cut_grid(k->t->cut);
	const struct rsh_grid *b = rsh_cut_grid(in->cut);

	if (a && b && !k->w->apart)
		return rsh_grid_split(a, d) == rsh_grid_split(b, i);
	return rsh_cut_is_whole(k->t->cut, k->t->dims, d) &&
	       rsh_cut_is_whole(in->cut, in->dims, i);
}

/* Returns whether dimensions d - 1 and d are contiguous in the shown tensor and
 * in all parts. */
static bool goes_on(const struct mapping_build *k, uint32_t d)
{
	const struct rsh_recipe *r = &k->t->recipe;
	const uint64_t size = k->t->dims[d];

	if (size < 2 && (k->w->apart || d + 1 < k->t->n_dims || size == 0))
		return size == 1 && rsh_cut_is_whole(k->t->cut, k->t->dims, d);
	for (uint32_t n = 0; n < r->n_parts; n++) {
		const struct rsh_recipe_part *part = &r->parts[n];
		const struct rsh_tensor *in = part_tensor(k, part);
		const struct rsh_factor *f = only_factor(part, true, d);
		const uint32_t i = f ? f->dim : in->n_dims - 1u;

		if (rsh_recipe_is_empty(part))
			continue;
		if ((f ? f->size : 1) != size || i == 0 ||
		    in->dims[i] != size || only_factor(part, false, i) != f ||
		    !are_cut_alike(k, d, in, i))
			return false;
		/* Rows that repeat are those along the last but one span, so
		 * the dimensions before must be the same too. */
		if (!k->w->apart && only_factor(part, true, d - 1) !=
				    only_factor(part, false, i - 1))
			return false;
	}
	return true;
}

static int make_spans(struct mapping_build *k)
{
	struct rsh_mapping *w = k->w;
	const uint32_t n = k->t->n_dims;
	uint64_t unit = k->unit;
	struct rsh_span *s;

	for (uint32_t d = n; d-- > 0;) {
		k->joined[d] = d > 0 && goes_on(k, d);
		k->inner[d] = unit;
		unit = k->joined[d] ? unit * k->local[d] : 1;
		w->n_spans += !k->joined[d];
	}
	s = rsh_arena_array(&k->p->arena, struct rsh_span, w->n_spans);
	if (!s)
		return -ENOMEM;
	w->spans = s--;
	for (uint32_t d = 0; d < n; d++) {
		if (!k->joined[d])
			*++s = (struct rsh_span){ .lead = d };
		k->span_of[d] = (uint32_t)(s - w->spans);
		s->inner = k->inner[s->lead];
		s->len = k->local[s->lead] * s->inner;
	}
	return 0;
}

/* ---- parts ---- */

/* A part while it is made. */
struct part_build {
	const struct mapping_build *k;
	const struct rsh_recipe_part *r;
	struct rsh_part *out;
	uint64_t inner[RSH_MAX_DIMS]; /* [the source's dimension] */
	uint8_t span_of[RSH_MAX_DIMS];
	struct rsh_factor *f;
};

/* Returns whether dimension i of the source belongs to the same in-span as
 * dimension i - 1. */
static bool in_is_joined(const struct part_build *m, uint32_t i)
{
	const struct rsh_factor *f;

	if (!m->k->w->apart && i + 1 == m->out->tensor->n_dims)
		return m->k->joined[m->k->t->n_dims - 1];
	if (i == 0 || m->out->tensor->dims[i] == 1)
		return i > 0;
	f = only_factor(m->r, false, i);
	return f && m->k->joined[f->shown_dim];
}

static int make_in_spans(struct part_build *m, struct rsh_arena *a)
{
	const struct rsh_tensor *t = m->out->tensor;
	const struct rsh_grid *g = rsh_cut_grid(t->cut);
	uint64_t unit = m->k->unit, stride = 1;
	struct rsh_alike *alike;
	struct rsh_in_span *in;
	uint32_t weight = 1;
	uint8_t n = 0, n_alike = 0;

	for (uint32_t i = 0; i < t->n_dims; i++) {
		const bool joined = in_is_joined(m, i);

		n = (uint8_t)(n + !joined);
		n_alike = (uint8_t)(n_alike + (joined && g &&
					       rsh_grid_split(g, i) > 1));
		m->span_of[i] = (uint8_t)(n - 1);
	}
	m->out->in = in = rsh_arena_array(a, struct rsh_in_span, n);
	m->out->alike = alike = rsh_arena_array(a, struct rsh_alike, n_alike);
	if (!in || !alike)
		return -ENOMEM;
	m->out->n_in = n;
	m->out->n_alike = n_alike;
	for (uint32_t i = t->n_dims; i-- > 0;) {
		const uint32_t split = g ? rsh_grid_split(g, i) : 1;
		const uint64_t len = t->dims[i] / split * unit;
		const struct rsh_factor *f = only_factor(m->r, false, i);

		m->inner[i] = unit;
		if (in_is_joined(m, i)) {
			unit = len;
			if (f && split > 1)
				alike[--n_alike] = (struct rsh_alike){
					f->shown_dim, (uint8_t)i, weight,
				};
		} else {
			in[--n] = (struct rsh_in_span){
				.lead = i, .inner = unit,
				.base = m->r->from[i] * unit,
				.len = g ? len : 0, .stride = stride,
				.weight = weight,
			};
			stride *= len;
			unit = 1;
		}
		weight *= split;
	}
	return 0;
}

static int make_factors(struct part_build *m, struct rsh_arena *a)
{
	const struct mapping_build *k = m->k;
	struct rsh_part *out = m->out;
	struct rsh_factor *v;
	uint32_t n = !k->w->apart;

	for (uint32_t i = 0; i < m->r->n_factors; i++)
		n += m->r->factors[i].size != 1;
	out->factors = v = rsh_arena_array(a, struct rsh_factor, n);
	if (!v)
		return -ENOMEM;
	n = 0;
	for (uint32_t i = 0; i < m->r->n_factors; i++) {
		const struct rsh_factor *f = &m->r->factors[i];

		const uint32_t d = f->shown_dim;

		if (f->size != 1)
			v[n++] = (struct rsh_factor){
				k->joined[d] ? k->local[d] : f->size,
				f->shown_step * k->inner[d],
				f->step * m->inner[f->dim],
				(uint8_t)k->span_of[d], m->span_of[f->dim],
			};
	}
	if (!k->w->apart) /* the bytes of an element */
		v[n++] = (struct rsh_factor){
			k->unit, 1, 1, (uint8_t)(k->w->n_spans - 1),
			(uint8_t)(out->n_in - 1),
		};
	out->n = (uint8_t)rsh_factors_merge(v, n);
	m->f = v;
	return 0;
}

/* Sets where the part begins and ends along each shown span, and which factors
 * have step 1. */
static int make_ends(struct part_build *m, struct rsh_arena *a)
{
	const struct rsh_mapping *w = m->k->w;
	const uint32_t n = w->n_spans;
	struct rsh_part *out = m->out;
	uint8_t *first = rsh_arena_array(a, uint8_t, n + 1), i = 0;
	uint64_t *from = rsh_arena_array(a, uint64_t, 2 * (size_t)n), *to;

	if (!first || !from)
		return -ENOMEM;
	to = from + n;
	out->first = first;
	out->from = from;
	out->to = to;
	out->x = out->y = out->row = RSH_NO_FACTOR;
	out->is_plain = !w->apart;
	for (uint32_t g = 0; g < n; g++) {
		first[g] = i;
		from[g] = m->r->shown_from[w->spans[g].lead] *
			  w->spans[g].inner;
		to[g] = from[g] + 1;
		for (; i < out->n && m->f[i].shown_dim == g; i++) {
			to[g] += (m->f[i].size - 1) * m->f[i].shown_step;
			out->is_plain &= m->f[i].shown_step == 1 &&
					 m->f[i].step == 1 && i == first[g];
			if (m->f[i].shown_step == 1 && g + 1 == n)
				out->x = i;
			if (m->f[i].shown_step == 1 && g + 2 == n)
				out->row = i;
			if (m->f[i].step == 1 &&
			    m->f[i].dim + 1u == out->n_in)
				out->y = i;
		}
	}
	first[n] = i;
	return 0;
}

/* ---- checking that parts do not overlap ---- */

void rsh_part_digits(const struct rsh_part *f, uint32_t span,
		     struct rsh_mixed_radix *out)
{
	out->base = f->from[span];
	out->n = 0;
	for (uint32_t i = f->first[span]; i < f->first[span + 1]; i++)
		rsh_mixed_radix_add(out, f->factors[i].size,
				    f->factors[i].shown_step);
}

static bool parts_meet(const struct rsh_mapping *w, const struct rsh_part *a,
		       const struct rsh_part *b, uint32_t *budget)
{
	for (uint32_t g = 0; g < w->n_spans; g++)
		if (a->to[g] <= b->from[g] || b->to[g] <= a->from[g])
			return false;
	for (uint32_t g = 0; g < w->n_spans; g++) {
		struct rsh_mixed_radix x, y;

		rsh_part_digits(a, g, &x);
		rsh_part_digits(b, g, &y);
		if (!rsh_mixed_radix_meet(&x, &y, budget))
			return false;
	}
	return true;
}

static int part_by_from(const void *a, const void *b, void *by)
{
	const struct rsh_part *x = a, *y = b;
	const uint8_t g = *(const uint8_t *)by;

	return rsh_compare_u64(x->from[g], y->from[g]);
}

static int sort_parts(struct mapping_build *k, struct rsh_part *parts,
		      struct rsh_error *err)
{
	struct rsh_mapping *w = k->w;
	uint64_t *reach = rsh_arena_array(&k->p->arena, uint64_t, w->n_parts);
	uint32_t budget = PARTS_BUDGET;
	double best = 0;

	w->reach = reach;
	if (!reach)
		return rsh_error_nomem(err);
	/* Parts are sorted by the span along which they are the shortest,
	 * compared with the length of the span. */
	for (uint32_t g = 0; g < w->n_spans; g++) {
		double sum = 0, longest = 1;

		for (uint32_t i = 0; i < w->n_parts; i++) {
			const struct rsh_part *f = &parts[i];

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
	qsort_r(parts, w->n_parts, sizeof(*parts), part_by_from, &w->by);
	for (uint32_t i = 0; w->n_spans && i < w->n_parts; i++) {
		reach[i] = parts[i].to[w->by];
		if (i > 0)
			reach[i] = rsh_max_u64(reach[i], reach[i - 1]);
		for (uint32_t j = i + 1; j < w->n_parts &&
		     parts[j].from[w->by] < parts[i].to[w->by]; j++)
			if (parts_meet(w, &parts[i], &parts[j], &budget))
				return rsh_error_set(err, EINVAL, "two of its "
						     "parts have the same "
						     "elements");
	}
	return 0;
}

/* Makes the parts of a mapping whose spans are made, and checks that each
 * element is in exactly one part.  Of parts without elements one is kept if
 * there are no others. */
static int make_parts(struct mapping_build *k, struct rsh_error *err)
{
	const struct rsh_recipe *r = &k->t->recipe;
	struct rsh_arena *a = &k->p->arena;
	struct rsh_mapping *w = k->w;
	struct rsh_part *parts = rsh_arena_array(a, struct rsh_part,
						 r->n_parts);

	if (!parts)
		return rsh_error_nomem(err);
	w->parts = parts;
	for (uint32_t i = 0; i < r->n_parts; i++) {
		struct part_build m = { .k = k, .r = &r->parts[i],
					.out = &parts[w->n_parts] };

		if (rsh_recipe_is_empty(m.r) &&
		    (w->n_parts > 0 || i + 1 < r->n_parts))
			continue;
		m.out->tensor = part_tensor(k, m.r);
		if (make_in_spans(&m, a) || make_factors(&m, a) ||
		    make_ends(&m, a))
			return rsh_error_nomem(err);
		w->n_parts++;
	}
	return sort_parts(k, parts, err);
}

/* ---- slices ---- */

/* Sets the dimensions and the size of each cell that is shown. */
static int make_slices(struct mapping_build *k, struct rsh_error *err)
{
	const struct rsh_shown *t = k->t;
	uint32_t n = rsh_cut_grid(t->cut) ? 1 : rsh_cut_n_cells(t->cut);
	int64_t *dims = rsh_arena_array(&k->p->arena, int64_t,
					(size_t)n * t->n_dims);
	uint64_t *bytes = rsh_arena_array(&k->p->arena, uint64_t, n);
	struct rsh_box box;

	if (!dims || !bytes)
		return rsh_error_nomem(err);
	k->w->slice_dims = dims;
	k->w->slice_bytes = bytes;
	for (uint32_t i = 0; i < n; i++, dims += t->n_dims) {
		uint64_t elements = 1;
		bool fits = true;

		rsh_cut_box(t->cut, t->dims, i, &box);
		for (uint32_t d = 0; d < t->n_dims; d++) {
			dims[d] = (int64_t)box.size[d];
			fits = fits && rsh_mul_u64(elements, box.size[d],
						   &elements);
		}
		if (!fits || !rsh_mul_u64(elements, rsh_dtype_size(t->dtype),
					  &bytes[i]))
			return rsh_error_set(err, EINVAL,
					     "its slice is too large");
	}
	for (uint32_t d = 0; d < t->n_dims; d++)
		k->local[d] = rsh_cut_grid(t->cut) ?
			(uint64_t)k->w->slice_dims[d] : t->dims[d];
	return 0;
}

/* Returns whether the tensor is one of the catalogue, as it is. */
static bool is_shown_as_is(const struct rsh_shown *t,
			   const struct rsh_tensor *in)
{
	const struct rsh_recipe_part *r = t->recipe.parts;

	if (t->recipe.n_parts != 1 ||
	    !rsh_dims_equal(in->dims, in->n_dims, t->dims, t->n_dims))
		return false;
	/* The part has all elements. */
	for (uint32_t i = 0; i < r->n_factors; i++)
		if (r->factors[i].size != 1 &&
		    (r->factors[i].dim != r->factors[i].shown_dim ||
		     r->factors[i].size != t->dims[r->factors[i].dim]))
			return false;
	return true;
}

static int find_pair(struct rsh_plan *p, const struct rsh_shown *t,
		     uint32_t *pair)
{
	const struct rsh_tensor *in =
		p->cat->tensors[t->recipe.parts->tensor];

	*pair = RSH_NO_PAIR;
	/* The tensors beside a quantised one may be in other files. */
	if (in->quantised || !is_shown_as_is(t, in) || !rsh_cut_grid(t->cut) ||
	    !rsh_cut_grid(in->cut))
		return 0;
	for (*pair = 0; *pair < p->n_pairs; ++*pair)
		if (p->pairs[*pair].src == in->cut &&
		    p->pairs[*pair].dst == t->cut &&
		    p->pairs[*pair].copies == in->copies)
			return 0;
	return rsh_push(p->pairs, p->n_pairs, p->pairs_cap,
			(struct rsh_pair){ in->cut, t->cut, in->copies });
}

int rsh_mapping_make(struct rsh_plan *p, const struct rsh_shown *t,
		     struct rsh_mapping **out, struct rsh_error *err)
{
	const bool has_codec = t->recipe.codec != RSH_CODEC_NONE;
	struct mapping_build k = { .p = p, .t = t };
	struct rsh_mapping *w;
	uint32_t in, shown;
	uint64_t *dims;
	int rc;

	*out = k.w = w = rsh_arena_array(&p->arena, struct rsh_mapping, 1);
	dims = rsh_arena_array(&p->arena, uint64_t, t->n_dims);
	if (!w || !dims)
		return rsh_error_nomem(err);
	rc = make_slices(&k, err) ?: rsh_recipe_check(p, t, err);
	if (rc)
		return rc;
	w->name = t->name;
	w->dtype = (uint8_t)t->dtype;
	w->codec = (uint8_t)t->recipe.codec;
	w->n_dims = t->n_dims;
	w->cut = t->cut;
	w->dims = dims;
	for (uint32_t d = 0; d < t->n_dims; d++)
		dims[d] = t->dims[d];
	for (uint32_t i = 0; i < t->recipe.n_parts; i++)
		if (!rsh_recipe_is_empty(&t->recipe.parts[i]))
			w->apart |= !lies_together(&k, &t->recipe.parts[i]);
	/* Units are elements if there is a codec or if neighbouring elements
	 * are not neighbours in the source.  Otherwise units are bytes. */
	rsh_codec_units(t->recipe.codec, &in, &shown);
	if (!has_codec && w->apart)
		in = shown = rsh_dtype_size(t->dtype);
	w->unit_in = (uint8_t)in;
	w->unit_out = (uint8_t)shown;
	k.unit = has_codec || w->apart ? 1 : rsh_dtype_size(t->dtype);
	if (find_pair(p, t, &w->pair) || make_spans(&k))
		return rsh_error_nomem(err);
	return make_parts(&k, err);
}
