/* SPDX-License-Identifier: Apache-2.0 */
/* unit/test_read_scales.c - adapters of random shapes, read in chunks: each
 * element gets what a plain loop says, and no chunk takes much memory. */
#include "config.h"

#include "rsh/util/checked.h"
#include "read/tiles_i.h"
#include "source_support.h"

#define N_ADAPTERS 2
#define N_FILES (2 * N_ADAPTERS)
#define NUMBERS 400000 /* of a file */
#define MAX_CHUNKS 1024
/* The numbers of rows and those of columns take half of it each. */
#define CHUNK_MAX (1024 * 1024)

/* ---- matrices in files ---- */

/* Numbers are small integers, so that sums do not depend on their order.  Each
 * matrix is at the beginning of a file. */
struct files {
	char *tree;
	float *numbers[N_FILES];
	struct rsh_ckpt_index *index[N_FILES];
	struct rsh_names *names;
	struct rsh_source *source;
};

static void files_free(struct files *f)
{
	rsh_source_free(f->source);
	rsh_names_free(f->names);
	tree_remove(f->tree);
	for (unsigned i = 0; i < N_FILES; i++) {
		rsh_ckpt_index_free(f->index[i]);
		free(f->numbers[i]);
	}
}

static void files_add(struct files *f, unsigned i)
{
	const size_t bytes = NUMBERS * sizeof(float);
	struct rsh_ckpt_index *ix = rsh_ckpt_index_new(1, 1, 0);
	char name[64];
	uint64_t at;

	f->numbers[i] = malloc(bytes);
	for (size_t k = 0; k < NUMBERS; k++)
		f->numbers[i][k] = (float)below(5) - 2;
	snprintf(name, sizeof(name), "rank_%u/x-1_5.ckpt", i);
	at = tree_write_vector(f->tree, name, (uint8_t *)f->numbers[i], bytes);
	ix->extents[0] = (struct rsh_extent){ at, bytes };
	ix->records[0] = (struct rsh_record){ .n_extents = 1 };
	ix->n_records = ix->n_extents = 1;
	f->index[i] = ix;
}

static void files_make(struct files *f)
{
	const struct rsh_source_options opts = { .n_threads = 1 };
	struct rsh_error err = RSH_ERROR_INIT;

	*f = (struct files){ .tree = tree_make(), .names = rsh_names_new() };
	for (unsigned i = 0; i < N_FILES; i++)
		files_add(f, i);
	if (rsh_source_open(f->tree, 0, N_FILES, &opts, &f->source, &err) ||
	    rsh_source_choose(f->source, 0, &err) ||
	    rsh_source_index(f->source, f->names, &err))
		fail_msg("%s", err.text);
}

/* ---- a tensor and its adapters ---- */

struct adapted {
	const struct files *files;
	struct rsh_catalogue *cat;
	uint64_t dims[3]; /* the last two if it is a matrix */
	uint64_t matrix_dims[N_FILES][2];
	struct rsh_low_rank by[N_ADAPTERS];
	struct rsh_factors factors[N_ADAPTERS];
	struct rsh_quantised q;
	struct rsh_tensor t;
	struct rsh_scales s; /* a cell */
	uint64_t n;          /* its elements */
	struct rsh_kept *chunks[MAX_CHUNKS];
	bool several;        /* chunks were needed */
};

/* Draws the matrix of file i, which has at least n numbers of each of the
 * `all` sums. */
static const struct rsh_tensor *draw_matrix(struct adapted *a, unsigned i,
					    bool turned, uint64_t n,
					    uint64_t all)
{
	const uint64_t spare = below(NUMBERS / all - n + 1);
	struct rsh_holder h = { 0, i, 0 };
	struct rsh_tensor t = { .dtype = RSH_DTYPE_FLOAT32, .n_dims = 2,
				.name = i, .dims = a->matrix_dims[i] };
	uint32_t number;

	a->matrix_dims[i][turned] = n + (below(2) ? spare : 0);
	a->matrix_dims[i][!turned] = all;
	t.cut = rsh_catalogue_keep_cut(
		a->cat, rsh_cut_of_grid(rsh_grid_make_whole(2)));
	t.copies = rsh_catalogue_keep_copies(a->cat, t.cut, &h, 1, false);
	assert_int_equal(rsh_catalogue_add(a->cat, &t, &number), 0);
	return a->cat->tensors[number];
}

static void draw_adapter(struct adapted *a, unsigned i)
{
	struct rsh_factors *f = &a->factors[i];
	const uint64_t planes = a->dims[0] + below(3 - a->dims[0] + 1);
	const uint64_t rank = 1 + below(below(3) ? 700 : 40);
	const uint64_t most = NUMBERS / (rank * planes);

	a->by[i] = (struct rsh_low_rank){ (uint32_t)rank,
					  below(2) ? 0.5f : 2, false };
	f->n_planes = planes > 1 ? planes : below(2);
	f->plane = below(planes - a->dims[0] + 1);
	f->rows_turned = below(2);
	f->columns_turned = below(2);
	for (unsigned d = 0; d < 2; d++)
		f->first[d] = below(rsh_min_u64(most - a->dims[1 + d] + 1, 50));
	f->rows = draw_matrix(a, 2 * i, f->rows_turned,
			      f->first[0] + a->dims[1], rank * planes);
	f->columns = draw_matrix(a, 2 * i + 1, !f->columns_turned,
				 f->first[1] + a->dims[2], rank * planes);
}

