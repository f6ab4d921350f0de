/* SPDX-License-Identifier: Apache-2.0 */
/* formats/dcp/reader.c makes a catalogue of a distributed checkpoint.
 *
 * A tensor is split into its chunks, which are any boxes.  If the elements of a
 * chunk are stored in another order than row-major, the catalogue has the
 * tensor with its dimensions in that order, and the recipe transposes it.  If
 * chunks of one tensor are stored in several orders, the catalogue has one
 * tensor for each order, and the recipe has a part for each chunk. */
#include "config.h"

#include "dcp_i.h"

#include <errno.h>
#include <inttypes.h>
#include <search.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "rsh/formats/torch.h"
#include "rsh/plan/writer.h"
#include "rsh/util/arena.h"
#include "rsh/util/checked.h"
#include "rsh/util/log.h"
#include "rsh/util/mem.h"
#include "rsh/util/text.h"

/* A tensor is made of so many parts at most. */
#define PARTS_MAX 65536
/* At most this many boxes are reported one by one. */
#define TOLD_MAX 4096

struct dcp_reader {
	const struct rsh_dcp *dcp;
	const struct rsh_source_view *view;
	const struct rsh_plan_options *opts;
	struct rsh_catalogue *cat;
	struct rsh_arena *arena;
	struct rsh_offer *offers;
	uint32_t n;
	/* These are about chunks that no file has. */
	uint64_t n_lacking;
	uint32_t n_tensors_lacking;
	bool leave_out; /* incomplete tensors are left out */
	struct rsh_error lacking; /* the first sentence */
};

/* ---- missing chunks ---- */

static void reader_lack(struct dcp_reader *r, const char *text)
{
	if (r->n_lacking++ == 0)
		rsh_error_set(&r->lacking, ENOENT, "%s", text);
	if (r->opts->allow_missing && r->opts->report_lost &&
	    r->n_lacking <= TOLD_MAX)
		r->opts->report_lost(r->opts->ctx, text);
}

/* Sets the place of a box to that of its first part in the tensor. */
static int part_first(void *box, const struct rsh_dcp_part *part)
{
	*(struct rsh_box *)box = part->box;
	return 1;
}

static void reader_lack_chunk(struct dcp_reader *r,
			      const struct rsh_dcp_tensor *t,
			      const struct rsh_dcp_chunk *c)
{
	char size[256], from[256], text[RSH_ERROR_TEXT_MAX];
	const struct rsh_ckpt_index *ix = c->file < r->view->n_ranks ?
					  r->view->index[c->file] : NULL;
	struct rsh_box box;
	int at;

	rsh_dims_text(c->size, t->n_dims, size, sizeof(size));
	rsh_dcp_box(t, c, &box);
	rsh_dcp_parts(t, &box, part_first, &box);
	rsh_dims_text(box.from, t->n_dims, from, sizeof(from));
	at = snprintf(text, sizeof(text), "tensor %s lacks its box %s at %s, "
		      "which is in ", t->name, size, from);
	if ((size_t)at >= sizeof(text))
		at = (int)sizeof(text) - 1;
	if (c->file == RSH_DCP_NO_FILE)
		snprintf(text + at, sizeof(text) - (size_t)at, "no file");
	else if (!ix)
		snprintf(text + at, sizeof(text) - (size_t)at,
			 c->file < r->view->n_ranks ?
				 "%s, which cannot be read" :
				 "%s, which is missing",
			 r->dcp->files[c->file]);
	else if (r->dcp->by_name)
		snprintf(text + at, sizeof(text) - (size_t)at,
			 "%s, which has no tensor %s",
			 r->dcp->files[c->file], c->key ? c->key : t->name);
	else
		snprintf(text + at, sizeof(text) - (size_t)at, "%s, which "
			 "ends after %" PRIu64 " bytes",
			 r->dcp->files[c->file], ix->file_bytes);
	reader_lack(r, text);
}

/* ---- one tensor ---- */

/* This is a chunk with elements. */
struct found_chunk {
	const struct rsh_dcp_chunk *chunk;
	struct rsh_dcp_held held;
	bool there;
	bool taken; /* it is in a tensor of the catalogue */
};

