/* SPDX-License-Identifier: Apache-2.0 */
/* Recipes of factored parts that are wrong, scaled or many.  That those which
 * are right show every element in its place is what test_plan_recipe checks. */
#include "recipe_support.h"

#include "rsh/util/checked.h"

static struct rsh_plan *plan_of(struct rsh_catalogue *c)
{
	const struct rsh_plan_ops writer = { 0 };
	const struct rsh_blueprint b = { .framing = &rsh_safetensors_framing,
					 .replicas = true };
	struct rsh_plan *p = rsh_blueprint_new(c, &writer, &b);

	assert_non_null(p);
	return p;
}

/* ---- wrong ones ---- */

/* Follow the factors of a dimension its rules, so that all is below `size`? */
static bool is_dim_right(const struct rsh_recipe_part *p, bool shown,
			 uint32_t d, uint64_t size)
{
	uint64_t last = shown ? p->shown_from[d] : p->from[d], reach, other;

	for (uint32_t i = 0; i < p->n_factors; i++) {
		const struct rsh_factor *f = &p->factors[i];
		const uint64_t step = shown ? f->shown_step : f->step;

		if (f->size == 1 || (shown ? f->shown_dim : f->dim) != d)
			continue;
		if (!step || !rsh_mul_u64(f->size, step, &reach) ||
		    !rsh_add_u64(last, reach - step, &last))
			return false;
		for (uint32_t k = 0; k < i; k++) {
			const struct rsh_factor *g = &p->factors[k];
			const uint64_t s = shown ? g->shown_step : g->step;

			if (g->size == 1 || (shown ? g->shown_dim : g->dim) != d)
				continue;
			if (!rsh_mul_u64(g->size, s, &other) ||
			    (step < other && s < reach))
				return false;
		}
	}
	return last < size;
}

static bool is_empty(const struct rsh_recipe_part *p)
{
	for (uint32_t i = 0; i < p->n_factors; i++)
		if (p->factors[i].size == 0)
			return true;
	return false;
}

/* Counts how often a part has each element of the target. */
static void count_part(const struct target *t,
		       const struct rsh_recipe_part *p, uint8_t *have)
{
	uint64_t k[MAX_DIGITS] = { 0 };
	uint32_t i;

	do {
		uint64_t at[RSH_MAX_DIMS], e = 0;

		memcpy(at, p->shown_from, sizeof(at));
		for (i = 0; i < p->n_factors; i++)
			at[p->factors[i].shown_dim] +=
				k[i] * p->factors[i].shown_step;
		for (i = 0; i < t->n_dims; i++)
			e = e * t->dims[i] + at[i];
		have[e]++;
		for (i = 0; i < p->n_factors; i++) {
			if (++k[i] < p->factors[i].size)
				break;
			k[i] = 0;
		}
	} while (i < p->n_factors);
}

static bool is_right(const struct scene *s, const struct target *t)
{
	static uint8_t have[2 * MAX_PARTS * MAX_ELEMENTS];
	uint64_t n = 1;

	for (uint32_t d = 0; d < t->n_dims; d++)
		n *= t->dims[d];
	assert_true(n <= sizeof(have));
	memset(have, 0, sizeof(have));
	for (uint32_t i = 0; i < t->n_parts; i++) {
		const struct rsh_recipe_part *p = &t->parts[i];
		const struct source *in = &s->tensors[p->tensor];

		for (uint32_t k = 0; k < p->n_factors; k++)
			if (p->factors[k].shown_dim >= t->n_dims ||
			    p->factors[k].dim >= in->n_dims)
				return false;
		if (is_empty(p))
			continue;
		for (uint32_t d = 0; d < t->n_dims; d++)
			if (!is_dim_right(p, true, d, t->dims[d]))
				return false;
		for (uint32_t d = 0; d < in->n_dims; d++)
			if (!is_dim_right(p, false, d, in->dims[d]))
				return false;
		count_part(t, p, have);
	}
	for (uint64_t e = 0; e < n; e++)
		if (have[e] != 1)
			return false;
	return true;
}

