/* SPDX-License-Identifier: Apache-2.0 */
/* plan/needs.c lists the source files that a virtual file needs, and finds the
 * slices that no source file has. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "parts_i.h"
#include "rsh/util/checked.h"
#include "rsh/util/mem.h"

/* ---- sentences ---- */

int rsh_blueprint_missing(const struct rsh_plan *p, uint32_t file,
			  uint32_t rank, uint32_t name, const char *more,
			  struct rsh_error *err)
{
	const char *text = rsh_names_text(p->cat->names, name);

	if (!rsh_catalogue_index(p->cat, file))
		return rsh_error_set(
			err, ENOENT,
			"rank %u has no valid checkpoint file, but "
			"rank %u needs its slice of parameter "
			"%s%s", file, rank, text, more);
	return rsh_error_set(err, ENOENT,
			     "%s: the file is valid, but lacks parameter %s, "
			     "of which rank %u needs its slice%s",
			     rsh_catalogue_path(p->cat, file), text, rank,
			     more);
}

/* ---- using files ---- */

static void use_file(struct rsh_building *b, uint32_t file)
{
	if (b->used[file])
		return;
	b->used[file] = true;
	b->used_files[b->n_used++] = file;
}

/* Collects the cells of one tensor that a file needs. */
struct need {
	struct rsh_plan *p;
	const struct rsh_tensor *tensor;
	struct rsh_box box;  /* the needed box of the tensor */
	bool any;            /* some element of the part is needed */
	const struct rsh_digit_box *digits; /* the needed elements of the box;
					     * NULL: all of them */
	struct rsh_digit_box kept;
	uint32_t member;     /* the file's (struct rsh_shown_file) */
	uint32_t replica;
	uint64_t n_found;
	uint32_t lowest; /* the lowest file that should hold a missing cell */
	uint32_t cell;   /* the first one that no file holds */
};

/* Returns the file that should hold the preferred replica of a cell. */
static uint32_t own_file(const struct need *n, uint32_t cell)
{
	return n->tensor->first_file +
	       rsh_cut_member(n->tensor->cut, cell, n->replica);
}

static void need_cell(void *ctx, uint32_t cell)
{
	struct need *n = ctx;
	struct rsh_plan_ops *w = &n->p->ops;
	const struct rsh_cut *cut = n->tensor->cut;
	struct rsh_holder holder;
	struct rsh_box box;

	if (n->digits) {
		rsh_cut_box(cut, n->tensor->dims, cell, &box);
		if (rsh_digit_box_count(n->digits, &box) == 0)
			return;
	}
	if (!rsh_copies_pick(n->tensor->copies, cell, n->replica, NULL,
			     &holder)) {
		n->lowest = (uint32_t)rsh_min_u64(n->lowest, own_file(n, cell));
		if (cell < n->cell)
			n->cell = cell;
		return;
	}
	n->n_found++;
	use_file(&n->p->building, holder.file);
	if (w->replica_used &&
	    rsh_cut_place(cut, holder.rank) !=
		    rsh_cut_first_place(cut, cell) + n->replica)
		w->replica_used(w->ctx, own_file(n, cell), n->tensor->name);
}

static void need_held_cell(void *ctx, uint32_t cell)
{
	struct need *n = ctx;
	struct rsh_box box, common;

	rsh_cut_box(n->tensor->cut, n->tensor->dims, cell, &box);
	if (rsh_box_meet(&box, &n->box, &common))
		need_cell(n, cell);
}

/* Finds the cells that are needed, and returns their number.  It visits only
 * cells that some file holds if these are fewer. */
static uint64_t need_box(struct need *n)
{
	const struct rsh_cut *cut = n->tensor->cut;
	const struct rsh_copies *copies = n->tensor->copies;
	uint64_t n_cells;

	n->n_found = 0;
	n->lowest = n->cell = UINT32_MAX;
	if (!copies)
		return 0;
	if (n->digits || rsh_cut_n_cells(cut) <= rsh_copies_n_holders(copies))
		return rsh_cut_overlap(cut, n->tensor->dims, &n->box, need_cell,
				       n);
	n_cells = rsh_cut_overlap(cut, n->tensor->dims, &n->box, NULL, NULL);
	if (n_cells <= rsh_copies_n_holders(copies))
		rsh_cut_overlap(cut, n->tensor->dims, &n->box, need_cell, n);
	else
		rsh_copies_each(copies, need_held_cell, n);
	return n_cells;
}

