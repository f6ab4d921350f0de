/* SPDX-License-Identifier: Apache-2.0 */
/* read/factors.c reads the two matrices of each adapter that is added to a
 * tensor.
 *
 * The tensor is divided into blocks.  A chunk in memory has, for each adapter,
 * the numbers of the block's rows and then those of its columns, as Float32. */
#include "config.h"

#include "scales_i.h"

#include <errno.h>
#include <stdlib.h>

#include "rsh/util/checked.h"
#include "rsh/util/mem.h"

/* ---- parts of the tensors beside the elements ---- */

static int scales_read_stretch(void *ctx, const struct rsh_stretch *x)
{
	const struct rsh_scales_read *r = ctx;
	struct rsh_kept *k = r->kept;
	uint32_t i = 0;

	while (i < k->n_files && k->files[i] != x->file)
		i++;
	if (i == k->n_files) {
		size_t room = i;

		if (rsh_room(k->files, room, i + 1))
			return -ENOMEM;
		k->files[k->n_files++] = x->file;
	}
	return rsh_source_read_at(r->source, x->file, x->offset, r->to + x->at,
				  (size_t)x->length, r->wait);
}

int rsh_scales_read_box(struct rsh_scales_read *r, const struct rsh_tensor *t,
			const struct rsh_box *box, uint8_t **out)
{
	const struct rsh_store *store = rsh_source_store(r->source);
	uint64_t bytes;

	if (!rsh_mul_u64(rsh_box_elements(box), rsh_dtype_size(t->dtype),
			 &bytes) || bytes > RSH_SCALES_MAX)
		return -EIO;
	*out = malloc((size_t)bytes + 1);
	if (!*out)
		return -ENOMEM;
	r->to = *out;
	/* A reader that must not wait has other files to turn to. */
	return rsh_tensor_box(r->by->cat, t, box,
			      r->wait ? NULL : rsh_store_failed(store),
			      scales_read_stretch, r);
}

/* The most bytes of the numbers of rows and of those of columns, unless a block
 * would be smaller than the least one. */
#define HALF_BYTES ((uint64_t)512 * 1024)
#define LEAST_ROWS 16
#define LEAST_COLUMNS 64
_Static_assert(RSH_LOW_RANK_MAX * (LEAST_ROWS + LEAST_COLUMNS) *
		       sizeof(float) <= RSH_SCALES_MAX,
	       "the numbers of the least block fit into memory");

struct block {
	const struct rsh_quantised *q;
	uint64_t rows, columns; /* of a block that is not at the edge */
	uint64_t across;        /* blocks beside each other */
	uint64_t in_plane;      /* blocks of a matrix */
	uint64_t plane;         /* the matrix of one block */
	uint64_t from[2], n[2]; /* rows and columns of one block */
};

/* Returns the dimensions of each matrix. */
static const uint64_t *plane_dims(const struct rsh_scales *s)
{
	return s->tensor->dims + s->tensor->n_dims - 2;
}

/* Returns the sum of the ranks of all adapters. */
static uint64_t factors_rank(const struct rsh_quantised *q)
{
	uint64_t rank = 0;

	for (uint32_t i = 0; i < q->n_adapters; i++)
		rank += q->adapters[i].rank;
	return rank;
}

/* Sets how a tensor is divided into blocks. */
static struct block block_of(const struct rsh_scales *s)
{
	const uint64_t *dims = plane_dims(s);
	const struct rsh_quantised *q = s->tensor->quantised;
	const uint64_t rank = rsh_max_u64(factors_rank(q), 1);
	const uint64_t most = HALF_BYTES / sizeof(float) / rank;
	struct block b = {
		.q = q,
		.rows = rsh_max_u64(most, LEAST_ROWS),
		.columns = rsh_max_u64(most / LEAST_COLUMNS, 1) * LEAST_COLUMNS,
	};

	b.across = (dims[1] - 1) / b.columns + 1;
	b.in_plane = ((dims[0] - 1) / b.rows + 1) * b.across;
	return b;
}

/* Sets which block a chunk is. */
static struct block block_at(const struct rsh_scales *s, uint64_t chunk)
{
	const uint64_t *dims = plane_dims(s);
	struct block b = block_of(s);

	b.plane = chunk / b.in_plane;
	chunk %= b.in_plane;
	b.from[0] = chunk / b.across * b.rows;
	b.from[1] = chunk % b.across * b.columns;
	b.n[0] = rsh_min_u64(b.rows, dims[0] - b.from[0]);
	b.n[1] = rsh_min_u64(b.columns, dims[1] - b.from[1]);
	return b;
}

uint64_t rsh_factors_chunks(const struct rsh_scales *s)
{
	const struct rsh_tensor *t = s->tensor;

	return block_of(s).in_plane * (t->n_dims == 3 ? t->dims[0] : 1);
}

uint64_t rsh_factors_chunk(const struct rsh_scales *s, uint64_t n)
{
	const struct block b = block_of(s);

	return (s->from[0] + n / s->columns / s->rows) * b.in_plane +
	       (s->from[1] + n / s->columns % s->rows) / b.rows * b.across +
	       (s->from[2] + n % s->columns) / b.columns;
}

