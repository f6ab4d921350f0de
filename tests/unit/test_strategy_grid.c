/* SPDX-License-Identifier: Apache-2.0 */
/* Which slice each rank of a mesh holds. */
#include "strategy_support.h"

/* ---- making grids of one item ---- */

static struct rsh_grid *try_grid(const char *items, const int64_t *dims,
				 uint32_t n_dims, bool local,
				 enum rsh_grid_rule rule, struct rsh_error *err)
{
	char json[1024];
	struct rsh_strategy_file *f;
	struct rsh_grid *g = NULL;
	int rc;

	snprintf(json, sizeof(json), FILE_OF("0", "%s"), items);
	f = parse_strategy("s.json", json);
	rc = rsh_grid_new(&f->items[0],
			  &(struct rsh_grid_sizes){ dims, n_dims, local }, rule,
			  &g, err);
	rsh_strategy_file_free(f);
	assert_int_equal(rc, g ? 0 : -EINVAL);
	return g;
}

static struct rsh_grid *make_grid(const char *items, const int64_t *dims,
				  uint32_t n_dims, bool local,
				  enum rsh_grid_rule rule)
{
	struct rsh_error err = RSH_ERROR_INIT;
	struct rsh_grid *g = try_grid(items, dims, n_dims, local, rule, &err);

	if (!g)
		fail_msg("%s", err.text);
	return g;
}

/* The grid of an item for a whole tensor, as the ranks really hold it. */
static struct rsh_grid *whole_grid(const char *items, const int64_t *dims,
				   uint32_t n_dims)
{
	return make_grid(items, dims, n_dims, false, RSH_GRID_RUNTIME);
}

/* The cells of all ranks: "00 01 10 11". */
static void assert_cells(const struct rsh_grid *g, const char *want)
{
	struct unit_text text = { "", 0 };

	for (uint32_t r = 0; r < rsh_grid_n_ranks(g); r++) {
		uint32_t cell[RSH_MAX_DIMS];

		rsh_grid_cell(g, r, cell);
		unit_put(&text, "%s", r ? " " : "");
		for (uint32_t d = 0; d < rsh_grid_n_dims(g); d++)
			unit_put(&text, "%u", cell[d]);
	}
	assert_string_equal(text.s, want);
}

static void assert_split(const struct rsh_grid *g, uint32_t d, uint32_t want)
{
	assert_int_equal(rsh_grid_split(g, d), want);
}

/* A rank that holds `cell`: of its replicas the one whose coordinates on the
 * mesh axes that do not split the tensor are those of rank `like`. */
static uint32_t holder(const struct rsh_grid *g, const uint32_t *cell,
		       uint32_t like)
{
	return rsh_grid_member(g, cell, rsh_grid_replica(g, like));
}

/* Every cell is held by n_replicas ranks, a rank is the holder of its own cell
 * for itself, and a holder holds what it was asked for. */
static void assert_consistent(const struct rsh_grid *g)
{
	uint32_t n = rsh_grid_n_ranks(g);

	for (uint32_t r = 0; r < n; r++) {
		uint32_t mine[RSH_MAX_DIMS] = { 0 }, same = 0;

		rsh_grid_cell(g, r, mine);
		assert_int_equal(holder(g, mine, r), r);
		assert_int_equal(holder(g, mine, r + 3 * n), r);
		for (uint32_t q = 0; q < n; q++) {
			uint32_t its[RSH_MAX_DIMS] = { 0 }, from, got[RSH_MAX_DIMS] = { 0 };

			rsh_grid_cell(g, q, its);
			same += memcmp(mine, its, sizeof(mine)) == 0;
			from = holder(g, its, r);
			assert_true(from < n);
			rsh_grid_cell(g, from, got);
			assert_memory_equal(got, its, sizeof(its));
		}
		assert_int_equal(same, rsh_grid_n_replicas(g));
	}
}

static void refused(const char *items, const int64_t *dims, uint32_t n_dims,
		    bool local, const char *sentence)
{
	struct rsh_error err = RSH_ERROR_INIT;
	struct rsh_grid *g = try_grid(items, dims, n_dims, local,
				      RSH_GRID_RUNTIME, &err);

	assert_null(g);
	assert_int_equal(err.code, EINVAL);
	assert_string_equal(err.text, sentence);
}

/* ---- meshes and maps ---- */