struct found_tensor {
	const struct rsh_dcp_tensor *tensor;
	uint32_t name;
	uint32_t n;
	struct found_chunk *chunks;
	uint64_t elements; /* number of elements in chunks */
	void *shown;       /* tree of the parts, sorted by their boxes */
};

/* Missing chunks get the order of the others. */
static void found_take_order(struct found_tensor *f)
{
	uint8_t order[RSH_MAX_DIMS];

	for (uint32_t d = 0; d < RSH_MAX_DIMS; d++)
		order[d] = (uint8_t)d;
	for (uint32_t i = f->n; i-- > 0;)
		if (f->chunks[i].there)
			memcpy(order, f->chunks[i].held.order,
			       f->tensor->n_dims);
	for (uint32_t i = 0; i < f->n; i++)
		if (!f->chunks[i].there)
			memcpy(f->chunks[i].held.order, order,
			       f->tensor->n_dims);
}

static int find_chunks(struct dcp_reader *r, struct found_tensor *f,
		       struct rsh_error *err)
{
	const struct rsh_dcp_tensor *t = f->tensor;

	f->chunks = calloc((size_t)t->n_chunks + 1, sizeof(*f->chunks));
	if (!f->chunks)
		return rsh_error_nomem(err);
	for (uint32_t i = 0; i < t->n_chunks; i++) {
		struct found_chunk *c = &f->chunks[f->n];
		int rc;

		if (rsh_dcp_chunk_is_empty(t, &t->chunks[i]))
			continue;
		c->chunk = &t->chunks[i];
		rc = rsh_dcp_find_held(r->dcp, t, c->chunk, r->view, &c->held,
				       err);
		if (rc && rc != -ENOENT)
			return rc;
		c->there = rc == 0;
		f->n++;
	}
	found_take_order(f);
	return 0;
}

/* ---- tensors of the catalogue ---- */

static uint64_t cut_elements(const struct rsh_cut *cut, const uint64_t *dims)
{
	uint64_t n = 0;
	struct rsh_box box;

	for (uint32_t c = 0; c < rsh_cut_n_cells(cut); c++) {
		rsh_cut_box(cut, dims, c, &box);
		n += rsh_box_elements(&box);
	}
	return n;
}

static bool same_order(const struct found_tensor *f, uint32_t a, uint32_t b)
{
	return memcmp(f->chunks[a].held.order, f->chunks[b].held.order,
		      f->tensor->n_dims) == 0;
}

/* Returns whether all chunks are stored in one order. */
static bool found_is_uniform(const struct found_tensor *f)
{
	for (uint32_t i = 1; i < f->n; i++)
		if (!same_order(f, 0, i))
			return false;
	return true;
}

/* These are the chunks that are stored in one order. */
struct ordered {
	uint8_t order[RSH_MAX_DIMS];
	uint64_t dims[RSH_MAX_DIMS];
	uint32_t n, n_holders;
	struct rsh_box *boxes;
	const struct rsh_dcp_chunk **chunks; /* the chunk of each box */
	struct rsh_holder *holders;
};

static void ordered_take(struct ordered *o, struct found_tensor *f,
			 uint32_t first)
{
	memcpy(o->order, f->chunks[first].held.order, f->tensor->n_dims);
	for (uint32_t i = first; i < f->n; i++) {
		struct found_chunk *c = &f->chunks[i];
		struct rsh_box *box = &o->boxes[o->n];

		if (c->taken || !same_order(f, first, i))
			continue;
		c->taken = true;
		box->n_dims = f->tensor->n_dims;
		for (uint32_t d = 0; d < box->n_dims; d++) {
			box->from[d] = c->chunk->from[o->order[d]];
			box->size[d] = c->chunk->size[o->order[d]];
		}
		o->chunks[o->n] = c->chunk;
		if (c->there)
			o->holders[o->n_holders++] = (struct rsh_holder){
				o->n, c->chunk->file, c->held.record,
			};
		o->n++;
	}
}

