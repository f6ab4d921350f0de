/* SPDX-License-Identifier: Apache-2.0 */
/* plan/recipe.c makes and checks the parts of a recipe. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "parts_i.h"
#include "rsh/util/checked.h"
#include "rsh/util/mem.h"

#define RECIPE_MOST (UINT64_C(1) << 62) /* bytes of a tensor */

/* ---- factors ---- */

struct rsh_recipe_part rsh_recipe_whole(const struct rsh_catalogue *c,
					uint32_t tensor, const uint8_t *order,
					struct rsh_factor *f)
{
	static const uint64_t begin[RSH_MAX_DIMS];
	const struct rsh_tensor *t = c->tensors[tensor];

	for (uint32_t i = 0; i < t->n_dims; i++) {
		const uint8_t d = order ? order[i] : (uint8_t)i;

		f[d] = (struct rsh_factor){ t->dims[i], 1, 1, d, (uint8_t)i };
	}
	return (struct rsh_recipe_part){ tensor, t->n_dims, f, begin, begin };
}

RSH_ORDER(factor_by_shown, struct rsh_factor,
	  rsh_compare_u64(x->shown_dim, y->shown_dim) ?:
	  rsh_compare_u64(y->shown_step, x->shown_step) ?:
	  rsh_compare_u64(y->size, x->size))

uint32_t rsh_factors_merge(struct rsh_factor *v, uint32_t n)
{
	qsort(v, n, sizeof(*v), factor_by_shown);
	for (uint32_t i = n; i-- > 1;) {
		struct rsh_factor *x = &v[i - 1], *y = &v[i];

		if (x->shown_dim != y->shown_dim || x->dim != y->dim ||
		    x->shown_step != y->size * y->shown_step ||
		    x->step != y->size * y->step)
			continue;
		y->size *= x->size;
		memmove(x, y, (n - i) * sizeof(*y));
		n--;
	}
	return n;
}

/* ---- checks ---- */

bool rsh_recipe_is_empty(const struct rsh_recipe_part *r)
{
	return rsh_any(i, r->n_factors, r->factors[i].size == 0);
}

/* Checks the factors of one dimension, of the shown tensor or of the
 * catalogue's. */
static bool recipe_check_dim(const struct rsh_recipe_part *r, bool shown,
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

static bool recipe_size(const uint64_t *dims, uint32_t n, enum rsh_dtype dtype,
			uint64_t *elements)
{
	uint64_t bytes = rsh_dtype_size(dtype);

	*elements = 1;
	for (uint32_t d = 0; d < n; d++) {
		if (!rsh_mul_u64(bytes, dims[d], &bytes) || bytes > RECIPE_MOST)
			return false;
		*elements *= dims[d];
	}
	return true;
}

/* Adds the number of its elements to *have. */
static int recipe_check_part(const struct rsh_plan *p,
			     const struct rsh_shown *t,
			     const struct rsh_recipe_part *r, uint64_t *have,
			     struct rsh_error *err)
{
	const struct rsh_tensor *in;
	uint64_t n = 1;

	if (r->tensor >= p->cat->n_tensors)
		return rsh_error_set(err, EINVAL, "its part is of no tensor");
	in = p->cat->tensors[r->tensor];
	if (!rsh_recipe_types_fit(t, in))
		return rsh_error_set(err, EINVAL,
			"its elements have another type");
	if (!rsh_quantised_fits(in))
		return rsh_error_set(err, EINVAL,
			"its scales do not fit its elements");
	for (uint32_t i = 0; i < r->n_factors; i++)
		if (r->factors[i].shown_dim >= t->n_dims ||
		    r->factors[i].dim >= in->n_dims)
			return rsh_error_set(err, EINVAL, "its part follows "
					     "dimension %u",
					     r->factors[i].shown_dim);
	if (rsh_recipe_is_empty(r))
		return 0;
	if (!recipe_size(in->dims, in->n_dims, in->dtype, &n))
		return rsh_error_set(err, EINVAL, "its part is too large");
	for (uint32_t d = 0; d < t->n_dims; d++)
		if (!recipe_check_dim(r, true, d, t->dims[d]))
			return rsh_error_set(err, EINVAL, "the factors of its "
					     "part do not fit dimension %u of "
					     "size %llu", d,
					     (unsigned long long)t->dims[d]);
	for (uint32_t i = 0; i < in->n_dims; i++)
		if (!recipe_check_dim(r, false, i, in->dims[i]))
			return rsh_error_set(err, EINVAL, "the factors of its "
					     "part leave dimension %u of size "
					     "%llu", i,
					     (unsigned long long)in->dims[i]);
	/* This does not overflow, since each element is in the tensor once.  So
	 * there are fewer than RSH_MAX_FACTORS factors of several elements. */
	n = 1;
	for (uint32_t i = 0; i < r->n_factors; i++)
		n *= r->factors[i].size;
	if (!rsh_add_u64(*have, n, have))
		*have = UINT64_MAX;
	return 0;
}

int rsh_recipe_check(const struct rsh_plan *p, const struct rsh_shown *t,
		     struct rsh_error *err)
{
	const struct rsh_recipe *r = &t->recipe;
	uint64_t all, have = 0;

	if (!r->n_parts)
		return rsh_error_set(err, EINVAL, "it is made of nothing");
	if (!recipe_size(t->dims, t->n_dims, t->dtype, &all))
		return rsh_error_set(err, EINVAL, "it is too large");
	for (uint32_t i = 0; i < r->n_parts; i++) {
		int rc = recipe_check_part(p, t, &r->parts[i], &have, err);

		if (rc)
			return rc;
	}
	return have == all ? 0 :
		rsh_error_set(err, EINVAL, "its parts have %llu of %llu "
			      "elements", (unsigned long long)have,
			      (unsigned long long)all);
}
