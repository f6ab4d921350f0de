/* SPDX-License-Identifier: Apache-2.0 */
/* plan/slots.c describes the records of one virtual file: its slots and their
 * shapes. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "planner_i.h"
#include "rsh/util/checked.h"
#include "rsh/util/mem.h"

static void note_record(struct planner *p, uint32_t name, enum rsh_dtype dtype,
			uint64_t content_bytes)
{
	struct rsh_conversion *c = p->c;

	if (dtype == RSH_DTYPE_BFLOAT16 && c->src_format == RSH_FORMAT_CKPT)
		rsh_note_add(c, RSH_NOTE_BF16, name);
	else if (dtype == RSH_DTYPE_INT4)
		rsh_note_add(c, RSH_NOTE_INT4, name);
	else if (dtype == RSH_DTYPE_STR)
		rsh_note_add(c, RSH_NOTE_STR, name);
	if (content_bytes == 0 && rsh_drops_empty(c))
		rsh_note_add(c, RSH_NOTE_EMPTY, name);
	if ((rsh_listed(c->src, name) || rsh_listed(c->dst, name)) &&
	    strchr(rsh_plan_name(p, name), '-'))
		rsh_note_add(c, RSH_NOTE_DASH, name);
}

/* Finds the source of a copied record. */
static int find_copy(struct planner *p, const struct rsh_virtual_file *f,
		     uint32_t name, uint32_t *rank, struct rsh_error *err)
{
	struct rsh_conversion *c = p->c;
	bool elsewhere;

	if (!rsh_copy_source(c, f, name, NULL, rank, &elsewhere))
		return rsh_plan_missing_copy(p, f, name, err);
	if (elsewhere)
		rsh_note_add(c, RSH_NOTE_MISSING_COPY, name);
	return 0;
}

int rsh_plan_learn_copy_grid(struct planner *p, uint32_t name,
			     struct rsh_error *err)
{
	struct rsh_conversion *c = p->c;

	if (!c->replicas || !rsh_listed(c->src, name) || c->copy_grids[name] ||
	    p->transfer_of[name] != RSH_NO_TRANSFER)
		return 0;
	for (uint32_t i = 0; i < c->n_present; i++) {
		uint32_t rank = c->present[i];
		const struct rsh_record *r = rsh_rank_record(c, rank, name);

		if (r)
			return rsh_copy_grid_make(c, name,
						  rsh_rank_index(c, rank), r,
						  err);
	}
	return 0;
}

/* The record of a name in a file: its shape, and its transfer or the rank that
 * it is copied from. */
static int describe(struct planner *p, const struct rsh_virtual_file *f,
		    uint32_t name, struct rsh_record_shape *shape,
		    struct rsh_slot *slot, struct rsh_error *err)
{
	struct rsh_conversion *c = p->c;
	enum rsh_codec codec;
	uint32_t rank;
	int rc;

	slot->name = name;
	slot->transfer = p->transfer_of[name];
	if (slot->transfer != RSH_NO_TRANSFER) {
		rsh_transfer_shape(c, c->transfers[slot->transfer], shape);
	} else {
		const struct rsh_ckpt_index *ix;
		const struct rsh_record *r;

		rc = find_copy(p, f, name, &rank, err);
		if (rc)
			return rc;
		ix = rsh_rank_index(c, rank);
		r = rsh_ckpt_find(ix, name);
		rc = rsh_check_chunks(c, rank, r, err);
		if (rc)
			return rc;
		rsh_copy_shape(c, ix, r, shape, &codec);
	}
	slot->content_bytes = shape->content_bytes;
	return 0;
}

static bool same_list(const struct rsh_slot_list *l,
		      const struct rsh_file_layout *f)
{
	return l->n == f->n && l->bytes == f->bytes &&
	       l->header_bytes == f->header_bytes &&
	       (f->n == 0 ||
		memcmp(l->slots, f->slots, f->n * sizeof(*f->slots)) == 0) &&
	       (f->header_bytes == 0 ||
		memcmp(l->header, f->header, f->header_bytes) == 0);
}

