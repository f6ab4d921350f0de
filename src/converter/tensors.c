/* SPDX-License-Identifier: Apache-2.0 */
/* converter/tensors.c reads rank files and their strategies into the catalogue,
 * one parameter at a time: it finds the files of the slices, checks that these
 * are what the strategies say, and shows the tensor to the ranks of a block.
 *
 * A parameter may lie in the files of several stages.  Those count which the
 * block loads, the lowest stage first, and only where the stage cuts it as the
 * layout does that counts. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "converter_i.h"
#include "rsh/util/checked.h"
#include "rsh/util/mem.h"

#define LAYOUT_TEXT 160

/* This is one parameter while it is read and shown. */
struct making {
	struct rsh_converter *c;
	const struct rsh_block *b;
	uint32_t name;
	const struct rsh_strategy_item *src; /* NULL: unsharded */
	const struct rsh_strategy_item *dst;
	/* This slice is the reference, with which the others are compared. */
	uint32_t rank;
	const struct rsh_ckpt_index *ix;
	const struct rsh_record *rec;
};

static const char *tensors_dims_text(const struct rsh_ckpt_index *ix,
				     const struct rsh_record *r, char *text,
				     size_t size)
{
	const int64_t *dims = rsh_record_dims(ix, r);
	int at = snprintf(text, size, "[");

	for (uint32_t i = 0; i < r->n_dims && at > 0 && (size_t)at < size; i++)
		at += snprintf(text + at, size - (size_t)at, "%s%lld",
			       i ? "," : "", (long long)dims[i]);
	if (at > 0 && (size_t)at < size)
		snprintf(text + at, size - (size_t)at, "]");
	return text;
}

/* Puts the file, the parameter and both layouts before the reason. */
static int refuse(const struct making *m, int rc, struct rsh_error *err)
{
	char from[LAYOUT_TEXT], to[LAYOUT_TEXT], dims[LAYOUT_TEXT];
	const struct rsh_converter *c = m->c;

	rsh_error_prefix(err, "%s: parameter %s of shape %s cannot go from %s%s%s%s "
			 "to %s%s%s%s", rsh_catalogue_path(c->cat, m->rank),
			 rsh_names_text(c->cat->names, m->name),
			 tensors_dims_text(m->ix, m->rec, dims, sizeof(dims)),
			 rsh_item_text(m->src, from, sizeof(from)),
			 c->src ? " (" : "", c->src ? c->src->path : "",
			 c->src ? ")" : "",
			 rsh_item_text(m->dst, to, sizeof(to)),
			 c->dst ? " (" : "", c->dst ? c->dst->path : "",
			 c->dst ? ")" : "");
	return rc;
}

/* ---- the source slices ---- */

/* A place among the files of the stages that count for a parameter, beginning
 * at zero. */
struct file_walk {
	uint32_t n_stages; /* how many were begun */
	uint32_t i, end;   /* in cat->present */
};

/* Goes to the next file, stage by stage, the lowest first.  False past the
 * last. */
static bool next_file(const struct making *m, struct file_walk *w,
		      uint32_t *rank)
{
	const struct rsh_converter *c = m->c;

	while (w->i == w->end) {
		uint32_t stage;

		if (w->n_stages == m->b->n_stages)
			return false;
		stage = m->b->stages[w->n_stages++];
		if (rsh_stage_fits(c, m->name, stage))
			rsh_stage_present(c, stage, &w->i, &w->end);
	}
	*rank = c->cat->present[w->i++];
	return true;
}

/* Picks the reference slice: the lowest key of the lowest stage that holds the
 * parameter.  False when no loaded file does. */
static bool find_reference(struct making *m)
{
	const struct rsh_catalogue *cat = m->c->cat;
	struct file_walk w = { 0 };

	while (next_file(m, &w, &m->rank)) {
		m->rec = rsh_catalogue_record(cat, m->rank, m->name);
		if (!m->rec)
			continue;
		m->ix = rsh_catalogue_index(cat, m->rank);
		return true;
	}
	return false;
}

static int compare_slice(const struct making *m, uint32_t rank,
			 struct rsh_error *err)
{
	const struct rsh_ckpt_index *ix = rsh_catalogue_index(m->c->cat, rank);
	const struct rsh_record *r = rsh_ckpt_find(ix, m->name);
	char a[LAYOUT_TEXT], b[LAYOUT_TEXT], layout[LAYOUT_TEXT];

