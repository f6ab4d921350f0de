/* SPDX-License-Identifier: Apache-2.0 */
/* plan/mapping.c checks the recipe of a shown tensor and makes its mapping.
 *
 * Neighbouring dimensions that are contiguous in the cells of both sides are
 * one span.  cursor.c has an example. */
#include <errno.h>
#include <string.h>

#include "factored_i.h"
#include "plan_i.h"
#include "rsh/util/checked.h"
#include "rsh/util/mem.h"

/* ---- recipes ---- */

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

/* Checks that the parts' boxes are in the tensor, do not overlap and together
 * contain all of its elements. */
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

/* Checks that every element of the shown tensor comes from one place.  *parts
 * is the cut that the boxes of several parts make, which the catalogue keeps,
 * or NULL. */
static int recipe_check(struct rsh_plan *p, const struct rsh_shown *t,
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
			return rsh_error_set(err, EINVAL,
			"its elements have another type");
		if (!rsh_quantised_fits(in))
			return rsh_error_set(err, EINVAL,
				"its scales do not fit its elements");
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

/* ---- dimensions and spans ---- */

const struct rsh_tensor *rsh_mapping_tensor(const struct rsh_mapping *w,
					 uint32_t part)
{
	return w->is_factored ? w->factored[part].tensor
			      : w->parts[part].tensor;
}

/* Returns whether both sides cut the dimension in the same way, or neither side
 * cuts it. */
static bool are_cut_alike(const struct rsh_mapping_build *k, uint32_t d,
			  const struct rsh_tensor *in, uint32_t i)
{
	const struct rsh_grid *a = rsh_cut_grid(k->t->cut);
	const struct rsh_grid *b = rsh_cut_grid(in->cut);

	if (a && b)
		return rsh_grid_split(a, d) == rsh_grid_split(b, i);
	return rsh_cut_is_whole(k->t->cut, k->t->dims, d) &&
	       rsh_cut_is_whole(in->cut, in->dims, i);
}

/* Returns whether dimensions d - 1 and d are contiguous on both sides. */
static bool goes_on(const struct rsh_mapping_build *k, uint32_t d)
{
	for (uint32_t p = 0; p < k->t->recipe.n_parts; p++) {
		const struct rsh_recipe_part *r = &k->t->recipe.parts[p];
		const struct rsh_tensor *in = k->p->cat->tensors[r->tensor];
		uint32_t i = 0;

		while (i < in->n_dims && r->axis[i] != d)
			i++;
		if (i == in->n_dims || i == 0 || r->axis[i - 1] != d - 1 ||
		    r->box.size[d] != k->t->dims[d] ||
		    in->dims[i] != k->t->dims[d] ||
		    !are_cut_alike(k, d, in, i))
			return false;
	}
	return true;
}

/* Returns whether the last dimension of each part's tensor corresponds to the
 * last dimension that is shown. */
static bool lie_together(const struct rsh_mapping_build *k)
{
	const uint32_t n = k->t->n_dims;

	for (uint32_t p = 0; p < k->t->recipe.n_parts; p++) {
		const struct rsh_recipe_part *r = &k->t->recipe.parts[p];
		const struct rsh_tensor *in = k->p->cat->tensors[r->tensor];

		if (n == 0 ? in->n_dims > 0
			   : in->n_dims == 0 ||
				     r->axis[in->n_dims - 1] != n - 1)
			return false;
	}
	return true;
}

static int make_spans(struct rsh_mapping_build *k)
{
	struct rsh_mapping *w = k->w;
	const uint32_t n = k->t->n_dims;
	/* Units are elements if there is a codec or if neighbouring elements
	 * are not neighbours in the source.  Otherwise units are bytes. */
	uint64_t unit = k->t->recipe.codec == RSH_CODEC_NONE && !w->is_factored
				? rsh_dtype_size(k->t->dtype)
				: 1;
	struct rsh_span *s;

	for (uint32_t d = n; d-- > 0;) {
		k->joined[d] = d > 0 && (w->is_factored ?
			rsh_factored_goes_on(k, d) : goes_on(k, d));
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

/* Makes the in-spans of a part.  A dimension that corresponds to a joined one
 * belongs to the same in-span as the dimension before it. */
static void in_spans_of_part(const struct rsh_mapping_build *k,
			     const struct rsh_recipe_part *r,
			     struct rsh_mapping_part *out)
{
	const struct rsh_tensor *in = out->tensor;
	const struct rsh_grid *g = rsh_cut_grid(in->cut);
	uint64_t stride = 1;
	uint32_t weight = 1;
	uint32_t row;

	for (uint32_t i = 0; i < in->n_dims; i++) {
		const uint32_t d = r->axis[i];
		struct rsh_in_span *s = &out->in[out->n_in];

		if (d != RSH_FIXED && k->joined[d])
			continue;
		*s = (struct rsh_in_span){
			.lead = i,
			.axis = d == RSH_FIXED ? RSH_FIXED : k->span_of[d],
			.inner = d == RSH_FIXED ? 1 : k->inner[d],
		};
		s->base = r->base[i] * s->inner;
		if (g)
			s->len = in->dims[i] / rsh_grid_split(g, i) * s->inner;
		out->n_in++;
	}
	for (uint32_t h = out->n_in; g && h-- > 0;) {
		out->in[h].stride = stride;
		stride *= out->in[h].len;
	}
	for (uint32_t i = in->n_dims, h = out->n_in; g && i-- > 0;) {
		const uint32_t d = r->axis[i];

		if (d != RSH_FIXED && k->joined[d]) {
			if (rsh_grid_split(g, i) > 1)
				out->alike[out->n_alike++] =
					(struct rsh_alike){ d, weight };
		} else {
			out->in[--h].weight = weight;
		}
		weight *= rsh_grid_split(g, i);
	}
	/* A row repeats along the span before the last one. */
	row = k->w->n_spans - 1;
	out->row_in = 0;
	while (out->row_in < out->n_in &&
	       (row == 0 || out->in[out->row_in].axis != row - 1))
		out->row_in++;
}

static int make_parts(struct rsh_mapping_build *k)
{
	struct rsh_arena *a = &k->p->arena;
	struct rsh_mapping *w = k->w;
	struct rsh_mapping_part *parts =
		rsh_arena_array(a, struct rsh_mapping_part, w->n_parts);

	if (!parts)
		return -ENOMEM;
	w->parts = parts;
	for (uint32_t i = 0; i < w->n_parts; i++) {
		const struct rsh_recipe_part *r = &k->t->recipe.parts[i];
		struct rsh_mapping_part *part = &parts[i];
		uint32_t n;

		part->tensor = k->p->cat->tensors[r->tensor];
		n = part->tensor->n_dims;
		part->from = rsh_arena_array(a, uint64_t, w->n_spans);
		part->to = rsh_arena_array(a, uint64_t, w->n_spans);
		part->in = rsh_arena_array(a, struct rsh_in_span, n);
		part->alike = rsh_arena_array(a, struct rsh_alike, n);
		if (!part->from || !part->to || !part->in || !part->alike)
			return -ENOMEM;
		for (uint32_t g = 0; g < w->n_spans; g++) {
			const struct rsh_span *s = &w->spans[g];

			part->from[g] = r->box.from[s->lead] * s->inner;
			part->to[g] = part->from[g] +
				      r->box.size[s->lead] * s->inner;
		}
		in_spans_of_part(k, r, part);
	}
	return 0;
}

bool rsh_mapping_part_box(const struct rsh_mapping *w,
			  const struct rsh_box *slice, uint32_t part,
			  struct rsh_box *out)
{
	const struct rsh_tensor *in = w->parts[part].tensor;
	const struct rsh_recipe_part *r;
	struct rsh_box common;

	if (!w->recipe) {
		*out = *slice;
		return true;
	}
	r = &w->recipe[part];
	if (!rsh_box_meet(slice, &r->box, &common))
		return false;
	out->n_dims = in->n_dims;
	for (uint32_t i = 0; i < in->n_dims; i++) {
		const uint32_t d = r->axis[i];

		out->from[i] = r->base[i];
		out->size[i] = 1;
		if (d == RSH_FIXED)
			continue;
		out->from[i] += common.from[d] - r->box.from[d];
		out->size[i] = common.size[d];
	}
	return true;
}

/* ---- slices ---- */

/* Sets the dimensions and the size of each cell that is shown. */
static int make_slices(struct rsh_mapping_build *k, struct rsh_error *err)
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

static bool is_shown_as_is(const struct rsh_shown *t,
			   const struct rsh_tensor *in)
{
	const struct rsh_recipe_part *r = t->recipe.parts;

	if (t->recipe.n_parts != 1 || in->n_dims != t->n_dims)
		return false;
	for (uint32_t d = 0; d < t->n_dims; d++)
		if (r->axis[d] != d || r->base[d] ||
		    in->dims[d] != t->dims[d] || r->box.from[d] ||
		    r->box.size[d] != t->dims[d])
			return false;
	return true;
}

static int copy_given(struct rsh_mapping_build *k)
{
	struct rsh_arena *a = &k->p->arena;
	const struct rsh_shown *t = k->t;
	const uint32_t n = t->recipe.n_parts;
	struct rsh_tensor *const *tensors = k->p->cat->tensors;
	uint64_t *dims = rsh_arena_array(a, uint64_t, t->n_dims);
	struct rsh_recipe_part *parts;

	if (!dims)
		return -ENOMEM;
	if (t->n_dims)
		memcpy(dims, t->dims, t->n_dims * sizeof(*dims));
	k->w->dims = dims;
	/* These mappings do not use the parts as they were given. */
	if (k->w->pair != RSH_NO_PAIR || k->w->is_factored ||
	    (n == 1 && is_shown_as_is(t, tensors[t->recipe.parts->tensor])))
		return 0;
	parts = rsh_arena_array(a, struct rsh_recipe_part, n);
	if (!parts)
		return -ENOMEM;
	memcpy(parts, t->recipe.parts, n * sizeof(*parts));
	k->w->recipe = parts;
	return 0;
}

static int find_pair(struct rsh_plan *p, const struct rsh_shown *t,
		     uint32_t *pair)
{
	const struct rsh_tensor *in;

	*pair = RSH_NO_PAIR;
	if (!t->recipe.n_parts)
		return 0;
	in = p->cat->tensors[t->recipe.parts->tensor];
	/* The tensors beside a quantised one may be in other files. */
	if (in->quantised || !is_shown_as_is(t, in) || !rsh_cut_grid(t->cut) ||
	    !rsh_cut_grid(in->cut))
		return 0;
	for (*pair = 0; *pair < p->n_pairs; ++*pair)
		if (p->pairs[*pair].src == in->cut &&
		    p->pairs[*pair].dst == t->cut &&
		    p->pairs[*pair].copies == in->copies)
			return 0;
	if (rsh_grow(&p->pairs, &p->pairs_cap, p->n_pairs + 1,
		     sizeof(*p->pairs)))
		return -ENOMEM;
	p->pairs[p->n_pairs++] = (struct rsh_pair){ in->cut, t->cut,
						    in->copies };
	return 0;
}

/* Checks the recipe, and rewrites it as boxes or as factored parts.  It becomes
 * factored if neighbours in the shown tensor may not be neighbours in the
 * source. */
static int check_recipe(struct rsh_mapping_build *k, struct rsh_error *err)
{
	bool failed = false;
	int rc;

	if (k->t->recipe.n_factored > 0 && !rsh_factored_as_boxes(k, &failed))
		return failed ? rsh_error_nomem(err) :
				rsh_factored_check(k, err);
	rc = recipe_check(k->p, k->t, &k->part_cut, err);
	if (rc || lie_together(k))
		return rc;
	if (rsh_factored_of_boxes(k))
		return rsh_error_nomem(err);
	return rsh_factored_check(k, err);
}

int rsh_mapping_make(struct rsh_plan *p, const struct rsh_shown *t,
		     struct rsh_mapping **out, struct rsh_error *err)
{
	struct rsh_mapping_build k = { .p = p, .t = t };
	uint32_t in, shown;
	int rc = check_recipe(&k, err);

	if (rc)
		return rc;
	k.w = rsh_arena_array(&p->arena, struct rsh_mapping, 1);
	if (!k.w || find_pair(p, k.t, &k.w->pair))
		return rsh_error_nomem(err);
	*out = k.w;
	k.w->name = t->name;
	k.w->dtype = (uint8_t)t->dtype;
	k.w->codec = (uint8_t)t->recipe.codec;
	k.w->n_dims = t->n_dims;
	k.w->cut = t->cut;
	k.w->part_cut = k.part_cut;
	k.w->n_parts = k.t->recipe.n_parts;
	rc = make_slices(&k, err);
	if (rc)
		return rc;
	k.w->is_factored = k.t->recipe.n_factored > 0;
	rsh_codec_units(k.t->recipe.codec, &in, &shown);
	if (k.t->recipe.codec == RSH_CODEC_NONE && k.w->is_factored)
		in = shown = rsh_dtype_size(k.t->dtype);
	k.w->unit_in = (uint8_t)in;
	k.w->unit_out = (uint8_t)shown;
	if (copy_given(&k) || make_spans(&k))
		return rsh_error_nomem(err);
	if (k.w->is_factored)
		return rsh_factored_make(&k, err);
	return make_parts(&k) ? rsh_error_nomem(err) : 0;
}
