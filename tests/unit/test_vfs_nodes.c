/* SPDX-License-Identifier: Apache-2.0 */
/* unit/test_vfs_nodes.c - trees of any shape. */
#include "config.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "source_support.h"
#include "vfs/nodes.h"

/* The number of a path, looked up name by name; 0: not there. */
static uint64_t find(const struct rsh_nodes *t, const char *path)
{
	char copy[256], *rest = copy, *name;
	uint64_t number = 1;

	snprintf(copy, sizeof(copy), "%s", path);
	while (number && (name = strsep(&rest, "/")))
		number = rsh_nodes_child(t, rsh_nodes_get(t, number), name);
	return number;
}

static void test_empty(void **state)
{
	struct rsh_nodes t = { 0 };

	(void)state;
	assert_int_equal(rsh_nodes_finish(&t), 0);
	assert_int_equal(t.n, 1);
	assert_null(rsh_nodes_get(&t, 0));
	assert_null(rsh_nodes_get(&t, 2));
	assert_int_equal(find(&t, "a"), 0);
	rsh_nodes_clear(&t);
}

/* '-' and ' ' sort before '/', so that these come in another order as paths
 * than as names. */
static const char *const paths[] = {
	"a/x", "a-b/x", "a b/y/z", "a/y/z", "a-b/y", "ab/x", "b", "a b/x",
	"a-/deep/er/and/er", "z/a", "z/a-", "z/a b",
};
#define N_PATHS (sizeof(paths) / sizeof(paths[0]))

static void test_names_around_the_slash(void **state)
{
	struct rsh_nodes t = { 0 };

	(void)state;
	for (size_t i = 0; i < N_PATHS; i++)
		assert_int_equal(rsh_nodes_add(&t, paths[i], i), 0);
	assert_int_equal(rsh_nodes_finish(&t), 0);
	for (size_t i = 0; i < N_PATHS; i++) {
		uint64_t number = find(&t, paths[i]);

		assert_int_not_equal(number, 0);
		assert_int_equal(rsh_nodes_get(&t, number)->leaf, i);
	}
	assert_int_equal(find(&t, "a-/deep/er/and/e"), 0);
	assert_int_equal(find(&t, "x"), 0);
	rsh_nodes_clear(&t);
}

static void test_random_trees(void **state)
{
	static const char letters[] = "ab-.";
	struct numbers x = { numbers_seed() };

	(void)state;
	for (unsigned round = 0; round < 300; round++) {
		struct rsh_nodes t = { 0 };
		char added[40][32];
		size_t n = 0, children = 0;

		/* No directory is called as a leaf is. */
		while (n < 40) {
			char *p = added[n];

			for (unsigned d = 0; d <= numbers_below(&x, 3); d++)
				p += sprintf(p, "%c%c/",
					     letters[numbers_below(&x, 4)],
					     letters[numbers_below(&x, 4)]);
			sprintf(p, "leaf%zu", n);
			assert_int_equal(rsh_nodes_add(&t, added[n], n), 0);
			n++;
		}
		assert_int_equal(rsh_nodes_finish(&t), 0);
		for (size_t i = 0; i < n; i++) {
			const struct rsh_node *node =
				rsh_nodes_get(&t, find(&t, added[i]));

			assert_non_null(node);
			assert_int_equal(node->leaf, i);
		}
		for (size_t i = 0; i < t.n; i++) {
			const struct rsh_node *d = &t.list[i];

			children += d->n_children;
			for (size_t k = 0; k < d->n_children; k++)
				assert_int_equal(t.list[d->first_child + k]
						 .parent, i);
		}
		assert_int_equal(children, t.n - 1);
		rsh_nodes_clear(&t);
	}
}

static void test_twice(void **state)
{
	struct rsh_nodes t = { 0 };

	(void)state;
	rsh_nodes_add(&t, "a/b", 0);
	rsh_nodes_add(&t, "c", 1);
	rsh_nodes_add(&t, "a/b", 2);
	assert_int_equal(rsh_nodes_finish(&t), -EEXIST);
	rsh_nodes_clear(&t);
	rsh_nodes_add(&t, "a/b", 0);
	rsh_nodes_add(&t, "a", 1);
	assert_int_equal(rsh_nodes_finish(&t), -EEXIST);
	rsh_nodes_clear(&t);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_empty),
		cmocka_unit_test(test_names_around_the_slash),
		cmocka_unit_test(test_random_trees),
		cmocka_unit_test(test_twice),
	};

	return cmocka_run_group_tests_name("nodes", tests, NULL, NULL);
}
