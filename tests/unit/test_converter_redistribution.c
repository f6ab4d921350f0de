/* SPDX-License-Identifier: Apache-2.0 */
/* Which source ranks the converter loads: known lists, and those recorded from
 * MindSpore by data/make_rank_lists.py. */
#include "strategy_support.h"

#include <jansson.h>

#include "rsh/plan/redistribution.h"
#include "support.h"

#define MAX_RANKS 64

static struct rsh_strategy_file *parse_item(const char *item)
{
	char json[1024];

	snprintf(json, sizeof(json), FILE_OF("0", "%s"), item);
	return parse_strategy("s.json", json);
}

/* Plans between two items, of which the second may be NULL. */
static int plan(const char *src, const char *dst, const int64_t *whole,
		uint32_t n_dims, enum rsh_grid_rule rule,
		struct rsh_redistribution **out)
{
	struct rsh_strategy_file *a = parse_item(src);
	struct rsh_strategy_file *b = dst ? parse_item(dst) : NULL;
	int rc = rsh_redistribution_new(&a->items[0], b ? &b->items[0] : NULL,
					whole, n_dims, rule, out);

	rsh_strategy_file_free(a);
	rsh_strategy_file_free(b);
	return rc;
}

/* "[3,2,1,0]" of the marked keys, highest first. */
static const char *keys_text(const struct rsh_redistribution *r, uint32_t rank,
			     char *text, size_t size)
{
	bool keys[MAX_RANKS] = { false };
	size_t at = 1;

	rsh_redistribution_keys(r, rank, keys, MAX_RANKS);
	text[0] = '[';
	for (uint32_t k = MAX_RANKS; k-- > 0;)
		if (keys[k])
			at += (size_t)snprintf(text + at, size - at, "%s%u",
					       at > 1 ? "," : "", k);
	snprintf(text + at, size - at, "]");
	return text;
}

/* ---- lists known from the converter ---- */

struct vector {
	const char *src, *dst;
	uint32_t n_dims;
	const char *lists; /* one a destination rank */
};

static const struct vector vectors[] = {
	/* Rows over 8 to rows over 4: every rank loads all. */
	{ LAYOUT("w", "[8]", "[0,-1]"), LAYOUT("w", "[4]", "[0,-1]"), 2,
	  "[7,6,5,4,3,2,1,0] [7,6,5,4,3,2,1,0] [7,6,5,4,3,2,1,0] "
	  "[7,6,5,4,3,2,1,0]" },
	{ LAYOUT("w", "[2,4]", "[0,-1]"), LAYOUT("w", "[4]", "[0,-1]"), 2,
	  "[0] [1] [2] [3]" },
	{ LAYOUT("w", "[4]", "[0,-1]"), LAYOUT("w", "[8]", "[0,-1]"), 2,
	  "[3,2,1,0] [3,2,1,0] [3,2,1,0] [3,2,1,0] [3,2,1,0] [3,2,1,0] "
	  "[3,2,1,0] [3,2,1,0]" },
	{ LAYOUT("w", "[4]", "[0,-1]"), LAYOUT("w", "[4]", "[-1,0]"), 2,
	  "[3,2,1,0] [3,2,1,0] [3,2,1,0] [3,2,1,0]" },
	{ SHARD("w", "[4,2]", "[0,-1]", "2", "2"),
	  LAYOUT("w", "[4,2]", "[0,-1]"), 2,
	  "[2,0] [3,1] [2,0] [3,1] [6,4] [7,5] [6,4] [7,5]" },
	{ LAYOUT("w", "[4,2]", "[1,0]"), LAYOUT("w", "[2,4]", "[1,0]"), 2,
	  "[3,2,1,0] [3,2,1,0] [3,2,1,0] [3,2,1,0] [7,6,5,4] [7,6,5,4] "
	  "[7,6,5,4] [7,6,5,4]" },
	/* No axes have the sizes of both meshes: every rank loads all. */
	{ LAYOUT("w", "[2,3]", "[1,0]"), LAYOUT("w", "[3,2]", "[1,0]"), 2,
	  "[5,4,3,2,1,0] [5,4,3,2,1,0] [5,4,3,2,1,0] [5,4,3,2,1,0] "
	  "[5,4,3,2,1,0] [5,4,3,2,1,0]" },
	{ LAYOUT("w", "[2,2]", "[1,0]"), NULL, 2, "[3,2,1,0]" },
	{ LAYOUT("w", "[2,2]", "[-1,0]"), NULL, 2, "[1,0]" },
	{ LAYOUT("s", "[2,2]", "[]"), LAYOUT("s", "[2]", "[]"), 0, "[0] [1]" },
};

