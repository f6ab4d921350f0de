/* SPDX-License-Identifier: Apache-2.0 */
/* plan/query.c lists the shown tensors, and the cells of the catalogue that
 * make up a slice of one. */
#include "rsh/plan/query.h"

#include "factored_i.h"

uint32_t rsh_plan_n_tensors(const struct rsh_plan *p)
{
	return p->n_mappings;
}

void rsh_plan_tensor(const struct rsh_plan *p, uint32_t i,
		     struct rsh_plan_tensor *out)
{
	const struct rsh_mapping *w = p->mappings[i];

	*out = (struct rsh_plan_tensor){
		.name = rsh_plan_written_name(p, w->name),
		.number = w->name,
		.lost = w->lost,
		.dtype = w->dtype,
		.n_dims = w->n_dims,
		.dims = w->dims,
		.cut = w->cut,
		.n_parts = w->n_parts,
		.from = w->n_parts ? rsh_mapping_tensor(w, 0) : NULL,
		.axis = w->recipe ? w->recipe->axis : NULL,
	};
}

uint32_t rsh_plan_member(const struct rsh_plan *p, uint32_t file)
{
	return p->files[file].member;
}

void rsh_plan_mark_tensors(const struct rsh_plan *p, uint32_t file, bool *shown)
{
	const struct rsh_slot_list *list = p->files[file].list;

	for (uint32_t i = 0; i < list->n; i++)
		if (list->slots[i].shown != RSH_COPIED)
			shown[list->slots[i].shown] = true;
}

/* ---- where a slice comes from ---- */

struct origins {
	const struct rsh_mapping *w;
	const struct rsh_tensor *in;
	const struct rsh_recipe_part *part; /* NULL: shown as it is */
	const struct rsh_box *needed;       /* of the catalogue's tensor */
	struct rsh_box common;              /* of the shown one */
	const struct rsh_digit_box *digits; /* of a factored part */
	uint32_t replica;
	rsh_origin_fn *each;
	void *ctx;
};

/* Gives the box of the shown tensor for a box of the catalogue's tensor. */
static void origin_shown(const struct origins *o, const struct rsh_box *in,
			 struct rsh_box *out)
{
	if (o->digits) {
		rsh_digit_box_shown(o->digits, o->w, in, out);
		return;
	}
	if (!o->part) {
		*out = *in;
		return;
	}
	*out = o->common;
	for (uint32_t i = 0; i < in->n_dims; i++) {
		const uint32_t d = o->part->axis[i];

		if (d == RSH_FIXED)
			continue;
		out->from[d] = in->from[i] - o->part->base[i] +
			       o->part->box.from[d];
		out->size[d] = in->size[i];
	}
}

static void origin_tell(void *ctx, uint32_t cell)
{
	const struct origins *o = ctx;
	struct rsh_box box, met, shown;
	struct rsh_holder holder;

	rsh_cut_box(o->in->cut, o->in->dims, cell, &box);
	if (!rsh_box_meet(&box, o->needed, &met) ||
	    (o->digits && rsh_digit_box_count(o->digits, &box) == 0))
		return;
	origin_shown(o, &met, &shown);
	o->each(o->ctx, &shown,
		rsh_copies_pick(o->in->copies, cell, o->replica, NULL,
				&holder) ? &holder : NULL);
}

/* The elements of a cell in a factored part may not form a box.  The box that
 * `each` gets then also contains elements of other cells. */
static bool origin_tell_digits(void *ctx, const struct rsh_digit_box *b)
{
	struct origins *o = ctx;
	struct rsh_box needed;

	o->digits = b;
	rsh_digit_box_bounds(b, &needed);
	o->needed = &needed;
	rsh_cut_overlap(o->in->cut, o->in->dims, &needed, origin_tell, o);
	return true;
}

void rsh_plan_origins(const struct rsh_plan *p, uint32_t i, uint32_t member,
		      rsh_origin_fn *each, void *ctx)
{
	const struct rsh_mapping *w = p->mappings[i];
	struct origins o = { .w = w, .each = each, .ctx = ctx };
	struct rsh_box slice, needed;

	rsh_cut_box(w->cut, w->dims, rsh_cut_cell(w->cut, member), &slice);
	for (uint32_t k = 0; k < w->n_parts; k++) {
		o.in = rsh_mapping_tensor(w, k);
		if (!o.in->copies)
			continue;
		o.replica = rsh_cut_replica(o.in->cut, member);
		if (w->is_factored) {
			rsh_factored_each(w, k, &slice, origin_tell_digits, &o);
			continue;
		}
		if (!rsh_mapping_part_box(w, &slice, k, &needed))
			continue;
		o.part = w->recipe ? &w->recipe[k] : NULL;
		if (o.part)
			rsh_box_meet(&slice, &o.part->box, &o.common);
		o.needed = &needed;
		rsh_cut_overlap(o.in->cut, o.in->dims, &needed, origin_tell,
				&o);
	}
}