	if (r->dtype != m->rec->dtype || r->wide_bf16 != m->rec->wide_bf16)
		return rsh_error_set(err, EINVAL,
				     "%s: parameter %s is %s%s, but in %s it is "
				     "%s%s", rsh_catalogue_path(m->c->cat, rank),
				     rsh_names_text(m->c->cat->names, m->name),
				     rsh_dtype_name(r->dtype),
				     r->wide_bf16 ? " of 4 bytes" : "",
				     rsh_catalogue_path(m->c->cat, m->rank),
				     rsh_dtype_name(m->rec->dtype),
				     m->rec->wide_bf16 ? " of 4 bytes" : "");
	if (r->n_dims == m->rec->n_dims &&
	    (r->n_dims == 0 ||
	     memcmp(rsh_record_dims(ix, r), rsh_record_dims(m->ix, m->rec),
		    r->n_dims * sizeof(int64_t)) == 0))
		return 0;
	return rsh_error_set(err, EINVAL,
			     "%s: parameter %s has shape %s, but in %s it is %s; "
			     "with %s (%s) all slices are equal",
			     rsh_catalogue_path(m->c->cat, rank),
			     rsh_names_text(m->c->cat->names, m->name),
			     tensors_dims_text(ix, r, a, sizeof(a)),
			     rsh_catalogue_path(m->c->cat, m->rank),
			     tensors_dims_text(m->ix, m->rec, b, sizeof(b)),
			     rsh_item_text(m->src, layout, sizeof(layout)),
			     m->c->src->path);
}

int rsh_check_chunks(const struct rsh_converter *c, uint32_t rank,
		     const struct rsh_record *r, struct rsh_error *err)
{
	const struct rsh_ckpt_index *ix = rsh_catalogue_index(c->cat, rank);
	uint32_t in_unit, out_unit;
	enum rsh_dtype dtype;

	rsh_codec_units(rsh_record_codec(c, r, &dtype), &in_unit, &out_unit);
	for (uint32_t i = 0; in_unit > 1 && i < r->n_extents; i++) {
		const struct rsh_extent *e = &ix->extents[r->first_extent + i];

		if (e->length % in_unit)
			return rsh_error_set(err, EINVAL,
					     "%s: parameter %s: a chunk at "
					     "offset %llu ends within an element",
					     rsh_catalogue_path(c->cat, rank),
					     rsh_names_text(c->cat->names, r->name),
					     (unsigned long long)e->offset);
	}
	return 0;
}

/* These are the holders of one parameter while they are collected. */
struct holding {
	struct rsh_holder *v;
	uint32_t n;
	bool *found; /* [held]: some file has this key's slice */
	/* These are the index that was looked at last, its record, and whether
	 * that one is like the reference. */
	const struct rsh_ckpt_index *ix;
	const struct rsh_record *rec;
	bool alike;
};

static void tensors_look_into(const struct making *m, struct holding *h,
			      uint32_t rank)
{
	const struct rsh_ckpt_index *ix = m->c->cat->index[rank];

	if (ix == h->ix)
		return;
	h->ix = ix;
	h->rec = rsh_ckpt_find(ix, m->name);
	h->alike = h->rec && rsh_records_alike(ix, h->rec, m->ix, m->rec) &&
		   rsh_check_chunks(m->c, rank, h->rec, NULL) == 0;
}

/* The first file of a key has to be as the strategies say; another stage's may
 * be anything, and is used where it is the same. */
static int hold(const struct making *m, struct holding *h, uint32_t rank,
		struct rsh_error *err)
{
	const struct rsh_converter *c = m->c;
	uint32_t key = (rank - c->first_rank) % c->stage_ranks;
	uint32_t k = rsh_held_from(c, key);

	tensors_look_into(m, h, rank);
	if (!h->rec ||
	    (!c->src && c->dst && !rsh_is_like_first(c, m->name, rank)))
		return 0;
	if (!h->alike) {
		int rc;

		if (h->found[k])
			return 0;
		rc = compare_slice(m, rank, err);
		return rc ? rc : rsh_check_chunks(c, rank, h->rec, err);
	}
	h->found[k] = true;
	h->v[h->n++] = (struct rsh_holder){ key, rank, RSH_BY_NAME };
	return 0;
}

/* Is there a file in the stage of the reference that lacks its slice, which no
 * other stage's has either? */
static bool is_reduced(const struct making *m, const struct holding *h)
{
	const struct rsh_converter *c = m->c;
	uint32_t stage = (m->rank - c->first_rank) / c->stage_ranks;

	for (uint32_t i = 0; i < c->n_held; i++)
		if (!h->found[i] &&
		    rsh_catalogue_index(c->cat, rsh_source_rank(c, stage,
								c->held[i])))
			return true;
	return false;
}

/* Finds the files of all slices and compares them with the reference. */
static int find_holders(const struct making *m, struct holding *h,
			struct rsh_error *err)
{
	const uint32_t n = m->c->cat->n_present;
	struct file_walk w = { 0 };
	uint32_t rank;
	int rc = 0;