static const struct row {
	const char *name, *items;
	const int64_t *dims;
	uint32_t n_dims, n_replicas; /* 0: not looked at, as NULL below */
	const char *splits, *cells;
} grids[] = {
	{ "map_counts_axes_from_the_last", LAYOUT("w", "[2,3]", "[1,0]"),
	  DIMS(4, 6), 1, "2 3", "00 01 02 10 11 12" },
	{ "map_may_name_axes_in_any_order", LAYOUT("w", "[2,3]", "[0,1]"),
	  DIMS(6, 4), 0, NULL, "00 10 20 01 11 21" },
	/* Both orders of the same two axes. */
	{ "several_axes_split_major_first",
	  LAYOUT("w", "[2,3]", "[[1,0],[-1]]"),
	  DIMS(12, 5), 0, "6 1", "00 10 20 30 40 50" },
	{ "several_axes_in_the_other_order",
	  LAYOUT("w", "[2,3]", "[[0,1],[-1]]"),
	  DIMS(12, 5), 0, "6 1", "00 20 40 10 30 50" },
	{ "scalars_lie_on_every_rank", LAYOUT("s", "[4]", "[]"),
	  SCALAR, 4, "", NULL },
	{ "empty_dimensions_divide", LAYOUT("w", "[2,3]", "[1,0]"),
	  DIMS(0, 3), 0, "2 3", NULL },
	/* ---- optimizer shards ---- */
	{ "shard_cuts_dimension_0_once_more",
	  SHARD("w", "[4,2]", "[-1,0]", "2", "-1"),
	  DIMS(8, 2), 1, "4 2", "00 01 10 11 20 21 30 31" },
	/* Ranks 0 2 4 6 hold the same slice; pairs of them share it. */
	{ "partial_shard_takes_consecutive_ranks",
	  SHARD("w", "[4,2]", "[0,-1]", "2", "2"),
	  DIMS(8, 3), 2, "4 1", "00 20 10 30 00 20 10 30" },
	/* Equal ranks 0 1 4 5 and 2 3 6 7, as [2,2,2] with map [-1,1]. */
	{ "shard_over_several_axes",
	  SHARD("w", "[2,2,2]", "[-1,1]", "1", "-1"),
	  DIMS(4, 2), 0, NULL, "00 10 01 11 20 30 21 31" },
	{ "partial_shard_over_several_axes",
	  SHARD("w", "[2,2,2]", "[-1,1]", "1", "2"),
	  DIMS(4, 2), 0, NULL, "00 10 01 11 00 10 01 11" },
};

TEST_ROWS(grids)
{
	const struct row *w = *state;
	cleanup_grid struct rsh_grid *g = whole_grid(w->items, w->dims,
						     w->n_dims);
	struct unit_text splits = { "", 0 };

	for (uint32_t d = 0; d < rsh_grid_n_dims(g); d++)
		unit_put(&splits, "%s%u", d ? " " : "", rsh_grid_split(g, d));
	if (w->splits)
		assert_string_equal(splits.s, w->splits);
	if (w->n_replicas)
		assert_int_equal(rsh_grid_n_replicas(g), w->n_replicas);
	if (w->cells)
		assert_cells(g, w->cells);
	assert_consistent(g);
}

TEST(unused_axes_replicate)
{
	struct rsh_grid *g = whole_grid(LAYOUT("w", "[2,2,2]", "[-1,1]"),
					DIMS(3, 4));

	assert_int_equal(rsh_grid_n_replicas(g), 4);
	assert_cells(g, "00 00 01 01 00 00 01 01");
	assert_consistent(g);
	/* Of the replicas the one that agrees on the unused axes. */
	assert_int_equal(holder(g, (uint32_t[]){ 0, 1 }, 0), 2);
	assert_int_equal(holder(g, (uint32_t[]){ 0, 1 }, 5), 7);
	assert_int_equal(holder(g, (uint32_t[]){ 0, 0 }, 6), 4);
	rsh_grid_free(g);
}

TEST(axes_of_size_one_are_nothing)
{
	struct rsh_grid *a = whole_grid(LAYOUT("w", "[1,2,1,2]", "[0,3]"),
					DIMS(4, 4));
	struct rsh_grid *b = whole_grid(LAYOUT("w", "[2,2]", "[-1,1]"),
					DIMS(4, 4));
	struct rsh_grid *c = whole_grid(LAYOUT("w", "[2,2]", "[1,-1]"),
					DIMS(4, 4));

	assert_cells(a, "00 10 00 10");
	assert_true(!rsh_grid_equal(a, b));
	assert_true(!rsh_grid_equal(b, c));
	rsh_grid_free(a);
	a = whole_grid(LAYOUT("w", "[1,2,1,2]", "[3,2]"), DIMS(4, 4));
	assert_cells(a, "00 00 01 01");
	assert_true(rsh_grid_equal(a, b));
	rsh_grid_free(a);
	rsh_grid_free(b);
	rsh_grid_free(c);
}