static void assert_lists(const struct rsh_redistribution *r, const char *want)
{
	const char *at = want;

	for (uint32_t rank = 0; *at; rank++) {
		char text[512];
		size_t n = strlen(keys_text(r, rank, text, sizeof(text)));

		if (strncmp(at, text, n) != 0)
			fail_msg("rank %u: %s, wanted of %s", rank, text, want);
		at += n;
		at += *at == ' ';
	}
}

TEST(known_lists)
{
	for (size_t i = 0; i < sizeof(vectors) / sizeof(vectors[0]); i++) {
		const struct vector *v = &vectors[i];
		struct rsh_redistribution *r;

		assert_int_equal(plan(v->src, v->dst, NULL, v->n_dims,
				      RSH_GRID_CONVERTER, &r), 0);
		assert_lists(r, v->lists);
		rsh_redistribution_free(r);
		/* The converter plans on made-up sizes, so real ones change
		 * nothing. */
		assert_int_equal(plan(v->src, v->dst, (int64_t[]){ 48, 96 },
				      v->n_dims, RSH_GRID_CONVERTER, &r), 0);
		assert_lists(r, v->lists);
		rsh_redistribution_free(r);
	}
}

TEST(marks_are_kept_and_bounded)
{
	struct rsh_redistribution *r;
	bool keys[4] = { false, true, false, false };

	assert_int_equal(plan(LAYOUT("w", "[4]", "[0]"), NULL, NULL, 1,
			      RSH_GRID_RUNTIME, &r), 0);
	rsh_redistribution_keys(r, 0, keys, 3);
	assert_true(keys[0] && keys[1] && keys[2] && !keys[3]);
	rsh_redistribution_free(r);
}

/* An expanded map is planned as the nested one is. */
TEST(expanded_maps_are_planned)
{
	static const char expanded[] =
		SHAPED("w", "[2,4]", "[1,0,-1]", "[2,8,6]");
	static const char nested[] = LAYOUT("w", "[2,4]", "[[1,0],[-1]]");
	static const char dst[] = LAYOUT("w", "[4]", "[0,-1]");
	struct rsh_redistribution *a, *b;

	assert_int_equal(plan(expanded, dst, DIMS(16, 6), RSH_GRID_RUNTIME, &a),
			 0);
	assert_int_equal(plan(nested, dst, DIMS(16, 6), RSH_GRID_RUNTIME, &b),
			 0);
	for (uint32_t rank = 0; rank < 4; rank++) {
		char x[512], y[512];

		assert_string_equal(keys_text(a, rank, x, sizeof(x)),
				    keys_text(b, rank, y, sizeof(y)));
	}
	rsh_redistribution_free(a);
	rsh_redistribution_free(b);
}

TEST(what_the_converter_refuses)
{
	static const struct vector refused[] = {
		/* 8 and 6 devices */
		{ LAYOUT("w", "[8]", "[0]"), LAYOUT("w", "[6]", "[0]"), 1, "" },
		/* maps of different ranks */
		{ LAYOUT("w", "[4]", "[0]"), LAYOUT("w", "[4]", "[-1,0]"), 1,
		  "" },
		/* axes of 4 and 3, innermost first: no shard of 4 */
		{ SHARD("w", "[4,3,2]", "[0]", "2", "4"),
		  LAYOUT("w", "[24]", "[0]"), 1, "" },
		/* an axis of 6 is not cut into 4 */
		{ SHARD("w", "[2,6,2]", "[0]", "2", "4"),
		  LAYOUT("w", "[24]", "[0]"), 1, "" },
		/* more dimensions than there are */
		{ LAYOUT("w", "[4]", "[0]"), NULL, RSH_MAX_DIMS + 1, "" },
	};

	for (size_t i = 0; i < sizeof(refused) / sizeof(refused[0]); i++) {
		struct rsh_redistribution *r;
		const struct vector *v = &refused[i];

		assert_int_equal(plan(v->src, v->dst, NULL, v->n_dims,
				      RSH_GRID_RUNTIME, &r), -EDOM);
	}
}

