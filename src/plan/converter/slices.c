/* SPDX-License-Identifier: Apache-2.0 */
/* plan/converter/slices.c finds the files of a parameter's slices and checks
 * them against the strategy.
 *
 * A job may have a million ranks of which few have a file, so loops visit only
 * the files that exist. */
#include "rsh/plan/slices.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "rsh/plan/policy.h"
#include "rsh/util/checked.h"
#include "rsh/util/mem.h"

#define SLICES_TEXT 160

/* ---- the files of a job ---- */

uint32_t rsh_job_files_from(const struct rsh_job_files *f, uint32_t key)
{
	if (f->n_held == f->stage_ranks)
		return key;
	return rsh_first_from(f->held, f->n_held, key);
}

void rsh_job_files_of(const struct rsh_job_files *f, uint32_t stage,
		      uint32_t *from, uint32_t *to)
{
	*from = rsh_catalogue_present_from(f->cat, rsh_job_rank(f, stage, 0));
	*to = rsh_catalogue_present_from(f->cat, rsh_job_rank(f, stage + 1, 0));
}

int rsh_job_files_list(struct rsh_job_files *f)
{
	const struct rsh_catalogue *c = f->cat;
	const uint32_t end = rsh_job_rank(f, f->n_stages, 0);

	f->held = rsh_alloc_array(c->n_present, sizeof(*f->held));
	if (!f->held)
		return -ENOMEM;
	f->n_held = 0;
	for (uint32_t i = 0; i < c->n_present; i++)
		if (c->present[i] >= f->first_rank && c->present[i] < end)
			f->held[f->n_held++] = (c->present[i] - f->first_rank) %
					       f->stage_ranks;
	f->n_held = (uint32_t)rsh_sort_distinct(f->held, f->n_held);
	return 0;
}

int rsh_job_files_check(const struct rsh_job_files *f, uint32_t stage,
			uint32_t name, struct rsh_error *err)
{
	const uint32_t first = rsh_job_rank(f, stage, 0);
	const uint32_t last = rsh_job_rank(f, stage + 1, 0) - 1;
	const char *text = rsh_names_text(f->cat->names, name);
	uint32_t from, to;

	rsh_job_files_of(f, stage, &from, &to);
	if (from < to)
		return 0;
	if (first == last)
		return rsh_error_set(
			err, ENOENT,
			"rank %u has no valid "
			"checkpoint file, but parameter %s is needed from it",
			first, text);
	return rsh_error_set(
		err, ENOENT,
		"ranks %u to %u have no valid "
		"checkpoint file, but parameter %s is needed from them",
		first, last, text);
}

/* Another stage may cut a shared parameter in another way.  Its slices are then
 * different slices. */
bool rsh_job_stage_cuts(const struct rsh_job_files *f, uint32_t name,
			uint32_t stage, const struct rsh_strategy_item *item)
{
	const struct rsh_strategy_param *s = rsh_strategy_find(f->src, name);
	const struct rsh_strategy_item *own = s ? rsh_param_item(s, stage) :
						  NULL;

	return !own || rsh_item_same_layout(own, item);
}

/* ---- records ---- */

bool rsh_records_alike(const struct rsh_ckpt_index *a,
		       const struct rsh_record *x,
		       const struct rsh_ckpt_index *b,
		       const struct rsh_record *y)
{
	return rsh_record_is_alike(a, x, b, y) &&
	       x->wide_bf16 == y->wide_bf16 &&
	       x->content_bytes == y->content_bytes;
}

int rsh_record_check_chunks(const struct rsh_catalogue *cat, uint32_t file,
			    const struct rsh_record *r, uint32_t unit,
			    struct rsh_error *err)
{
	const struct rsh_ckpt_index *ix = rsh_catalogue_index(cat, file);

	for (uint32_t i = 0; unit > 1 && i < r->n_extents; i++) {
		const struct rsh_extent *e = &ix->extents[r->first_extent + i];

		if (e->length % unit)
			return rsh_error_set(
				err, EINVAL,
				"%s: parameter %s: a chunk at "
				"offset %llu ends within an element",
				rsh_catalogue_path(cat, file),
				rsh_names_text(cat->names, r->name),
				(unsigned long long)e->offset);
	}
	return 0;
}

const char *rsh_record_dims_text(const struct rsh_ckpt_index *ix,
				 const struct rsh_record *r, char *text,
				 size_t size)
{
	/* No size is negative. */
	return rsh_dims_text((const uint64_t *)rsh_record_dims(ix, r),
			     r->n_dims, text, size);
}

/* ---- one parameter ---- */

/* A position among the files of the stages.  All fields are zero at the
 * beginning. */
struct slices_position {
	uint32_t n_stages; /* how many were begun */
	uint32_t i, end;   /* in cat->present */
};

/* Gives the next file, stage by stage, the lowest first.  False past the
 * last. */
