/* SPDX-License-Identifier: Apache-2.0 */
/* unit/test_formats_tree.c - rows that count, and trees made from paths. */
#include "config.h"

#include "rsh/formats/tree.h"
#include "source_support.h"

static struct rsh_tree empty_tree(void)
{
	return (struct rsh_tree){ .root = 1, .above = 1 };
}

/* The number of a path, looked up name by name; 0: not there. */
static uint64_t find(const struct rsh_tree *t, const char *path)
{
	char copy[256], *rest = copy, *name;
	uint64_t number = t->root;

	snprintf(copy, sizeof(copy), "%s", path);
	while (number && (name = strsep(&rest, "/")))
		number = rsh_tree_find(t, number, name);
	return number;
}

/* Lists everything below a directory, and looks each node up by its name and by
 * its number: how many there are. */
static uint64_t walk(const struct rsh_tree *t, uint64_t dir)
{
	struct rsh_node node, same;
	uint64_t n = 0;
	uint32_t n_dirs = 0;
	char name[256];

	for (uint64_t i = 0; rsh_tree_child(t, dir, i, &node); i++) {
		assert_int_equal(node.parent, dir);
		rsh_node_name(&node, name, sizeof(name));
		assert_int_equal(rsh_tree_find(t, dir, name), node.number);
		assert_true(rsh_tree_node(t, node.number, &same));
		assert_int_equal(same.leaf, node.leaf);
		assert_int_equal(same.parent, dir);
		n++;
		if (node.kind == RSH_NODE_DIR) {
			n += walk(t, node.number);
			n_dirs++;
		}
	}
	assert_int_equal(rsh_tree_n_dirs(t, dir), n_dirs);
	return n;
}

static void assert_leaf(const struct rsh_tree *t, const char *path,
			uint32_t leaf)
{
	struct rsh_node node;

	assert_true(rsh_tree_node(t, find(t, path), &node));
	assert_int_not_equal(node.kind, RSH_NODE_DIR);
	assert_int_equal(node.leaf, leaf);
}

/* ---- rows that count ---- */

TEST(test_ranks)
{
	const struct rsh_row dirs = {
		.n = 1000, .first = 2, .step = 2, .parent = 1,
		.kind = RSH_NODE_DIR, .before = "rank_", .after = "",
	};
	const struct rsh_row files = {
		.n = 1000, .first = 3, .step = 2, .parent = 2, .apart = 2,
		.kind = RSH_NODE_FILE, .before = "1x", .after = ".ckpt",
	};
	FREED_BY(rsh_tree_clear) struct rsh_tree t = empty_tree();
	struct rsh_node node;

	assert_int_equal(rsh_tree_add(&t, &dirs), 0);
	assert_int_equal(rsh_tree_add(&t, &files), 0);
	assert_int_equal(walk(&t, 1), 2000);
	assert_int_equal(rsh_tree_n_nodes(&t), 2001);
	assert_leaf(&t, "rank_999/1x999.ckpt", 999);
	assert_leaf(&t, "rank_0/1x0.ckpt", 0);
	assert_int_equal(find(&t, "rank_7"), 16);
	assert_int_equal(find(&t, "rank_7/1x7.ckpt"), 17);
	assert_false(rsh_tree_node(&t, 0, &node));
	assert_false(rsh_tree_node(&t, 2002, &node));
}

TEST(test_cleared)
{
	static const struct rsh_path path = { "a/b", RSH_NODE_FILE, 0 };
	struct rsh_tree t = empty_tree();
	struct rsh_node node;

	assert_int_equal(rsh_tree_add_paths(&t, t.root + 1, &path, 1), 0);
	rsh_tree_clear(&t);
	for (uint64_t number = 0; number < 4; number++)
		assert_false(rsh_tree_node(&t, number, &node));
	rsh_tree_clear(&t);
}

/* Only the name that is shown is one. */
TEST(test_other_spellings)
{
	static const char *const wrong[] = {
		"", "model-", "model-00000.x", "model-0001.x", "model-00004.x",
		"model-000001.x", "model-+0001.x", "model- 0001.x",
		"model-00001.xy", "model-00001", "Model-00001.x",
		"model-18446744073709551617.x",
	};
	const struct rsh_row parts = {
		.n = 3, .first = 3, .step = 2, .parent = 1, .from = 1,
		.digits = 5, .kind = RSH_NODE_FILE, .before = "model-",
		.after = ".x",
	};
	FREED_BY(rsh_tree_clear) struct rsh_tree t = empty_tree();

	assert_int_equal(rsh_tree_add(&t, &parts), 0);
	assert_int_equal(walk(&t, 1), 3);
	assert_int_equal(find(&t, "model-00003.x"), 7);
	for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++)
		assert_int_equal(rsh_tree_find(&t, 1, wrong[i]), 0);
}

