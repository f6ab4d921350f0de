/* SPDX-License-Identifier: Apache-2.0 */
/* plan/stretches.c finds the places of whole rows of a tensor in files: of
 * scales and other small tensors that are read beside quantised elements. */
#include <errno.h>

#include "plan_i.h"
#include "rsh/util/checked.h"

void rsh_quantised_each(const struct rsh_quantised *q,
			void (*each)(void *ctx, const struct rsh_tensor *t),
			void *ctx)
{
	const struct rsh_tensor *const all[] = {
		q->scales, q->divisor, q->zeros, q->groups, q->shape,
	};

	for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++)
		if (all[i])
			each(ctx, all[i]);
	for (uint32_t i = 0; i < q->n_adapters; i++) {
		each(ctx, q->factors[i].rows);
		each(ctx, q->factors[i].columns);
	}
}

const struct rsh_quantised *rsh_quantised_plain(enum rsh_dtype type)
{
	static const struct rsh_quantised bf16 = {
		.packing = RSH_PACK_BF16, .type = RSH_DTYPE_BFLOAT16,
	}, f16 = {
		.packing = RSH_PACK_F16, .type = RSH_DTYPE_FLOAT16,
	}, f32 = {
		.packing = RSH_PACK_F32, .type = RSH_DTYPE_FLOAT32,
	};

	return type == RSH_DTYPE_BFLOAT16 ? &bf16 :
	       type == RSH_DTYPE_FLOAT16 ? &f16 :
	       type == RSH_DTYPE_FLOAT32 ? &f32 : NULL;
}

/* A matrix has at least n rows, or columns if `turned`, and exactly `rank`
 * columns, or rows. */
static bool factor_fits(const struct rsh_tensor *t, bool turned, uint64_t n,
			uint64_t rank)
{
	return t->n_dims == 2 && t->dims[turned] >= n &&
	       t->dims[!turned] == rank && !t->quantised;
}

/* Returns whether elements fit their adapters. */
static bool adapters_fit(const struct rsh_tensor *t)
{
	const struct rsh_quantised *q = t->quantised;
	bool fits = t->n_dims == 2 || t->n_dims == 3;
	const uint64_t planes = t->n_dims == 3 ? t->dims[0] : 1;
	const uint64_t *of = t->dims + t->n_dims - 2;

	for (uint32_t i = 0; fits && i < q->n_adapters; i++) {
		const struct rsh_factors *f = &q->factors[i];
		const uint64_t all = rsh_max_u64(f->n_planes, 1);
		uint64_t rows, columns, rank;

		fits = rsh_mul_u64(q->adapters[i].rank, all, &rank) &&
		       rsh_add_u64(f->first[0], of[0], &rows) &&
		       rsh_add_u64(f->first[1], of[1], &columns) &&
		       planes <= all && f->plane <= all - planes &&
		       factor_fits(f->rows, f->rows_turned, rows, rank) &&
		       factor_fits(f->columns, !f->columns_turned, columns,
				   rank);
	}
	return fits;
}

bool rsh_quantised_fits(const struct rsh_tensor *t)
{
	const struct rsh_quantised *q = t->quantised;
	uint64_t n, rows, wanted;

	if (!q)
		return true;
	if ((rsh_packing_is_plain(q->packing) || q->n_adapters) &&
	    !adapters_fit(t))
		return false;
	if (rsh_packing_is_plain(q->packing))
		return true;
	if (t->n_dims < 2 || t->n_dims > 4 || !q->scales || !q->n_columns ||
	    !q->block[0] || !q->block[1] ||
	    rsh_dtype_size(q->scale_type) != rsh_dtype_size(q->scales->dtype))
		return false;
	if (!rsh_product_u64(q->scales->dims, q->scales->n_dims, &n) ||
	    !rsh_mul_u64(q->n_rows, q->n_columns, &wanted) || n != wanted)
		return false;
	if (q->groups)
		return t->n_dims == 2 && t->dims[1] == q->n_columns &&
		       q->groups->n_dims == 1 &&
		       q->groups->dims[0] == t->dims[0];
	return rsh_product_u64(t->dims, t->n_dims - 1u, &rows) &&
	       q->n_rows == rsh_div_up(rows, q->block[0]) &&
	       q->n_columns <= rsh_div_up(t->dims[t->n_dims - 1], q->block[1]);
}

