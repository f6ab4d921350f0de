/* SPDX-License-Identifier: Apache-2.0 */
/* unit/test_strategy_partition.c - which mesh explains the ranks that hold the
 * same, and which one explains several tensors. */
#include "config.h"

#include "rsh/strategy/partition.h"
#include "support.h"

#define MAX_RANKS 512
#define CASES ((unsigned)rounds(4000))
#define UNKNOWN RSH_PARTITION_UNKNOWN

struct mesh {
	struct rsh_partition_axis axes[RSH_PARTITION_MAX_AXES];
	unsigned n_axes;
	uint32_t n;
};

/* ---- random meshes ---- */

static void random_mesh(struct numbers *x, struct mesh *m)
{
	static const uint32_t sizes[] = { 2, 2, 2, 2, 3, 4, 4, 5, 6, 7, 8 };

	*m = (struct mesh){ .n = 1 };
	for (unsigned left = (unsigned)numbers_below(x, 6); left > 0; left--) {
		uint32_t size = sizes[numbers_below(x, 11)];

		if (m->n * size > MAX_RANKS)
			return;
		m->n *= size;
		m->axes[m->n_axes++] = (struct rsh_partition_axis){ size, false };
	}
}

static void random_cut(struct numbers *x, struct mesh *m)
{
	for (unsigned i = 0; i < m->n_axes; i++)
		m->axes[i].cuts = numbers_below(x, 2);
}

/* The groups by the definition, numbered in another way than in the code. */
static void groups_of(const struct mesh *m, uint32_t *group)
{
	for (uint32_t r = 0; r < m->n; r++) {
		uint32_t rest = r, stride = 1, first = 0;

		for (unsigned i = m->n_axes; i-- > 0;) {
			if (m->axes[i].cuts)
				first += rest % m->axes[i].size * stride;
			rest /= m->axes[i].size;
			stride *= m->axes[i].size;
		}
		group[r] = m->n - 1 - first;
	}
}

static bool are_the_same(const uint32_t *a, const uint32_t *b, uint32_t n)
{
	for (uint32_t i = 0; i < n; i++)
		for (uint32_t k = 0; k < i; k++)
			if (a[i] != UNKNOWN && a[k] != UNKNOWN &&
			    (a[i] == a[k]) != (b[i] == b[k]))
				return false;
	return true;
}

/* Neighbours that are used alike are one axis. */
static unsigned fewest_axes(const struct mesh *m)
{
	unsigned n = 0;

	for (unsigned i = 0; i < m->n_axes; i++)
		n += i == 0 || m->axes[i].cuts != m->axes[i - 1].cuts;
	return n;
}

static void assert_product(const struct mesh *m, uint32_t n)
{
	uint32_t all = 1;

	for (unsigned i = 0; i < m->n_axes; i++) {
		assert_true(m->axes[i].size > 1);
		all *= m->axes[i].size;
	}
	assert_int_equal(all, n);
}

/* ---- one tensor ---- */

TEST(test_mesh_is_read_back)
{
	struct numbers x = { numbers_seed() };
	uint32_t group[MAX_RANKS], again[MAX_RANKS];

	for (unsigned i = 0; i < CASES; i++) {
		struct mesh m, found;

		random_mesh(&x, &m);
		random_cut(&x, &m);
		groups_of(&m, group);
		assert_int_equal(rsh_partition_mesh(group, m.n, found.axes,
						    &found.n_axes), 0);
		assert_product(&found, m.n);
		assert_int_equal(found.n_axes, fewest_axes(&m));
		rsh_partition_groups(found.axes, found.n_axes, again, m.n);
		assert_true(are_the_same(group, again, m.n));
	}
}

/* What is known must come out whatever else is not; and who knows rank 0 and
 * those that are a divisor away from it knows all. */
TEST(test_unknown_ranks)
{
	struct numbers x = { numbers_seed() };
	uint32_t group[MAX_RANKS], all[MAX_RANKS], again[MAX_RANKS];

	for (unsigned i = 0; i < CASES; i++) {
		struct mesh m, found;
		bool divisors = numbers_below(&x, 2);
		uint64_t odds = numbers_below(&x, 4);
		int rc;

		random_mesh(&x, &m);
		random_cut(&x, &m);
		groups_of(&m, all);
		for (uint32_t r = 0; r < m.n; r++)
			group[r] = divisors ? (r && m.n % r ? UNKNOWN : all[r]) :
				   numbers_below(&x, 4) < odds ? UNKNOWN :
								 all[r];
		rc = rsh_partition_mesh(group, m.n, found.axes, &found.n_axes);
		assert_in_range(rc, 0, 1);
		assert_product(&found, m.n);
		rsh_partition_groups(found.axes, found.n_axes, again, m.n);
		assert_true(are_the_same(group, again, m.n));
		/* The only one is the right one. */
		assert_true(rc == 1 || are_the_same(all, again, m.n));
		assert_false(divisors && rc == 1);
	}
}