/* ---- paths ---- */

TEST(test_empty)
{
	FREED_BY(rsh_tree_clear) struct rsh_tree t = empty_tree();
	struct rsh_node node;

	assert_int_equal(rsh_tree_add_paths(&t, t.root + 1, NULL, 0), 0);
	assert_int_equal(rsh_tree_n_nodes(&t), 1);
	assert_true(rsh_tree_node(&t, 1, &node));
	assert_false(rsh_tree_node(&t, 2, &node));
	assert_int_equal(find(&t, "a"), 0);
}

/* '-' and ' ' sort before '/', so that these come in another order as paths
 * than as names. */
static const char *const strings[] = {
	"a/x", "a-b/x", "a b/y/z", "a/y/z", "a-b/y", "ab/x", "b", "a b/x",
	"a-/deep/er/and/er", "z/a", "z/a-", "z/a b",
};
#define N_STRINGS (sizeof(strings) / sizeof(strings[0]))

TEST(test_names_around_the_slash)
{
	FREED_BY(rsh_tree_clear) struct rsh_tree t = empty_tree();
	struct rsh_path paths[N_STRINGS];

	for (uint32_t i = 0; i < N_STRINGS; i++)
		paths[i] = (struct rsh_path){ strings[i], RSH_NODE_FILE, i };
	assert_int_equal(rsh_tree_add_paths(&t, t.root + 1, paths, N_STRINGS), 0);
	for (uint32_t i = 0; i < N_STRINGS; i++)
		assert_leaf(&t, strings[i], i);
	/* By depth, then by name. */
	assert_int_equal(find(&t, "a"), 2);
	assert_int_equal(find(&t, "a b"), 3);
	assert_int_equal(find(&t, "z"), 8);
	assert_int_equal(find(&t, "a/x"), 9);
	assert_int_equal(find(&t, "a-/deep/er/and/e"), 0);
	assert_int_equal(find(&t, "x"), 0);
	assert_int_equal(walk(&t, 1), rsh_tree_n_nodes(&t) - 1);
}

TEST(test_random_trees)
{
	static const char letters[] = "ab-.";
	struct numbers x = { numbers_seed() };

	for (unsigned round = 0; round < 300; round++) {
		struct rsh_tree t = empty_tree();
		struct rsh_path paths[40];
		char added[40][32];

		/* No directory is called as a leaf is. */
		for (uint32_t n = 0; n < 40; n++) {
			char *p = added[n];

			for (unsigned d = 0; d <= numbers_below(&x, 3); d++)
				p += sprintf(p, "%c%c/",
					     letters[numbers_below(&x, 4)],
					     letters[numbers_below(&x, 4)]);
			sprintf(p, "leaf%u", n);
			paths[n] = (struct rsh_path){
				added[n], n % 2 ? RSH_NODE_FILE :
						  RSH_NODE_LINK, n,
			};
		}
		assert_int_equal(rsh_tree_add_paths(&t, t.root + 1, paths, 40), 0);
		for (uint32_t i = 0; i < 40; i++)
			assert_leaf(&t, added[i], i);
		assert_int_equal(walk(&t, 1), rsh_tree_n_nodes(&t) - 1);
		rsh_tree_clear(&t);
	}
}

TEST(test_twice)
{
	static const struct rsh_path twice[] = {
		{ "a/b", RSH_NODE_FILE, 0 }, { "c", RSH_NODE_FILE, 1 },
		{ "a/b", RSH_NODE_LINK, 2 },
	};
	static const struct rsh_path both[] = {
		{ "a/b", RSH_NODE_FILE, 0 }, { "a", RSH_NODE_FILE, 1 },
	};
	struct rsh_tree t = empty_tree();

	assert_int_equal(rsh_tree_add_paths(&t, t.root + 1, twice, 3), -EEXIST);
	rsh_tree_clear(&t);
	t = empty_tree();
	assert_int_equal(rsh_tree_add_paths(&t, t.root + 1, both, 2), -EEXIST);
	rsh_tree_clear(&t);
}
