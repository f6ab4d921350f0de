/* SPDX-License-Identifier: Apache-2.0 */
/* plan/recipe.c checks that a recipe makes the tensor that it is given for:
 * every element of the tensor has one place. */
#include <errno.h>

#include "plan_i.h"
#include "rsh/util/checked.h"
#include "rsh/util/mem.h"

void rsh_recipe_same(const struct rsh_catalogue *c, uint32_t tensor,
		     struct rsh_recipe_part *out)
{
	const struct rsh_tensor *t = c->tensors[tensor];

	out->tensor = tensor;
	out->box.n_dims = t->n_dims;
	for (uint32_t d = 0; d < t->n_dims; d++) {
		out->box.from[d] = 0;
		out->box.size[d] = t->dims[d];
		out->base[d] = 0;
		out->axis[d] = (uint8_t)d;
	}
}

static int recipe_check_part(const struct rsh_shown *t,
			     const struct rsh_recipe_part *r,
			     const struct rsh_tensor *in, struct rsh_error *err)
{
	uint32_t followed[RSH_MAX_DIMS] = { 0 };

	for (uint32_t i = 0; i < in->n_dims; i++) {
		uint64_t size = 1;

		if (r->axis[i] != RSH_FIXED) {
			if (r->axis[i] >= t->n_dims)
				return rsh_error_set(err, EINVAL, "its part "
						     "follows dimension %u",
						     r->axis[i]);
			followed[r->axis[i]]++;
			size = r->box.size[r->axis[i]];
		}
		if (r->base[i] > in->dims[i] || size > in->dims[i] - r->base[i])
			return rsh_error_set(err, EINVAL, "its part leaves "
					     "dimension %u of size %llu", i,
					     (unsigned long long)in->dims[i]);
	}
	for (uint32_t d = 0; d < t->n_dims; d++)
		if (followed[d] > 1 || (!followed[d] && r->box.size[d] > 1))
			return rsh_error_set(err, EINVAL, "dimension %u of its "
					     "part is followed %u times", d,
					     followed[d]);
	return 0;
}

/* Checks that the parts' boxes lie in the tensor, have nothing in common and
 * together have all of its elements. */
static int recipe_check_boxes(const struct rsh_shown *t, struct rsh_cut **cut,
			      struct rsh_error *err)
{
	cleanup_free struct rsh_box *boxes =
		rsh_alloc_array(t->recipe.n_parts, sizeof(*boxes));
	uint64_t all = 1, have = 0;
	int rc;

	if (!boxes)
		return rsh_error_nomem(err);
	for (uint32_t d = 0; d < t->n_dims; d++)
		if (!rsh_mul_u64(all, t->dims[d], &all))
			return rsh_error_set(err, EINVAL, "it is too large");
	for (uint32_t i = 0; i < t->recipe.n_parts; i++)
		boxes[i] = t->recipe.parts[i].box;
	rc = rsh_cut_of_boxes(t->dims, t->n_dims, boxes, t->recipe.n_parts,
			      cut, err);
	if (rc)
		return rc;
	for (uint32_t i = 0; i < t->recipe.n_parts; i++) {
		uint64_t n = 1;

		for (uint32_t d = 0; d < t->n_dims; d++)
			n *= boxes[i].size[d];
		have += n;
	}
	if (have != all || rsh_cut_n_cells(*cut) != t->recipe.n_parts)
		return rsh_error_set(err, EINVAL, "its parts have %llu of %llu "
				     "elements", (unsigned long long)have,
				     (unsigned long long)all);
	return 0;
}

static bool is_whole_box(const struct rsh_shown *t, const struct rsh_box *b)
{
	for (uint32_t d = 0; d < t->n_dims; d++)
		if (b->from[d] || b->size[d] != t->dims[d])
			return false;
	return b->n_dims == t->n_dims;
}

bool rsh_recipe_types_fit(const struct rsh_shown *t,
			  const struct rsh_tensor *in)
{
	const uint32_t shown = rsh_dtype_size(t->dtype);
	uint32_t in_unit, out_unit;

	if (t->recipe.codec == RSH_CODEC_NONE)
		return !in->wide_bf16 && rsh_dtype_size(in->dtype) == shown;
	rsh_codec_units(t->recipe.codec, &in_unit, &out_unit);
	return out_unit == shown &&
	       in_unit == (in->wide_bf16 ? 4 : rsh_dtype_size(in->dtype));
}

int rsh_recipe_check(struct rsh_plan *p, const struct rsh_shown *t,
		     const struct rsh_cut **parts, struct rsh_error *err)
{
	struct rsh_cut *cut = NULL;
	int rc;

	*parts = NULL;
	for (uint32_t i = 0; i < t->recipe.n_parts; i++) {
		const struct rsh_recipe_part *r = &t->recipe.parts[i];
		const struct rsh_tensor *in = p->cat->tensors[r->tensor];

		rc = recipe_check_part(t, r, in, err);
		if (rc)
			return rc;
		if (!rsh_recipe_types_fit(t, in))
			return rsh_error_set(err, EINVAL, "its elements are "
					     "those of another type");
	}
	if (t->recipe.n_parts == 1 && is_whole_box(t, &t->recipe.parts->box))
		return 0;
	if (!t->recipe.n_parts)
		return rsh_error_set(err, EINVAL, "it is made of nothing");
	rc = recipe_check_boxes(t, &cut, err);
	if (rc) {
		rsh_cut_free(cut);
		return rc;
	}
	*parts = rsh_catalogue_keep_cut(p->cat, cut);
	return *parts ? 0 : rsh_error_nomem(err);
}
