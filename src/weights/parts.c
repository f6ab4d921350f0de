/* SPDX-License-Identifier: Apache-2.0 */
/* weights/parts.c makes the parts of a tensor.  A part says where both sides
 * have the elements of one pair of a tensor and an alternative. */
#include "weights_i.h"

#include <errno.h>
#include <string.h>

#include "rsh/util/checked.h"

/* ---- where the elements of a tensor are ---- */

/* The next element on this axis is `step` further in dimension `dim`. */
struct weights_axis {
	uint32_t letter;
	uint8_t dim;
	uint64_t step;
};
/* This says where a tensor, or an alternative of it, has its elements. */
struct weights_place {
	uint32_t n;
	struct weights_axis axes[WEIGHTS_AXES_MAX];
	uint8_t from_dim; /* dimension in which the alternative begins */
	uint64_t from;
};

static uint64_t weights_size(const struct weights_instance *x,
			     const char *letter)
{
	return x->sizes[weights_letter(x->u, letter)];
}

static bool weights_product(const struct weights_instance *x,
			    const struct rsh_rule_product *p, uint64_t *out)
{
	*out = 1;
	for (uint32_t i = 0; i < p->n; i++)
		if (!rsh_mul_u64(*out, weights_size(x, p->factors[i]), out))
			return false;
	return true;
}

/* Computes the offset at which alternative `a` begins; for the number of
 * alternatives it is the width of all. */
static bool weights_width(const struct weights_instance *x,
			  const struct rsh_rule_dim *dim, uint32_t a,
			  uint64_t *out)
{
	uint64_t one;

	*out = 0;
	for (uint32_t i = 0; i < a; i++)
		if (!weights_product(x, &dim->alternatives[i], &one) ||
		    !rsh_add_u64(*out, one, out))
			return false;
	return true;
}

/* Computes the size of a dimension.  Returns false if it is too large. */
static bool weights_dim(const struct weights_instance *x,
			const struct rsh_rule_dim *dim, uint64_t *size)
{
	uint64_t width = 1, after;

	return weights_product(x, &dim->before, size) &&
	       weights_product(x, &dim->after, &after) &&
	       (!dim->n_alternatives ||
		weights_width(x, dim, dim->n_alternatives, &width)) &&
	       rsh_mul_u64(*size, width, size) &&
	       rsh_mul_u64(*size, after, size) && *size <= INT64_MAX;
}

/* Adds an axis for each factor of a product; the last one advances by
 * `step`. */
static void weights_put_product(const struct weights_instance *x,
				const struct rsh_rule_product *p, uint32_t dim,
				uint64_t step, struct weights_place *out)
{
	for (uint32_t i = p->n; i-- > 0;) {
		out->axes[out->n + i] = (struct weights_axis){
			.letter = weights_letter(x->u, p->factors[i]),
			.dim = (uint8_t)dim,
			.step = step,
		};
		step *= weights_size(x, p->factors[i]);
	}
	out->n += p->n;
}

/* Products cannot overflow here: no step is larger than its dimension, whose
 * size was checked before.  If a size is 0, the tensor has no elements, and
 * steps have no meaning. */
static void weights_find_place(const struct weights_instance *x,
			       const struct rsh_rule_tensor *t,
			       uint32_t alternative, struct weights_place *out)
{
	out->n = 0;
	out->from_dim = 0;
	out->from = 0;
	for (uint32_t d = 0; d < t->n_dims; d++) {
		const struct rsh_rule_dim *dim = &t->dims[d];
		uint64_t after, width = 1;

		(void)weights_product(x, &dim->after, &after);
		if (dim->n_alternatives) {
			(void)weights_width(x, dim, dim->n_alternatives,
					    &width);
			(void)weights_width(x, dim, alternative, &out->from);
			out->from *= after;
			out->from_dim = (uint8_t)d;
		}
		weights_put_product(x, &dim->before, d, width * after, out);
		if (dim->n_alternatives)
			weights_put_product(x, &dim->alternatives[alternative],
					    d, after, out);
		weights_put_product(x, &dim->after, d, 1, out);
	}
}

/* ---- parts ---- */

/* This is a tensor that is made, and one of its pairs, in dimensions of the
 * offers. */