static uint64_t draw_wrong(uint64_t v)
{
	static const uint64_t wild[] = {
		0, 1, 2, 3, UINT32_MAX, UINT64_C(1) << 62, UINT64_C(1) << 63,
		UINT64_MAX, UINT64_MAX / 3
	};

	switch (below(4)) {
	case 0: return wild[below(sizeof(wild) / sizeof(*wild))];
	case 1: return v + 1;
	case 2: return v - 1;
	default: return v * (1 + below(3));
	}
}

/* Makes one number of a target another one. */
static void draw_mistake(struct target *t)
{
	const uint32_t part = below(t->n_parts);
	struct rsh_recipe_part *p = &t->parts[part];
	struct rsh_factor *f = p->n_factors ?
		&t->factors[part][below(p->n_factors)] : NULL;
	uint64_t *v = NULL;

	switch (below(f ? 8 : 4)) {
	case 0: v = &t->shown_from[part][below(t->n_dims)]; break;
	case 1: v = &t->from[part][below(4)]; break;
	case 2: t->dims[below(t->n_dims)]++; return;
	case 3: *p = t->parts[below(t->n_parts)]; return;
	case 4: v = &f->size; break;
	case 5: v = &f->shown_step; break;
	case 6: v = &f->step; break;
	default:
		if (below(2))
			f->dim = (uint8_t)draw_wrong(f->dim);
		else
			f->shown_dim = (uint8_t)draw_wrong(f->shown_dim);
		return;
	}
	*v = draw_wrong(*v);
}

static uint64_t check_mistakes(void)
{
	static struct target t;
	const uint32_t n_tensors = 1 + below(MAX_TENSORS);
	struct scene s = { .names = rsh_names_new() };

	for (uint32_t i = 0; i < n_tensors; i++)
		scene_source(&s, i);
	scene_catalogue(&s, n_tensors);
	s.plan = plan_of(s.cat);
	for (int i = 0; i < 8; i++) {
		struct rsh_shown show = { .dtype = RSH_DTYPE_BFLOAT16,
					  .dims = t.dims };
		struct rsh_error err = RSH_ERROR_INIT;
		uint32_t number, n_dims;
		int rc;

		do {
			scene_target(&s, n_tensors, &t);
		} while (t.n_boxes);
		n_dims = t.n_dims;
		draw_mistake(&t);
		show.n_dims = (uint8_t)n_dims;
		show.recipe.n_parts = t.n_parts;
		show.recipe.parts = t.parts;
		show.cut = rsh_catalogue_keep_cut(
			s.cat, rsh_cut_of_grid(rsh_grid_make_whole(n_dims)));
		rc = rsh_blueprint_show(s.plan, &show, &number, &err);
		assert_int_equal(rc, is_right(&s, &t) ? 0 : -EINVAL);
		assert_int_equal(err.text[0] != 0, rc != 0);
	}
	scene_clear(&s);
	return 8;
}

TEST(mistakes_are_refused)
{
	scene_cases(check_mistakes);
}

/* ---- scaled ones ---- */

enum { ROWS = 12, COLUMNS = 10, BLOCK_0 = 5, BLOCK_1 = 4, N_SCALES = 3 };

/* Two tensors a and b with their scales, in four files. */
struct scaled {
	struct job *j;
	struct rsh_catalogue *cat;
	struct rsh_factor factors[2][2];
	uint64_t zero[2], one[2];
	struct rsh_quantised quantised[2];
	struct rsh_recipe_part parts[2];
	uint64_t dims[2];
	uint32_t shown;
	/* A factor that is another one; n is 0: none is. */
	struct {
		uint32_t n, part, factor;
		uint8_t shown_dim, dim;
	} wrong;
};

static uint32_t scaled_add(struct scaled *s, const char *name,
			   enum rsh_dtype dtype, uint64_t rows,
			   uint64_t columns, uint32_t split)
{
	const uint64_t dims[] = { rows, columns };
	struct rsh_box boxes[2] = { { 2, { 0, 0 }, { rows / split, columns } },
				    { 2, { rows / split, 0 },
				      { rows - rows / split, columns } } };
	const struct rsh_holder h[] = { { 0, s->cat->n_tensors, 0 },
					{ 1, s->cat->n_tensors, 0 } };
	const struct rsh_tensor t = { .dtype = dtype, .n_dims = 2,
				      .dims = dims };
	struct rsh_cut *cut;

	assert_int_equal(rsh_cut_of_boxes(dims, 2, boxes, split, &cut,
					  &s->j->err), 0);
	return tensor_add(s->cat, name, t, cut, h, split);
}