/* Returns whether some of the needed elements are in no cell. */
static bool has_gap(const struct need *n, struct rsh_box *gap)
{
	return n->digits ? rsh_digit_box_gap(n->digits, gap) :
			   rsh_cut_gap(n->tensor->cut, &n->box, gap);
}

/* Slices of a list of boxes are named by their elements. */
static int missing_box(const struct need *n, uint32_t name, uint32_t rank,
		       struct rsh_error *err)
{
	const struct rsh_tensor *t = n->tensor;
	bool gap = n->cell == UINT32_MAX;
	struct rsh_box cell, box;
	char text[160];

	if (!gap) {
		rsh_cut_box(t->cut, t->dims, n->cell, &cell);
		rsh_box_meet(&cell, &n->box, &box);
	} else if (!has_gap(n, &box)) {
		box = n->box;
	}
	return rsh_error_set(err, ENOENT, "parameter %s: elements %s%s%s are "
			     "in no %s, but rank %u needs them",
			     rsh_names_text(n->p->cat->names, name),
			     rsh_box_text(&box, text, sizeof(text)),
			     t->name == name ? "" : " of ",
			     t->name == name ? "" :
			     rsh_names_text(n->p->cat->names, t->name),
			     gap ? "chunk" : "file that is there", rank);
}

static int missing_slice(const struct need *n, uint32_t name, uint32_t rank,
			 struct rsh_error *err)
{
	const struct rsh_plan *p = n->p;
	char more[352] = "";

	if (!rsh_cut_grid(n->tensor->cut))
		return missing_box(n, name, rank, err);
	if (p->ops.explain)
		p->ops.explain(p->ops.ctx, rank, name, more, sizeof(more));
	return rsh_blueprint_missing(p, n->lowest, rank, name, more, err);
}

/* Adds missing cells to the losses; the message is about the file of the lowest
 * number. */
static int lose_cells(struct need *n, uint32_t shown,
		      struct rsh_virtual_file *f, struct rsh_error *err)
{
	struct rsh_plan *p = n->p;
	struct rsh_mapping *w = p->mappings[shown];
	const struct rsh_lost lost = { w->name, shown };
	int rc = 0;

	f->lost = p->b.replicas;
	if (w->lost)
		return 0;
	if (p->n_lost == 0) {
		if (n->lowest == RSH_NO_FILE)
			rsh_cut_overlap(n->tensor->cut, n->tensor->dims,
					&n->box, need_cell, n);
		rc = missing_slice(n, w->name, f->rank, err);
	}
	return p->b.replicas ? rsh_plan_lose(p, &lost, err) : rc;
}

static int mark_done(struct rsh_plan *p, const struct rsh_mapping *w,
		     uint32_t number)
{
	struct rsh_building *b = &p->building;
	const size_t cap = b->pair_done_cap;

	if (w->pair == RSH_NO_PAIR)
		return 0;
	if (rsh_room(b->pair_done, b->pair_done_cap, p->n_pairs))
		return -ENOMEM;
	if (b->pair_done_cap > cap)
		memset(b->pair_done + cap, 0, (b->pair_done_cap - cap) *
		       sizeof(*b->pair_done));
	b->pair_done[w->pair] = number + 1;
	return 0;
}

/* Marks the source files that have the needed cells of a tensor.  False: some
 * of these are missing. */
static bool need_found(struct need *n)
{
	const uint64_t n_cells = need_box(n);
	struct rsh_box gap;

	return (n->digits ? n->cell == UINT32_MAX : n->n_found == n_cells) &&
	       !has_gap(n, &gap);
}