TEST(one_device_holds_the_whole)
{
	struct rsh_error err = RSH_ERROR_INIT;
	struct rsh_grid *g, *h;

	assert_int_equal(rsh_grid_new_whole(2, &g, &err), 0);
	assert_int_equal(rsh_grid_n_ranks(g), 1);
	assert_split(g, 0, 1);
	assert_cells(g, "00");
	assert_consistent(g);
	h = whole_grid(LAYOUT("w", "[1]", "[-1,0]"), DIMS(7, 5));
	assert_true(rsh_grid_equal(g, h));
	rsh_grid_free(g);
	rsh_grid_free(h);
	assert_int_equal(rsh_grid_new_whole(RSH_MAX_DIMS + 1, &g, &err),
			 -EINVAL);
	assert_string_equal(err.text, "too many dimensions");
	refused(LAYOUT("w", "[1]", "[-1]"), (int64_t[RSH_MAX_DIMS + 1]){ 0 },
		RSH_MAX_DIMS + 1, false, "too many dimensions");
}

/* ---- optimizer shards ---- */

TEST(shard_of_one_or_without_step_is_none)
{
	struct rsh_grid *plain = whole_grid(LAYOUT("w", "[4,2]", "[0]"),
					    DIMS(8));
	static const char *const items[] = {
		SHARD("w", "[4,2]", "[0]", "2", "1"),
		SHARD("w", "[4,2]", "[0]", "0", "4"),
		SHARD("w", "[4,2]", "[0]", "2", "0"),
	};

	for (size_t i = 0; i < sizeof(items) / sizeof(items[0]); i++) {
		struct rsh_grid *g = whole_grid(items[i], DIMS(8));

		assert_true(rsh_grid_equal(g, plain));
		rsh_grid_free(g);
	}
	rsh_grid_free(plain);
}

/* An 8x4 tensor of 0..31 on a mesh [2,2,2] with map [0,1], step 4, size 2:
 * each rank holds two elements.  Whole again, read back from the ranks where
 * the converter's rule takes the slices to be, it looks like this in
 * MindSpore 2.7 and 2.10. */
static const int misplaced[8][4] = {
	{ 0, 1, 16, 17 },   { 4, 5, 20, 21 },	{ 8, 9, 24, 25 },
	{ 12, 13, 28, 29 }, { 2, 3, 18, 19 },	{ 6, 7, 22, 23 },
	{ 10, 11, 26, 27 }, { 14, 15, 30, 31 },
};

/* What stands at (row, column) when `theirs` is believed and `mine` is so. */
static int read_back(const struct rsh_grid *mine, const struct rsh_grid *theirs,
		     uint32_t row, uint32_t column)
{
	uint32_t rows = 8 / rsh_grid_split(mine, 0);
	uint32_t columns = 4 / rsh_grid_split(mine, 1);
	uint32_t cell[2] = { row / rows, column / columns };
	uint32_t rank = holder(theirs, cell, 0);

	rsh_grid_cell(mine, rank, cell);
	return (int)((cell[0] * rows + row % rows) * 4 + cell[1] * columns +
		     column % columns);
}

TEST(converter_misplaces_simple_shards)
{
	static const char item[] = SHARD("w", "[2,2,2]", "[0,1]", "4", "2");
	struct rsh_grid *mine = make_grid(item, DIMS(8, 4), false,
					  RSH_GRID_RUNTIME);
	struct rsh_grid *theirs = make_grid(item, DIMS(8, 4), false,
					    RSH_GRID_CONVERTER);

	assert_consistent(mine);
	assert_consistent(theirs);
	assert_cells(mine, "00 20 01 21 10 30 11 31");
	for (uint32_t r = 0; r < 8; r++)
		for (uint32_t c = 0; c < 4; c++) {
			assert_int_equal(read_back(mine, mine, r, c),
					 r * 4 + c);
			assert_int_equal(read_back(mine, theirs, r, c),
					 misplaced[r][c]);
		}
	rsh_grid_free(mine);
	rsh_grid_free(theirs);
}

/* Where the two rules must agree: axes in mesh order, a size-1 axis in front,
 * nested maps, a replicated axis that is not the first. */