struct weights_pair {
	const struct weights_instance *x;
	enum rsh_side from;
	uint32_t tensor; /* number on the source's side of the rule */
	struct weights_place shown, source;
	uint64_t shown_from[RSH_MAX_DIMS], source_from[RSH_MAX_DIMS];
	uint32_t n_factors;
	struct rsh_factor factors[WEIGHTS_AXES_MAX];
	/* These are from the previous part, and are used again for the next
	 * tensor of a stack. */
	const struct rsh_factor *kept;
	uint8_t kept_axis[RSH_MAX_DIMS];
	uint32_t kept_dims;
};

static const struct weights_axis *weights_find_axis(const struct weights_place
						    *p, uint32_t letter)
{
	for (uint32_t i = 0; i < p->n; i++)
		if (p->axes[i].letter == letter)
			return &p->axes[i];
	return NULL;
}

/* Adds to `from` the offset that a tensor's numbers in its stacks cause on the
 * other side. */
static void weights_add_stacks(const struct weights_instance *x,
			       const struct weights_name *n,
			       const uint64_t *numbers,
			       const struct weights_place *place,
			       uint64_t *from)
{
	uint32_t letters[WEIGHTS_HOLES_MAX];
	const uint32_t count = weights_stacks(x->u, n, letters);

	for (uint32_t i = 0; i < count; i++) {
		const struct weights_axis *a =
			weights_find_axis(place, letters[i]);

		if (a)
			from[a->dim] += numbers[x->u->n_shared + i] * a->step;
	}
}

static void weights_find_pair(struct weights_work *w,
			      struct weights_instance *x, uint32_t tensor,
			      uint32_t alternative, const uint64_t *numbers,
			      struct weights_pair *p)
{
	const struct rsh_rule *r = x->u->rule;
	struct rsh_factor empty = { .step = 0 };

	memset(p, 0, sizeof(*p));
	p->x = x;
	p->from = w->from;
	p->tensor = r->n_tensors[w->from] > 1 ? alternative : 0;
	weights_find_place(x, &r->tensors[w->to][tensor], alternative,
			   &p->shown);
	weights_find_place(x, &r->tensors[w->from][p->tensor], alternative,
			   &p->source);
	p->shown_from[p->shown.from_dim] = p->shown.from;
	p->source_from[p->source.from_dim] = p->source.from;
	weights_add_stacks(x, &x->u->names[w->to][tensor], numbers, &p->source,
			   p->source_from);
	/* The axes of a stack have no factor, because one tensor of the stack
	 * has a single position on them. */
	for (uint32_t i = 0; i < p->shown.n; i++) {
		const struct weights_axis *a = &p->shown.axes[i];
		const struct weights_axis *b =
			weights_find_axis(&p->source, a->letter);
		const uint64_t size = p->x->sizes[a->letter];

		if (b && size != 1)
			p->factors[p->n_factors++] = (struct rsh_factor){
				size, a->step, b->step, a->dim, b->dim,
			};
		/* A part without elements has this factor alone. */
		if (b && size == 0)
			empty = (struct rsh_factor){ 0, 1, 1, a->dim, b->dim };
	}
	if (empty.step)
		p->factors[0] = empty;
	p->n_factors = empty.step ? 1 :
		       rsh_factors_merge(p->factors, p->n_factors);
}

/* ---- one part ---- */

/* Returns whether the source is one tensor of the catalogue, possibly with
 * other dimensions. */
static bool weights_is_whole(const struct rsh_offer *o)
{
	if (o->n_parts != 1)
		return false;
	for (uint32_t d = 0; d < o->n_dims; d++)
		if (o->parts->shown_from[d] ||
		    (o->boxes && o->parts->factors[d].size != o->dims[d]))
			return false;
	return true;
}

/* Sets the factors in dimensions of the catalogue's tensor; if they are those
 * of the previous part, that array is used again. */
static int weights_keep_factors(struct weights_work *w, struct weights_pair *p,
				const struct rsh_recipe_part *by,
				struct rsh_recipe_part *out)
{
	const uint32_t n_dims = by->n_factors;
	uint8_t axis[RSH_MAX_DIMS];
	struct rsh_factor *f;

