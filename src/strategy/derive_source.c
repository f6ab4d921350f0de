/* SPDX-License-Identifier: Apache-2.0 */
/* strategy/derive_source.c finds the purpose of the axes of the source's
 * meshes.
 *
 * A strategy file has only sizes.  The most frequent mesh of split parameters
 * is taken for [dp, mp] or [dp, cp, mp], because MindSpore's models have data
 * parallelism first and model parallelism last.  Data parallel ranks hold the
 * same slice.  So if an axis at the place of dp splits something, it is an axis
 * of expert groups.
 */
#include "derive_i.h"

#include <errno.h>
#include <string.h>

#include "rsh/util/text.h"

uint32_t rsh_derive_usual_axes(const struct derivation *d, uint32_t style,
			       uint8_t *axes)
{
	uint32_t n = 0;

	axes[n++] = AXIS_DP;
	if (d->with_cp && style == STYLE_KEPT)
		axes[n++] = AXIS_CP;
	axes[n++] = AXIS_MP;
	return n;
}

bool rsh_derive_sizes(const struct derivation *d, const uint8_t *axes,
		      uint32_t n, bool wanted, uint32_t *sizes)
{
	const uint32_t ranks = wanted ? d->dst_ranks : d->src_ranks;
	uint64_t product = 1;
	uint32_t rest = n;

	for (uint32_t i = 0; i < n; i++) {
		const struct derive_axis *a = &d->axes[axes[i]];

		sizes[i] = wanted ? a->dst : a->src;
		if (axes[i] == AXIS_REST)
			rest = i;
		else
			product *= sizes[i];
		if (product == 0 || product > ranks)
			return false;
	}
	if (rest < n) {
		sizes[rest] = ranks / (uint32_t)product;
		product *= sizes[rest];
	}
	return product == ranks;
}

bool rsh_derive_explains(const struct derivation *d, const uint8_t *axes,
			 uint32_t n, uint32_t style,
			 const struct rsh_strategy_item *it, uint8_t *place)
{
	uint32_t sizes[RSH_MESH_MAX_AXES], at = 0;

	if (!rsh_derive_sizes(d, axes, n, false, sizes))
		return false;
	for (uint32_t i = 0; i < n; i++) {
		if (style == STYLE_STRIPPED && sizes[i] == 1)
			continue;
		if (at == it->n_mesh || it->mesh[at] != sizes[i])
			return false;
		place[at++] = axes[i];
	}
	/* If all sizes are 1, the mesh is [1]. */
	if (at == 0 && it->n_mesh == 1 && it->mesh[0] == 1)
		place[at++] = AXIS_REST;
	return at == it->n_mesh;
}

/* ---- how operators were planned ---- */

/* Records how each operator "<primitive>_<parameter>" was planned. */
static int source_read_ops(struct derivation *d)
{
	d->styles = rsh_arena_array(d->arena, uint8_t, d->src->n_params);
	if (!d->styles)
		return rsh_error_nomem(d->err);
	for (uint32_t f = 0; f < d->src->n_files; f++) {
		const struct rsh_strategy_file *file = d->src->files[f];

		d->json = file->json;
		for (uint32_t i = 0; i < file->n_ops; i++) {
			const struct rsh_strategy_op *op = &file->ops[i];
			const char *text = strchr(
				op->name + strspn(op->name, "_"), '_');
			uint8_t style = op->tuples ? STYLE_STRIPPED : STYLE_KEPT;
			const struct rsh_strategy_param *p;
			uint32_t name;

			if (!text)
				continue;
			d->file_style |= style;
			text++;
			name = rsh_names_find(d->names, text, strlen(text));
			p = name == RSH_NAME_NONE ?
				    NULL : rsh_strategy_find(d->src, name);
			if (p)
				d->styles[p - d->src->params] |= style;
		}
	}
	return 0;
}

uint32_t rsh_derive_styles_of(const struct derivation *d,
			      const struct derive_param *p)
{
	const struct rsh_strategy_param *listed = d->params[p->base].listed;
	uint8_t said = listed ? d->styles[listed - d->src->params] : 0;

	if (d->json)
		return STYLE_STRIPPED;
	if (said == STYLE_STRIPPED || said == STYLE_KEPT)
		return said;
	for (uint32_t i = 0; p->item->n_mesh > 1 && i < p->item->n_mesh; i++)
		if (p->item->mesh[i] == 1)
			return STYLE_KEPT;
	return d->file_style ? d->file_style : STYLE_STRIPPED | STYLE_KEPT;
}