	h->v = rsh_alloc_array(n, sizeof(*h->v));
	h->found = calloc((size_t)m->c->n_held + 1, sizeof(*h->found));
	if (!h->v || !h->found)
		return rsh_error_nomem(err);
	/* The catalogue finds equal holders by comparing bytes. */
	memset(h->v, 0, n * sizeof(*h->v));
	while (rc == 0 && next_file(m, &w, &rank))
		rc = hold(m, h, rank, err);
	return rc;
}

static void holding_clear(struct holding *h)
{
	free(h->v);
	free(h->found);
}

/* ---- grids ---- */

static uint32_t tensors_split_of(const struct rsh_cut *c, uint32_t d)
{
	return rsh_grid_split(rsh_cut_grid(c), d);
}

static int make_grid(struct rsh_converter *c,
		     const struct rsh_strategy_item *item, const int64_t *dims,
		     uint32_t n_dims, bool local, enum rsh_grid_rule rule,
		     const struct rsh_cut **out, struct rsh_error *err)
{
	struct rsh_grid *g;
	int rc = item ? rsh_grid_new(item, dims, n_dims, local, rule, &g, err) :
			rsh_grid_new_whole(n_dims, &g, err);

	if (rc)
		return rc;
	*out = rsh_catalogue_keep_cut(c->cat, rsh_cut_of_grid(g));
	return *out ? 0 : rsh_error_nomem(err);
}

/* Notes when the converter would put the slices on other ranks. */
static int note_simple(const struct making *m,
		       const struct rsh_strategy_item *item,
		       const int64_t *whole, uint32_t n_dims,
		       const struct rsh_grid *mine)
{
	struct rsh_grid *theirs;
	int rc;

	if (m->c->compat || !item || !item->opt_step || !item->opt_size)
		return 0;
	rc = rsh_grid_new(item, whole, n_dims, false, RSH_GRID_CONVERTER,
			  &theirs, NULL);
	if (rc)
		return rc;
	if (!rsh_grid_same_slices(mine, theirs))
		rsh_note_add(m->c, RSH_NOTE_SIMPLE_SHARD, m->name);
	rsh_grid_free(theirs);
	return 0;
}

/* Makes the source's grid.  An expanded map that the slice alone may explain in
 * several ways is unambiguous once the other side tells the whole shape. */
static int make_source_grid(const struct making *m, const int64_t *local,
			    uint32_t n, enum rsh_grid_rule rule,
			    const struct rsh_cut **out, struct rsh_error *err)
{
	uint64_t whole;
	int rc;

	if (!m->src || !m->dst || m->src->n_map == n || m->dst->n_map != n ||
	    m->dst->n_shape != n)
		return make_grid(m->c, m->src, local, n, true, rule, out, err);
	rc = make_grid(m->c, m->src, m->dst->shape, n, false, rule, out, err);
	for (uint32_t d = 0; rc == 0 && d < n; d++)
		if (!rsh_mul_u64((uint64_t)local[d], tensors_split_of(*out, d),
				 &whole) ||
		    (uint64_t)m->dst->shape[d] != whole)
			rc = rsh_error_set(err, EINVAL,
					   "dimension %u of the whole tensor is "
					   "%lld in the destination", d,
					   (long long)m->dst->shape[d]);
	return rc;
}

/* These are both cuts of a parameter, and the dimensions of the whole
 * tensor. */
struct cuts {
	const struct rsh_cut *src, *dst;
	uint64_t whole[RSH_MAX_DIMS];
};

static int make_cuts(const struct making *m, struct cuts *out,
		     struct rsh_error *err)
{
	enum rsh_grid_rule rule = m->c->compat ? RSH_GRID_CONVERTER :
						 RSH_GRID_RUNTIME;
	const int64_t *local = rsh_record_dims(m->ix, m->rec);
	uint32_t n = m->rec->n_dims;
	int64_t whole[RSH_MAX_DIMS];
	int rc = make_source_grid(m, local, n, rule, &out->src, err);

	if (rc)
		return rc;
	for (uint32_t d = 0; d < n; d++) {
		whole[d] = local[d] * tensors_split_of(out->src, d);
		out->whole[d] = (uint64_t)whole[d];
	}
	rc = make_grid(m->c, m->dst, whole, n, false, rule, &out->dst, err);
	if (rc == 0)
		rc = note_simple(m, m->src, whole, n, rsh_cut_grid(out->src));
	return rc ? rc : note_simple(m, m->dst, whole, n,
				     rsh_cut_grid(out->dst));
}

/* ---- into the catalogue, and shown ---- */

/* Gives the file that would hold the slice of key 0. */
static uint32_t first_file(const struct making *m)
{
	const struct rsh_strategy_param *s = m->c->src && !m->c->by_stage ?
		rsh_strategy_find(m->c->src, m->name) : NULL;

	return rsh_source_rank(m->c, s ? rsh_param_source_stage(s)->stage : 0,
			       0);
}