	out->n_factors = p->n_factors;
	out->factors = p->kept;
	for (uint32_t d = 0; d < n_dims; d++)
		axis[d] = by->factors[d].dim;
	if (p->kept && p->kept_dims == n_dims &&
	    memcmp(p->kept_axis, axis, n_dims) == 0)
		return 0;
	out->factors = f = rsh_arena_copy(w->arena, p->factors, p->n_factors);
	if (!f)
		return rsh_error_nomem(w->err);
	for (uint32_t i = 0; i < p->n_factors; i++)
		f[i].dim = axis[f[i].dim];
	p->kept = f;
	p->kept_dims = n_dims;
	memcpy(p->kept_axis, axis, n_dims);
	return 0;
}

/* Returns the factor of a source's dimension that has steps of this size: the
 * one with the largest step that is not larger. */
static const struct rsh_factor *
weights_digit(const struct rsh_recipe_part *by, uint8_t dim, uint64_t step)
{
	const struct rsh_factor *found = NULL;

	for (uint32_t i = 0; i < by->n_factors; i++) {
		const struct rsh_factor *f = &by->factors[i];

		if (f->size > 1 && f->shown_dim == dim &&
		    f->shown_step <= step &&
		    (!found || f->shown_step > found->shown_step))
			found = f;
	}
	return found;
}

/* Divides a factor over those by which the catalogue has the source.  Returns
 * false if they have other borders. */
static bool weights_divide(const struct rsh_recipe_part *by,
			   struct rsh_factor f, struct rsh_factor *out,
			   uint32_t *n)
{
	if (f.size == 0) {
		f.dim = 0;
		out[(*n)++] = f;
	}
	while (f.size > 1) {
		const struct rsh_factor *in = weights_digit(by, f.dim, f.step);
		uint64_t all, size;

		if (!in)
			return false;
		all = in->size * in->shown_step;
		size = rsh_min_u64(all / f.step, f.size);
		if (f.step % in->shown_step || all % f.step || size < 2 ||
		    f.size % size)
			return false;
		out[(*n)++] = (struct rsh_factor){
			.size = size, .shown_step = f.shown_step,
			.step = f.step / in->shown_step * in->step,
			.shown_dim = f.shown_dim, .dim = in->dim,
		};
		f.size /= size;
		f.shown_step *= size;
		f.step *= size;
	}
	return true;
}

/* Sets the factors of a part of a source that is not only renamed. */
static int weights_compose(struct weights_work *w, const struct weights_pair *p,
			   const struct weights_match *m,
			   const struct rsh_recipe_part *by,
			   struct rsh_recipe_part *out)
{
	const size_t most = (size_t)p->n_factors * (by->n_factors + 1);
	struct rsh_factor *f = rsh_arena_array(w->arena, struct rsh_factor,
					       most);

	if (!f)
		return rsh_error_nomem(w->err);
	out->factors = f;
	for (uint32_t i = 0; i < p->n_factors; i++)
		if (!weights_divide(by, p->factors[i], f, &out->n_factors))
			return weights_bad(w, p->x->u->rule, "%s has "
					   "blocks that the rule divides",
					   weights_text(w, m->source));
	return 0;
}

static int weights_make_part(struct weights_work *w, struct weights_pair *p,
			     const struct weights_match *m, uint32_t n_shown,
			     struct rsh_recipe_part *out)
{
	const bool boxes = w->in[m->source].boxes;
	const struct rsh_recipe_part *by = w->in[m->source].parts;
	const uint32_t n = w->cat->tensors[by->tensor]->n_dims;
	uint64_t *shown = rsh_arena_array(w->arena, uint64_t, n_shown + n);
	uint64_t *from = shown + n_shown;

	if (!shown)
		return rsh_error_nomem(w->err);
	*out = (struct rsh_recipe_part){
		.tensor = by->tensor, .shown_from = shown, .from = from,
	};
	memcpy(shown, p->shown_from, n_shown * sizeof(*shown));
	weights_add_stacks(p->x, &p->x->u->names[p->from][p->tensor],
			   m->numbers, &p->shown, shown);
	memcpy(from, by->from, n * sizeof(*from));
	/* The plan refuses a part that leaves one of these factors. */
	for (uint32_t i = 0; i < by->n_factors; i++) {
		const struct rsh_factor *in = &by->factors[i];
		const uint64_t at = p->source_from[in->shown_dim];

		if (boxes)
			from[in->dim] += at;
		else if (in->size > 1)
			from[in->dim] += at / in->shown_step % in->size *
					 in->step;
	}
	return boxes ? weights_keep_factors(w, p, by, out) :
		       weights_compose(w, p, m, by, out);
}

