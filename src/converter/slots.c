/* SPDX-License-Identifier: Apache-2.0 */
/* converter/slots.c describes the records of one virtual file: its slots and
 * their shapes. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "planner_i.h"
#include "rsh/util/checked.h"
#include "rsh/util/mem.h"

static void note_record(struct planner *p, uint32_t name, enum rsh_dtype dtype,
			uint64_t content_bytes)
{
	struct rsh_converter *c = p->c;

	if (dtype == RSH_DTYPE_BFLOAT16 && c->src_format == RSH_FILE_CKPT)
		rsh_note_add(c, RSH_NOTE_BF16, name);
	else if (dtype == RSH_DTYPE_INT4)
		rsh_note_add(c, RSH_NOTE_INT4, name);
	else if (dtype == RSH_DTYPE_STR)
		rsh_note_add(c, RSH_NOTE_STR, name);
	if (content_bytes == 0 && rsh_drops_empty(c))
		rsh_note_add(c, RSH_NOTE_EMPTY, name);
	if ((rsh_listed(c->src, name) || rsh_listed(c->dst, name)) &&
	    strchr(rsh_planner_name(p, name), '-'))
		rsh_note_add(c, RSH_NOTE_DASH, name);
}

/* Finds the source of a copied record. */
static int find_copy(struct planner *p, const struct rsh_shown_file *f,
		     uint32_t name, uint32_t *rank, struct rsh_error *err)
{
	struct rsh_converter *c = p->c;
	bool elsewhere;

	if (!rsh_copy_source(c, &c->orders[f->rank], name, NULL, rank,
			     &elsewhere))
		return rsh_planner_missing_copy(p, f->rank, name, err);
	if (elsewhere)
		rsh_note_add(c, RSH_NOTE_MISSING_COPY, name);
	return 0;
}

int rsh_planner_learn_copy_grid(struct planner *p, uint32_t name,
				struct rsh_error *err)
{
	struct rsh_converter *c = p->c;

	if (!c->replicas || !rsh_listed(c->src, name) || c->copy_grids[name] ||
	    p->shown_of[name] != RSH_NO_SHOWN)
		return 0;
	for (uint32_t i = 0; i < c->cat->n_present; i++) {
		uint32_t rank = c->cat->present[i];
		const struct rsh_record *r = rsh_catalogue_record(c->cat, rank, name);

		if (r)
			return rsh_copy_grid_make(c, name,
						  rsh_catalogue_index(c->cat, rank), r,
						  err);
	}
	return 0;
}

/* Describes the record of a name in a file: its shape, its size, and the tensor
 * that it shows or that it is copied. */
static int describe(struct planner *p, const struct rsh_shown_file *f,
		    uint32_t name, struct rsh_record_shape *shape,
		    struct rsh_slot *slot, struct rsh_error *err)
{
	struct rsh_converter *c = p->c;
	enum rsh_codec codec;
	uint32_t rank;
	int rc;

	slot->name = name;
	slot->shown = p->shown_of[name] == RSH_NO_SHOWN ? RSH_COPIED :
							  p->shown_of[name];
	if (slot->shown != RSH_COPIED) {
		rsh_blueprint_shape(c->plan, slot->shown, f->member, shape);
	} else {
		const struct rsh_ckpt_index *ix;
		const struct rsh_record *r;

		rc = find_copy(p, f, name, &rank, err);
		if (rc)
			return rc;
		ix = rsh_catalogue_index(c->cat, rank);
		r = rsh_ckpt_find(ix, name);
		rc = rsh_record_check_chunks(c->cat, rank, r,
					     rsh_record_unit(c, r), err);
		if (rc)
			return rc;
		rsh_copy_shape(c, ix, r, shape, &codec);
	}
	slot->content_bytes = shape->content_bytes;
	return 0;
}

/* Takes one record unless it is lost or left out; *taken says whether it did.
 */
static int slots_take_record(struct planner *p, struct rsh_shown_file *f,
			     uint32_t name, struct rsh_slot *slot,
			     struct rsh_record_shape *shape, bool *taken,
			     struct rsh_error *err)
{
	int rc;

	*taken = false;
	if (p->dealt && p->dealt[name])
		return 0;
	rc = rsh_planner_learn_copy_grid(p, name, err);
	if (rc == 0)
		rc = describe(p, f, name, shape, slot, err);
	if (rc == -ENOENT && p->c->replicas) {
		f->lost = true;
		return rsh_blueprint_lose(p->c->plan, name, err);
	}
	if (rc)
		return rc;
	if (slot->shown == RSH_COPIED &&
	    p->c->unlisted == RSH_UNLISTED_ERROR && p->c->dst &&
	    !rsh_listed(p->c->dst, slot->name))
		return rsh_error_set(err, EINVAL, "parameter %s is not listed "
				     "by %s", shape->name, p->c->dst->path);
	note_record(p, slot->name, shape->dtype, shape->content_bytes);
	*taken = shape->content_bytes > 0 || !p->c->compat ||
		 !rsh_drops_empty(p->c);
	return 0;
}

int rsh_planner_make_slots(struct planner *p, struct rsh_shown_file *f,
			   const struct name_list *names, struct rsh_error *err)
{
	if (rsh_grow(&p->slots, &p->slots_cap, names->n, sizeof(*p->slots)) ||
	    rsh_grow(&p->shapes, &p->shapes_cap, names->n, sizeof(*p->shapes)))
		return rsh_error_nomem(err);
	p->slots_of = 0;
	f->n = 0;
	f->slots = p->slots;
	f->shapes = p->shapes;
	for (uint32_t i = 0; i < names->n; i++) {
		bool taken;
		int rc = slots_take_record(p, f, names->names[i],
					   &p->slots[f->n], &p->shapes[f->n],
					   &taken, err);

		if (rc)
			return rc;
		f->n += taken;
	}
	return 0;
}
