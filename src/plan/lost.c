/* SPDX-License-Identifier: Apache-2.0 */
/* plan/lost.c collects the slices that no file holds, and reports them. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#include "parts_i.h"
#include "rsh/util/mem.h"

/* At most REPORTED_MAX slices are reported with their ranks, and at most
 * RANKS_LISTED_MAX ranks of each slice.  Of the other slices only the number
 * for each parameter is reported. */
#define REPORTED_MAX 4096
#define RANKS_LISTED_MAX 64
/* At most so many ranks that should hold lost slices are checked. */
#define RANKS_CHECKED_MAX 65536

int rsh_plan_lose(struct rsh_plan *p, const struct rsh_lost *lost,
		  struct rsh_error *sentence)
{
	bool *told;

	if (!p->lost_whole)
		p->lost_whole = calloc(p->cat->n_names + 1, sizeof(bool));
	if (!p->lost_whole || rsh_room(p->lost, p->lost_cap, p->n_lost + 1))
		return rsh_error_nomem(sentence);
	if (p->n_lost == 0)
		p->first_lost = *sentence;
	/* Many destination ranks need the same slices, so a loss is added
	 * once. */
	told = lost->shown == RSH_COPIED ? &p->lost_whole[lost->name] :
					   &p->mappings[lost->shown]->lost;
	if (!*told)
		p->lost[p->n_lost++] = *lost;
	*told = true;
	sentence->code = 0;
	return 0;
}

int rsh_blueprint_lose(struct rsh_plan *p, uint32_t name,
		       struct rsh_error *sentence)
{
	return rsh_plan_lose(p, &(struct rsh_lost){ name, RSH_COPIED },
			     sentence);
}

RSH_ORDER(lost_by_name, struct rsh_lost,
	  rsh_compare_u64(x->name, y->name) ?:
	  rsh_compare_u64(x->shown, y->shown))

/* ---- one parameter ---- */

/* The losses of one name.  Each destination stage may have its own tensor of
 * that name. */
struct loss {
	const struct rsh_plan *p;
	const struct rsh_lost *first;
	uint32_t n;
};

/* Returns the tensor of the catalogue to which loss i belongs.  If there are
 * several parts, it is the first part that lacks a cell.  NULL: not known. */
static const struct rsh_tensor *tensor_of(const struct loss *l, uint32_t i)
{
	const struct rsh_mapping *w = l->first[i].shown == RSH_COPIED ?
		NULL : l->p->mappings[l->first[i].shown];

	for (uint32_t k = 0; w && k < w->n_parts; k++) {
		const struct rsh_tensor *t = w->parts[k].tensor;

		if (t->copies &&
		    rsh_copies_n_cells(t->copies) < rsh_cut_n_cells(t->cut))
			return t;
	}
	return w ? w->parts->tensor : NULL;
}

/* Returns whether the cell is missing for one of the stages.  The stages
 * together need every cell. */
static bool is_lost(const struct loss *l, uint32_t cell)
{
	struct rsh_holder holder;

	for (uint32_t i = 0; i < l->n; i++) {
		const struct rsh_tensor *t = tensor_of(l, i);

		if (t && cell < rsh_cut_n_cells(t->cut) &&
		    !rsh_copies_pick(t->copies, cell, 0, NULL, &holder))
			return true;
	}
	return false;
}

/* Counts the lost cells.  It checks each cell only if the stages have lost
 * different cells. */
static uint32_t count_lost(const struct loss *l)
{
	const struct rsh_tensor *t = tensor_of(l, 0);
	uint32_t n = 0;

	for (uint32_t i = 1; i < l->n; i++) {
		const struct rsh_tensor *other = tensor_of(l, i);

		if ((t ? t->copies : NULL) == (other ? other->copies : NULL))
			continue;
		t = t ? t : other;
		for (uint32_t c = 0; c < rsh_cut_n_cells(t->cut); c++)
			n += is_lost(l, c);
		return n > 0 ? n : 1;
	}
	return t ? rsh_cut_n_cells(t->cut) - rsh_copies_n_cells(t->copies) : 1;
}

/* ---- reporting ---- */

struct loss_report {
	void (*report)(void *ctx, const char *sentence);
	void *ctx;
	uint32_t left; /* slices that may still be reported with ranks */
};

static void report_whole(struct loss_report *t, const struct loss *l)
{
	const struct rsh_catalogue *c = l->p->cat;
	const uint32_t name = l->first->name;
	char text[RSH_ERROR_TEXT_MAX];
	bool any = false;

	for (uint32_t i = 0; !any && i < c->n_present; i++)
		any = rsh_catalogue_record(c, c->present[i], name);
	snprintf(text, sizeof(text), "lost: parameter %s, %s",
		 rsh_names_text(c->names, name), any ?
		 "slices of which are in no file" :
		 "which no valid file holds");
	t->report(t->ctx, text);
}