/* With `split` 2 the first tensor lies in two boxes. */
static struct scaled *scaled_new(uint32_t split)
{
	static const char *const names[] = { "a", "b", "a_scale", "b_scale" };
	struct scaled *s = calloc(1, sizeof(*s));
	struct rsh_source_view view = { .n_ranks = 4 };

	s->j = job_new(NULL, NULL);
	for (uint32_t i = 0; i < 4; i++) {
		const bool scale = i > 1;

		job_file(s->j, i, FILE_WITH({
			.name = names[i],
			.dtype = scale ? RSH_DTYPE_FLOAT32 :
					 RSH_DTYPE_FLOAT8E4M3FN,
			DIMS_OF(scale ? N_SCALES : ROWS,
				scale ? N_SCALES : COLUMNS) }));
	}
	view.index = s->j->index;
	view.names = s->j->names;
	s->cat = rsh_catalogue_new(&view);
	for (uint32_t i = 0; i < 4; i++)
		scaled_add(s, names[i], i > 1 ? RSH_DTYPE_FLOAT32 :
						RSH_DTYPE_FLOAT8E4M3FN,
			   i > 1 ? N_SCALES : ROWS, i > 1 ? N_SCALES : COLUMNS,
			   i ? 1 : split);
	for (uint32_t i = 0; i < 2; i++)
		s->quantised[i] = (struct rsh_quantised){
			.type = RSH_DTYPE_BFLOAT16,
			.scales = s->cat->tensors[2 + i],
			.scale_type = RSH_DTYPE_FLOAT32,
			.n_rows = N_SCALES, .n_columns = N_SCALES,
			.block = { BLOCK_0, BLOCK_1 },
		};
	for (uint32_t i = 0; i < 2; i++)
		s->cat->tensors[i]->quantised = &s->quantised[i];
	s->j->c = plan_of(s->cat);
	return s;
}

/* Shows the transposed rows of a and b in turn, in one file. */
static int scaled_show(struct scaled *s)
{
	struct rsh_slot slot = { .name = 0 };
	struct rsh_record_shape shape;
	struct rsh_shown_file f = { .n = 1, .slots = &slot, .shapes = &shape };
	struct rsh_shown t = {
		.dtype = RSH_DTYPE_BFLOAT16, .n_dims = 2, .dims = s->dims,
		.recipe = { .codec = RSH_CODEC_SCALED_BF16, .n_parts = 2,
			    .parts = s->parts },
		.cut = rsh_catalogue_keep_cut(
			s->cat, rsh_cut_of_grid(rsh_grid_make_whole(2))),
	};
	int rc;

	s->dims[0] = 2 * COLUMNS;
	s->dims[1] = ROWS;
	s->one[0] = 1;
	for (uint32_t i = 0; i < 2; i++) {
		s->factors[i][0] = (struct rsh_factor){ ROWS, 1, 1, 1, 0 };
		s->factors[i][1] = (struct rsh_factor){ COLUMNS, 2, 1, 0, 1 };
		s->parts[i] = (struct rsh_recipe_part){
			i, 2, s->factors[i], i ? s->one : s->zero, s->zero,
		};
	}
	if (s->wrong.n) {
		s->factors[s->wrong.part][s->wrong.factor].shown_dim =
			s->wrong.shown_dim;
		s->factors[s->wrong.part][s->wrong.factor].dim = s->wrong.dim;
	}
	rc = rsh_blueprint_show(s->j->c, &t, &slot.shown, &s->j->err);
	if (rc)
		return rc;
	rsh_blueprint_shape(s->j->c, slot.shown, 0, &shape);
	slot.content_bytes = shape.content_bytes;
	return rsh_blueprint_add_file(s->j->c, &f, &s->j->err);
}

static void scaled_free(struct scaled *s)
{
	job_free(s->j);
	free(s);
}

/* Is a byte of the piece, `k` after its first, that of element [row, column]
 * of `which`? */
