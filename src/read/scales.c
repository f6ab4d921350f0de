/* SPDX-License-Identifier: Apache-2.0 */
/* read/scales.c reads the scales and zero points of quantised tensors,
 * and the matrices of adapters, which are kept as scales are.
 *
 * A chunk in memory has its scales as Float32, divided by the tensor's divisor
 * if there is one, then the zero points as bytes, and for rows that are in
 * groups, the groups.  Groups may be in any order, so these tensors have one
 * chunk.
 *
 * If adapters are added to dense elements, a chunk has the scales of a chunk of
 * scales, and then the numbers of a chunk of factors. */
#include "config.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "rsh/util/checked.h"
#include "rsh/util/log.h"
#include "rsh/util/mem.h"
#include "rsh/wire/bytes.h"
#include "tiles_i.h"

/* Large enough for the groups of every model. */
#define SCALES_MAX ((uint64_t)64 * 1024 * 1024)

struct scales_read {
	struct rsh_source *source;
	struct rsh_kept *kept;
	const struct rsh_wait *wait;
	const struct rsh_scales *by;
	uint8_t *to;
};

/* ---- parts of the tensors beside the elements ---- */

static int scales_read_stretch(void *ctx, const struct rsh_stretch *x)
{
	const struct scales_read *r = ctx;
	struct rsh_kept *k = r->kept;
	size_t room = k->n_files;

	if (!rsh_any(i, k->n_files, k->files[i] == x->file) &&
	    rsh_push(k->files, k->n_files, room, x->file))
		return -ENOMEM;
	return rsh_source_read_at(r->source, x->file, x->offset, r->to + x->at,
				  (size_t)x->length, r->wait);
}

/* Reads the elements of a box of a tensor to *out (from malloc), which the
 * caller frees, also after a failure.  Returns 0 or -errno. */