/* Where the converter misplaces a shard its list follows its own mesh; planned
 * where the slices really are it is another. */
TEST(misplaced_shard_is_planned_by_rule)
{
	static const char src[] = SHARD("w", "[2,2,2]", "[0,1]", "4", "2");
	static const char dst[] = LAYOUT("w", "[2,2,2]", "[0,-1]");
	struct rsh_redistribution *r;
	char text[512];

	assert_int_equal(plan(src, dst, NULL, 2, RSH_GRID_CONVERTER, &r), 0);
	assert_string_equal(keys_text(r, 0, text, sizeof(text)),
			    "[7,6,5,4,3,2,1,0]");
	rsh_redistribution_free(r);
	assert_int_equal(plan(src, dst, NULL, 2, RSH_GRID_RUNTIME, &r), 0);
	assert_string_equal(keys_text(r, 0, text, sizeof(text)), "[6,4,2,0]");
	rsh_redistribution_free(r);
}

/* ---- any layouts ---- */

#define RANDOM_DIMS 3

/* A layout of random axes, which each cut one dimension or none. */
struct random_layout {
	uint32_t n, mesh[6];
	int axis[RANDOM_DIMS]; /* of a dimension; -1: none */
	char text[512];
};

static void random_layout(struct random_layout *l, uint32_t devices,
			  uint32_t n_dims)
{
	bool used[6] = { false };
	struct unit_text t = { "", 0 };

	for (l->n = 0; devices > 1; devices /= l->mesh[l->n++])
		do
			l->mesh[l->n] = 2 + below(devices - 1);
		while (devices % l->mesh[l->n]);
	unit_put(&t, "\"w\":{\"dev_matrix\":[");
	for (uint32_t i = 0; i < l->n; i++)
		unit_put(&t, "%s%u", i ? "," : "", l->mesh[i]);
	unit_put(&t, "],\"tensor_map\":[");
	for (uint32_t d = 0; d < n_dims; d++) {
		const uint32_t axis = below(l->n);
		const bool cut = below(3) > 0 && !used[axis];

		used[axis] |= cut;
		l->axis[d] = cut ? (int)axis : -1;
		/* Maps count from the last axis. */
		unit_put(&t, "%s%d", d ? "," : "",
			 cut ? (int)(l->n - 1 - axis) : -1);
	}
	unit_put(&t, "],\"opt_weight_shard_step\":0,"
		 "\"opt_weight_shard_size\":0}");
	assert_true(t.n < sizeof(l->text));
	memcpy(l->text, t.s, t.n + 1);
}

/* The slice of a rank in a dimension, and of how many. */
static uint32_t slice_of(const struct random_layout *l, uint32_t rank,
			 uint32_t d, uint32_t *n)
{
	const uint32_t axis = (uint32_t)l->axis[d];

	*n = 1;
	if (l->axis[d] < 0)
		return 0;
	for (uint32_t i = l->n; i-- > axis + 1; rank /= l->mesh[i])
		;
	*n = l->mesh[axis];
	return rank % *n;
}

/* Whether a marked rank has these slices. */
static bool slices_are_loaded(const struct random_layout *src,
			      const bool *keys, uint32_t n_ranks,
			      const uint32_t *slices, uint32_t n_dims)
{
	uint32_t d, n;

	for (uint32_t k = 0; k < n_ranks; k++) {
		for (d = 0; keys[k] && d < n_dims &&
		     slice_of(src, k, d, &n) == slices[d]; d++)
			;
		if (keys[k] && d == n_dims)
			return true;
	}
	return false;
}