static bool slices_next(const struct rsh_slices *s, struct slices_position *w,
			uint32_t *rank)
{
	while (w->i == w->end) {
		uint32_t stage = w->n_stages;

		if (w->n_stages == s->n_stages)
			return false;
		if (s->stages)
			stage = s->stages[w->n_stages];
		w->n_stages++;
		if (rsh_job_stage_cuts(s->files, s->name, stage, s->item))
			rsh_job_files_of(s->files, stage, &w->i, &w->end);
	}
	*rank = s->files->cat->present[w->i++];
	return true;
}

bool rsh_slices_begin(struct rsh_slices *s)
{
	const struct rsh_catalogue *cat = s->files->cat;
	struct slices_position w = { 0 };

	while (slices_next(s, &w, &s->rank)) {
		s->rec = rsh_catalogue_record(cat, s->rank, s->name);
		if (!s->rec)
			continue;
		s->ix = rsh_catalogue_index(cat, s->rank);
		return true;
	}
	return false;
}

/* Returns whether the record of a key is like the reference.  If rows are split
 * manually it has the rows of its key instead. */
static bool slices_alike(const struct rsh_slices *s, uint32_t key,
			 const struct rsh_ckpt_index *ix,
			 const struct rsh_record *r)
{
	const int64_t *dims = rsh_record_dims(ix, r);
	const int64_t *other = rsh_record_dims(s->ix, s->rec);
	uint64_t a, b;

	if (!s->manual)
		return rsh_records_alike(ix, r, s->ix, s->rec);
	if (r->dtype != s->rec->dtype || r->wide_bf16 != s->rec->wide_bf16 ||
	    r->n_dims != s->rec->n_dims ||
	    dims[0] != rsh_item_rank_rows(s->item, s->manual, key))
		return false;
	for (uint32_t d = 1; d < r->n_dims; d++)
		if (dims[d] != other[d])
			return false;
	return rsh_mul_u64(r->content_bytes, (uint64_t)other[0], &a) &&
	       rsh_mul_u64(s->rec->content_bytes, (uint64_t)dims[0], &b) &&
	       a == b;
}

/* Writes the reason why all slices should be equal. */
static const char *slices_reason(const struct rsh_slices *s, char *text,
				 size_t size)
{
	const struct rsh_strategy *src = s->files->src;
	char layout[SLICES_TEXT];

	if (s->manual)
		snprintf(text, size, "%s splits its rows manually (manual_split)",
			 src->path);
	else if (s->item)
		snprintf(text, size, "with %s (%s) all slices are equal",
			 rsh_item_text(s->item, layout, sizeof(layout)),
			 src->path);
	else if (src)
		snprintf(text, size, "%s does not say how it is cut",
			 src->path);
	else
		snprintf(text, size, "without a strategy all ranks hold the "
			 "same");
	return text;
}

static int slices_compare(const struct rsh_slices *s, uint32_t key,
			  uint32_t rank, const struct rsh_record *r,
			  struct rsh_error *err)
{
	const struct rsh_catalogue *cat = s->files->cat;
	const struct rsh_ckpt_index *ix = rsh_catalogue_index(cat, rank);
	const char *name = rsh_names_text(cat->names, s->name);
	char a[SLICES_TEXT], b[SLICES_TEXT], why[RSH_ERROR_TEXT_MAX];

	if (r->dtype != s->rec->dtype || r->wide_bf16 != s->rec->wide_bf16)
		return rsh_error_set(
			err, EINVAL,
			"%s: parameter %s is %s%s, but in %s it is "
			"%s%s", rsh_catalogue_path(cat, rank), name,
			rsh_dtype_name(r->dtype),
			r->wide_bf16 ? " of 4 bytes" : "",
			rsh_catalogue_path(cat, s->rank),
			rsh_dtype_name(s->rec->dtype),
			s->rec->wide_bf16 ? " of 4 bytes" : "");
	if (slices_alike(s, key, ix, r))
		return 0;
	if (s->manual && r->n_dims == s->rec->n_dims)
		return rsh_error_set(err, EINVAL,
				     "%s: parameter %s has shape %s, but by param_split_shape its slice has %lld rows; %s",
				     rsh_catalogue_path(cat, rank), name,
				     rsh_record_dims_text(ix, r, a, sizeof(a)),
				     (long long)rsh_item_rank_rows(
					     s->item, s->manual, key),
				     slices_reason(s, why, sizeof(why)));
	return rsh_error_set(err, EINVAL,
			     "%s: parameter %s has shape %s, but in %s it is "
			     "%s; %s", rsh_catalogue_path(cat, rank), name,
			     rsh_record_dims_text(ix, r, a, sizeof(a)),
			     rsh_catalogue_path(cat, s->rank),
			     rsh_record_dims_text(s->ix, s->rec, b, sizeof(b)),
			     slices_reason(s, why, sizeof(why)));
}