uint64_t rsh_factors_reach(const struct rsh_scales *s, uint64_t n)
{
	const struct block b = block_of(s);
	const uint64_t line = n / s->columns % s->rows, c = n % s->columns;
	const uint64_t row = s->from[1] + line;
	const uint64_t column = s->from[2] + c;
	const uint64_t last = s->from[2] + s->columns - 1;

	/* The cell has columns of several blocks. */
	if (s->from[2] / b.columns != last / b.columns)
		return rsh_min_u64(b.columns - column % b.columns,
				   s->columns - c);
	return rsh_min_u64(b.rows - row % b.rows, s->rows - line) * s->columns -
	       c;
}

uint64_t rsh_factors_bytes(const struct rsh_scales *s, uint64_t chunk)
{
	const struct block b = block_at(s, chunk);
	uint64_t bytes;

	if (!rsh_mul_u64(factors_rank(b.q), (b.n[0] + b.n[1]) * sizeof(float),
			 &bytes) || bytes > RSH_SCALES_MAX)
		return 0;
	return rsh_max_u64(bytes, sizeof(float));
}

/* Numbers of a matrix: `rank` of each of n rows.  They become [n][rank], or
 * [rank][n] if `across`. */
struct factor {
	const struct rsh_tensor *t;
	bool turned; /* it is stored with rows and columns exchanged */
	bool across;
	uint64_t from, n, rank;
	uint64_t plane, n_planes;
};

static int factors_load_one(struct rsh_scales_read *r, const struct factor *f,
			    float *out)
{
	const uint64_t n = f->n * f->rank;
	cleanup_free uint8_t *raw = NULL;
	cleanup_free float *wide = NULL;
	struct rsh_box box = { .n_dims = 2 };
	int rc;

	box.from[f->turned] = f->from;
	box.size[f->turned] = f->n;
	box.from[!f->turned] = f->plane * f->rank;
	box.size[!f->turned] = f->rank;
	rc = rsh_scales_read_box(r, f->t, &box, &raw);
	if (rc)
		return rc;
	if (f->turned == f->across) {
		rsh_scaled_widen(f->t->dtype, raw, n, out);
		return 0;
	}
	wide = rsh_alloc_array((size_t)n, sizeof(*wide));
	if (!wide)
		return -ENOMEM;
	rsh_scaled_widen(f->t->dtype, raw, n, wide);
	for (uint64_t i = 0; i < box.size[0]; i++)
		for (uint64_t k = 0; k < box.size[1]; k++)
			out[k * box.size[0] + i] = wide[i * box.size[1] + k];
	return 0;
}

#define STRIP_BYTES ((uint64_t)512 * 1024)

/* Does the same for a matrix whose rows have the numbers of all matrices of a
 * stack, those of one matrix n_planes apart.  Some rows are read at a time. */
static int factors_load_apart(struct rsh_scales_read *r, const struct factor *f,
			      float *out)
{
	const uint64_t step = f->n_planes, width = (f->rank - 1) * step + 1;
	const uint64_t strip =
		rsh_max_u64(STRIP_BYTES / sizeof(float) / width, 1);
	cleanup_free float *wide =
		rsh_alloc_array((size_t)(strip * width), sizeof(*wide));
	int rc = wide ? 0 : -ENOMEM;

	for (uint64_t i = 0; rc == 0 && i < f->n; i += strip) {
		const uint64_t n = rsh_min_u64(strip, f->n - i);
		cleanup_free uint8_t *raw = NULL;
		const struct rsh_box box = {
			.n_dims = 2, .from = { f->from + i, f->plane },
			.size = { n, width },
		};

		rc = rsh_scales_read_box(r, f->t, &box, &raw);
		if (rc)
			return rc;
		rsh_scaled_widen(f->t->dtype, raw, n * width, wide);
		for (uint64_t j = 0; j < n; j++)
			for (uint64_t k = 0; k < f->rank; k++)
				out[f->across ? k * f->n + i + j :
				    (i + j) * f->rank + k] =
					wide[j * width + k * step];
	}
	return rc;
}

int rsh_factors_load(struct rsh_scales_read *r, uint64_t chunk, float *out)
{
	const struct block b = block_at(r->by, chunk);
	int rc = 0;

	for (uint32_t i = 0; rc == 0 && i < b.q->n_adapters; i++) {
		const struct rsh_factors *f = &b.q->factors[i];
		const uint64_t rank = b.q->adapters[i].rank;
		const uint64_t plane = f->plane + b.plane;
		const struct factor both[] = {
			{ f->rows, f->rows_turned, false,
			  f->first[0] + b.from[0], b.n[0], rank, plane,
			  f->n_planes },
			{ f->columns, !f->columns_turned, true,
			  f->first[1] + b.from[1], b.n[1], rank, plane,
			  f->n_planes },
		};

		for (unsigned k = 0; rc == 0 && k < 2; k++) {
			rc = f->n_planes > 1 && !both[k].turned ?
				factors_load_apart(r, &both[k], out) :
				factors_load_one(r, &both[k], out);
			out += both[k].n * rank;
		}
	}
	return rc;
}

struct rsh_merge rsh_factors_by(const struct rsh_scales *s, uint64_t chunk,
				const float *factors)
{
	const struct block b = block_at(s, chunk);

	return (struct rsh_merge){
		.n = b.q->n_adapters, .by = b.q->adapters, .factors = factors,
		.first_row = b.plane * plane_dims(s)[0] + b.from[0],
		.n_rows = b.n[0],
		.first_column = b.from[1], .n_columns = b.n[1],
	};
}