/* Whatever is taken for a mesh has the groups that were given. */
TEST(test_groups_of_no_mesh)
{
	struct numbers x = { numbers_seed() };
	uint32_t group[MAX_RANKS], again[MAX_RANKS];
	unsigned n_none = 0;

	for (unsigned i = 0; i < CASES; i++) {
		struct mesh m, found;
		int rc;

		random_mesh(&x, &m);
		random_cut(&x, &m);
		groups_of(&m, group);
		for (uint64_t k = numbers_below(&x, 3) + 1; k > 0; k--)
			group[numbers_below(&x, m.n)] =
				(uint32_t)numbers_below(&x, m.n);
		rc = rsh_partition_mesh(group, m.n, found.axes, &found.n_axes);
		n_none += rc == -ENOENT;
		if (rc == -ENOENT)
			continue;
		assert_int_equal(rc, 0);
		rsh_partition_groups(found.axes, found.n_axes, again, m.n);
		assert_true(are_the_same(group, again, m.n));
	}
	assert_in_range(n_none, CASES / 4, CASES);
}

static void assert_mesh(const uint32_t *group, uint32_t n, const char *want)
{
	struct mesh m;
	char text[128];

	assert_int_equal(rsh_partition_mesh(group, n, m.axes, &m.n_axes), 0);
	assert_string_equal(rsh_partition_mesh_text(m.axes, m.n_axes, text,
						    sizeof(text)), want);
}

TEST(test_examples)
{
	static const uint32_t one[] = { 0 }, same[] = { 3, 3, 3, 3 };
	static const uint32_t inner[] = { 0, 1, 2, 3, 0, 1, 2, 3 };
	static const uint32_t outer[] = { 0, 0, 1, 1 };
	static const uint32_t both[] = { 0, 1, 0, 1, 2, 3, 2, 3 };
	static const uint32_t crooked[] = { 0, 1, 1, 0 };
	struct mesh m;

	assert_mesh(one, 1, "mesh [1] not cut");
	assert_mesh(same, 4, "mesh [4] not cut");
	assert_mesh(inner, 8, "mesh [2,4] cut over axis 1");
	assert_mesh(outer, 4, "mesh [2,2] cut over axis 0");
	assert_mesh(both, 8, "mesh [2,2,2] cut over axes 0 and 2");
	assert_int_equal(rsh_partition_mesh(crooked, 4, m.axes, &m.n_axes),
			 -ENOENT);
}

/* ---- several tensors ---- */

static bool begins_at(const struct mesh *m, uint32_t stride)
{
	uint32_t at = 1;

	for (unsigned i = m->n_axes; i-- > 0; at *= m->axes[i].size)
		if (at == stride)
			return true;
	return false;
}

/* Is the partition one over axes of m? */
static bool explains(const struct mesh *m, const struct mesh *tensor)
{
	uint32_t at = 1;

	for (unsigned i = tensor->n_axes; i-- > 0; at *= tensor->axes[i].size)
		if (!begins_at(m, at))
			return false;
	return true;
}

/* Tensors that are cut over axes of one mesh have a common one, which has no
 * axis that none of them needs. */
TEST(test_common_mesh)
{
	struct numbers x = { numbers_seed() };
	uint32_t group[MAX_RANKS];

	for (unsigned i = 0; i < CASES; i++) {
		struct mesh m, all = { .n_axes = 0 }, tensors[6];
		const unsigned n = 1 + (unsigned)numbers_below(&x, 6);

		random_mesh(&x, &m);
		for (unsigned t = 0; t < n; t++) {
			struct mesh *one = &tensors[t];

			random_cut(&x, &m);
			groups_of(&m, group);
			assert_int_equal(rsh_partition_mesh(group, m.n,
							    one->axes,
							    &one->n_axes), 0);
			if (t == 0)
				all = *one;
			else
				assert_true(rsh_partition_refine(
					all.axes, &all.n_axes, one->axes,
					one->n_axes));
		}
		assert_product(&all, m.n);
		assert_true(explains(&m, &all));
		for (unsigned t = 0; t < n; t++)
			assert_true(explains(&all, &tensors[t]));
		for (uint32_t at = 2; at < m.n; at++) {
			bool needed = false;

			for (unsigned t = 0; t < n; t++)
				needed |= begins_at(&tensors[t], at);
			assert_int_equal(begins_at(&all, at), needed);
		}
	}
}

TEST(test_common_mesh_examples)
{
	static const struct rsh_partition_axis
		a[] = { { 2, false }, { 3, true } },
		b[] = { { 3, false }, { 2, true } },
		c[] = { { 6, true } },
		d[] = { { 2, true }, { 2, false }, { 3, true } },
		e[] = { { 12, false } }, f[] = { { 4, true }, { 3, false } };
	struct mesh m = { .n_axes = 2 };
	char text[128];

	memcpy(m.axes, a, sizeof(a));
	assert_false(rsh_partition_refine(m.axes, &m.n_axes, b, 2));
	assert_false(rsh_partition_refine(m.axes, &m.n_axes, e, 1));
	assert_false(rsh_partition_refine(m.axes, &m.n_axes, e, 0));
	assert_int_equal(m.n_axes, 2);
	assert_false(m.axes[0].cuts);
	assert_true(rsh_partition_refine(m.axes, &m.n_axes, c, 1));
	assert_string_equal(rsh_partition_mesh_text(m.axes, m.n_axes, text,
						    sizeof(text)),
			    "mesh [2,3] cut over axes 0 and 1");
	memcpy(m.axes, e, sizeof(e));
	m.n_axes = 1;
	assert_true(rsh_partition_refine(m.axes, &m.n_axes, d, 3));
	assert_true(rsh_partition_refine(m.axes, &m.n_axes, f, 2));
	assert_string_equal(rsh_partition_mesh_text(m.axes, m.n_axes, text,
						    sizeof(text)),
			    "mesh [2,2,3] cut over axes 0 and 1 and 2");
}
