/* SPDX-License-Identifier: Apache-2.0 */
/* strategy/derive_mesh.c writes the mesh and the tensor map of a parameter for
 * other sizes.
 *
 * A mesh may be explained by several forms, each of which names its axes.  All
 * forms that fit must have the same result; otherwise the source does not
 * determine it.
 *
 * Example: 4 ranks with dp=2, mp=2, ep=2 become 8 ranks with dp=4, mp=2, ep=2.
 * Maps number the axes from the last one, and "*" is all ranks that the other
 * axes do not use.
 *
 *   w           mesh [2,2], map [1,-1]: dimension 0 is cut over the first axis
 *   form        sizes     without 1s   dimension 0 is cut over
 *   [dp,mp]     [2,2]     [2,2]        dp: no, its ranks hold the same
 *   [*,ep,mp]   [1,2,2]   [2,2]        ep: fits
 *
 *   wanted      [*,ep,mp] = [8/(2*2),2,2] = [2,2,2]
 *               ep is axis number 1: map [1,-1]
 *
 *   rank        0  1  2  3                      rank  0  1  2  3  4  5  6  7
 *   slice       0  0  1  1      becomes         slice 0  0  1  1  0  0  1  1
 *
 * A parameter with map [0,-1] in the same file is cut over mp in the first
 * form, and becomes mesh [4,2], map [0,-1].  If its operator was planned with
 * Layout objects, [*,ep] would fit as well.  For dp=2, mp=4, ep=2 the two forms
 * result in [2,4] and [4,2], and the derivation is refused.
 */
#include "derive_i.h"

#include <errno.h>
#include <string.h>

/* A form is a way to write a parameter: the axes of its mesh, and the axes that
 * split its dimensions. */
struct form {
	uint32_t style;
	uint32_t n_axes;
	uint8_t axes[RSH_MESH_MAX_AXES];
	uint32_t n_dims;
	uint32_t n_split[RSH_STRATEGY_MAX_DIMS];
	uint8_t split[RSH_STRATEGY_MAX_DIMS][RSH_MESH_MAX_AXES];
};

static bool mesh_splits_over(const struct form *f, uint8_t axis)
{
	for (uint32_t e = 0; e < f->n_dims; e++)
		for (uint32_t i = 0; i < f->n_split[e]; i++)
			if (f->split[e][i] == axis)
				return true;
	return false;
}

/* ---- reading the source ---- */

/* Makes the source's form with these axes; returns false if the item does not
 * have this form. */
static bool make_form(const struct derivation *d, const struct derive_param *p,
		      const uint8_t *axes, uint32_t n, uint32_t style,
		      struct form *f)
{
	const struct rsh_strategy_item *it = p->item;
	uint8_t place[RSH_STRATEGY_MAX_DIMS];

	*f = (struct form){ .style = style, .n_axes = n, .n_dims = it->n_map };
	memcpy(f->axes, axes, n);
	if (!rsh_derive_explains(d, axes, n, style, it, place))
		return false;
	for (uint32_t e = 0; e < it->n_map; e++) {
		f->n_split[e] = it->map[e].n;
		if (it->map[e].n > RSH_MESH_MAX_AXES)
			return false;
		for (uint32_t i = 0; i < it->map[e].n; i++)
			f->split[e][i] = place[it->n_mesh - 1 -
					       (uint32_t)it->map[e].axes[i]];
	}
	return true;
}

/* Makes a form with axes that no rule gives.  An axis whose ranks hold the same
 * slice splits nothing. */
static bool try_form(const struct derivation *d, const struct derive_param *p,
		     const uint8_t *axes, uint32_t n, uint32_t style,
		     struct form *f)
{
	return make_form(d, p, axes, n, style, f) &&
	       !mesh_splits_over(f, AXIS_DP) && !mesh_splits_over(f, AXIS_CP) &&
	       !mesh_splits_over(f, AXIS_REST);
}

/* Lists all forms of a style that explain the item, the most usual one
 * first. */
static uint32_t forms_of_style(const struct derivation *d,
			       const struct derive_param *p, uint32_t style,
			       struct form *forms)
{
	static const uint8_t experts[] = { AXIS_REST, AXIS_EP, AXIS_MP };
	uint8_t usual[3];
	uint32_t n_usual = rsh_derive_usual_axes(d, style, usual);
	uint32_t n = 0;

	n += try_form(d, p, usual, n_usual, style, &forms[n]);
	if (d->axes[AXIS_EP].src > 1) {
		struct form f;

		if (try_form(d, p, experts, 3, style, &f) &&
		    (n == 0 || mesh_splits_over(&f, AXIS_EP)))
			forms[n++] = f;
		if (style == STYLE_KEPT)
			n += try_form(d, p, experts, 2, style, &forms[n]);
	}
	if (n == 0)
		n += try_form(d, p, experts, 1, style, &forms[n]);
	return n;
}

#define MAX_FORMS 8

/* ---- axes from a rule ---- */