static void check_loaded(const struct random_layout *src,
			 const struct random_layout *dst, uint32_t rank,
			 const bool *keys, uint32_t n_ranks, uint32_t n_dims)
{
	uint32_t first[RANDOM_DIMS], end[RANDOM_DIMS], at[RANDOM_DIMS], d;

	/* The slices of the source that the rank has a part of. */
	for (d = 0; d < n_dims; d++) {
		uint32_t of, parts;
		const uint32_t own = slice_of(dst, rank, d, &of);

		slice_of(src, 0, d, &parts);
		at[d] = first[d] = own * parts / of;
		end[d] = ((own + 1) * parts + of - 1) / of;
	}
	do {
		if (!slices_are_loaded(src, keys, n_ranks, at, n_dims))
			fail_msg("rank %u does not load all it needs: %s to %s",
				 rank, src->text, dst->text);
		for (d = n_dims; d > 0 && ++at[d - 1] == end[d - 1]; d--)
			at[d - 1] = first[d - 1];
	} while (d > 0);
}

/* What a rank loads has all elements of its slice. */
TEST(lists_have_what_is_needed)
{
	static const uint32_t devices[] = { 4, 6, 8, 12, 18, 24, 30, 36 };
	unsigned planned = 0;
	const unsigned n = (unsigned)rounds(2000);

	for (unsigned i = 0; i < n; i++) {
		const uint32_t n_ranks = devices[below(8)];
		const uint32_t n_dims = 1 + below(RANDOM_DIMS);
		struct random_layout src, dst;
		struct rsh_redistribution *r;

		random_layout(&src, n_ranks, n_dims);
		random_layout(&dst, n_ranks, n_dims);
		if (plan(src.text, dst.text, NULL, n_dims, RSH_GRID_CONVERTER,
			 &r))
			continue;
		planned++;
		for (uint32_t rank = 0; rank < n_ranks; rank++) {
			bool keys[MAX_RANKS] = { false };

			rsh_redistribution_keys(r, rank, keys, MAX_RANKS);
			check_loaded(&src, &dst, rank, keys, n_ranks, n_dims);
		}
		rsh_redistribution_free(r);
	}
	assert_true(planned > n / 2);
}

/* ---- recorded lists ---- */

static json_t *load_recorded(void)
{
	const char *dir = getenv("srcdir");
	json_error_t where;
	char path[4096];
	json_t *root;

	snprintf(path, sizeof(path), "%s/unit/data/rank_lists.json",
		 dir ? dir : ".");
	root = json_load_file(path, 0, &where);
	if (!root)
		fail_msg("%s: %s", path, where.text);
	return root;
}

/* The item of a layout object, NULL for null; owned by the caller. */
static char *item_text(const json_t *layout)
{
	char *text, *item;

	if (json_is_null(layout))
		return NULL;
	text = json_dumps(layout, JSON_COMPACT);
	assert_non_null(text);
	assert_true(asprintf(&item, "\"w\":%s", text) > 0);
	free(text);
	return item;
}

/* Compares one pair; true if the converter could plan it. */
static bool check_pair(const json_t *pair, size_t number)
{
	char *src = item_text(json_object_get(pair, "src"));
	char *dst = item_text(json_object_get(pair, "dst"));
	const json_t *lists = json_object_get(pair, "ranks"), *list;
	size_t n_dims = json_array_size(
		json_object_get(json_object_get(pair, "src"), "tensor_map"));
	struct rsh_redistribution *r = NULL;
	size_t rank;
	int rc = plan(src, dst, NULL, (uint32_t)n_dims, RSH_GRID_CONVERTER, &r);

	if (rc != (json_is_null(lists) ? -EDOM : 0))
		fail_msg("pair %zu: %d, %s to %s", number, rc, src, dst);
	json_array_foreach(lists, rank, list) {
		char *want = json_dumps(list, JSON_COMPACT), got[512];

		keys_text(r, (uint32_t)rank, got, sizeof(got));
		if (strcmp(got, want) != 0)
			fail_msg("pair %zu, rank %zu: %s, recorded %s: %s to %s",
				 number, rank, got, want, src, dst);
		free(want);
	}
	rsh_redistribution_free(r);
	free(src);
	free(dst);
	return rc == 0;
}

TEST(recorded_lists)
{
	json_t *root = load_recorded();
	size_t i, planned = 0;
	json_t *pair;

	json_array_foreach(root, i, pair)
		planned += check_pair(pair, i);
	printf("# %zu pairs, of which the converter plans %zu\n", i, planned);
	assert_true(planned >= 200);
	json_decref(root);
}