static int scales_read_box(struct scales_read *r, const struct rsh_tensor *t,
			   const struct rsh_box *box, uint8_t **out)
{
	const struct rsh_store *store = rsh_source_store(r->source);
	uint64_t bytes;

	if (!rsh_mul_u64(rsh_box_elements(box), rsh_dtype_size(t->dtype),
			 &bytes) ||
	    bytes > SCALES_MAX)
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
_Static_assert(RSH_LOW_RANK_MAX *(LEAST_ROWS + LEAST_COLUMNS) * sizeof(float) <=
		       SCALES_MAX,
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

/* Returns the number of chunks of a tensor. */
static uint64_t factors_chunks(const struct rsh_scales *s)
{
	const struct rsh_tensor *t = s->tensor;

	return block_of(s).in_plane * (t->n_dims == 3 ? t->dims[0] : 1);
}

/* Returns the chunk of element n of a cell. */
static uint64_t factors_chunk(const struct rsh_scales *s, uint64_t n)
{
	const struct block b = block_of(s);

	return (s->from[0] + n / s->columns / s->rows) * b.in_plane +
	       (s->from[1] + n / s->columns % s->rows) / b.rows * b.across +
	       (s->from[2] + n % s->columns) / b.columns;
}

/* Returns how many elements from n on are in the same chunk. */
static uint64_t factors_reach(const struct rsh_scales *s, uint64_t n)
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

/* Returns the bytes of the numbers of a chunk; 0 if they are too many. */
static uint64_t factors_bytes(const struct rsh_scales *s, uint64_t chunk)
{
	const struct block b = block_at(s, chunk);
	uint64_t bytes;

	if (!rsh_mul_u64(factors_rank(b.q), (b.n[0] + b.n[1]) * sizeof(float),
			 &bytes) ||
	    bytes > SCALES_MAX)
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

static int factors_load_one(struct scales_read *r, const struct factor *f,
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
	rc = scales_read_box(r, f->t, &box, &raw);
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
static int factors_load_apart(struct scales_read *r, const struct factor *f,
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

		rc = scales_read_box(r, f->t, &box, &raw);
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

static int factors_load(struct scales_read *r, uint64_t chunk, float *out)
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

static struct rsh_merge factors_by(const struct rsh_scales *s, uint64_t chunk,
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

#define CHUNK_BYTES ((uint64_t)512 * 1024)
/* Words of zero points that are packed along rows have up to 8 of them. */
#define CHUNK_ROWS 8

static bool has_scales(const struct rsh_scales *s)
{
	return !rsh_packing_is_plain(s->tensor->quantised->packing);
}

static bool has_factors(const struct rsh_scales *s)
{
	return !has_scales(s) || s->tensor->quantised->n_adapters;
}

/* Rows [from, from + n) of the scales. */
struct chunk {
	const struct rsh_quantised *q;
	uint64_t from, n;
	uint64_t n_groups;
};

static uint64_t chunk_rows(const struct rsh_quantised *q)
{
	const uint64_t row = q->n_columns * (sizeof(float) + !!q->zeros);

	if (q->groups)
		return q->n_rows;
	/* Rows of the first dimension are read completely. */
	if (q->scales->n_dims == 3)
		return q->n_rows / q->scales->dims[0];
	return rsh_max_u64(CHUNK_BYTES / rsh_max_u64(row, 1) / CHUNK_ROWS, 1) *
	       CHUNK_ROWS;
}

/* Sets where the cell is in the whole. */
static void scales_place(const struct rsh_scales *s, struct rsh_scaled *m)
{
	const struct rsh_tensor *t = s->tensor;

	m->rows = s->rows;
	m->columns = s->columns;
	m->plane_rows = t->n_dims > 2 ? t->dims[1] : 0;
	memcpy(m->from, s->from, sizeof(m->from));
	m->parts = s->parts;
	m->first_part = s->first_part;
	m->row_parts = t->n_dims > 3 ? t->dims[2] : 0;
}

static uint64_t scales_row(const struct rsh_scales *s, uint64_t n)
{
	struct rsh_scaled m = { 0 };

	scales_place(s, &m);
	return rsh_scaled_row(&m, n);
}

static uint64_t scales_reach(const struct rsh_scales *s, uint64_t n)
{
	const struct rsh_quantised *q = s->tensor->quantised;
	const uint64_t lines = s->rows * rsh_max_u64(s->parts, 1);
	uint64_t row, end, rows;

	if (!has_scales(s) || q->groups)
		return UINT64_MAX;
	row = scales_row(s, n);
	/* If the last block is not full this is too much, but there are no more
	 * elements then. */
	if (!rsh_mul_u64((row / q->block[0] / chunk_rows(q) + 1) *
			 chunk_rows(q), q->block[0], &end))
		end = UINT64_MAX;
	/* The rows of the next plane may be elsewhere in the whole.  A chunk
	 * has all blocks of a plane if rows are divided. */
	rows = rsh_min_u64(end - row, lines - n / s->columns % lines);
	return rows * s->columns - n % s->columns;
}

static struct chunk chunk_at(const struct rsh_scales *s, uint64_t number)
{
	const struct rsh_quantised *q = s->tensor->quantised;
	struct chunk c = { .q = q, .from = number * chunk_rows(q) };

	c.n = c.from < q->n_rows ?
		rsh_min_u64(chunk_rows(q), q->n_rows - c.from) : 0;
	if (q->groups)
		c.n_groups = q->groups->dims[0];
	return c;
}

/* ---- chunks of scales and factors ---- */

/* The numbers of the chunk of scales and of that of factors. */
struct both {
	uint64_t scales, factors;
};

static struct both both_of(const struct rsh_scales *s, uint64_t number)
{
	const uint64_t n = has_factors(s) ? factors_chunks(s) : 1;

	return (struct both){ number / n, number % n };
}

uint64_t rsh_scales_chunk(const struct rsh_scales *s, uint64_t n)
{
	const struct rsh_quantised *q = s->tensor->quantised;
	const uint64_t by_scales = !has_scales(s) || q->groups ? 0 :
		scales_row(s, n) / q->block[0] / chunk_rows(q);

	return !has_factors(s) ? by_scales :
		by_scales * factors_chunks(s) + factors_chunk(s, n);
}

uint64_t rsh_scales_reach(const struct rsh_scales *s, uint64_t n)
{
	const uint64_t reach = scales_reach(s, n);

	return !has_factors(s) ? reach :
		rsh_min_u64(reach, factors_reach(s, n));
}

/* Returns where the factors of a chunk begin: the bytes of its scales, 0 if
 * they are too many. */
static uint64_t factors_at(const struct rsh_scales *s, uint64_t number)
{
	struct chunk c;
	uint64_t n, bytes;

	if (!has_scales(s))
		return 0;
	c = chunk_at(s, both_of(s, number).scales);
	if (!rsh_mul_u64(c.n, c.q->n_columns, &n) ||
	    !rsh_mul_u64(n, sizeof(float) + !!c.q->zeros, &bytes) ||
	    c.n_groups > SCALES_MAX)
		return 0;
	bytes = (bytes + 3) / 4 * 4 + c.n_groups * sizeof(uint32_t);
	return bytes <= SCALES_MAX ? bytes : 0;
}

uint64_t rsh_scales_bytes(const struct rsh_scales *s, uint64_t number)
{
	const uint64_t at = factors_at(s, number);
	uint64_t bytes;

	if (!has_factors(s) || (has_scales(s) && !at))
		return at;
	bytes = factors_bytes(s, both_of(s, number).factors);
	return bytes && at + bytes <= SCALES_MAX ? at + bytes : 0;
}

/* ---- reading ---- */

/* Rows [from, from + n) of a matrix of n_columns columns. */
struct scales_rows {
	const struct rsh_tensor *t;
	uint64_t from, n, n_columns;
};

/* Reads rows.  The tensor may have other dimensions; then whole rows of it are
 * read, and *skip is the number of bytes before the wanted ones. */
static int scales_read_rows(struct scales_read *r, const struct scales_rows *w,
			    uint8_t **out, uint64_t *skip)
{
	const struct rsh_tensor *t = w->t;
	const unsigned width = rsh_dtype_size(t->dtype);
	struct rsh_box box = { .n_dims = t->n_dims };
	uint64_t inner = 1, first, last;

	for (uint32_t d = 1; d < t->n_dims; d++) {
		box.size[d] = t->dims[d];
		inner *= t->dims[d];
	}
	if (t->n_dims == 0) {
		first = 0;
		last = 1;
	} else {
		first = w->from * w->n_columns / inner;
		last = ((w->from + w->n) * w->n_columns + inner - 1) / inner;
	}
	*skip = (w->from * w->n_columns - first * inner) * width;
	box.from[0] = first;
	box.size[0] = last - first;
	return scales_read_box(r, t, &box, out);
}

static int scales_load_scales(struct scales_read *r, const struct chunk *c,
			      float *out)
{
	const struct rsh_quantised *q = c->q;
	const uint64_t n = c->n * q->n_columns;
	cleanup_free uint8_t *raw = NULL, *one = NULL;
	uint64_t skip;
	float by;
	int rc = scales_read_rows(r, &(struct scales_rows){
		q->scales, c->from, c->n, q->n_columns,
	}, &raw, &skip);

	if (rc)
		return rc;
	rsh_scaled_widen(q->scale_type, raw + skip, n, out);
	if (!q->divisor)
		return 0;
	rc = scales_read_rows(r, &(struct scales_rows){ q->divisor, 0, 1, 1 },
			      &one, &skip);
	if (rc)
		return rc;
	rsh_scaled_widen(RSH_DTYPE_FLOAT32, one + skip, 1, &by);
	for (uint64_t i = 0; i < n; i++)
		out[i] /= by;
	return 0;
}

static int scales_load_zeros(struct scales_read *r, const struct chunk *c,
			     uint8_t *out)
{
	const struct rsh_quantised *q = c->q;
	const uint64_t per = 32 / q->zero_bits;
	const bool rows = q->zeros_packing == RSH_ZEROS_ROWS;
	const uint8_t most = (uint8_t)((1u << q->zero_bits) - 1);
	cleanup_free uint8_t *raw = NULL;
	uint64_t skip;
	int rc = scales_read_rows(r, &(struct scales_rows){
		q->zeros, rows ? c->from / per : c->from,
		rows ? (c->n + per - 1) / per : c->n,
		rows ? q->n_columns : q->n_columns / per,
	}, &raw, &skip);

	if (rc)
		return rc;
	rsh_scaled_unpack_zeros(q->zeros_packing, q->zero_bits, raw + skip,
				c->n, q->n_columns, out);
	for (uint64_t i = 0; q->zero && i < c->n * q->n_columns; i++)
		out[i] = (uint8_t)(out[i] + q->zero) & most;
	return 0;
}

static int scales_load_groups(struct scales_read *r, const struct chunk *c,
			      uint32_t *out)
{
	const struct rsh_tensor *t = c->q->groups;
	cleanup_free uint8_t *raw = NULL;
	uint64_t skip;
	int rc = scales_read_rows(r, &(struct scales_rows){
		t, 0, c->n_groups, 1,
	}, &raw, &skip);

	for (uint64_t i = 0; rc == 0 && i < c->n_groups; i++) {
		out[i] = rsh_le32(raw + 4 * i);
		if (out[i] < c->q->n_rows)
			continue;
		rsh_log_error("%s: group %u of row %llu is not one of the %llu "
			      "rows of its scales",
			      rsh_names_text(r->by->cat->names, t->name),
			      out[i], (unsigned long long)i,
			      (unsigned long long)c->q->n_rows);
		rc = -EIO;
	}
	return rc;
}

/* A program may not show elements of a matrix that has another shape. */
static int scales_check_shape(struct scales_read *r,
			      const struct rsh_quantised *q)
{
	cleanup_free uint8_t *raw = NULL;
	uint64_t skip, is[2];
	int rc = scales_read_rows(r, &(struct scales_rows){ q->shape, 0, 2, 1 },
				  &raw, &skip);

	for (unsigned i = 0; rc == 0 && i < 2; i++)
		is[i] = q->shape->dtype == RSH_DTYPE_INT64 ?
			rsh_le64(raw + 8 * i) :
			(uint64_t)(int32_t)rsh_le32(raw + 4 * i);
	if (rc || (is[0] == q->shape_is[0] && is[1] == q->shape_is[1]))
		return rc;
	rsh_log_error("%s is [%llu,%llu], but its weight_packed has %llu rows "
		      "of %llu",
		      rsh_names_text(r->by->cat->names, q->shape->name),
		      (unsigned long long)is[0], (unsigned long long)is[1],
		      (unsigned long long)q->shape_is[0],
		      (unsigned long long)q->shape_is[1]);
	return -EIO;
}

int rsh_scales_load(struct rsh_source *source, struct rsh_kept *k,
		    const struct rsh_wait *wait)
{
	const struct rsh_scales *by = &k->key.scales;
	const struct both both = both_of(by, k->chunk);
	const uint64_t at = factors_at(by, k->chunk);
	struct scales_read r = { source, k, wait, by, NULL };
	int rc = 0;

	if (has_scales(by)) {
		const struct chunk c = chunk_at(by, both.scales);
		const uint64_t n = c.n * c.q->n_columns;

		rc = scales_load_scales(&r, &c, (float *)(void *)k->data);
		if (rc == 0 && c.q->shape)
			rc = scales_check_shape(&r, c.q);
		if (rc == 0 && c.q->zeros)
			rc = scales_load_zeros(&r, &c,
					       k->data + n * sizeof(float));
		if (rc == 0 && c.n_groups)
			rc = scales_load_groups(&r, &c,
				(uint32_t *)(void *)(k->data + at -
				c.n_groups * sizeof(uint32_t)));
	}
	if (rc == 0 && has_factors(by))
		rc = factors_load(&r, both.factors,
				  (float *)(void *)(k->data + at));
	return rc;
}

/* Sets the scales of a chunk, which end at data + bytes. */
static void scaled_by_scales(const struct rsh_scales *s, uint64_t number,
			     const uint8_t *data, uint64_t bytes,
			     struct rsh_scaled *m)
{
	const struct chunk c = chunk_at(s, number);
	const struct rsh_quantised *q = c.q;

	m->block[0] = q->block[0];
	m->block[1] = q->block[1];
	m->first_row = c.from;
	m->scale_columns = q->n_columns;
	m->scales = (const float *)(const void *)data;
	m->zeros = q->zeros ? data + c.n * q->n_columns * sizeof(float) : NULL;
	m->zero = q->zero;
	m->groups = !q->groups ? NULL :
		(const uint32_t *)(const void *)(data + bytes -
		c.n_groups * sizeof(uint32_t));
}

struct rsh_scaled rsh_scaled_by(const struct rsh_scales *s,
				const struct rsh_kept *chunk,
				enum rsh_codec codec)
{
	const struct rsh_quantised *q = s->tensor->quantised;
	const struct both both = both_of(s, chunk->chunk);
	const uint64_t at = factors_at(s, chunk->chunk);
	struct rsh_scaled m = {
		.packing = q->packing, .via = q->via, .then = q->type,
		.to = rsh_codec_scaled_type(codec),
	};

	scales_place(s, &m);
	if (has_scales(s))
		scaled_by_scales(s, both.scales, chunk->data, at, &m);
	if (has_factors(s))
		m.merge = factors_by(
			s, both.factors,
			(const float *)(const void *)(chunk->data + at));
	return m;
}