TEST(converter_places_other_shards_right)
{
	static const struct {
		const char *item;
		uint32_t n_dims;
	} same[] = {
		{ SHARD("w", "[2,2,2]", "[1,0]", "4", "2"), 2 },
		{ SHARD("w", "[1,2,2,2]", "[0,1]", "4", "2"), 2 },
		{ SHARD("w", "[2,2,2]", "[[0],[1]]", "4", "2"), 2 },
		{ SHARD("w", "[2,2,2]", "[1,2]", "1", "2"), 2 },
		{ SHARD("w", "[2,2,2]", "[-1,1]", "1", "4"), 2 },
		{ SHARD("w", "[4,2]", "[-1,0]", "2", "2"), 2 },
		{ SHARD("w", "[2,2]", "[-1]", "1", "2"), 1 },
	};

	for (size_t i = 0; i < sizeof(same) / sizeof(same[0]); i++) {
		struct rsh_grid *a = make_grid(same[i].item,
					       (int64_t[]){ 16, 16 },
					       same[i].n_dims, false,
					       RSH_GRID_RUNTIME);
		struct rsh_grid *b = make_grid(same[i].item,
					       (int64_t[]){ 16, 16 },
					       same[i].n_dims, false,
					       RSH_GRID_CONVERTER);

		assert_int_equal(rsh_grid_n_replicas(a),
				 rsh_grid_n_replicas(b));
		for (uint32_t r = 0; r < rsh_grid_n_ranks(a); r++) {
			uint32_t x[RSH_MAX_DIMS] = { 0 };
			uint32_t y[RSH_MAX_DIMS] = { 0 };

			rsh_grid_cell(a, r, x);
			rsh_grid_cell(b, r, y);
			assert_memory_equal(x, y, sizeof(x));
		}
		rsh_grid_free(a);
		rsh_grid_free(b);
	}
}

TEST(broken_shards_are_refused)
{
	refused(SHARD("w", "[2,2]", "[1,0]", "1", "-1"), DIMS(4, 4), false,
		"it has an optimizer shard, but the tensor map leaves no ranks "
		"equal to shard over");
	refused(SHARD("w", "[2,2]", "[]", "1", "-1"), SCALAR, false,
		"it has an optimizer shard, but the tensor is a scalar");
	refused(SHARD("w", "[4,2]", "[0]", "4", "-1"), DIMS(8), false,
		"its optimizer shard has step 4, the mesh says 2");
	refused(SHARD("w", "[2,2]", "[-1]", "2", "-1"), DIMS(8), false,
		"its optimizer shard has step 2, the mesh says 1");
	refused(SHARD("w", "[4,2]", "[0]", "2", "3"), DIMS(24), false,
		"its optimizer shard of size 3 does not divide the 4 ranks that "
		"hold the same slice");
	refused(SHARD("w", "[4,2]", "[0]", "2", "8"), DIMS(16), false,
		"its optimizer shard of size 8 does not divide the 4 ranks that "
		"hold the same slice");
	refused(SHARD("w", "[4,2]", "[0]", "2", "-1"), DIMS(4), false,
		"dimension 0 of size 4 cannot be cut into 8 equal slices");
}

/* The parser lets no such number through; a strategy may be made otherwise. */
TEST(shard_numbers_out_of_range_are_refused)
{
	struct rsh_map_entry entry = { 0, NULL };
	struct rsh_strategy_item item = {
		.name = "w", .n_mesh = 1, .mesh = (uint32_t[]){ 4 },
		.n_map = 1, .map = &entry, .opt_step = 1, .opt_size = -2,
	};
	struct rsh_error err = RSH_ERROR_INIT;
	struct rsh_grid *g;

	assert_int_equal(rsh_grid_new(&item,
				      &(struct rsh_grid_sizes){ DIMS(8), false },
				      RSH_GRID_RUNTIME, &g, &err), -EINVAL);
	assert_string_equal(err.text,
			    "its optimizer shard has step 1 and size -2");
}

/* ---- dimensions ---- */

TEST(local_dimensions_give_the_same_grid)
{
	static const char item[] = SHARD("w", "[4,2]", "[-1,0]", "2", "2");
	cleanup_grid struct rsh_grid *a = whole_grid(item, DIMS(8, 6));
	cleanup_grid struct rsh_grid *b = make_grid(item, DIMS(4, 3), true,
						    RSH_GRID_RUNTIME);

	assert_true(rsh_grid_equal(a, b));
}