/* Reports the boxes that have no copy. */
static void ordered_lack(struct dcp_reader *r, const struct found_tensor *f,
			 const struct ordered *o, const struct rsh_tensor *t)
{
	struct rsh_holder holder;

	if (f->n == 0 ||
	    rsh_copies_n_cells(t->copies) == rsh_cut_n_cells(t->cut))
		return;
	for (uint32_t c = 0; c < rsh_cut_n_cells(t->cut); c++)
		if (!rsh_copies_pick(t->copies, c, 0, NULL, &holder))
			reader_lack_chunk(r, f->tensor,
					  o->chunks[rsh_cut_member(t->cut, c,
								   0)]);
}

static int ordered_add(struct dcp_reader *r, struct found_tensor *f,
		       struct ordered *o, uint32_t *number,
		       struct rsh_error *err)
{
	struct rsh_tensor t = {
		.name = f->name, .dtype = f->tensor->dtype,
		.n_dims = (uint8_t)f->tensor->n_dims, .dims = o->dims,
	};
	struct rsh_cut *cut;
	int rc;

	for (uint32_t d = 0; d < f->tensor->n_dims; d++)
		o->dims[d] = f->tensor->dims[o->order[d]];
	rc = rsh_cut_of_boxes(o->dims, t.n_dims, o->boxes, o->n, &cut, err);
	if (rc) {
		rsh_error_prefix(err, "tensor %s", f->tensor->name);
		return rc;
	}
	f->elements += f->n ? cut_elements(cut, o->dims) : 0;
	t.cut = rsh_catalogue_keep_cut(r->cat, cut);
	if (t.cut)
		t.copies = rsh_catalogue_keep_copies(r->cat, t.cut, o->holders,
						     o->n_holders, true);
	if (!t.copies || rsh_catalogue_add(r->cat, &t, number))
		return rsh_error_nomem(err);
	ordered_lack(r, f, o, &t);
	return 0;
}

/* Adds a tensor for the order of chunk `first`. */
static int reader_add_order(struct dcp_reader *r, struct found_tensor *f,
			    uint32_t first, uint32_t *number, uint8_t *order,
			    struct rsh_error *err)
{
	cleanup_free struct rsh_box *boxes =
		calloc((size_t)f->n + 1, sizeof(*boxes));
	cleanup_free struct rsh_holder *holders =
		rsh_alloc_array((size_t)f->n + 1, sizeof(*holders));
	cleanup_free const struct rsh_dcp_chunk **chunks =
		rsh_alloc_array((size_t)f->n + 1, sizeof(*chunks));
	struct ordered o = { .boxes = boxes, .chunks = chunks,
			     .holders = holders };
	int rc;

	if (!boxes || !chunks || !holders)
		return rsh_error_nomem(err);
	if (f->n)
		ordered_take(&o, f, first);
	/* A tensor without chunks or elements becomes one box without a
	 * holder. */
	for (uint32_t d = 0; !f->n && d < f->tensor->n_dims; d++) {
		o.order[d] = (uint8_t)d;
		boxes->size[d] = f->tensor->dims[d];
	}
	if (!f->n) {
		boxes->n_dims = f->tensor->n_dims;
		o.n = 1;
	}
	rc = ordered_add(r, f, &o, number, err);
	memcpy(order, o.order, f->tensor->n_dims);
	return rc;
}

/* ---- recipes ---- */

static int part_by_box(const void *a, const void *b)
{
	const struct rsh_recipe_part *x = a, *y = b;
	int order = memcmp(x->shown_from, y->shown_from,
			   x->n_factors * sizeof(*x->shown_from));

	for (uint32_t d = 0; d < x->n_factors && order == 0; d++)
		order = rsh_compare_u64(x->factors[d].size, y->factors[d].size);
	return order;
}

static void part_keep(void *part)
{
	(void)part;
}

/* The parts of an offer.  If boxes are equal, only the first one gets a
 * part. */
struct parting {
	struct rsh_arena *arena;
	struct found_tensor *f;
	struct rsh_recipe_part *parts;
	uint32_t n, number;
	const uint8_t *order;
};