/* ---- the usual mesh ---- */

static bool same_mesh(const struct rsh_strategy_item *a,
		      const struct rsh_strategy_item *b)
{
	return a->n_mesh == b->n_mesh &&
	       !memcmp(a->mesh, b->mesh, a->n_mesh * sizeof(*a->mesh));
}

/* Returns whether a dimension is split over the axis, counted from the last
 * one; -1 means any axis. */
static bool source_splits_over(const struct rsh_strategy_item *it, int32_t axis)
{
	for (uint32_t e = 0; e < it->n_map; e++)
		for (uint32_t i = 0; i < it->map[e].n; i++)
			if (axis < 0 || it->map[e].axes[i] == axis)
				return true;
	return false;
}

/* One split parameter counts more than all parameters that are not split. */
static const struct rsh_strategy_item *
most_frequent_mesh(const struct derivation *d)
{
	const struct rsh_strategy_item *seen[16];
	const struct rsh_strategy_item *best = d->params[0].item;
	uint64_t best_weight = 0;
	uint32_t n = 0;

	for (uint32_t i = 0; i < d->n_params && n < 16; i++) {
		const struct rsh_strategy_item *it = d->params[i].item;
		bool known = false;
		uint64_t weight = 0;

		for (uint32_t k = 0; k < n && !known; k++)
			known = same_mesh(seen[k], it);
		if (known)
			continue;
		seen[n++] = it;
		for (uint32_t k = 0; k < d->n_params; k++)
			if (same_mesh(d->params[k].item, it))
				weight += source_splits_over(d->params[k].item,
							     -1) ?
					  UINT64_C(1) << 32 : 1;
		if (weight > best_weight) {
			best_weight = weight;
			best = it;
		}
	}
	return best;
}

static int infer_usual(struct derivation *d)
{
	const struct rsh_strategy_item *mesh = most_frequent_mesh(d);
	const uint32_t n = mesh->n_mesh;
	bool splits = false, splits_over_last = false;
	char text[256];

	for (uint32_t i = 0; i < d->n_params; i++) {
		const struct rsh_strategy_item *it = d->params[i].item;

		splits |= source_splits_over(it, -1);
		splits_over_last |= same_mesh(it, mesh) &&
				    source_splits_over(it, 0);
	}
	if (n == 1) {
		d->axes[splits ? AXIS_MP : AXIS_DP].src = mesh->mesh[0];
		return 0;
	}
	if (n > 3 || (n == 3 && mesh->mesh[1] != 1) ||
	    (splits && !splits_over_last))
		return rsh_error_set(d->err, EINVAL,
				     "%s: the purpose of the axes of its "
				     "meshes is not known (%s): give the job's "
				     "mesh, as in --src-mesh dp=2,mp=4",
				     d->path,
				     rsh_item_text(mesh, text, sizeof(text)));
	d->axes[AXIS_DP].src = mesh->mesh[0];
	d->axes[AXIS_MP].src = mesh->mesh[n - 1];
	d->with_cp = n == 3;
	return 0;
}

/* ---- experts ---- */

/* Returns whether the mesh is the usual one, and only the model parallel axis
 * splits anything. */
static bool is_usual(const struct derivation *d, const struct derive_param *p)
{
	uint32_t styles = rsh_derive_styles_of(d, p);
	uint8_t axes[3], place[RSH_STRATEGY_MAX_DIMS];

	for (uint32_t style = STYLE_STRIPPED; style <= STYLE_KEPT; style++) {
		uint32_t n = rsh_derive_usual_axes(d, style, axes);
		bool fits = (styles & style) &&
			    rsh_derive_explains(d, axes, n, style, p->item,
						place);

		for (uint32_t i = 0; fits && i < p->item->n_mesh; i++)
			if (place[i] != AXIS_MP &&
			    source_splits_over(p->item,
					       (int32_t)(p->item->n_mesh - 1 -
							 i)))
				fits = false;
		if (fits)
			return true;
	}
	return p->item->n_mesh == 1 && !source_splits_over(p->item, -1);
}

static bool is_of_experts(struct derivation *d, const struct derive_param *p,
			  uint32_t ep)
{
	static const uint8_t forms[][3] = { { AXIS_REST, AXIS_EP, AXIS_MP },
					    { AXIS_REST, AXIS_EP } };
	uint32_t styles = rsh_derive_styles_of(d, p);
	uint32_t had = d->axes[AXIS_EP].src;
	uint8_t place[RSH_STRATEGY_MAX_DIMS];
	bool fits = false;

	d->axes[AXIS_EP].src = ep;
	for (uint32_t f = 0; f < 2; f++)
		for (uint32_t s = STYLE_STRIPPED; s <= STYLE_KEPT; s++)
			fits |= (styles & s) && (f == 0 || s == STYLE_KEPT) &&
				rsh_derive_explains(d, forms[f], 3 - f, s,
						    p->item, place);
	d->axes[AXIS_EP].src = had;
	return fits;
}