/* Reports n slices of a parameter in one sentence.  `others`: some other slices
 * of the parameter were reported one by one. */
static void report_rest(struct loss_report *t, const struct loss *l, uint32_t n,
			bool others)
{
	char text[RSH_ERROR_TEXT_MAX];

	snprintf(text, sizeof(text), "lost: parameter %s, %u %sslices",
		 rsh_names_text(l->p->cat->names, l->first->name), n,
		 others ? "more " : "");
	t->report(t->ctx, text);
}

static void report_slice(struct loss_report *t, const struct loss *l,
			 const struct rsh_tensor *tensor, uint32_t cell)
{
	uint32_t n = rsh_cut_n_replicas(tensor->cut, cell), i;
	char text[RSH_ERROR_TEXT_MAX];
	int at = snprintf(text, sizeof(text), "lost: parameter %s, the slice "
			  "of ranks", rsh_names_text(l->p->cat->names,
						     l->first->name));

	for (i = 0; i < n && i < RANKS_LISTED_MAX; i++) {
		if ((size_t)at + 48 > sizeof(text))
			break;
		at += snprintf(text + at, sizeof(text) - (size_t)at, " %u",
			       tensor->first_file +
			       rsh_cut_member(tensor->cut, cell, i));
	}
	if (i < n && (size_t)at < sizeof(text))
		snprintf(text + at, sizeof(text) - (size_t)at, " and %u more",
			 n - i);
	t->report(t->ctx, text);
	t->left--;
}

/* ---- tensors that are changed ---- */

/* Such tensors need only some of the cells of their parts. */
struct parts_loss {
	const struct loss *l;
	const struct rsh_tensor *tensor; /* of the part at hand */
	const struct rsh_digit_box *digits; /* NULL: it has a box */
	struct loss_report *report; /* NULL: lost cells are counted only */
	uint32_t n, n_reported;
};

static void report_box(struct parts_loss *x, const struct rsh_box *box,
		       const char *more)
{
	char text[RSH_ERROR_TEXT_MAX], elements[160];

	x->n++;
	if (!x->report || x->report->left == 0)
		return;
	snprintf(text, sizeof(text), "lost: parameter %s, elements %s%s",
		 rsh_names_text(x->l->p->cat->names, x->l->first->name),
		 rsh_box_text(box, elements, sizeof(elements)), more);
	x->report->report(x->report->ctx, text);
	x->report->left--;
	x->n_reported++;
}

static void lose_cell(void *ctx, uint32_t cell)
{
	struct parts_loss *x = ctx;
	struct rsh_holder holder;
	struct rsh_box box;

	if (!x->tensor->copies ||
	    rsh_copies_pick(x->tensor->copies, cell, 0, NULL, &holder))
		return;
	rsh_cut_box(x->tensor->cut, x->tensor->dims, cell, &box);
	if (!x->digits || rsh_digit_box_count(x->digits, &box) > 0)
		report_box(x, &box, "");
}

static void lose_box(struct parts_loss *x, const struct rsh_box *box)
{
	struct rsh_box gap;

	rsh_cut_overlap(x->tensor->cut, x->tensor->dims, box, lose_cell, x);
	if (x->digits ? rsh_digit_box_gap(x->digits, &gap) :
			rsh_cut_gap(x->tensor->cut, box, &gap))
		report_box(x, &gap, ", which are in no chunk");
}

static bool lose_digits(void *ctx, const struct rsh_digit_box *b)
{
	struct parts_loss *x = ctx;
	struct rsh_box box;

	x->digits = b;
	x->tensor = b->part->tensor;
	rsh_digit_box_bounds(b, &box);
	lose_box(x, &box);
	x->digits = NULL;
	return true;
}

static void lose_beside(void *ctx, const struct rsh_tensor *t)
{
	struct parts_loss *x = ctx;
	const struct rsh_box box = rsh_box_whole(t->dims, t->n_dims);

	x->tensor = t;
	lose_box(x, &box);
}

/* Counts the lost cells of all parts, and reports them unless `t` is NULL. */
static uint32_t lose_parts(struct loss_report *t, const struct loss *l)
{
	const struct rsh_mapping *w = l->p->mappings[l->first->shown];
	struct parts_loss x = { .l = l, .report = t };
	const struct rsh_box all = rsh_box_whole(w->dims, w->n_dims);

	for (uint32_t i = 0; i < w->n_parts; i++) {
		rsh_part_each(w, i, &all, lose_digits, &x);
		x.tensor = w->parts[i].tensor;
		if (x.tensor->quantised)
			rsh_quantised_each(x.tensor->quantised, lose_beside,
					   &x);
	}
	if (t && x.n > x.n_reported)
		report_rest(t, l, x.n - x.n_reported, x.n_reported > 0);
	return x.n > 0 ? x.n : 1;
}

