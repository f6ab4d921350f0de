/* SPDX-License-Identifier: Apache-2.0 */
/* Expanded tensor maps, as JSON files hold them, folded back onto the tensor. */
#include "strategy_support.h"

struct form {
	const char *item;
	const int64_t *dims;
	uint32_t n_dims;
	bool local;
};

static struct rsh_grid *try_form(const struct form *f, struct rsh_error *err)
{
	char json[1024];
	struct rsh_strategy_file *s;
	struct rsh_grid *g = NULL;
	int rc;

	snprintf(json, sizeof(json), FILE_OF("0", "%s"), f->item);
	s = parse_strategy("s.json", json);
	rc = rsh_grid_new(&s->items[0],
			  &(struct rsh_grid_sizes){ f->dims, f->n_dims, f->local },
			  RSH_GRID_RUNTIME, &g, err);
	assert_int_equal(rc, g ? 0 : -EINVAL);
	rsh_strategy_file_free(s);
	return g;
}

/* The expanded form makes the grid of the nested one. */
static void assert_same(const struct form *expanded, const struct form *nested)
{
	struct rsh_error err = RSH_ERROR_INIT;
	struct rsh_grid *a = try_form(expanded, &err);
	struct rsh_grid *b;

	if (!a)
		fail_msg("%s", err.text);
	b = try_form(nested, &err);
	assert_non_null(b);
	assert_true(rsh_grid_equal(a, b));
	rsh_grid_free(a);
	rsh_grid_free(b);
}

static void assert_refused(const struct form *f, const char *sentence)
{
	struct rsh_error err = RSH_ERROR_INIT;

	assert_null(try_form(f, &err));
	assert_int_equal(err.code, EINVAL);
	assert_string_equal(err.text, sentence);
}

#define WHOLE(item, ...) (&(struct form){ item, DIMS(__VA_ARGS__), false })
#define LOCAL(item, ...) (&(struct form){ item, DIMS(__VA_ARGS__), true })

TEST(two_axes_on_one_dimension)
{
	static const char nested[] = LAYOUT("w", "[2,4]", "[[1,0],[-1]]");
	static const char first[] =
		SHAPED("w", "[2,4]", "[1,0,-1]", "[2,8,10]");
	static const char second[] =
		SHAPED("w", "[2,4]", "[-1,1,0]", "[10,2,8]");

	assert_same(WHOLE(first, 16, 10), WHOLE(nested, 16, 10));
	assert_same(LOCAL(first, 2, 10), LOCAL(nested, 2, 10));
	assert_same(WHOLE(second, 10, 16),
		    WHOLE(LAYOUT("w", "[2,4]", "[[-1],[1,0]]"), 10, 16));
	assert_same(LOCAL(second, 10, 2),
		    LOCAL(LAYOUT("w", "[2,4]", "[[-1],[1,0]]"), 10, 2));
}

TEST(three_axes_on_one_dimension)
{
	assert_same(WHOLE(SHAPED("w", "[2,2,3]", "[2,0,1]", "[2,3,20]"), 120),
		    WHOLE(LAYOUT("w", "[2,2,3]", "[[2,0,1]]"), 120));
	assert_same(LOCAL(SHAPED("w", "[2,2,3]", "[2,0,1]", "[2,3,20]"), 10),
		    LOCAL(LAYOUT("w", "[2,2,3]", "[[2,0,1]]"), 10));
}

/* A plan of MindFormers' three-dimensional tensor parallelism: the second
 * dimension lies on a mesh axis and on one of size 1, which the planner has
 * struck out, so that the last entry of its group is not split. */
TEST(axis_struck_out_at_the_end)
{
	static const char genuine[] =
		SHAPED("w", "[4,2]", "[0,1,-1]", "[96,4,24]");
	static const char nested[] =
		LAYOUT("w", "[4,2,1]", "[[1],[2,0]]");

	assert_same(LOCAL(genuine, 48, 24), LOCAL(nested, 48, 24));
	assert_same(WHOLE(genuine, 96, 96), WHOLE(nested, 96, 96));
}

