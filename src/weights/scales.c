/* SPDX-License-Identifier: Apache-2.0 */
/* weights/scales.c finds the scales of tensors that are stored in blocks of
 * fp8: tensors with related names, as in published models. */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "rsh/util/mem.h"
#include "weights_i.h"

#define WEIGHTS_SCALE "_scale_inv"

static void weights_find_scale(struct weights_work *w, uint32_t source,
			       const uint32_t *source_of, uint32_t n_names)
{
	char text[WEIGHTS_TEXT];
	int len = snprintf(text, sizeof(text), "%s" WEIGHTS_SCALE,
			   weights_text(w, source));
	uint32_t name;

	if (len < 0 || (size_t)len >= sizeof(text))
		return;
	name = rsh_names_find(w->cat->names, text, (size_t)len);
	if (name >= n_names || !source_of[name])
		return;
	w->scale_of[source] = source_of[name];
	w->is_scale[source_of[name] - 1] = true;
}

int weights_find_scales(struct weights_work *w, struct rsh_error *err)
{
	const uint32_t n_names = rsh_names_count(w->cat->names);
	uint32_t *source_of = rsh_arena_array(&w->scratch, uint32_t, n_names);

	w->scale_of = rsh_arena_array(&w->scratch, uint32_t, w->n);
	w->is_scale = rsh_arena_array(&w->scratch, bool, w->n);
	if (!source_of || !w->scale_of || !w->is_scale)
		return rsh_error_nomem(err);
	for (uint32_t i = 0; i < w->n; i++)
		source_of[w->in[i].name] = i + 1;
	for (uint32_t i = 0; i < w->n; i++)
		if (w->in[i].dtype == RSH_DTYPE_FLOAT8E4M3FN)
			weights_find_scale(w, i, source_of, n_names);
	return 0;
}

/* Returns whether the shape of the scales fits blocks of this size. */
static bool weights_scale_fits(const struct rsh_offer *o,
			       const struct rsh_offer *scales,
			       const uint64_t *block)
{
	if (o->n_dims != 2 || scales->n_dims != 2 ||
	    scales->dtype != RSH_DTYPE_FLOAT32)
		return false;
	for (uint32_t d = 0; d < 2; d++)
		if (scales->dims[d] != o->dims[d] / block[d] +
				       (o->dims[d] % block[d] != 0))
			return false;
	return true;
}

/* Returns whether the offer is one tensor of the catalogue, unchanged. */
static bool weights_is_plain(const struct weights_work *w, uint32_t source)
{
	const struct rsh_offer *o = &w->in[source];
	const struct rsh_recipe_part *p = o->parts;

	if (o->n_parts != 1 || o->n_factored ||
	    w->cat->tensors[p->tensor]->n_dims != o->n_dims)
		return false;
	for (uint32_t d = 0; d < o->n_dims; d++)
		if (p->axis[d] != d || p->base[d])
			return false;
	return true;
}

int weights_get_scale(struct weights_work *w, uint32_t source,
		      const struct rsh_recipe_scale **out,
		      struct rsh_error *err)
{
	const uint32_t scales = w->scale_of[source] - 1;
	struct rsh_recipe_scale *s;

	s = rsh_arena_array(w->arena, struct rsh_recipe_scale, 1);
	if (!s)
		return rsh_error_nomem(err);
	if (!w->o->config || !rsh_model_config_fp8(w->o->config, s->block))
		return rsh_error_set(err, EINVAL, "%s has scales of blocks, "
				     "and no \"weight_block_size\" of a "
				     "config.json says how large these are",
				     weights_text(w, source));
	if (!weights_scale_fits(&w->in[source], &w->in[scales], s->block))
		return rsh_error_set(err, EINVAL, "%s is not of the type and "
				     "shape that scales of %s in blocks of "
				     "%llu x %llu have",
				     weights_text(w, scales),
				     weights_text(w, source),
				     (unsigned long long)s->block[0],
				     (unsigned long long)s->block[1]);
	if (!weights_is_plain(w, source) || !weights_is_plain(w, scales))
		return rsh_error_set(err, ENOTSUP, "%s or its scales are in "
				     "the source in several parts, or "
				     "transposed", weights_text(w, source));
	s->tensor = w->in[scales].parts->tensor;
	*out = s;
	return 0;
}
