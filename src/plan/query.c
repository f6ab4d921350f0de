/* SPDX-License-Identifier: Apache-2.0 */
/* plan/query.c lists the shown tensors, and the cells of the catalogue that
 * make up a slice of one. */
#include "rsh/plan/query.h"

#include <string.h>

#include "parts_i.h"

uint32_t rsh_plan_n_tensors(const struct rsh_plan *p)
{
	return p->n_mappings;
}

void rsh_plan_tensor(const struct rsh_plan *p, uint32_t i,
		     struct rsh_plan_tensor *out)
{
	const struct rsh_mapping *w = p->mappings[i];
	const struct rsh_part *f = w->parts;
	bool same = w->n_parts == 1 && f->tensor->n_dims == w->n_dims;

	*out = (struct rsh_plan_tensor){
		.name = rsh_plan_written_name(p, w->name),
		.number = w->name,
		.lost = w->lost,
		.dtype = w->dtype,
		.n_dims = w->n_dims,
		.dims = w->dims,
		.cut = w->cut,
		.n_parts = w->n_parts,
		.from = f->tensor,
	};
	memset(out->axis, RSH_FIXED, sizeof(out->axis));
	if (w->apart)
		return;
	/* Dimensions that make up a span follow each other on both sides. */
	for (uint32_t k = 0; k < f->n; k++) {
		const uint32_t h = f->factors[k].dim;
		const uint32_t end = h + 1u < f->n_in ? f->in[h + 1].lead :
							f->tensor->n_dims;
		uint32_t d = w->spans[f->factors[k].shown_dim].lead;

		for (uint32_t x = f->in[h].lead; x < end; x++)
			out->axis[x] = (uint8_t)d++;
	}
	for (uint32_t d = 0; d < w->n_dims && same; d++)
		same = f->tensor->dims[d] == w->dims[d] &&
		       (out->axis[d] == d || w->dims[d] == 1);
	if (same)
		memset(out->axis, RSH_FIXED, sizeof(out->axis));
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
	const struct rsh_digit_box *digits;
	struct rsh_box needed; /* of the catalogue's tensor */
	uint32_t replica;
	rsh_origin_fn *each;
	void *ctx;
};

static void origin_tell(void *ctx, uint32_t cell)
{
	const struct origins *o = ctx;
	struct rsh_box box, met, shown;
	struct rsh_holder holder;

	rsh_cut_box(o->in->cut, o->in->dims, cell, &box);
	if (!rsh_box_meet(&box, &o->needed, &met) ||
	    rsh_digit_box_count(o->digits, &box) == 0)
		return;
	rsh_digit_box_shown(o->digits, o->w, &met, &shown);
	o->each(o->ctx, &shown,
		rsh_copies_pick(o->in->copies, cell, o->replica, NULL,
				&holder) ? &holder : NULL);
}

/* The elements of a cell in a part may not form a box.  The box that `each`
 * gets then also contains elements of other cells. */
static bool origin_tell_digits(void *ctx, const struct rsh_digit_box *b)
{
	struct origins *o = ctx;

	o->digits = b;
	rsh_digit_box_bounds(b, &o->needed);
	rsh_cut_overlap(o->in->cut, o->in->dims, &o->needed, origin_tell, o);
	return true;
}

void rsh_plan_origins(const struct rsh_plan *p, uint32_t i, uint32_t member,
		      rsh_origin_fn *each, void *ctx)
{
	const struct rsh_mapping *w = p->mappings[i];
	struct origins o = { .w = w, .each = each, .ctx = ctx };
	struct rsh_box slice;

	rsh_cut_box(w->cut, w->dims, rsh_cut_cell(w->cut, member), &slice);
	for (uint32_t k = 0; k < w->n_parts; k++) {
		o.in = w->parts[k].tensor;
		o.replica = rsh_cut_replica(o.in->cut, member);
		if (o.in->copies)
			rsh_part_each(w, k, &slice, origin_tell_digits, &o);
	}
}