static void assert_scaled(const struct rsh_piece *p, uint64_t k, uint32_t which,
			  uint64_t row, uint64_t column)
{
	const struct rsh_scales *x = &p->scales;
	uint64_t e = (p->skip + k) / 2, n, offset;

	if (p->is_tiled) {
		const uint64_t at = (p->tile_offset + k) / 2;

		e = at % p->tile.n_rows * p->tile.stride + at / p->tile.n_rows;
		offset = p->tile.src_offset + e;
	} else {
		offset = p->src_offset + e;
	}
	assert_int_equal(offset, GAP + (row - x->from[1]) * COLUMNS + column);
	/* Both boxes are in the same file, one over the other. */
	assert_int_equal(p->is_tiled ? p->tile.src_rank : p->src_rank, which);
	n = x->first + e;
	assert_true(x->cat->tensors[which] == x->tensor);
	assert_true(x->tensor->quantised->scales == x->cat->tensors[2 + which]);
	/* Numbers count the elements of the cell. */
	assert_int_equal(x->from[0] + x->from[2], 0);
	assert_int_equal(x->columns, COLUMNS);
	assert_int_equal(x->from[1] + n / COLUMNS, row);
	assert_int_equal(n % COLUMNS, column);
}

static void scales_come_with(uint32_t split)
{
	const uint64_t content = 2 * ROWS * COLUMNS * 2;
	struct scaled *s = scaled_new(split);
	struct rsh_virtual_record r;
	uint64_t start;

	assert_good(scaled_show(s), s->j->err);
	assert_sources(s->j, 0, "0 1 2 3");
	rsh_plan_record(s->j->c, 0, 0, &r);
	start = r.offset + r.total_bytes - content;
	for (uint64_t from = 0; from < content; from += 7) {
		struct rsh_piece_iter *it = rsh_piece_iter_new(
			s->j->c, 0, start + from, content, NULL);
		struct rsh_piece p;
		uint64_t at = from;

		while (rsh_piece_iter_next(it, &p))
			for (uint64_t k = 0; k < p.length; k++, at++)
				assert_scaled(&p, k, at / 2 / ROWS % 2,
					      at / 2 % ROWS,
					      at / 2 / ROWS / 2);
		assert_int_equal(at, content);
		rsh_piece_iter_free(it);
	}
	scaled_free(s);
}

/* Tensors may be cut in the source. */
TEST(scales_come_with_their_elements)
{
	scales_come_with(1);
	scales_come_with(2);
}

TEST(scales_that_do_not_fit_are_refused)
{
	static const char words[] = "its scales do not fit its elements";

	for (int i = 0; i < 5; i++) {
		struct scaled *s = scaled_new(1);
		struct rsh_quantised *q = &s->quantised[1];

		if (i == 0)
			q->block[1] = 9;
		if (i == 1)
			q->block[0] = 0;
		if (i == 2)
			q->n_rows = 4;
		if (i == 3)
			q->scale_type = RSH_DTYPE_BFLOAT16;
		if (i == 4)
			q->scales = NULL;
		assert_int_equal(scaled_show(s), -EINVAL);
		assert_string_equal(s->j->err.text, words);
		scaled_free(s);
	}
}

/* ---- adapters ---- */