const struct rsh_slot_list *rsh_plan_keep_list(struct rsh_conversion *c,
					       struct rsh_file_layout *f)
{
	cleanup_free uint8_t *header = f->header;
	struct rsh_slot_list *l;

	for (uint32_t i = 0; i < c->n_lists; i++)
		if (same_list(c->lists[i], f))
			return c->lists[i];
	if (rsh_grow(&c->lists, &c->lists_cap, c->n_lists + 1,
		     sizeof(*c->lists)))
		return NULL;
	l = malloc(sizeof(*l) + f->n * sizeof(*l->slots));
	if (!l)
		return NULL;
	l->n = f->n;
	l->bytes = f->bytes;
	l->header = header;
	l->header_bytes = f->header_bytes;
	header = NULL;
	if (f->n)
		memcpy(l->slots, f->slots, f->n * sizeof(*l->slots));
	c->lists[c->n_lists++] = l;
	return l;
}

/* Takes one record unless it is lost or left out; *taken says whether it did.
 */
static int take_record(struct planner *p, struct rsh_virtual_file *f,
		       uint32_t name, struct rsh_slot *slot,
		       struct rsh_record_shape *shape, bool *taken,
		       struct rsh_error *err)
{
	int rc;

	*taken = false;
	if (p->dealt && p->dealt[name])
		return 0;
	rc = rsh_plan_learn_copy_grid(p, name, err);
	if (rc == 0)
		rc = describe(p, f, name, shape, slot, err);
	if (rc == -ENOENT && p->c->replicas)
		return rsh_plan_lose(p, f, name, err);
	if (rc)
		return rc;
	if (slot->transfer == RSH_NO_TRANSFER &&
	    p->c->unlisted == RSH_UNLISTED_ERROR && p->c->dst &&
	    !rsh_listed(p->c->dst, slot->name))
		return rsh_error_set(err, EINVAL, "parameter %s is not listed "
				     "by %s", shape->name, p->c->dst->path);
	note_record(p, slot->name, shape->dtype, shape->content_bytes);
	*taken = shape->content_bytes > 0 || !p->c->compat ||
		 !rsh_drops_empty(p->c);
	return 0;
}

int rsh_plan_make_slots(struct planner *p, struct rsh_virtual_file *f,
			const struct name_list *names,
			struct rsh_file_layout *out, struct rsh_error *err)
{
	if (rsh_grow(&p->slots, &p->slots_cap, names->n, sizeof(*p->slots)) ||
	    rsh_grow(&p->shapes, &p->shapes_cap, names->n, sizeof(*p->shapes)))
		return rsh_error_nomem(err);
	*out = (struct rsh_file_layout){
		.slots = p->slots, .shapes = p->shapes,
		.remove_redundancy = p->c->remove_redundancy,
	};
	for (uint32_t i = 0; i < names->n; i++) {
		bool taken;
		int rc = take_record(p, f, names->names[i],
				     &p->slots[out->n], &p->shapes[out->n],
				     &taken, err);

		if (rc)
			return rc;
		out->n += taken;
	}
	return 0;
}

/* Marks the source files of copied records. */
static void use_copies(struct planner *p, const struct rsh_virtual_file *f)
{
	uint32_t rank;

	for (uint32_t i = 0; i < f->list->n; i++)
		if (f->list->slots[i].transfer == RSH_NO_TRANSFER &&
		    rsh_copy_source(p->c, f, f->list->slots[i].name, NULL,
				    &rank, NULL))
			rsh_plan_use(p, rank);
}

int rsh_plan_finish_file(struct planner *p, struct rsh_virtual_file *f,
			 struct rsh_file_layout *layout, struct rsh_error *err)
{
	int rc = p->c->framing->lay_out(layout, err);

	if (rc)
		return rc;
	f->list = rsh_plan_keep_list(p->c, layout);
	if (!f->list)
		return rsh_error_nomem(err);
	rsh_plan_unuse(p);
	use_copies(p, f);
	return rsh_plan_list_sources(p, f, err);
}
