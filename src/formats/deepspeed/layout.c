/* SPDX-License-Identifier: Apache-2.0 */
/* formats/deepspeed/layout.c computes where parameters are in flat tensors.
 *
 * ZeRO 1 and 2: a group is one vector, in which its parameters follow one
 * another; rank r has elements r * piece to (r + 1) * piece.  The pieces are
 * cut anywhere in the row-major order of a parameter.  ZeRO 3: each rank has an
 * equal share of each parameter, and these follow one another in the flat
 * tensor of the rank.
 *
 * The order is that of param_shapes.  With round_robin_gradients
 * param_slice_mappings has another one, which is wrong. */
#include "config.h"

#include "deepspeed_i.h"

#include <errno.h>

#include "rsh/util/checked.h"

/* ---- places ---- */

static int layout_bad(const char *path, uint32_t group, const char *what,
		      struct rsh_error *err)
{
	return rsh_error_set(err, EBADMSG, "%s: damaged: group %u of its "
			     "parameters %s", path, group, what);
}

static int layout_group(struct rsh_ds_layout *l, struct rsh_ds_params *of,
			const struct rsh_ds_zero *z, uint32_t group,
			const char *path, struct rsh_error *err)
{
	const bool is_3 = l->stage == 3;
	const uint32_t n = z->paddings && !is_3 ? z->n_paddings[group] : 0;
	uint64_t end = 0, all;

	if (n != 0 && n != of->n)
		return layout_bad(path, group, "does not have as many "
					       "paddings as parameters", err);
	for (uint32_t i = 0; i < of->n; i++) {
		struct rsh_ds_param *p = &of->v[i];

		p->at = end;
		if (is_3)
			p->share = rsh_div_up(p->elements, l->world);
		if (!rsh_add_u64(end, is_3 ? p->share : p->elements, &end) ||
		    (n && !rsh_add_u64(end, z->paddings[group][i], &end)) ||
		    end > INT64_MAX)
			return layout_bad(path, group, "has more elements than "
						       "can be", err);
	}
	l->elements[group] = end;
	if (is_3 && end != l->piece[group])
		return layout_bad(path, group, "does not have the length of "
					       "its flat tensor", err);
	/* The length of the last one may lack padding. */
	if (!is_3 && (!rsh_mul_u64(l->piece[group], l->world, &all) ||
		      all > INT64_MAX || all < end))
		return layout_bad(path, group, "does not have the length of "
					       "its flat tensors", err);
	return 0;
}

int rsh_ds_layout_make(struct rsh_ds_head *h, const struct rsh_ds_zero *z,
		       const uint64_t *piece, const char *path,
		       struct rsh_arena *arena, struct rsh_ds_layout *out,
		       struct rsh_error *err)
{
	int rc = 0;

	*out = (struct rsh_ds_layout){
		.stage = z->stage, .world = z->world, .head = h,
		.piece = piece,
		.elements = rsh_arena_array(arena, uint64_t, h->n_groups),
	};
	if (!out->elements)
		return rsh_error_nomem(err);
	if (z->n_groups != h->n_groups)
		return rsh_error_set(err, EBADMSG, "%s: the optimizer has %u "
				     "groups of parameters, and the model %u",
				     path, z->n_groups, h->n_groups);
	for (uint32_t g = 0; g < h->n_groups && rc == 0; g++)
		rc = layout_group(out, &h->groups[g], z, g, path, err);
	return rc;
}

void rsh_ds_layout_frozen(struct rsh_ds_head *h, uint32_t world)
{
	for (uint32_t i = 0; i < h->frozen.n; i++)
		h->frozen.v[i].share = rsh_div_up(h->frozen.v[i].elements, world);
}

/* ---- runs ---- */

struct rsh_ds_run rsh_ds_share_of(const struct rsh_ds_param *p, uint32_t rank)
{
	struct rsh_ds_run run = { .from = p->elements, .at = p->at };
	uint64_t from;

	if (rsh_mul_u64(p->share, rank, &from) && from < p->elements) {
		run.from = from;
		run.n = rsh_min_u64(p->share, p->elements - from);
	}
	return run;
}

struct rsh_ds_run rsh_ds_run_of(const struct rsh_ds_layout *l, uint32_t group,
				const struct rsh_ds_param *p, uint32_t rank)
{
	/* The product of the piece and the number of ranks fits. */
	const uint64_t piece = l->piece[group], first = piece * rank;
	const uint64_t from = rsh_max_u64(p->at, first);
	const uint64_t end = rsh_min_u64(p->at + p->elements, first + piece);

	if (l->stage == 3)
		return rsh_ds_share_of(p, rank);
	if (from >= end)
		return (struct rsh_ds_run){ .n = 0 };
	return (struct rsh_ds_run){
		.from = from - p->at, .n = end - from, .at = from - first,
	};
}

/* Sets the largest box of at most n elements that begins at an element. */
static uint64_t box_at(const struct rsh_ds_param *p, uint64_t at, uint64_t n,
		       struct rsh_box *out)
{
	uint64_t stride = 1, elements = 1;

	out->n_dims = p->n_dims;
	/* Dimensions are whole from the last one up to the one that is cut. */
	for (uint32_t d = p->n_dims; d-- > 0; stride *= p->dims[d]) {
		const uint64_t index = at / stride % p->dims[d];

		out->from[d] = index;
		out->size[d] = 1;
		if (at % stride != 0 || stride > n)
			continue;
		out->size[d] = rsh_min_u64(n / stride, p->dims[d] - index);
		elements = out->size[d] * stride;
	}
	return elements;
}

uint32_t rsh_ds_run_boxes(const struct rsh_ds_param *p,
			  const struct rsh_ds_run *run,
			  struct rsh_box boxes[RSH_DS_BOXES_MAX])
{
	uint32_t k = 0;

	for (uint64_t done = 0; done < run->n && k < RSH_DS_BOXES_MAX; k++)
		done += box_at(p, run->from + done, run->n - done, &boxes[k]);
	return k;
}