TEST(shard_counts_on_dimension_0)
{
	static const char sharded[] =
		"\"w\":{\"dev_matrix\":[2,2,2],\"tensor_map\":[1,0,-1],"
		"\"tensor_shape\":[2,8,3],\"opt_weight_shard_step\":4,"
		"\"opt_weight_shard_size\":-1}";
	static const char nested[] =
		SHARD("w", "[2,2,2]", "[[1,0],[-1]]", "4", "-1");

	assert_refused(WHOLE(SHARD("w", "[2,2,2]", "[1,0,-1]", "1", "-1"),
			     16, 3),
		       "its optimizer shard has step 1, the mesh says 4");
	assert_same(WHOLE(sharded, 16, 3), WHOLE(nested, 16, 3));
	assert_same(LOCAL(sharded, 2, 3), LOCAL(nested, 2, 3));
}

/* Without a shape (a flat protobuf map of MindSpore <= 2.5) the dimensions
 * must leave one way only. */
TEST(without_a_shape)
{
	static const char item[] = LAYOUT("w", "[2,3]", "[1,0,-1]");

	/* An entry that is not split is a dimension of its own. */
	assert_same(WHOLE(item, 12, 6),
		    WHOLE(LAYOUT("w", "[2,3]", "[[1,0],[-1]]"), 12, 6));
	assert_same(LOCAL(item, 2, 2),
		    LOCAL(LAYOUT("w", "[2,3]", "[[1,0],[-1]]"), 2, 2));
	assert_refused(WHOLE(LAYOUT("w", "[2,3]", "[0,-1,-1]"), 12, 6),
		       "its expanded tensor map of 3 dimensions does not fit "
		       "the 2 dimensions of the tensor");
	assert_refused(WHOLE(LAYOUT("w", "[2,3,5]", "[2,1,0]"), 30, 30),
		       "its expanded tensor map of 3 dimensions can be folded "
		       "in several ways onto the 2 dimensions of the tensor");
}

/* Slices of length 1 look the same whichever dimension they are of. */
TEST(ambiguity_is_refused)
{
	static const char item[] =
		SHAPED("w", "[2,2,2]", "[2,1,0]", "[2,2,2]");

	assert_refused(LOCAL(item, 1, 1),
		       "its expanded tensor map of 3 dimensions can be folded "
		       "in several ways onto the 2 dimensions of the tensor");
	/* The whole shape decides. */
	assert_same(WHOLE(item, 2, 4),
		    WHOLE(LAYOUT("w", "[2,2,2]", "[[2],[1,0]]"), 2, 4));
	assert_same(WHOLE(item, 4, 2),
		    WHOLE(LAYOUT("w", "[2,2,2]", "[[2,1],[0]]"), 4, 2));
}

TEST(what_does_not_fit_is_refused)
{
	static const char item[] =
		SHAPED("w", "[2,4]", "[1,0,-1]", "[2,8,10]");
	static const char unsplit[] =
		SHAPED("w", "[2,4]", "[-1,0,1]", "[3,4,2]");

	assert_refused(WHOLE(item, 16, 12),
		       "its expanded tensor map of 3 dimensions does not fit "
		       "the 2 dimensions of the tensor");
	assert_refused(LOCAL(item, 2, 12),
		       "its expanded tensor map of 3 dimensions does not fit "
		       "the 2 dimensions of the tensor");
	/* An entry that is not split begins no group. */
	assert_refused(WHOLE(unsplit, 24),
		       "its expanded tensor map of 3 dimensions does not fit "
		       "the 1 dimensions of the tensor");
	assert_refused(WHOLE(SHAPED("w", "[2]", "[0]", "[4]"), 2, 2),
		       "its tensor map has 1 dimensions, the tensor has 2");
	assert_refused(WHOLE(SHAPED("w", "[2,2]", "[1,0,-1]", "[2,2]"), 4, 1),
		       "its tensor map has 3 dimensions, the tensor has 2");
	assert_refused(LOCAL(LAYOUT("w", "[2]", "[0,-1]"), 4, 4, 4),
		       "its tensor map has 2 dimensions, the tensor has 3");
}

/* Sizes whose product, were it to wrap, would be 8 and 16. */
TEST(huge_shapes_do_not_wrap)
{
	assert_refused(WHOLE(SHAPED("w", "[4,2]", "[1,0]",
				    "[4,4611686018427387906]"), 8),
		       "its expanded tensor map of 2 dimensions does not fit "
		       "the 1 dimensions of the tensor");
	assert_refused(LOCAL(SHAPED("w", "[4,4]", "[1,0]",
				    "[4,4611686018427387908]"), 1),
		       "its expanded tensor map of 2 dimensions does not fit "
		       "the 1 dimensions of the tensor");
}