static int part_add(void *ctx, const struct rsh_dcp_part *of)
{
	struct parting *p = ctx;
	struct rsh_recipe_part *part = &p->parts[p->n];
	struct rsh_recipe_part **found;
	const uint32_t n = of->box.n_dims;
	struct rsh_factor *f = rsh_arena_array(p->arena, struct rsh_factor, n);
	uint64_t *from = rsh_arena_array(p->arena, uint64_t, 2 * (size_t)n);

	if (!f || !from)
		return -ENOMEM;
	*part = (struct rsh_recipe_part){ p->number, n, f, from, from + n };
	for (uint32_t i = 0; i < n; i++) {
		const uint8_t d = p->order[i];

		f[d] = (struct rsh_factor){ of->box.size[d], 1, 1, d,
					    (uint8_t)i };
		from[d] = of->box.from[d];
		from[n + i] = of->at[d];
	}
	found = tsearch(part, &p->f->shown, part_by_box);
	if (!found)
		return -ENOMEM;
	p->n += *found == part;
	return 0;
}

static int part_count(void *ctx, const struct rsh_dcp_part *of)
{
	uint64_t *n = ctx;

	(void)of;
	return ++*n > PARTS_MAX ? -EFBIG : 0;
}

/* Calls a function for the parts of all chunks from `first` on, or of those
 * that have the order of that one; if all have one order, for the parts of the
 * whole tensor. */
static int each_part(const struct found_tensor *f, uint32_t first, bool alike,
		     int (*fn)(void *ctx, const struct rsh_dcp_part *of),
		     void *ctx)
{
	struct rsh_box box = rsh_box_whole(f->tensor->dims, f->tensor->n_dims);
	int rc = 0;

	if (found_is_uniform(f))
		return rsh_dcp_parts(f->tensor, &box, fn, ctx);
	for (uint32_t i = first; i < f->n && rc == 0; i++) {
		if (alike && !same_order(f, first, i))
			continue;
		rsh_dcp_box(f->tensor, f->chunks[i].chunk, &box);
		rc = rsh_dcp_parts(f->tensor, &box, fn, ctx);
	}
	return rc;
}

/* Makes room for the parts of all chunks. */
static int parts_alloc(struct dcp_reader *r, const struct found_tensor *f,
		       struct rsh_recipe_part **out, struct rsh_error *err)
{
	uint64_t n = 0;

	*out = NULL;
	if (found_is_uniform(f) && !f->tensor->axes)
		return 0;
	if (each_part(f, 0, false, part_count, &n))
		return rsh_error_set(err, ENOTSUP, "tensor %s is in more than "
				     "%d pieces (--drop leaves it out)",
				     f->tensor->name, PARTS_MAX);
	*out = rsh_arena_array(r->arena, struct rsh_recipe_part, n);
	return *out ? 0 : rsh_error_nomem(err);
}

/* Adds the tensors of all orders and the parts that use them. */
static int reader_add_orders(struct dcp_reader *r, struct found_tensor *f,
			     struct rsh_recipe_part *parts,
			     struct rsh_offer *o, struct rsh_error *err)
{
	uint8_t order[RSH_MAX_DIMS];
	struct parting p = { .arena = r->arena, .f = f, .parts = parts,
			     .order = order };
	uint32_t i = 0;
	int rc;

	do {
		uint32_t first = i;

		if (f->n && f->chunks[i].taken)
			continue;
		rc = reader_add_order(r, f, first, &p.number, order, err);
		if (rc)
			return rc;
		if (parts && each_part(f, first, true, part_add, &p))
			return rsh_error_nomem(err);
	} while (++i < f->n);
	o->n_parts = p.n;
	o->boxes = true;
	if (parts)
		return 0;
	/* All chunks have one order. */
	if (!rsh_torch_is_row_major(order, f->tensor->n_dims))
		return rsh_offer_whole(r->cat, r->arena, p.number, order, o) ?
		       rsh_error_nomem(err) : 0;
	o->same = p.number + 1;
	return 0;
}

