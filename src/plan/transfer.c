/* SPDX-License-Identifier: Apache-2.0 */
/* plan/transfer.c makes the transfer of one parameter: it finds the files of
 * its source slices, checks that these are what the strategies say, and makes
 * both grids and the geometry of its runs. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "conversion_i.h"
#include "rsh/util/checked.h"
#include "rsh/util/mem.h"

#define LAYOUT_TEXT 160

/* One parameter while its transfer is being made. */
struct making {
	struct rsh_conversion *c;
	const struct rsh_block *b;
	uint32_t name;
	const struct rsh_strategy_item *src; /* NULL: unsharded */
	const struct rsh_strategy_item *dst;
	/* The slice that the others are compared with. */
	uint32_t rank;
	const struct rsh_ckpt_index *ix;
	const struct rsh_record *rec;
};

static const char *rank_path(const struct rsh_conversion *c, uint32_t rank)
{
	return rank < c->n_view && c->path[rank] ? c->path[rank] : "?";
}

static const char *dims_text(const struct rsh_ckpt_index *ix,
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
	const struct rsh_conversion *c = m->c;

	rsh_error_prefix(err, "%s: parameter %s of shape %s cannot go from %s%s%s%s "
			 "to %s%s%s%s", rank_path(c, m->rank),
			 rsh_names_text(c->names, m->name),
			 dims_text(m->ix, m->rec, dims, sizeof(dims)),
			 rsh_item_text(m->src, from, sizeof(from)),
			 c->src ? " (" : "", c->src ? c->src->path : "",
			 c->src ? ")" : "",
			 rsh_item_text(m->dst, to, sizeof(to)),
			 c->dst ? " (" : "", c->dst ? c->dst->path : "",
			 c->dst ? ")" : "");
	return rc;
}

/* ---- the source slices ---- */

/* Picks the reference slice: the lowest key of the lowest stage that holds the
 * parameter.  False when no loaded file does. */
static bool find_reference(struct making *m)
{
	const struct rsh_conversion *c = m->c;

	for (uint32_t s = 0; s < m->b->n_stages; s++) {
		uint32_t i, end;

		if (!rsh_stage_fits(c, m->name, m->b->stages[s]))
			continue;
		rsh_stage_present(c, m->b->stages[s], &i, &end);
		for (; i < end; i++) {
			m->rank = c->present[i];
			m->rec = rsh_rank_record(c, m->rank, m->name);
			if (!m->rec)
				continue;
			m->ix = rsh_rank_index(c, m->rank);
			return true;
		}
	}
	return false;
}

static int compare_slice(const struct making *m, uint32_t rank,
			 struct rsh_error *err)
{
	const struct rsh_ckpt_index *ix = rsh_rank_index(m->c, rank);
	const struct rsh_record *r = rsh_ckpt_find(ix, m->name);
	char a[LAYOUT_TEXT], b[LAYOUT_TEXT], layout[LAYOUT_TEXT];

	if (r->dtype != m->rec->dtype || r->wide_bf16 != m->rec->wide_bf16)
		return rsh_error_set(err, EINVAL,
				     "%s: parameter %s is %s%s, but in %s it is "
				     "%s%s", rank_path(m->c, rank),
				     rsh_names_text(m->c->names, m->name),
				     rsh_dtype_name(r->dtype),
				     r->wide_bf16 ? " of 4 bytes" : "",
				     rank_path(m->c, m->rank),
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
			     rank_path(m->c, rank),
			     rsh_names_text(m->c->names, m->name),
			     dims_text(ix, r, a, sizeof(a)),
			     rank_path(m->c, m->rank),
			     dims_text(m->ix, m->rec, b, sizeof(b)),
			     rsh_item_text(m->src, layout, sizeof(layout)),
			     m->c->src->path);
}

int rsh_check_chunks(const struct rsh_conversion *c, uint32_t rank,
		     const struct rsh_record *r, struct rsh_error *err)
{
	const struct rsh_ckpt_index *ix = rsh_rank_index(c, rank);
	uint32_t in_unit, out_unit;
	enum rsh_dtype dtype;

	rsh_codec_units(rsh_record_codec(c, r, &dtype), &in_unit, &out_unit);
	for (uint32_t i = 0; in_unit > 1 && i < r->n_extents; i++) {
		const struct rsh_extent *e = &ix->extents[r->first_extent + i];

		if (e->length % in_unit)
			return rsh_error_set(err, EINVAL,
					     "%s: parameter %s: a chunk at "
					     "offset %llu ends within an element",
					     rank_path(c, rank),
					     rsh_names_text(c->names, r->name),
					     (unsigned long long)e->offset);
	}
	return 0;
}

/* Finds the file of each slice of which there may be one, and compares it with
 * the reference; *reduced says whether one that is there lacks it. */
static int find_slices(const struct making *m, uint32_t *own, bool *reduced,
		       struct rsh_error *err)
{
	uint32_t stage = (m->rank - m->c->first_rank) / m->c->stage_ranks;
	const struct rsh_conversion *c = m->c;
	const struct rsh_ckpt_index *seen = NULL;