static bool is_of_parts(const struct loss *l)
{
	const struct rsh_mapping *w;

	if (l->first->shown == RSH_COPIED)
		return false;
	w = l->p->mappings[l->first->shown];
	return w->pair == RSH_NO_PAIR;
}

static void report_loss(struct loss_report *t, const struct loss *l, uint32_t n)
{
	const struct rsh_tensor *tensor = tensor_of(l, 0);
	const uint32_t all = n;

	if (!tensor) {
		report_whole(t, l);
		return;
	}
	for (uint32_t c = 0; c < rsh_cut_n_cells(tensor->cut) && n > 0 &&
	     t->left > 0; c++) {
		if (!is_lost(l, c))
			continue;
		report_slice(t, l, tensor, c);
		n--;
	}
	if (n > 0)
		report_rest(t, l, n, n < all);
}

/* ---- missing files ---- */

struct lost_files {
	uint32_t *v; /* in no order, and some of them twice */
	size_t n, cap;
};

/* If memory is out some files are not listed. */
static void find_missing_files(struct lost_files *f,
			       const struct rsh_catalogue *c,
			       const struct rsh_tensor *t)
{
	struct rsh_holder holder;

	/* The files of a list of boxes are not ranks. */
	for (uint32_t cell = 0;
	     rsh_cut_grid(t->cut) && cell < rsh_cut_n_cells(t->cut) &&
	     f->n < RANKS_CHECKED_MAX;
	     cell++) {
		const uint32_t n = rsh_copies_pick(t->copies, cell, 0, NULL,
						   &holder) ?
				   0 : rsh_cut_n_replicas(t->cut, cell);

		for (uint32_t i = 0; i < n; i++) {
			const uint32_t file = t->first_file +
				rsh_cut_member(t->cut, cell, i);

			if (!rsh_catalogue_index(c, file) &&
			    !rsh_room(f->v, f->cap, f->n + 1))
				f->v[f->n++] = file;
		}
	}
}

static void find_all_missing_files(struct lost_files *f,
				   const struct rsh_plan *p)
{
	for (uint32_t i = 0; i < p->n_lost && f->n < RANKS_CHECKED_MAX; i++) {
		const struct rsh_mapping *w = p->lost[i].shown == RSH_COPIED ?
			NULL : p->mappings[p->lost[i].shown];

		for (uint32_t k = 0; w && k < w->n_parts; k++)
			find_missing_files(f, p->cat, w->parts[k].tensor);
	}
	f->n = rsh_sort_distinct(f->v, f->n);
}

/* Lists the missing files at the beginning of the message if there are
 * several. */
static void lost_name_files(struct rsh_plan *p, uint64_t n_slices,
			    uint32_t n_names)
{
	const struct rsh_error first = p->first_lost;
	struct lost_files f = { .n = 0 };
	char text[512] = "";
	size_t at = 0;

	find_all_missing_files(&f, p);
	for (size_t i = 0; i < f.n && i < RANKS_LISTED_MAX / 4; i++)
		at += (size_t)snprintf(text + at, sizeof(text) - at, " %u",
				       f.v[i]);
	if (f.n > RANKS_LISTED_MAX / 4)
		snprintf(text + at, sizeof(text) - at, " and %zu more",
			 f.n - RANKS_LISTED_MAX / 4);
	if (f.n > 1)
		rsh_error_set(&p->first_lost, ENOENT, "ranks%s have no "
			      "valid checkpoint file: %llu slices of %u "
			      "parameters are lost; the first: %s", text,
			      (unsigned long long)n_slices, n_names,
			      first.text);
	else
		rsh_error_set(&p->first_lost, ENOENT, "%s (%llu slices of %u "
			      "parameters are lost in all)", first.text,
			      (unsigned long long)n_slices, n_names);
	free(f.v);
}

int rsh_plan_report_lost(struct rsh_plan *p,
			 void (*report)(void *ctx, const char *sentence),
			 void *ctx, struct rsh_error *err)
{
	struct loss_report t = { report, ctx, REPORTED_MAX };
	uint64_t n_slices = 0;
	uint32_t n_names = 0;

	qsort(p->lost, p->n_lost, sizeof(*p->lost), lost_by_name);
	for (uint32_t i = 0; i < p->n_lost; n_names++) {
		struct loss l = { p, &p->lost[i], 0 };
		uint32_t n;

		while (i < p->n_lost && p->lost[i].name == l.first->name) {
			l.n++;
			i++;
		}
		n = is_of_parts(&l) ? lose_parts(report ? &t : NULL, &l) :
				      count_lost(&l);
		n_slices += n;
		if (report && !is_of_parts(&l))
			report_loss(&t, &l, n);
	}
	if (n_slices > 1)
		lost_name_files(p, n_slices, n_names);
	if (p->b.allow_missing)
		return 0;
	return rsh_error_set(err, ENOENT, "%s; --allow-missing shows the rest",
			     p->first_lost.text);
}