static int tensor_elements(const struct rsh_dcp_tensor *t, uint64_t *n,
			   struct rsh_error *err)
{
	return rsh_product_u64(t->dims, t->n_dims, n) ? 0 :
	       rsh_error_set(err, EFBIG, "tensor %s has more elements than "
			     "can be", t->name);
}

/* A recipe of parts must cover the tensor; a cut need not. */
static int reader_check_covered(struct dcp_reader *r,
				const struct found_tensor *f,
				struct rsh_error *err)
{
	char text[RSH_ERROR_TEXT_MAX];
	uint64_t n = 0;
	int rc = tensor_elements(f->tensor, &n, err);

	if (rc || f->elements >= n)
		return rc;
	snprintf(text, sizeof(text), "tensor %s: %" PRIu64 " of its %" PRIu64
		 " elements are in no chunk", f->tensor->name,
		 n - f->elements, n);
	if (!found_is_uniform(f))
		return rsh_error_set(err, ENOTSUP, "%s, and the others are "
				     "stored in several orders", text);
	reader_lack(r, text);
	return 0;
}

static int reader_add_found(struct dcp_reader *r, struct found_tensor *f,
			    struct rsh_error *err)
{
	struct rsh_recipe_part *parts = NULL;
	struct rsh_offer *o = &r->offers[r->n];
	const uint64_t before = r->n_lacking;
	int rc = find_chunks(r, f, err) ?: parts_alloc(r, f, &parts, err);

	if (rc)
		return rc;
	*o = (struct rsh_offer){
		.name = f->name, .dtype = f->tensor->dtype,
		.n_dims = f->tensor->n_dims, .dims = f->tensor->dims,
		.parts = parts,
	};
	rc = reader_add_orders(r, f, parts, o, err) ?:
	     reader_check_covered(r, f, err);
	r->n_tensors_lacking += r->n_lacking > before;
	r->n += rc == 0 && !(r->leave_out && r->n_lacking > before);
	return rc;
}

static int reader_add_tensor(struct dcp_reader *r,
			     const struct rsh_dcp_tensor *t, uint32_t name,
			     struct rsh_error *err)
{
	struct found_tensor f = { .tensor = t, .name = name };
	const char *dot = strrchr(t->name, '.');
	int rc;

	/* Even if it is not wanted: the weights beside it are its parts. */
	if (rsh_is_any(dot ? dot + 1 : t->name, "_flat_param", "flat_param"))
		return rsh_error_set(err, ENOTSUP, "tensor %s has parts of all "
				     "weights, as FSDP saves them with "
				     "LOCAL_STATE_DICT: only FSDP on as many "
				     "ranks loads it", t->name);
	if (!rsh_plan_wants(r->opts, t->name))
		return 0;
	if (t->dtype == RSH_DTYPE_UNKNOWN)
		return rsh_error_set(err, ENOTSUP, "tensor %s is of a type "
				     "that is not known (--drop leaves it "
				     "out)", t->name);
	rc = reader_add_found(r, &f, err);
	tdestroy(f.shown, part_keep);
	free(f.chunks);
	return rc;
}

/* ---- all tensors ---- */

static int reader_fill(struct dcp_reader *r, struct rsh_error *err)
{
	const struct rsh_dcp *d = r->dcp;
	cleanup_free uint32_t *ids = rsh_alloc_array(d->n_tensors,
						     sizeof(*ids));
	int rc = 0;

	r->offers = rsh_arena_array(r->arena, struct rsh_offer,
				    (size_t)d->n_tensors + 1);
	if (!ids || !r->offers)
		return rsh_error_nomem(err);
	/* A catalogue knows only the names that exist when it is made. */
	for (uint32_t i = 0; i < d->n_tensors; i++) {
		const char *name = d->tensors[i].name;

		ids[i] = rsh_names_add(r->view->names, name, strlen(name));
		if (ids[i] == RSH_NAME_NONE)
			return rsh_error_nomem(err);
	}
	r->cat = rsh_catalogue_new(r->view);
	if (!r->cat)
		return rsh_error_nomem(err);
	for (uint32_t i = 0; i < d->n_tensors && rc == 0; i++)
		rc = reader_add_tensor(r, &d->tensors[i], ids[i], err);
	if (rc || r->n_lacking == 0 || r->opts->allow_missing)
		return rc;
	if (r->n_lacking == 1)
		return rsh_error_set(err, ENOENT, "%s", r->lacking.text);
	return rsh_error_set(err, ENOENT, "%s (%" PRIu64 " boxes of %u tensors "
			     "are lacking in all)", r->lacking.text,
			     r->n_lacking, r->n_tensors_lacking);
}