	for (uint32_t i = 0; i < c->n_held; i++) {
		const struct rsh_ckpt_index *ix;
		uint32_t k = c->held[i];
		int rc;

		if (!rsh_find_in_stages(c, m->b, m->name, k, NULL, &own[i])) {
			own[i] = RSH_NO_RANK;
			if (rsh_rank_index(c, rsh_source_rank(c, stage, k)))
				*reduced = true;
			continue;
		}
		ix = rsh_rank_index(c, own[i]);
		if (ix == seen)
			continue;
		seen = ix;
		rc = compare_slice(m, own[i], err);
		if (rc == 0)
			rc = rsh_check_chunks(c, own[i],
					      rsh_ckpt_find(ix, m->name), err);
		if (rc)
			return rc;
	}
	return 0;
}

/* ---- grids ---- */

/* Takes over *g; gives the conversion's own equal one. */
static int keep_grid(struct rsh_conversion *c, struct rsh_grid **g,
		     struct rsh_error *err)
{
	for (uint32_t i = 0; i < c->n_grids; i++)
		if (rsh_grid_equal(c->grids[i], *g)) {
			rsh_grid_free(*g);
			*g = c->grids[i];
			return 0;
		}
	if (rsh_grow(&c->grids, &c->grids_cap, c->n_grids + 1,
		     sizeof(*c->grids))) {
		rsh_grid_free(*g);
		return rsh_error_nomem(err);
	}
	c->grids[c->n_grids++] = *g;
	return 0;
}

static int make_grid(struct rsh_conversion *c,
		     const struct rsh_strategy_item *item, const int64_t *dims,
		     uint32_t n_dims, bool local, enum rsh_grid_rule rule,
		     struct rsh_grid **out, struct rsh_error *err)
{
	int rc = item ? rsh_grid_new(item, dims, n_dims, local, rule, out, err) :
			rsh_grid_new_whole(n_dims, out, err);

	return rc ? rc : keep_grid(c, out, err);
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

/* The source's grid.  An expanded map that the slice alone may explain in
 * several ways is unambiguous once the other side tells the whole shape. */
static int make_source_grid(const struct making *m, const int64_t *local,
			    uint32_t n, enum rsh_grid_rule rule,
			    struct rsh_grid **out, struct rsh_error *err)
{
	uint64_t whole;
	int rc;