static int catalogue_tensor(const struct making *m, const struct cuts *cuts,
			    const struct holding *h, uint32_t *number)
{
	const struct rsh_tensor t = {
		.name = m->name,
		.dtype = m->rec->dtype,
		.wide_bf16 = m->rec->wide_bf16,
		.n_dims = m->rec->n_dims,
		.dims = cuts->whole,
		.cut = cuts->src,
		.copies = rsh_catalogue_keep_copies(m->c->cat, cuts->src, h->v,
						    h->n, m->c->replicas),
		.first_file = first_file(m),
	};

	return t.copies ? rsh_catalogue_add(m->c->cat, &t, number) : -ENOMEM;
}

static int show(const struct making *m, const struct cuts *cuts,
		uint32_t tensor, uint32_t *shown, struct rsh_error *err)
{
	struct rsh_recipe_part part;
	enum rsh_dtype dtype;
	enum rsh_codec codec = rsh_record_codec(m->c, m->rec, &dtype);
	const struct rsh_shown t = {
		.name = m->name,
		.dtype = dtype,
		.n_dims = m->rec->n_dims,
		.dims = cuts->whole,
		.cut = cuts->dst,
		.recipe = { 1, &part, codec },
	};
	int rc;

	rsh_recipe_same(m->c->cat, tensor, &part);
	rc = rsh_blueprint_show(m->c->plan, &t, shown, err);
	return rc == -EINVAL ? refuse(m, rc, err) : rc;
}

static int make_handled(const struct making *m, uint32_t *shown,
			struct rsh_error *err)
{
	__attribute__((cleanup(holding_clear))) struct holding h = { 0 };
	struct rsh_converter *c = m->c;
	struct cuts cuts;
	uint32_t tensor;
	int rc = find_holders(m, &h, err);

	if (rc)
		return rc;
	rc = make_cuts(m, &cuts, err);
	if (rc)
		return refuse(m, rc, err);
	if (catalogue_tensor(m, &cuts, &h, &tensor))
		return rsh_error_nomem(err);
	rc = show(m, &cuts, tensor, shown, err);
	if (rc)
		return rc;
	if (rsh_grow(&c->handled, &c->handled_cap, *shown + 1,
		     sizeof(*c->handled)))
		return rsh_error_nomem(err);
	c->handled[*shown] = (struct rsh_handled){ tensor, cuts.dst,
						   is_reduced(m, &h) };
	return 0;
}

int rsh_copy_grid_make(struct rsh_converter *c, uint32_t name,
		       const struct rsh_ckpt_index *ix,
		       const struct rsh_record *r, struct rsh_error *err)
{
	const struct rsh_strategy_param *s = c->src ?
		rsh_strategy_find(c->src, name) : NULL;
	const struct rsh_cut *cut;
	struct rsh_grid *g;
	int rc;

	if (!s || c->copy_grids[name])
		return 0;
	/* A record that its strategy does not explain is copied all the same,
	 * as one of which nothing is known. */
	rc = rsh_grid_new(rsh_param_source_stage(s)->item,
			  rsh_record_dims(ix, r), r->n_dims, true,
			  RSH_GRID_RUNTIME, &g, NULL);
	if (rc)
		return rc == -ENOMEM ? rsh_error_nomem(err) : 0;
	cut = rsh_catalogue_keep_cut(c->cat, rsh_cut_of_grid(g));
	if (!cut)
		return rsh_error_nomem(err);
	c->copy_grids[name] = rsh_cut_grid(cut);
	return 0;
}

int rsh_handled_make(struct rsh_converter *c, const struct rsh_block *b,
		     uint32_t block, uint32_t name, uint32_t *out,
		     struct rsh_error *err)
{
	const struct rsh_strategy_param *s = c->src ?
		rsh_strategy_find(c->src, name) : NULL;
	const struct rsh_strategy_param *d = c->dst ?
		rsh_strategy_find(c->dst, name) : NULL;
	struct making m = { .c = c, .b = b, .name = name };

	*out = RSH_NO_SHOWN;
	if (s)
		m.src = rsh_param_source_stage(s)->item;
	if (d)
		m.dst = rsh_param_dest_stage(c->dst, d, block * c->dst_ranks,
					     c->compat)->item;
	if (!find_reference(&m))
		return 0;
	if (m.rec->dtype == RSH_DTYPE_STR)
		return rsh_error_set(err, EINVAL,
				     "%s: parameter %s is a string, but both "
				     "strategies list it as a tensor",
				     rsh_catalogue_path(c->cat, m.rank),
				     rsh_names_text(c->cat->names, name));
	if (d && !c->compat &&
	    !rsh_item_same_layout(m.dst,
				  rsh_param_dest_stage(c->dst, d,
						       block * c->dst_ranks,
						       true)->item))
		rsh_note_add(c, RSH_NOTE_SHARED, name);
	return make_handled(&m, out, err);
}