static int given_forms(struct derivation *d, struct derive_param *p,
		       const struct derive_rule *rule, struct form *forms,
		       uint32_t *n)
{
	const struct rsh_strategy_item *it = p->item;
	const bool whole = it && rule->n_axes == it->n_mesh;
	uint8_t axes[RSH_MESH_MAX_AXES];

	*n = 0;
	for (uint32_t i = 0; i < rule->n_axes; i++) {
		uint32_t a = rsh_derive_axis_find(d, rule->axes[i]);

		if (a == UINT32_MAX)
			a = rsh_derive_axis_add(d, rule->axes[i]);
		if (a == UINT32_MAX)
			return rsh_error_set(d->err, EINVAL,
					     "too many different axes");
		axes[i] = (uint8_t)a;
	}
	if (!it) {
		forms[0] = (struct form){ .style = STYLE_KEPT,
					  .n_axes = rule->n_axes };
		memcpy(forms[0].axes, axes, rule->n_axes);
		*n = 1;
		return 0;
	}
	/* If only the rule has an axis, its size is that of the source's mesh
	 * at the same place. */
	for (uint32_t i = 0; i < rule->n_axes && whole; i++)
		if (!d->axes[axes[i]].src)
			d->axes[axes[i]].src = it->mesh[i];
	*n = make_form(d, p, axes, rule->n_axes,
		       whole ? STYLE_KEPT : STYLE_STRIPPED, &forms[0]);
	return 0;
}

/* ---- split rules ---- */

static int apply_rule(struct derivation *d, const struct derive_param *p,
		      const struct derive_rule *rule, struct form *f)
{
	uint32_t a = AXIS_REST;

	if (rule->dim >= f->n_dims)
		return rsh_derive_refuse(d, p, "a rule splits dimension %u, the tensor has %u",
					 rule->dim, f->n_dims);
	f->n_split[rule->dim] = 0;
	if (rule->n_axes == 0)
		return 0;
	a = rsh_derive_axis_find(d, rule->axes[0]);
	if (a == UINT32_MAX || a == AXIS_DP)
		return rsh_derive_refuse(d, p, "a rule splits it over %s, which the wanted mesh does not have",
					 rule->axes[0]);
	if (mesh_splits_over(f, (uint8_t)a))
		return rsh_derive_refuse(d, p, "two of its dimensions are split over %s",
					 rule->axes[0]);
	if (a == AXIS_EP && f->style == STYLE_STRIPPED && f->n_axes == 2 &&
	    !memchr(f->axes, AXIS_EP, f->n_axes)) {
		static const uint8_t experts[] = { AXIS_REST, AXIS_EP,
						   AXIS_MP };

		f->n_axes = 3;
		memcpy(f->axes, experts, sizeof(experts));
	}
	if (!memchr(f->axes, (int)a, f->n_axes))
		return rsh_derive_refuse(d, p, "the order of a mesh with axis "
					       "%s is not known: use --axes, "
					       "as in --axes 'REGEX=*,%s'",
					 rule->axes[0], rule->axes[0]);
	f->n_split[rule->dim] = 1;
	f->split[rule->dim][0] = (uint8_t)a;
	return 0;
}

/* ---- writing the result ---- */

static int write_form(struct derivation *d, const struct derive_param *p,
		      const struct form *f, struct rsh_strategy_item *out)
{
	struct rsh_map_entry *map =
		rsh_arena_array(d->arena, struct rsh_map_entry, f->n_dims);
	uint32_t *mesh =
		rsh_arena_array(d->arena, uint32_t, (size_t)f->n_axes + 1);
	const bool kept = f->style == STYLE_KEPT;
	uint32_t sizes[RSH_MESH_MAX_AXES], n = 0;

	*out = (struct rsh_strategy_item){ .name = p->text };
	if (!rsh_derive_sizes(d, f->axes, f->n_axes, true, sizes))
		return rsh_derive_refuse(d, p, "the axes of its mesh do not multiply to the %u ranks of a stage in the wanted mesh",
					 d->dst_ranks);
	if (!mesh || !map)
		return rsh_error_nomem(d->err);
	for (uint32_t i = 0; i < f->n_axes; i++)
		if (kept || sizes[i] > 1)
			mesh[n++] = sizes[i];
	if (n == 0)
		mesh[n++] = 1;
	for (uint32_t e = 0; e < f->n_dims; e++) {
		int32_t *axes = rsh_arena_array(d->arena, int32_t,
						f->n_split[e]);

		if (!axes)
			return rsh_error_nomem(d->err);
		map[e].axes = axes;
		for (uint32_t i = 0; i < f->n_split[e]; i++) {
			/* Tensor maps count axes from the last one that is in
			 * the mesh. */
			int32_t number = 0;
			uint32_t k = f->n_axes;

			while (k > 0 && f->axes[k - 1] != f->split[e][i]) {
				k--;
				number += kept || sizes[k] > 1;
			}
			if (k > 0 && (kept || sizes[k - 1] > 1))
				axes[map[e].n++] = number;
		}
		out->nested |= map[e].n > 1;
	}
	out->mesh = mesh;
	out->n_mesh = n;
	out->map = map;
	out->n_map = f->n_dims;
	return 0;
}