/* The adapter of a tensor [2,4,5]. */
static const struct adapter {
	const char *name;
	uint64_t rows[2], columns[2], rank, n_planes, plane, first[2];
	bool wrong, rows_turned, columns_turned;
} adapters[] = {
	{ "planes_1_and_2", { 4, 6 }, { 6, 5 }, 2, 3, 1, { 0, 0 }, false },
	{ "planes_0_and_1", { 4, 6 }, { 6, 5 }, 2, 3, 0, { 0, 0 }, false },
	{ "planes_2_and_3", { 4, 6 }, { 6, 5 }, 2, 3, 2, { 0, 0 }, true },
	{ "planes_far_away", { 4, 6 }, { 6, 5 }, 2, 3, UINT64_MAX, { 0, 0 },
	  true },
	{ "one_plane_of_two", { 4, 2 }, { 2, 5 }, 2, 1, 0, { 0, 0 }, true },
	{ "last_rows", { 7, 6 }, { 6, 5 }, 2, 3, 1, { 3, 0 }, false },
	{ "rows_after_the_last", { 7, 6 }, { 6, 5 }, 2, 3, 1, { 4, 0 }, true },
	{ "rows_far_away", { 7, 6 }, { 6, 5 }, 2, 3, 1, { UINT64_MAX, 0 },
	  true },
	{ "last_columns", { 4, 6 }, { 6, 8 }, 2, 3, 1, { 0, 3 }, false },
	{ "columns_after_the_last", { 4, 6 }, { 6, 8 }, 2, 3, 1, { 0, 4 },
	  true },
	{ "columns_far_away", { 4, 6 }, { 6, 8 }, 2, 3, 1, { 0, UINT64_MAX },
	  true },
	{ "rows_of_another_rank", { 4, 7 }, { 6, 5 }, 2, 3, 1, { 0, 0 }, true },
	{ "columns_of_another_rank", { 4, 6 }, { 5, 5 }, 2, 3, 1, { 0, 0 },
	  true },
	{ "a_rank_far_away", { 4, 6 }, { 6, 5 }, UINT64_MAX / 3 + 3, 3, 1,
	  { 0, 0 }, true },
	{ "turned_rows", { 6, 4 }, { 6, 5 }, 2, 3, 1, { 0, 0 }, false, true },
	{ "rows_that_are_not_turned", { 4, 6 }, { 6, 5 }, 2, 3, 1, { 0, 0 },
	  true, true },
	{ "turned_columns", { 4, 6 }, { 5, 6 }, 2, 3, 1, { 0, 0 }, false, false,
	  true },
	{ "columns_that_are_not_turned", { 4, 6 }, { 6, 5 }, 2, 3, 1, { 0, 0 },
	  true, false, true },
};

TEST_ROWS(adapters)
{
	const struct adapter *x = *state;
	static const uint64_t dims[] = { 2, 4, 5 };
	const struct rsh_tensor rows = { .n_dims = 2, .dims = x->rows },
				columns = { .n_dims = 2, .dims = x->columns };
	const struct rsh_low_rank low_rank = { .rank = x->rank };
	const struct rsh_factors factors = {
		&rows, &columns, x->rows_turned, x->columns_turned,
		x->n_planes, x->plane, { x->first[0], x->first[1] },
	};
	struct rsh_quantised q = *rsh_quantised_plain(RSH_DTYPE_BFLOAT16);
	const struct rsh_tensor t = { .dtype = RSH_DTYPE_BFLOAT16, .n_dims = 3,
				      .dims = dims, .quantised = &q };
	cleanup_job struct job *j = job_new(NULL, NULL);
	const struct rsh_source_view view = { .n_ranks = 1, .index = j->index,
					      .names = j->names };
	const struct rsh_holder h = { 0, 0, 0 };
	struct rsh_factor f[3];
	struct rsh_recipe_part part;
	struct rsh_shown show = {
		.dtype = RSH_DTYPE_BFLOAT16, .n_dims = 3, .dims = dims,
		.recipe = { .codec = RSH_CODEC_SCALED_BF16, .n_parts = 1,
			    .parts = &part },
	};
	struct rsh_catalogue *c;
	uint32_t number;

	q.n_adapters = 1;
	q.adapters = &low_rank;
	q.factors = &factors;
	job_file(j, 0, FILE_WITH(BF16("w", 2, 4, 5)));
	c = rsh_catalogue_new(&view);
	j->c = plan_of(c);
	part = rsh_recipe_whole(
		c, tensor_add(c, "w", t,
			      rsh_cut_of_grid(rsh_grid_make_whole(3)), &h, 1),
		NULL, f);
	show.cut = rsh_catalogue_keep_cut(
		c, rsh_cut_of_grid(rsh_grid_make_whole(3)));
	assert_int_equal(rsh_blueprint_show(j->c, &show, &number, &j->err),
			 x->wrong ? -EINVAL : 0);
	assert_string_equal(j->err.text, x->wrong ?
			    "its scales do not fit its elements" : "");
}

TEST(dimensions_that_are_not_there_are_refused)
{
	for (unsigned i = 0; i < 8; i++) {
		struct scaled *s = scaled_new(1);
		char words[64];

		s->wrong.n = 1;
		s->wrong.part = i & 1;
		s->wrong.factor = i >> 1 & 1;
		s->wrong.shown_dim = i & 4 ? 2 : 1;
		s->wrong.dim = i & 4 ? 1 : 2;
		assert_int_equal(scaled_show(s), -EINVAL);
		snprintf(words, sizeof(words), "its part follows dimension %u",
			 s->wrong.shown_dim);
		assert_string_equal(s->j->err.text, words);
		scaled_free(s);
	}
}

