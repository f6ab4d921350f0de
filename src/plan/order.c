/* SPDX-License-Identifier: Apache-2.0 */
/* plan/order.c finds the order of dimensions that the source has, for tensors
 * that are shown transposed.  A framing that keeps this order writes them
 * without turning them. */
#include <errno.h>
#include <string.h>

#include "plan_i.h"
#include "rsh/plan/framing.h"
#include "rsh/util/mem.h"

/* A tensor whose recipe is rewritten. */
struct ordering {
	struct rsh_plan *p;
	const struct rsh_shown *t;
	/* [shown dimension]: elements between neighbours along it in a part;
	 * 0: it has no neighbours */
	uint64_t strides[RSH_MAX_DIMS];
	uint8_t *order;
	/* [shown dimension]: its index in `order` */
	uint8_t place[RSH_MAX_DIMS];
};

/* Finds the strides of a part.  They are only compared, so an overflow would
 * only give an order that is not used. */
static void order_strides(const struct ordering *o, uint32_t part,
			  uint64_t *strides)
{
	const struct rsh_recipe_part *r = &o->t->recipe.parts[part];
	const struct rsh_tensor *in = o->p->cat->tensors[r->tensor];
	uint64_t stride = 1;

	memset(strides, 0, RSH_MAX_DIMS * sizeof(*strides));
	for (uint32_t i = in->n_dims; i-- > 0; stride *= in->dims[i])
		for (uint32_t k = 0; k < r->n_factors; k++) {
			const struct rsh_factor *f = &r->factors[k];
			uint64_t *s = &strides[f->shown_dim];

			if (f->dim == i && f->size > 1 &&
			    (!*s || stride * f->step < *s))
				*s = stride * f->step;
		}
}

/* Returns whether a part has its elements in this order. */
static bool order_fits(const struct ordering *o, uint32_t part)
{
	uint64_t strides[RSH_MAX_DIMS], last = UINT64_MAX;

	order_strides(o, part, strides);
	for (uint32_t i = 0; i < o->t->n_dims; i++) {
		const uint64_t stride = strides[o->order[i]];

		if (stride >= last)
			return false;
		if (stride)
			last = stride;
	}
	return true;
}

/* Finds an order that all parts have.  False: there is none, or neighbours in
 * row-major order are neighbours in it too. */
static bool order_find(struct ordering *o)
{
	const struct rsh_shown *t = o->t;
	const uint32_t n = t->recipe.n_parts;
	uint32_t inner = t->n_dims;

	for (uint32_t i = 0; i < n; i++) {
		uint64_t strides[RSH_MAX_DIMS];

		order_strides(o, i, strides);
		for (uint32_t d = 0; d < t->n_dims; d++)
			if (!o->strides[d])
				o->strides[d] = strides[d];
	}
	for (uint32_t d = 0; d < t->n_dims; d++) {
		if (o->strides[d])
			inner = d;
		else
			o->strides[d] = UINT64_MAX;
	}
	/* The largest stride comes first. */
	for (uint32_t d = 0; d < o->t->n_dims; d++) {
		uint32_t i = d;

		for (; i > 0 && o->strides[o->order[i - 1]] < o->strides[d];
		     i--)
			o->order[i] = o->order[i - 1];
		o->order[i] = (uint8_t)d;
	}
	for (uint32_t i = 0; i < o->t->n_dims; i++)
		o->place[o->order[i]] = (uint8_t)i;
	if (inner == t->n_dims || o->order[t->n_dims - 1] == inner)
		return false;
	return rsh_all(i, n, order_fits(o, i));
}

/* ---- the recipe in this order ---- */

/* Makes the tensor whose dimensions are in this order.  No cut divides it, so
 * its cut is the same. */
static int order_shown(const struct ordering *o, struct rsh_shown *out)
{
	struct rsh_arena *a = &o->p->arena;
	uint64_t *dims = rsh_arena_array(a, uint64_t, o->t->n_dims);
	struct rsh_recipe_part *parts;

	if (!dims)
		return -ENOMEM;
	for (uint32_t d = 0; d < o->t->n_dims; d++)
		dims[o->place[d]] = o->t->dims[d];
	*out = *o->t;
	out->dims = dims;
	parts = rsh_arena_array(a, struct rsh_recipe_part,
				out->recipe.n_parts);
	for (uint32_t i = 0; parts && i < out->recipe.n_parts; i++) {
		const struct rsh_recipe_part *from = &out->recipe.parts[i];
		struct rsh_factor *f = rsh_arena_array(a, struct rsh_factor,
						       from->n_factors);
		uint64_t *at = rsh_arena_array(a, uint64_t, o->t->n_dims);

		if (!f || !at)
			return -ENOMEM;
		for (uint32_t k = 0; k < from->n_factors; k++) {
			f[k] = from->factors[k];
			f[k].shown_dim = o->place[f[k].shown_dim];
		}
		for (uint32_t d = 0; d < o->t->n_dims; d++)
			at[o->place[d]] = from->shown_from[d];
		parts[i] = *from;
		parts[i].factors = f;
		parts[i].shown_from = at;
	}
	out->recipe.parts = parts;
	return parts ? 0 : -ENOMEM;
}

static bool order_is_whole(const struct rsh_shown *t)
{
	for (uint32_t d = 0; d < t->n_dims; d++)
		if (!rsh_cut_is_whole(t->cut, t->dims, d))
			return false;
	return rsh_cut_grid(t->cut);
}

int rsh_mapping_keep_order(struct rsh_plan *p, const struct rsh_shown *t,
			   struct rsh_mapping *w, struct rsh_error *err)
{
	struct ordering o = { .p = p, .t = t };
	struct rsh_record_shape shape = {
		.dtype = w->dtype, .n_dims = w->n_dims, .dims = w->slice_dims,
		.content_bytes = w->slice_bytes[0],
	};
	struct rsh_mapping *ordered;
	struct rsh_shown other;
	int rc;

	if (!p->b.framing->keeps_order || !w->apart || !t->n_dims ||
	    w->slice_bytes[0] == 0 || !order_is_whole(t))
		return 0;
	o.order = rsh_arena_array(&p->arena, uint8_t, t->n_dims);
	if (!o.order)
		return rsh_error_nomem(err);
	if (!order_find(&o))
		return 0;
	shape.order = o.order;
	if (!p->b.framing->keeps_order(&shape))
		return 0;
	if (order_shown(&o, &other))
		return rsh_error_nomem(err);
	rc = rsh_mapping_make(p, &other, &ordered, err);
	if (rc)
		return rc;
	w->order = o.order;
	w->ordered = ordered;
	return 0;
}