TEST(dimensions_that_do_not_fit_are_refused)
{
	refused(LAYOUT("w", "[3]", "[0,-1]"), DIMS(8, 4), false,
		"dimension 0 of size 8 cannot be cut into 3 equal slices");
	refused(LAYOUT("w", "[4]", "[0]"), DIMS(INT64_MAX), true,
		"dimension 0 overflows");
	refused(LAYOUT("w", "[4]", "[0]"), DIMS(INT64_C(1) << 62), true,
		"dimension 0 overflows");
	refused(LAYOUT("w", "[4]", "[0]"), DIMS(8, 4), false,
		"its tensor map has 1 dimensions, the tensor has 2");
}

TEST(shape_of_the_strategy_must_agree)
{
	static const char item[] = SHAPED("w", "[2,2]", "[1,-1]", "[8,6]");
	struct rsh_grid *g = make_grid(item, DIMS(4, 6), true,
				       RSH_GRID_RUNTIME);

	assert_split(g, 0, 2);
	rsh_grid_free(g);
	rsh_grid_free(whole_grid(item, DIMS(8, 6)));
	refused(item, DIMS(8, 6), true,
		"dimension 0 of the whole tensor is 16, its strategy says 8");
	refused(item, DIMS(8, 5), false,
		"dimension 1 of the whole tensor is 5, its strategy says 6");
}

/* A layout with param_split_shape and indices_offset. */
#define ROWS(mesh, map, rows, offsets)                       \
	ITEM_("w", mesh, map, ",\"param_split_shape\":" rows \
	      ",\"indices_offset\":" offsets)

/* Hand-written files have a shape where the planner writes rows. */
TEST(a_shape_in_place_of_rows_changes_nothing)
{
	static const char *const items[] = {
		ROWS("[2]", "[0,-1]", "[8,6]", "[]"),   /* of the tensor */
		ROWS("[2]", "[0,-1]", "[8,6]", "[0,0]"),
		ROWS("[2]", "[0,-1]", "[4,6]", "[]"),   /* of its slice */
		ROWS("[2]", "[0,-1]", "[4,4]", "[0,4]"), /* equal rows */
		ROWS("[2,2]", "[1,0]", "[8,6]", "[]"),
	};

	for (size_t i = 0; i < sizeof(items) / sizeof(*items); i++) {
		struct rsh_grid *g = whole_grid(items[i], DIMS(8, 6));

		assert_split(g, 0, 2);
		rsh_grid_free(g);
	}
	rsh_grid_free(make_grid(items[0], DIMS(4, 6), true, RSH_GRID_RUNTIME));
	rsh_grid_free(make_grid(items[2], DIMS(4, 6), true, RSH_GRID_RUNTIME));
	rsh_grid_free(make_grid(items[3], DIMS(4, 6), true, RSH_GRID_RUNTIME));
}

TEST(rows_split_manually_are_no_grid)
{
	static const char manual[] =
		"its rows are split manually (manual_split)";

	refused(ROWS("[2]", "[0,-1]", "[3,5]", "[0,3]"), DIMS(8, 4), false,
		manual);
	refused(ROWS("[2]", "[0,-1]", "[3,5]", "[0,3]"), DIMS(3, 4), true,
		manual);
	refused(ROWS("[3]", "[0]", "[1,1,7]", "[0,1,2]"), DIMS(9), false,
		manual);
	refused(ROWS("[2,2]", "[1,-1]", "[6,2]", "[]"), DIMS(8, 4), false,
		manual);
	refused(ROWS("[2]", "[0,-1]", "[3,6]", "[0,3]"), DIMS(8, 4), false,
		"its param_split_shape lists 9 rows, the tensor has 8");
	refused(ROWS("[2]", "[0,-1]", "[3,5,1]", "[0,3,8]"), DIMS(8, 4), false,
		"its param_split_shape has 3 numbers, but there are 2 slices of rows");
	refused(ROWS("[2]", "[0,-1]", "[]", "[0,3]"), DIMS(8, 4), false,
		"its param_split_shape has 0 numbers, but there are 2 slices of rows");
	refused(ROWS("[2]", "[0,-1]", "[9,-1]", "[0,9]"), DIMS(8, 4), false,
		"its param_split_shape has the number -1");
	refused(ROWS("[2]", "[0,-1]", "[3,3]", "[0,3]"), DIMS(4, 4), true,
		"its param_split_shape lists slices of 3 rows, the slice has 4");
}