/* ---- large ones ---- */

enum { N_EXPERTS = 256, FFN = 2048, HIDDEN = 7168 };

/* Shows tensors of file 0, which are matrices [rows, columns], transposed in a
 * tensor [n / side * columns, side * rows], `side` of them beside each other.
 * The file's ranks each have a share of its columns. */
struct large {
	struct job *j;
	uint32_t n, side, n_ranks;
	uint64_t rows, columns;
	uint32_t shown;
	uint64_t start; /* of the content */
};

static struct rsh_catalogue *large_catalogue(const struct large *l)
{
	const uint64_t dims[] = { l->rows, l->columns };
	struct rsh_source_view view = { .n_ranks = 1, .names = l->j->names };
	struct tensor *records = calloc(l->n + 1, sizeof(*records));
	int64_t rec_dims[] = { (int64_t)l->rows, (int64_t)l->columns };
	char (*names)[16] = calloc(l->n, sizeof(*names));
	struct rsh_catalogue *c;

	for (uint32_t i = 0; i < l->n; i++) {
		snprintf(names[i], sizeof(names[i]), "w%u", i);
		records[i] = (struct tensor){
			.name = names[i], .dtype = RSH_DTYPE_BFLOAT16,
			.dims = rec_dims, .n_dims = 2,
		};
	}
	job_file(l->j, 0, records);
	view.index = l->j->index;
	c = rsh_catalogue_new(&view);
	for (uint32_t i = 0; i < l->n; i++) {
		const struct rsh_holder h = { 0, 0, i };
		const struct rsh_tensor t = {
			.dtype = RSH_DTYPE_BFLOAT16, .n_dims = 2, .dims = dims,
		};

		tensor_add(c, names[i], t,
			   rsh_cut_of_grid(rsh_grid_make_whole(2)), &h, 1);
	}
	free(records);
	free(names);
	return c;
}

static const struct rsh_cut *large_cut(const struct large *l,
				       struct rsh_catalogue *c)
{
	struct rsh_grid g;

	memset(&g, 0, sizeof(g));
	g.n_dims = 2;
	g.shard = 1;
	g.split[0] = 1;
	g.split[1] = g.n_ranks = l->n_ranks;
	g.axes[0] = (struct rsh_grid_axis){ l->n_ranks, 1 };
	g.first[2] = 1;
	return rsh_catalogue_keep_cut(c, rsh_cut_of_grid(
		l->n_ranks > 1 ? rsh_grid_make(&g) : rsh_grid_make_whole(2)));
}

static void large_plan(struct large *l)
{
	struct rsh_recipe_part *parts = calloc(l->n, sizeof(*parts));
	uint64_t (*from)[2] = calloc(l->n, sizeof(*from)), zero[2] = { 0 };
	const uint64_t dims[] = { l->n / l->side * l->columns,
				  l->side * l->rows };
	const struct rsh_factor f[] = { { l->rows, 1, 1, 1, 0 },
					{ l->columns, 1, 1, 0, 1 } };
	struct rsh_shown t = {
		.name = 0, .dtype = RSH_DTYPE_BFLOAT16, .n_dims = 2,
		.dims = dims, .recipe = { .n_parts = l->n,
					  .parts = parts },
	};
	struct rsh_slot slot = { .name = 0 };
	struct rsh_record_shape shape;
	struct rsh_shown_file file = { .member = l->n_ranks - 1, .n = 1,
				       .slots = &slot, .shapes = &shape };
	struct rsh_virtual_record r;
	struct rsh_catalogue *c;

	l->j = job_new(NULL, NULL);
	c = large_catalogue(l);
	l->j->c = plan_of(c);
	t.cut = large_cut(l, c);
	for (uint32_t i = 0; i < l->n; i++) {
		from[i][0] = i / l->side * l->columns;
		from[i][1] = i % l->side * l->rows;
		parts[i] = (struct rsh_recipe_part){
			i, 2, f, from[i], zero
		};
	}
	if (rsh_blueprint_show(l->j->c, &t, &slot.shown, &l->j->err))
		fail_msg("%s", l->j->err.text);
	rsh_blueprint_shape(l->j->c, slot.shown, file.member, &shape);
	slot.content_bytes = shape.content_bytes;
	if (rsh_blueprint_add_file(l->j->c, &file, &l->j->err))
		fail_msg("%s", l->j->err.text);
	rsh_plan_record(l->j->c, 0, 0, &r);
	l->start = r.offset + r.total_bytes - slot.content_bytes;
	free(parts);
	free(from);
}