struct stretches {
	const struct rsh_catalogue *c;
	const struct rsh_tensor *t;
	struct rsh_box wanted;
	const atomic_bool *avoid;
	int (*each)(void *ctx, const struct rsh_stretch *s);
	void *ctx;
	uint64_t n_found; /* elements */
	int rc;
};

/* Gives n elements of a record, from element `from` on.  `at` is the number of
 * the first one among the wanted elements. */
static int stretches_give(const struct stretches *s,
			  const struct rsh_holder *h, uint64_t from, uint64_t n,
			  uint64_t at)
{
	const struct rsh_ckpt_index *ix = rsh_catalogue_index(s->c, h->file);
	const struct rsh_record *r = h->record == RSH_BY_NAME ?
		rsh_ckpt_find(ix, s->t->name) : &ix->records[h->record];
	const unsigned width = rsh_dtype_size(s->t->dtype);
	struct rsh_stretch one = { .file = h->file, .at = at * width };
	struct rsh_content content;
	int rc = 0;

	if (!r)
		return -EIO;
	content = rsh_record_content(ix, r);
	for (uint64_t i = 0; rc == 0 && i < n * width; i += one.length) {
		one.length = rsh_min_u64(
			n * width - i,
			rsh_content_move(&content, from * width + i,
					 &one.offset));
		rc = one.length ? s->each(s->ctx, &one) : -EIO;
		one.at += one.length;
	}
	return rc;
}

/* Returns the number of an element in a box, in row-major order. */
static uint64_t stretches_number(const struct rsh_box *b, const uint64_t *at)
{
	uint64_t n = 0;

	for (uint32_t d = 0; d < b->n_dims; d++)
		n = n * b->size[d] + at[d] - b->from[d];
	return n;
}

/* Returns the number of dimensions after which the part covers both boxes: its
 * elements along these follow each other in both. */
static uint32_t stretches_split(const struct rsh_box *part,
				const struct rsh_box *cell,
				const struct rsh_box *wanted)
{
	uint32_t d = part->n_dims;

	while (d > 0 && part->size[d - 1] == cell->size[d - 1] &&
	       part->size[d - 1] == wanted->size[d - 1])
		d--;
	return d > 0 ? d - 1 : 0;
}

static void stretches_cell(void *ctx, uint32_t number)
{
	struct stretches *s = ctx;
	struct rsh_box cell, part;
	uint64_t at[RSH_MAX_DIMS], run = 1;
	struct rsh_holder h;
	uint32_t split, d;

	rsh_cut_box(s->t->cut, s->t->dims, number, &cell);
	if (s->rc || !rsh_box_meet(&cell, &s->wanted, &part))
		return;
	if (!rsh_copies_pick(s->t->copies, number, 0, s->avoid, &h)) {
		s->rc = -EIO;
		return;
	}
	split = stretches_split(&part, &cell, &s->wanted);
	for (d = split; d < part.n_dims; d++)
		run *= part.size[d];
	for (d = 0; d < part.n_dims; d++)
		at[d] = part.from[d];
	do {
		s->rc = stretches_give(s, &h, stretches_number(&cell, at), run,
				       stretches_number(&s->wanted, at));
		s->n_found += run;
		for (d = split; d-- > 0;) {
			if (++at[d] < part.from[d] + part.size[d])
				break;
			at[d] = part.from[d];
		}
	} while (s->rc == 0 && d != UINT32_MAX);
}

int rsh_tensor_box(const struct rsh_catalogue *c, const struct rsh_tensor *t,
		   const struct rsh_box *box, const atomic_bool *avoid,
		   int (*each)(void *ctx, const struct rsh_stretch *s),
		   void *ctx)
{
	struct stretches s = {
		.c = c, .t = t, .avoid = avoid, .each = each, .ctx = ctx,
		.wanted = *box,
	};

	rsh_cut_overlap(t->cut, t->dims, &s.wanted, stretches_cell, &s);
	if (s.rc == 0 && s.n_found < rsh_box_elements(&s.wanted))
		s.rc = -EIO;
	return s.rc;
}