int rsh_dcp_read(const struct rsh_read_job *job, struct rsh_offers *out,
		 struct rsh_error *err)
{
	struct dcp_reader r = {
		.dcp = rsh_source_dcp(job->source), .view = job->view,
		.opts = job->opts, .arena = job->arena,
		/* A whole model in one file is useless if that file cannot be
		 * read, so incomplete tensors are left out. */
		.leave_out = job->opts->allow_missing && !job->dst,
	};
	int rc = reader_fill(&r, err);

	if (rc == 0 && r.n == 0 && r.n_lacking > 0)
		rc = rsh_error_set(err, ENOENT, "%s; no other tensor is left",
				   r.lacking.text);
	if (rc) {
		rsh_catalogue_free(r.cat);
		return rc;
	}
	if (r.leave_out && r.n_lacking > 0)
		rsh_log_warning("%u tensors are left out, for they lack boxes: "
				"%s", r.n_tensors_lacking, r.lacking.text);
	*out = (struct rsh_offers){ r.cat, r.offers, r.n };
	return 0;
}

int rsh_dcp_check_covered(const struct rsh_dcp_tensor *t,
			  struct rsh_error *err)
{
	cleanup_free struct rsh_box *boxes =
		rsh_alloc_array(t->n_chunks, sizeof(*boxes));
	struct rsh_cut *cut = NULL;
	uint64_t elements = 0;
	uint32_t n = 0;
	int rc = boxes ? tensor_elements(t, &elements, err) :
			 rsh_error_nomem(err);

	for (uint32_t i = 0; rc == 0 && i < t->n_chunks; i++)
		if (!rsh_dcp_chunk_is_empty(t, &t->chunks[i]))
			rsh_dcp_box(t, &t->chunks[i], &boxes[n++]);
	if (rc == 0 && n > 0) {
		rc = rsh_cut_of_boxes(t->dims, t->n_dims, boxes, n, &cut, err);
		if (rc)
			rsh_error_prefix(err, "tensor %s", t->name);
		else
			elements -= cut_elements(cut, t->dims);
		rsh_cut_free(cut);
	}
	return rc || elements == 0 ? rc :
	       rsh_error_set(err, EBADMSG, "tensor %s: %" PRIu64 " elements "
			     "are in no chunk", t->name, elements);
}

int rsh_dcp_judge(const struct rsh_dcp *d, const uint64_t *sizes,
		  struct rsh_error *wrong)
{
	int rc = 0;

	for (uint32_t i = 0; i < d->n_tensors && rc == 0; i++)
		rc = rsh_dcp_check_covered(&d->tensors[i], wrong);
	for (uint32_t i = 0; i < d->n_files && rc == 0; i++)
		if (sizes[i] == RSH_DCP_MISSING)
			rc = rsh_error_set(wrong, ENOENT, "%s is missing",
					   d->files[i]);
	for (uint32_t i = 0; i < d->n_tensors; i++) {
		const struct rsh_dcp_tensor *t = &d->tensors[i];

		for (uint32_t k = 0; k < t->n_chunks && rc == 0; k++) {
			const uint32_t file = t->chunks[k].file;

			if (rsh_dcp_chunk_is_empty(t, &t->chunks[k]))
				continue;
			if (file == RSH_DCP_NO_FILE)
				rc = rsh_error_set(wrong, EBADMSG,
						   RSH_DCP_IN_NO_FILE, t->name);
			else if (!rsh_dcp_chunk_fits(&t->chunks[k],
						     sizes[file]))
				rc = rsh_error_set(wrong, EBADMSG, "%s is too "
						   "short for tensor %s",
						   d->files[file], t->name);
		}
	}
	return rc;
}
