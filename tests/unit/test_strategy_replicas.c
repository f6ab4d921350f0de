/* SPDX-License-Identifier: Apache-2.0 */
/* Which ranks are copies of each other. */
#include "strategy_support.h"

struct replica_case {
	const char *title;
	const char *items;
	/* For ranks 0 .. 7 the first rank that holds the same. */
	uint32_t first[8];
};

static const struct replica_case cases[] = {
	{ "all hold all", LAYOUT("w", "[8]", "[-1]"),
	  { 0, 0, 0, 0, 0, 0, 0, 0 } },
	{ "each has a slice", LAYOUT("w", "[8]", "[0,-1]"),
	  { 0, 1, 2, 3, 4, 5, 6, 7 } },
	{ "the tutorial's mesh", LAYOUT("w", "[2,4]", "[0,-1]"),
	  { 0, 1, 2, 3, 0, 1, 2, 3 } },
	{ "the other axis", LAYOUT("w", "[2,4]", "[1,-1]"),
	  { 0, 0, 0, 0, 4, 4, 4, 4 } },
	{ "both axes on one dimension", LAYOUT("w", "[2,4]", "[[1,0],-1]"),
	  { 0, 1, 2, 3, 4, 5, 6, 7 } },
	{ "a dimension over two of three axes",
	  LAYOUT("w", "[2,2,2]", "[[2,0]]"), { 0, 1, 0, 1, 4, 5, 4, 5 } },
	{ "an optimizer shard over all replicas",
	  SHARD("w", "[2,4]", "[0,-1]", "4", "2"),
	  { 0, 1, 2, 3, 4, 5, 6, 7 } },
	{ "one over half of them", SHARD("w", "[4,2]", "[0,-1]", "2", "2"),
	  { 0, 1, 2, 3, 0, 1, 2, 3 } },
	{ "a scalar", LAYOUT("w", "[2,4]", "[]"), { 0, 0, 0, 0, 0, 0, 0, 0 } },
	{ "a shape that is known", SHAPED("w", "[2,4]", "[0,-1]", "[64,5]"),
	  { 0, 1, 2, 3, 0, 1, 2, 3 } },
	{ "several parameters",
	  LAYOUT("w", "[2,4]", "[0]") "," LAYOUT("v", "[4,2]", "[1]"),
	  { 0, 1, 2, 3, 4, 5, 6, 7 } },
	{ "several that agree in part",
	  LAYOUT("w", "[2,2,2]", "[0]") "," LAYOUT("v", "[2,2,2]", "[1]"),
	  { 0, 1, 2, 3, 0, 1, 2, 3 } },
};

static void check_case(const struct replica_case *c)
{
	cleanup_names struct rsh_names *names = rsh_names_new();
	char json[1024];
	struct rsh_strategy *s;
	uint32_t first[8];

	snprintf(json, sizeof(json), FILE_OF("0", "%s"), c->items);
	s = make_strategy(names, "s.json", json);
	assert_int_equal(rsh_strategy_replicas(s, first), 0);
	for (uint32_t a = 0; a < 8; a++) {
		if (first[a] != c->first[a])
			fail_msg("%s: rank %u has group %u", c->title, a,
				 first[a]);
		for (uint32_t b = 0; b < 8; b++) {
			uint32_t differs = 12345;
			bool same = rsh_strategy_same_slices(s, a, b, &differs);

			if (same != (c->first[a] == c->first[b]))
				fail_msg("%s: ranks %u and %u", c->title, a, b);
			assert_int_equal(differs == RSH_NAME_NONE, same);
		}
	}
	rsh_strategy_free(s);
}

TEST(test_replicas)
{
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++)
		check_case(&cases[i]);
}

/* A parameter of another stage has no say, and stages share nothing. */
TEST(test_stages)
{
	cleanup_names struct rsh_names *names = rsh_names_new();
	struct rsh_strategy_file **files = calloc(2, sizeof(*files));
	struct rsh_error err = RSH_ERROR_INIT;
	struct rsh_strategy *s;
	uint32_t differs, first[8];
	static const uint32_t expected[8] = { 0, 1, 0, 1, 4, 4, 6, 6 };

	assert_non_null(files);
	files[0] = parse_strategy("0.json",
				  FILE_OF("0", LAYOUT("w", "[2,2]", "[0]")));
	files[1] = parse_strategy("1.json",
				  FILE_OF("1", LAYOUT("v", "[2,2]", "[1]")));
	if (rsh_strategy_merge(&(struct rsh_strategy_set){ files, 2,
				RSH_STRATEGY_DIR, "job" }, names, &s,
			       &err))
		fail_msg("%s", err.text);
	assert_true(rsh_strategy_same_slices(s, 0, 2, &differs));
	assert_false(rsh_strategy_same_slices(s, 0, 1, &differs));
	assert_string_equal(rsh_names_text(names, differs), "w");
	assert_true(rsh_strategy_same_slices(s, 4, 5, &differs));
	assert_false(rsh_strategy_same_slices(s, 4, 6, &differs));
	assert_string_equal(rsh_names_text(names, differs), "v");
	assert_false(rsh_strategy_same_slices(s, 0, 4, &differs));
	assert_int_equal(differs, RSH_NAME_NONE);
	assert_int_equal(rsh_strategy_replicas(s, first), 0);
	assert_memory_equal(first, expected, sizeof(first));
	rsh_strategy_free(s);
}