/* Draws a part of one dimension. */
static void draw_part(uint64_t size, uint64_t *from, uint64_t *n)
{
	*from = below(2) ? 0 : below(size);
	*n = below(2) ? size - *from : 1 + below(size - *from);
}

static void draw(struct adapted *a, const struct files *f)
{
	const struct rsh_source_view view = {
		.names = f->names, .n_ranks = N_FILES,
		.index = (const struct rsh_ckpt_index *const *)f->index,
	};
	const bool stack = below(2);
	uint64_t planes;

	*a = (struct adapted){ .files = f, .cat = rsh_catalogue_new(&view) };
	a->dims[0] = stack ? 1 + below(3) : 1;
	a->dims[1] = 1 + below(190);
	a->dims[2] = 1 + below(190);
	for (unsigned i = 0; i < N_ADAPTERS; i++)
		draw_adapter(a, i);
	a->q = *rsh_quantised_plain(RSH_DTYPE_FLOAT32);
	a->q.n_adapters = N_ADAPTERS;
	a->q.adapters = a->by;
	a->q.factors = a->factors;
	a->t = (struct rsh_tensor){
		.dtype = RSH_DTYPE_FLOAT32, .n_dims = stack ? 3 : 2,
		.dims = a->dims + !stack, .quantised = &a->q,
	};
	a->s = (struct rsh_scales){ .cat = a->cat, .tensor = &a->t };
	draw_part(a->dims[0], &a->s.from[0], &planes);
	draw_part(a->dims[1], &a->s.from[1], &a->s.rows);
	draw_part(a->dims[2], &a->s.from[2], &a->s.columns);
	a->n = planes * a->s.rows * a->s.columns;
}

static void adapted_clear(struct adapted *a)
{
	for (unsigned i = 0; i < MAX_CHUNKS; i++)
		if (a->chunks[i]) {
			free(a->chunks[i]->data);
			free(a->chunks[i]->files);
			free(a->chunks[i]);
		}
	rsh_catalogue_free(a->cat);
}

/* ---- what elements get ---- */

/* Number k of row or column i of a plane. */
static float number_of(const struct adapted *a, unsigned file, bool apart,
		       uint64_t i, uint64_t k, const struct rsh_factors *f,
		       uint64_t rank, uint64_t plane)
{
	const uint64_t planes = rsh_max_u64(f->n_planes, 1);
	const uint64_t width = a->matrix_dims[file][1];

	return a->files->numbers[file][apart ?
		i * width + k * planes + plane :
		(plane * rank + k) * width + i];
}

static float naive(const struct adapted *a, uint64_t n)
{
	const struct rsh_scales *s = &a->s;
	const uint64_t plane = s->from[0] + n / s->columns / s->rows;
	const uint64_t row = s->from[1] + n / s->columns % s->rows;
	const uint64_t column = s->from[2] + n % s->columns;
	float all = 0;

	for (unsigned i = 0; i < N_ADAPTERS; i++) {
		const struct rsh_factors *f = &a->factors[i];
		const uint64_t rank = a->by[i].rank;
		float sum = 0;

		for (uint64_t k = 0; k < rank; k++)
			sum += number_of(a, 2 * i, !f->rows_turned,
					 f->first[0] + row, k, f, rank,
					 f->plane + plane) *
			       number_of(a, 2 * i + 1, f->columns_turned,
					 f->first[1] + column, k, f, rank,
					 f->plane + plane);
		all += a->by[i].scale * sum;
	}
	return all;
}

static const struct rsh_kept *chunk_of(struct adapted *a, uint64_t n)
{
	const uint64_t number = rsh_scales_chunk(&a->s, n);
	const uint64_t bytes = rsh_scales_bytes(&a->s, number);
	struct rsh_kept *k;

	assert_true(number < MAX_CHUNKS);
	if (a->chunks[number])
		return a->chunks[number];
	a->several |= n > 0;
	assert_in_range(bytes, 1, CHUNK_MAX);
	k = a->chunks[number] = calloc(1, sizeof(*k));
	k->key.scales = a->s;
	k->chunk = number;
	k->data = malloc(bytes);
	assert_int_equal(rsh_scales_load(a->files->source, k, RSH_WAIT), 0);
	return k;
}

/* Returns whether the cell has elements of several chunks. */
static bool check(struct adapted *a)
{
	uint64_t n, reach;

	for (n = 0; n < a->n; n += reach) {
		const struct rsh_scaled m = rsh_scaled_by(
			&a->s, chunk_of(a, n), RSH_CODEC_SCALED_F32);
		cleanup_free float *zero = NULL, *out = NULL;

		reach = rsh_min_u64(rsh_scales_reach(&a->s, n), a->n - n);
		assert_true(reach > 0);
		zero = calloc(reach, sizeof(*zero));
		out = calloc(reach, sizeof(*out));
		rsh_scaled_decode(&m, n, (uint8_t *)zero, reach,
				  (uint8_t *)out);
		for (unsigned i = 0; i < 3; i++) {
			const uint64_t e = i == 0 ? 0 : i == 1 ? reach - 1 :
							below(reach);

			assert_int_equal((int)(2 * out[e]),
					 (int)(2 * naive(a, n + e)));
		}
	}
	return a->several;
}

TEST(adapters_are_read_in_chunks)
{
	FREED_BY(files_free) struct files f;
	unsigned several = 0;

	files_make(&f);
	for (int i = 0; i < rounds(100); i++) {
		FREED_BY(adapted_clear) struct adapted a;

		draw(&a, &f);
		several += check(&a);
	}
	print_message("# %u cells of several chunks\n", several);
}