/* The index that was checked last, its record, and whether the record is like
 * the reference. */
struct slices_checked {
	const struct rsh_ckpt_index *ix;
	const struct rsh_record *rec;
	bool alike;
};

static int slices_hold(struct rsh_slices *s, uint32_t unit, uint32_t rank,
		       struct slices_checked *l, struct rsh_error *err)
{
	const struct rsh_job_files *f = s->files;
	const struct rsh_ckpt_index *ix = f->cat->index[rank];
	const uint32_t key = s->item ? (rank - f->first_rank) % f->stage_ranks :
				       0;
	const uint32_t k = s->item ? rsh_job_files_from(f, key) : 0;

	if (ix != l->ix || s->manual) {
		l->ix = ix;
		l->rec = rsh_ckpt_find(ix, s->name);
		l->alike = l->rec &&
			   slices_alike(s, key, ix, l->rec) &&
			   rsh_record_check_chunks(f->cat, rank, l->rec, unit,
						   NULL) == 0;
	}
	if (!l->rec)
		return 0;
	if (!l->alike) {
		if (s->found[k] && !s->all_alike)
			return 0;
		return slices_compare(s, key, rank, l->rec, err) ?:
		       rsh_record_check_chunks(f->cat, rank, l->rec, unit, err);
	}
	s->found[k] = true;
	s->holders[s->n++] = (struct rsh_holder){ key, rank, RSH_BY_NAME };
	return 0;
}

int rsh_slices_find(struct rsh_slices *s, uint32_t unit, struct rsh_error *err)
{
	const uint32_t n = s->files->cat->n_present;
	struct slices_checked look = { NULL, NULL, false };
	struct slices_position w = { 0 };
	const struct rsh_grid_sizes sizes = {
		rsh_record_dims(s->ix, s->rec), s->rec->n_dims, true,
	};
	uint32_t rank;
	/* rsh_slices_add() reports a layout that is not valid. */
	int rc = s->item && rsh_item_manual(s->item, &sizes, &s->manual,
					    NULL) == -ENOMEM ? -ENOMEM : 0;

	s->holders = rsh_alloc_array(n, sizeof(*s->holders));
	s->found = calloc((size_t)s->files->n_held + 1, sizeof(*s->found));
	if (!s->holders || !s->found)
		return rsh_error_nomem(err);
	/* The catalogue finds equal holders by comparing bytes. */
	memset(s->holders, 0, n * sizeof(*s->holders));
	while (rc == 0 && slices_next(s, &w, &rank))
		rc = slices_hold(s, unit, rank, &look, err);
	return rc;
}

void rsh_slices_clear(struct rsh_slices *s)
{
	free(s->holders);
	free(s->found);
	rsh_grid_free(s->manual);
}

/* ---- into the catalogue ---- */

/* Makes the cut, and the sizes of the whole tensor. */
static int slices_cut(const struct rsh_slices *s,
		      const struct rsh_strategy_item *other,
		      enum rsh_grid_rule rule, const struct rsh_cut **out,
		      uint64_t *dims, struct rsh_error *err)
{
	const uint32_t n = s->rec->n_dims;
	const bool told = s->item && other && s->item->n_map != n &&
			  other->n_map == n && other->n_shape == n;
	const int64_t *local = rsh_record_dims(s->ix, s->rec);
	const struct rsh_grid_sizes sizes = {
		told ? other->shape : local, n, !told
	};
	int rc = rsh_layout_cut(s->files->cat, s->item, &sizes, rule, out,
				dims, err);

	for (uint32_t d = 0; told && rc == 0 && d < n; d++) {
		uint64_t size;

		if (!rsh_mul_u64((uint64_t)local[d],
				 rsh_grid_split(rsh_cut_grid(*out), d),
				 &size) || size != dims[d])
			return rsh_error_set(err, EINVAL,
					     "dimension %u of the whole tensor "
					     "is %lld in the destination", d,
					     (long long)other->shape[d]);
	}
	return rc;
}

int rsh_slices_add(const struct rsh_slices *s,
		   const struct rsh_strategy_item *other,
		   enum rsh_grid_rule rule, bool replicas, uint32_t *number,
		   struct rsh_error *err)
{
	struct rsh_catalogue *cat = s->files->cat;
	uint64_t dims[RSH_MAX_DIMS];
	struct rsh_tensor t = {
		.name = s->name,
		.dtype = s->rec->dtype,
		.wide_bf16 = s->rec->wide_bf16,
		.n_dims = s->rec->n_dims,
		.dims = dims,
		.first_file = s->first_file,
	};
	int rc = slices_cut(s, other, rule, &t.cut, dims, err);

	if (rc)
		return rc;
	t.copies = rsh_catalogue_keep_copies(cat, t.cut, s->holders, s->n,
					     replicas);
	return t.copies && rsh_catalogue_add(cat, &t, number) == 0 ?
		       0 : rsh_error_nomem(err);
}