/* Returns the only size that explains all unusual meshes, or 1 if there is none
 * or more than one. */
static uint32_t infer_ep(struct derivation *d)
{
	uint32_t found = 1;

	for (uint32_t ep = 2; ep <= d->src_ranks; ep++) {
		bool fits = d->src_ranks % ep == 0, any = false;

		for (uint32_t i = 0; fits && i < d->n_params; i++) {
			const struct derive_param *p = &d->params[i];

			if (rsh_derive_rule_for(d, &d->o->axes, p) ||
			    is_usual(d, p))
				continue;
			any = true;
			fits = is_of_experts(d, p, ep);
		}
		if (fits && any)
			found = found == 1 ? ep : UINT32_MAX;
	}
	return found == UINT32_MAX ? 1 : found;
}

static int infer(struct derivation *d)
{
	const struct derive_axis *a = d->axes;
	char text[160];
	size_t at = 0;
	int rc = infer_usual(d);

	if (rc)
		return rc;
	d->axes[AXIS_EP].src = infer_ep(d);
	for (uint32_t i = AXIS_DP; i < N_KNOWN_AXES; i++)
		if (a[i].src > 1)
			rsh_text_add(text, sizeof(text), &at, "%s%s=%u",
				     at ? "," : "", a[i].name, a[i].src);
	return at ? rsh_derive_note(d, "%s is taken as planned for %s",
				    d->path, text) : 0;
}

/* ---- sizes given by the user ---- */

static int take_given(struct derivation *d)
{
	static const uint8_t with_cp[] = { AXIS_DP, AXIS_CP, AXIS_MP };
	const struct rsh_mesh *m = &d->o->src_mesh;
	uint8_t place[RSH_STRATEGY_MAX_DIMS];

	if (rsh_mesh_stage_ranks(m) != d->src_ranks)
		return rsh_error_set(
			d->err, EINVAL,
			"%s: its stages have %u ranks, the given mesh of the source has %u",
			d->src->path, d->src_ranks, rsh_mesh_stage_ranks(m));
	if (rsh_mesh_has(m, "pp") && rsh_mesh_size(m, "pp") != d->src_stages)
		return rsh_error_set(
			d->err, EINVAL,
			"%s: it has %u stages, the given mesh of the source has pp=%u",
			d->src->path, d->src_stages, rsh_mesh_size(m, "pp"));
	for (uint32_t i = 1; i < d->n_axes; i++)
		if (i < N_KNOWN_AXES || rsh_mesh_has(m, d->axes[i].name))
			d->axes[i].src = rsh_mesh_size(m, d->axes[i].name);
	for (uint32_t i = 0; i < d->n_params && !d->with_cp; i++)
		d->with_cp = rsh_derive_styles_of(d, &d->params[i]) &
				     STYLE_KEPT &&
			     rsh_derive_explains(d, with_cp, 3, STYLE_KEPT,
						 d->params[i].item, place);
	return 0;
}

int rsh_derive_name_axes(struct derivation *d)
{
	const struct rsh_mesh *mesh = &d->o->mesh;
	int rc;

	for (uint32_t i = AXIS_DP; i < N_KNOWN_AXES; i++)
		d->axes[i].src = 1;
	if (d->src) {
		rc = source_read_ops(d);
		if (rc == 0)
			rc = d->o->has_src_mesh ? take_given(d) : infer(d);
		if (rc)
			return rc;
		d->same_mesh = d->src_ranks == d->dst_ranks;
		for (uint32_t i = 1; i < d->n_axes; i++)
			if (d->axes[i].src && d->axes[i].src != d->axes[i].dst)
				d->same_mesh = false;
	}
	if (d->axes[AXIS_EP].src > 1 && !rsh_mesh_has(mesh, "ep"))
		return rsh_error_set(d->err, EINVAL,
				     "%s: its experts are distributed over "
				     "groups of %u ranks; name ep in the "
				     "wanted mesh too, as in ep=%u",
				     d->src->path, d->axes[AXIS_EP].src,
				     d->axes[AXIS_EP].src);
	return 0;
}