/* ---- checks ---- */

/* ---- the layout ---- */

static int source_forms(struct derivation *d, struct derive_param *p,
			struct form *forms, uint32_t *n)
{
	const struct derive_rule *rule = rsh_derive_rule_for(d, &d->o->axes, p);
	const uint32_t styles = p->item ? rsh_derive_styles_of(d, p) : 0;
	char text[256];
	int rc = 0;

	if (rule) {
		rc = given_forms(d, p, rule, forms, n);
	} else if (p->item) {
		*n = 0;
		if (styles & STYLE_STRIPPED)
			*n += forms_of_style(d, p, STYLE_STRIPPED, forms);
		if (styles & STYLE_KEPT)
			*n += forms_of_style(d, p, STYLE_KEPT, forms + *n);
	} else {
		forms[0] = (struct form){ .style = STYLE_STRIPPED };
		forms[0].n_axes = rsh_derive_usual_axes(d, STYLE_STRIPPED,
							forms[0].axes);
		*n = 1;
	}
	if (rc == 0 && *n == 0)
		rc = rsh_derive_refuse(d, p, "the purpose of the axes of its "
					     "mesh is not known (%s): use "
					     "--axes, as in --axes 'REGEX=*,ep'",
				       rsh_item_text(p->item, text,
						     sizeof(text)));
	if (rc == 0 && !p->item)
		forms[0].n_dims = p->shape->n_dims;
	return rc;
}

static int choose(struct derivation *d, struct derive_param *p,
		  struct form *forms, uint32_t n)
{
	char a[256], b[256];

	for (uint32_t i = 0; i < n; i++) {
		const struct derive_rules *rules = &d->o->split;
		struct form *f = &forms[i];
		struct rsh_strategy_item out;
		int rc = 0;

		for (uint32_t k = 0; k < rules->n && rc == 0; k++)
			if (rsh_derive_is_about(d, &rules->v[k].re, p))
				rc = apply_rule(d, p, &rules->v[k], f);
		if (rc == 0)
			rc = write_form(d, p, f, &out);
		if (rc)
			return rc;
		if (i && !rsh_item_same_layout(&out, &p->out))
			return rsh_derive_refuse(d, p,
			"whether it becomes %s or %s is not known: use --axes, "
			"as in --axes 'REGEX=*,ep'",
						 rsh_item_text(&p->out, a,
							       sizeof(a)),
						 rsh_item_text(&out, b,
							       sizeof(b)));
		p->out = out;
		p->style = f->style;
		for (uint32_t e = 0; e < f->n_dims; e++)
			for (uint32_t k = 0; k < f->n_split[e]; k++)
				d->axes[f->split[e][k]].used = true;
	}
	return 0;
}

int rsh_derive_layout(struct derivation *d, struct derive_param *p)
{
	const struct derive_shape *shape = p->shape;
	const struct rsh_strategy_item *it = p->item;
	struct rsh_strategy_item *out = &p->out;
	struct form forms[MAX_FORMS];
	uint32_t n = 0;
	int rc;

	if (d->same_mesh && !rsh_derive_rule_for(d, &d->o->split, p) &&
	    !rsh_derive_rule_for(d, &d->o->axes, p)) {
		*out = *p->item;
		out->name = p->text;
		p->style = rsh_derive_styles_of(d, p);
		if (!out->n_shape && shape && shape->n_dims == out->n_map) {
			out->n_shape = shape->n_dims;
			out->shape = shape->dims;
		}
		return 0;
	}
	if (it && shape && shape->n_dims != it->n_map)
		return rsh_derive_refuse(d, p, "its tensor map has %u dimensions, the tensor %u: such expanded layouts of JSON files are only derived for the same mesh",
					 it->n_map, shape->n_dims);
	/* In an expanded layout a dimension is written as several ones, and
	 * each except the last is cut into slices of size 1. */
	for (uint32_t e = 0; it && !shape && e < it->n_shape && e < it->n_map;
	     e++)
		if (it->map[e].n && it->n_mesh > 1 && it->shape[e] ==
		    it->mesh[it->n_mesh - 1 - (uint32_t)it->map[e].axes[0]])
			return rsh_derive_refuse(d, p, "its layout may be an expanded one; give a checkpoint of the source (--checkpoint), which tells its dimensions");
	rc = source_forms(d, p, forms, &n) ?: choose(d, p, forms, n);
	if (rc)
		return rc;
	for (uint32_t e = 0; shape && e < out->n_map; e++) {
		uint32_t split = rsh_map_entry_split(out, &out->map[e]);

		if (shape->dims[e] % split)
			return rsh_derive_refuse(d, p, "dimension %u of size %lld cannot be cut into %u equal slices",
						 e, (long long)shape->dims[e],
						 split);
	}
	if (shape) {
		out->n_shape = shape->n_dims;
		out->shape = shape->dims;
	} else if (p->item && p->item->n_shape == out->n_map) {
		out->n_shape = p->item->n_shape;
		out->shape = p->item->shape;
	}
	return 0;
}