	if (!m->src || !m->dst || m->src->n_map == n || m->dst->n_map != n ||
	    m->dst->n_shape != n)
		return make_grid(m->c, m->src, local, n, true, rule, out, err);
	rc = make_grid(m->c, m->src, m->dst->shape, n, false, rule, out, err);
	for (uint32_t d = 0; rc == 0 && d < n; d++)
		if (!rsh_mul_u64((uint64_t)local[d], rsh_grid_split(*out, d),
				 &whole) ||
		    (uint64_t)m->dst->shape[d] != whole)
			rc = rsh_error_set(err, EINVAL,
					   "dimension %u of the whole tensor is "
					   "%lld in the destination", d,
					   (long long)m->dst->shape[d]);
	return rc;
}

/* Makes both grids, and works out the whole and destination dimensions. */
static int make_grids(const struct making *m, struct rsh_grid_pair *pair,
		      int64_t *slice, struct rsh_error *err)
{
	enum rsh_grid_rule rule = m->c->compat ? RSH_GRID_CONVERTER :
						 RSH_GRID_RUNTIME;
	const int64_t *local = rsh_record_dims(m->ix, m->rec);
	uint32_t n = m->rec->n_dims;
	struct rsh_grid *src, *dst;
	int64_t whole[RSH_MAX_DIMS];
	int rc;

	rc = make_source_grid(m, local, n, rule, &src, err);
	if (rc)
		return rc;
	for (uint32_t d = 0; d < n; d++)
		whole[d] = local[d] * rsh_grid_split(src, d);
	rc = make_grid(m->c, m->dst, whole, n, false, rule, &dst, err);
	if (rc)
		return rc;
	for (uint32_t d = 0; d < n; d++)
		slice[d] = whole[d] / rsh_grid_split(dst, d);
	pair->src = src;
	pair->dst = dst;
	rc = note_simple(m, m->src, whole, n, src);
	return rc ? rc : note_simple(m, m->dst, whole, n, dst);
}

static int keep_pair(struct rsh_conversion *c, const struct rsh_grid_pair *pair,
		     uint32_t *out, struct rsh_error *err)
{
	for (*out = 0; *out < c->n_pairs; (*out)++)
		if (c->pairs[*out].src == pair->src &&
		    c->pairs[*out].dst == pair->dst &&
		    c->pairs[*out].supply == pair->supply)
			return 0;
	if (rsh_grow(&c->pairs, &c->pairs_cap, c->n_pairs + 1,
		     sizeof(*c->pairs)))
		return rsh_error_nomem(err);
	c->pairs[c->n_pairs++] = *pair;
	return 0;
}

/* ---- geometry ---- */

/* Joins each dimension to the one before when both sides cut it alike: it is
 * then whole in both slices and contiguous with it. */
static void make_spans(struct rsh_transfer *t, const struct rsh_grid_pair *pair,
		       const int64_t *local, uint32_t unit)
{
	struct rsh_span_dim *s = NULL;
	uint64_t stride = 1;

	for (uint32_t d = 0; d < t->n_dims; d++) {
		if (d == 0 || rsh_grid_split(pair->src, d) !=
				      rsh_grid_split(pair->dst, d)) {
			s = &t->spans[t->n_spans++];
			*s = (struct rsh_span_dim){ 1, 1, 0, d };
		}
		s->src_len *= (uint64_t)local[d];
		s->dst_len *= (uint64_t)t->dims[d];
	}
	if (s) {
		s->src_len *= unit;
		s->dst_len *= unit;
	}
	for (uint32_t g = t->n_spans; g-- > 0;) {
		t->spans[g].src_stride = stride;
		stride *= t->spans[g].src_len;
	}
}

static int keep_transfer(struct rsh_conversion *c, struct rsh_transfer *t,
			 uint32_t *out, struct rsh_error *err)
{
	if (rsh_grow(&c->transfers, &c->transfers_cap, c->n_transfers + 1,
		     sizeof(*c->transfers)))
		return rsh_error_nomem(err);
	*out = c->n_transfers;
	c->transfers[c->n_transfers++] = t;
	return 0;
}

static int make(const struct making *m, uint32_t *out, struct rsh_error *err)
{
	uint32_t n = m->rec->n_dims, size;
	uint32_t *own;
	struct rsh_grid_pair pair;
	enum rsh_dtype dtype;
	cleanup_free struct rsh_transfer *t = NULL;
	int64_t slice[RSH_MAX_DIMS];
	uint64_t elements;
	int rc;

	t = calloc(1, sizeof(*t) + n * (sizeof(t->spans[0]) + sizeof(*slice)));
	if (!t)
		return rsh_error_nomem(err);
	t->name = m->name;
	own = rsh_alloc_array(m->c->n_held, sizeof(*own));
	if (!own)
		return rsh_error_nomem(err);
	rc = find_slices(m, own, &t->reduced, err);
	if (rc == 0) {
		rc = make_grids(m, &pair, slice, err);
		if (rc)
			rc = refuse(m, rc, err);
	}
	if (rc) {
		free(own);
		return rc;
	}
	if (rsh_supply_keep(m->c, pair.src, own, &pair.supply))
		return rsh_error_nomem(err);
	rc = keep_pair(m->c, &pair, &t->pair, err);
	if (rc)
		return rc;
	t->n_dims = (uint8_t)n;
	t->dims = memcpy(&t->spans[n], slice, n * sizeof(*slice));
	t->codec = (uint8_t)rsh_record_codec(m->c, m->rec, &dtype);
	t->dtype = (uint8_t)dtype;
	size = rsh_dtype_size(t->dtype);
	if (!rsh_product_i64(slice, n, &elements) ||
	    !rsh_mul_u64(elements, size, &t->content_bytes)) {
		rsh_error_set(err, EINVAL, "its slice is too large");
		return refuse(m, -EINVAL, err);
	}
	make_spans(t, &pair, rsh_record_dims(m->ix, m->rec),
		   t->codec == RSH_CODEC_NONE ? size : 1);
	rc = keep_transfer(m->c, t, out, err);
	if (rc == 0)
		t = NULL;
	return rc;
}

int rsh_copy_grid_make(struct rsh_conversion *c, uint32_t name,
		       const struct rsh_ckpt_index *ix,
		       const struct rsh_record *r, struct rsh_error *err)
{
	const struct rsh_strategy_param *s = c->src ?
		rsh_strategy_find(c->src, name) : NULL;
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
	rc = keep_grid(c, &g, err);
	if (rc == 0)
		c->copy_grids[name] = g;
	return rc;
}

int rsh_transfer_make(struct rsh_conversion *c, const struct rsh_block *b,
		      uint32_t block, uint32_t name, uint32_t *out,
		      struct rsh_error *err)
{
	const struct rsh_strategy_param *s = c->src ?
		rsh_strategy_find(c->src, name) : NULL;
	const struct rsh_strategy_param *d = c->dst ?
		rsh_strategy_find(c->dst, name) : NULL;
	struct making m = { .c = c, .b = b, .name = name };

	*out = RSH_NO_TRANSFER;
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
				     rank_path(c, m.rank),
				     rsh_names_text(c->names, name));
	if (d && !c->compat &&
	    !rsh_item_same_layout(m.dst,
				  rsh_param_dest_stage(c->dst, d,
						       block * c->dst_ranks,
						       true)->item))
		rsh_note_add(c, RSH_NOTE_SHARED, name);
	return make(&m, out, err);
}