static int weights_make_pair(struct weights_work *w, struct weights_pair *p,
			     const struct rsh_offer *o,
			     struct rsh_recipe_part *parts, uint32_t *n)
{
	int rc = 0;

	for (uint32_t i = p->x->first[p->tensor];
	     rc == 0 && i < p->x->first[p->tensor + 1]; i++) {
		const uint32_t source = p->x->m[i].source;

		if (!weights_is_whole(&w->in[source])) {
			(void)weights_bad(w, p->x->u->rule, "%s is in the "
					  "source in several parts and can "
					  "only be renamed",
					  weights_text(w, source));
			if (w->err)
				w->err->code = ENOTSUP;
			return -ENOTSUP;
		}
		rc = weights_make_part(w, p, &p->x->m[i], o->n_dims,
				       &parts[(*n)++]);
	}
	return rc;
}

/* ---- a tensor ---- */

/* Returns the number of alternatives of a rule; 1 if it has none. */
static uint32_t weights_count_pairs(const struct rsh_rule *r)
{
	for (int s = 0; s < RSH_N_SIDES; s++)
		for (uint32_t d = 0; d < r->tensors[s][0].n_dims; d++)
			if (r->tensors[s][0].dims[d].n_alternatives)
				return r->tensors[s][0].dims[d].n_alternatives;
	return 1;
}

int weights_make_parts(struct weights_work *w, struct weights_instance *x,
		       uint32_t tensor, const uint64_t *numbers,
		       struct rsh_offer *o)
{
	const struct rsh_rule *r = x->u->rule;
	const struct rsh_rule_tensor *t = &r->tensors[w->to][tensor];
	const bool gathers = r->n_tensors[w->to] == 1;
	const uint32_t n_pairs = gathers ? weights_count_pairs(r) : 1;
	uint64_t *dims = rsh_arena_array(w->arena, uint64_t, t->n_dims);
	struct rsh_recipe_part *parts =
		rsh_arena_array(w->arena, struct rsh_recipe_part,
				r->n_tensors[w->from] > 1 ? x->n :
				(size_t)n_pairs * x->n);
	struct weights_pair p;
	bool any = false;
	uint32_t n = 0;
	int rc = 0;

	if (!dims || !parts)
		return rsh_error_nomem(w->err);
	for (uint32_t d = 0; d < t->n_dims; d++)
		if (!weights_dim(x, &t->dims[d], &dims[d]))
			return weights_bad(w, r, "what is made of %s is "
					   "too large",
					   weights_text(w, x->m[0].source));
	o->n_dims = t->n_dims;
	o->dims = dims;
	for (uint32_t i = 0; i < x->n; i++)
		if (w->in[x->m[i].source].add)
			return weights_bad(w, r, "1 was added to %s, so "
					   "it cannot be divided or joined",
					   weights_text(w, x->m[i].source));
	for (uint32_t i = 0; i < n_pairs && rc == 0; i++) {
		weights_find_pair(w, x, tensor, gathers ? i : tensor, numbers,
				  &p);
		rc = weights_make_pair(w, &p, o, parts, &n);
	}
	/* If adapters are added to some of the parts, the others are read in
	 * the same way. */
	for (uint32_t i = 0; rc == 0 && i < n; i++)
		any |= w->cat->tensors[parts[i].tensor]->quantised != NULL;
	for (uint32_t i = 0; any && i < n; i++) {
		struct rsh_tensor plain = *w->cat->tensors[parts[i].tensor];

		if (plain.quantised)
			continue;
		plain.quantised = rsh_quantised_plain(plain.dtype);
		if (rsh_catalogue_add(w->cat, &plain, &parts[i].tensor))
			return rsh_error_nomem(w->err);
	}
	o->dtype = w->in[x->m[0].source].dtype;
	o->n_parts = n;
	o->parts = parts;
	return rc;
}

/* ---- unchanged tensors ---- */

void weights_make_same(const struct weights_work *w, uint32_t source,
		       struct rsh_offer *o)
{
	const uint32_t name = o->name;

	*o = w->in[source];
	o->name = name;
}