/* Checks the place of byte `at` of the content, which a piece has. */
static void assert_large(const struct large *l, const struct rsh_piece *p,
			 uint64_t at)
{
	const uint64_t width = l->side * l->rows / l->n_ranks;
	const uint64_t row = at / 2 / width;
	const uint64_t column = at / 2 % width + (l->n_ranks - 1) * width;
	const uint64_t part = row / l->columns * l->side + column / l->rows;
	const uint64_t want = GAP + part * (GAP + l->rows * l->columns * 2) +
			      (column % l->rows * l->columns +
			       row % l->columns) * 2 + at % 2;
	const uint64_t k = l->start + at - p->file_offset + p->tile_offset;
	const struct rsh_tile *t = &p->tile;

	assert_true(p->is_tiled);
	assert_true(t->n_rows * t->n_columns * t->unit_out <= RSH_TILE_BYTES);
	assert_int_equal(t->stride, l->columns);
	assert_true(k / 2 < t->n_rows * t->n_columns);
	assert_int_equal(t->src_offset + (k / 2 % t->n_rows * t->stride +
					  k / 2 / t->n_rows) * 2 + k % 2, want);
}

/* Goes through the pieces of some bytes, and counts the tiles. */
static uint32_t large_tiles(const struct large *l, uint64_t from, uint64_t len)
{
	struct rsh_piece_iter *it = rsh_piece_iter_new(
		l->j->c, 0, l->start + from, len, NULL);
	struct rsh_tile last = { 0 };
	struct rsh_piece p;
	uint32_t n = 0;
	uint64_t at = from;

	while (rsh_piece_iter_next(it, &p)) {
		assert_large(l, &p, at);
		assert_large(l, &p, at + p.length - 1);
		n += last.src_offset != p.tile.src_offset;
		last = p.tile;
		at += p.length;
	}
	assert_int_equal(at, from + len);
	rsh_piece_iter_free(it);
	return n;
}

/* Two matrices beside each other for half of a rank; tiles are as high as the
 * matrix, so their columns go by 8 MiB / (2048 * 2) at most. */
TEST(large_matrices_are_cut_into_tiles)
{
	struct large l = { .n = 2, .side = 1, .n_ranks = 1, .rows = HIDDEN,
			   .columns = FFN };

	large_plan(&l);
	assert_int_equal(large_tiles(&l, 0, 2 * HIDDEN * FFN * 2), 2 * 4);
	job_free(l.j);
	l = (struct large){ .n = 1, .side = 1, .n_ranks = 1,
			    .rows = 5000000, .columns = 2 };
	large_plan(&l);
	assert_int_equal(large_tiles(&l, 0, 20000000), 4);
	job_free(l.j);
	l = (struct large){ .n = 2, .side = 2, .n_ranks = 4, .rows = FFN,
			    .columns = HIDDEN };
	large_plan(&l);
	assert_int_equal(large_tiles(&l, 0, HIDDEN * FFN), 2);
	job_free(l.j);
}

TEST(many_parts_are_found)
{
	struct large l = { .n = 2 * N_EXPERTS, .side = 2, .n_ranks = 1,
			   .rows = FFN, .columns = HIDDEN };
	const uint64_t bytes = (uint64_t)l.n * FFN * HIDDEN * 2;

	large_plan(&l);
	numbers_begin(1);
	for (int i = 0; i < 100; i++) {
		uint64_t from = ((uint64_t)below(UINT32_MAX) << 20 |
				 below(1 << 20)) % (bytes - 1048576);

		large_tiles(&l, from, 1048576);
	}
	job_free(l.j);
}