static bool need_digits(void *ctx, const struct rsh_digit_box *b)
{
	struct need *n = ctx;

	n->any = true;
	n->digits = NULL;
	rsh_digit_box_bounds(b, &n->box);
	if (!rsh_digit_box_fills(b, &n->box)) {
		/* lose_cells() uses this copy after `b` is gone. */
		n->kept = *b;
		n->digits = &n->kept;
	}
	return need_found(n);
}

/* Which of the scales a slice needs is not computed: all of them are small. */
struct need_beside {
	struct need *n;
	bool found;
};

static void need_one_beside(void *ctx, const struct rsh_tensor *t)
{
	struct need_beside *x = ctx;
	struct need *n = x->n;

	if (!x->found)
		return;
	n->tensor = t;
	n->digits = NULL;
	n->replica = rsh_cut_replica(t->cut, n->member);
	n->box = rsh_box_whole(t->dims, t->n_dims);
	x->found = need_found(n);
}

/* Marks the files of the elements of a part in a slice, and of its scales. */
static bool need_part(struct need *n, const struct rsh_mapping *w,
		      uint32_t part, const struct rsh_box *slice)
{
	const struct rsh_tensor *t = w->parts[part].tensor;
	struct need_beside beside = { n, true };

	n->tensor = t;
	n->replica = rsh_cut_replica(t->cut, n->member);
	n->any = false;
	n->digits = NULL;
	if (w->pair != RSH_NO_PAIR) {
		n->box = *slice;
		return need_found(n);
	}
	if (!rsh_part_each(w, part, slice, need_digits, n))
		return false;
	if (t->quantised && n->any)
		rsh_quantised_each(t->quantised, need_one_beside, &beside);
	return beside.found;
}

/* Marks the source files of a shown tensor's slice. */
static int need_slice(struct rsh_plan *p, struct rsh_virtual_file *f,
		      uint32_t number, uint32_t shown, struct rsh_error *err)
{
	const struct rsh_mapping *w = p->mappings[shown];
	const struct rsh_building *b = &p->building;
	struct need n = { .p = p, .member = f->member };
	struct rsh_box slice;

	/* A tensor without elements needs no source file, and tensors of one
	 * pair need the same ones.  A pair with lost cells is not marked as
	 * done, since the losses of each tensor are reported. */
	if (rsh_mapping_bytes(w, f->member) == 0 ||
	    (w->pair != RSH_NO_PAIR && w->pair < b->pair_done_cap &&
	     b->pair_done[w->pair] == number + 1))
		return 0;
	rsh_cut_box(w->cut, w->dims, rsh_cut_cell(w->cut, f->member), &slice);
	for (uint32_t i = 0; i < w->n_parts; i++)
		if (!need_part(&n, w, i, &slice))
			return lose_cells(&n, shown, f, err);
	return mark_done(p, w, number) ? rsh_error_nomem(err) : 0;
}

int rsh_plan_list_sources(struct rsh_plan *p, struct rsh_virtual_file *f,
			  struct rsh_error *err)
{
	struct rsh_building *b = &p->building;

	while (b->n_used > 0)
		b->used[b->used_files[--b->n_used]] = false;
	for (uint32_t i = 0; i < f->list->n; i++) {
		const struct rsh_slot *s = &f->list->slots[i];
		uint32_t file;
		int rc = 0;

		if (s->shown != RSH_COPIED)
			rc = need_slice(p, f, p->n_files, s->shown, err);
		else if (p->ops.pick(p->ops.ctx, f->rank, s->name, NULL, &file))
			use_file(b, file);
		if (rc)
			return rc;
	}
	rsh_sort(b->used_files, b->n_used, rsh_by_u32);
	f->sources = rsh_arena_copy(&p->arena, b->used_files, b->n_used);
	f->n_sources = b->n_used;
	return f->sources ? 0 : rsh_error_nomem(err);
}

int rsh_blueprint_probe(struct rsh_plan *p, uint32_t shown, uint32_t rank,
			uint32_t member, bool *lost, struct rsh_error *err)
{
	struct rsh_virtual_file f = { .rank = rank, .member = member };
	/* No file has this number, so the pair does not count as done. */
	int rc = need_slice(p, &f, UINT32_MAX - 1, shown, err);

	*lost |= f.lost;
	return rc;
}
