/* SPDX-License-Identifier: Apache-2.0 */
/* unit/test_util_areas.c - buffers out of slabs. */
#include "config.h"

#include <unistd.h>

#include "rsh/util/areas.h"
#include "tests.h"

/* Like a window: not a divisor of a huge page. */
#define BYTES ((size_t)1024 * 1024 + 4096)
#define MANY 40

static void fill(uint8_t *area, unsigned n)
{
	memset(area, (int)n, BYTES);
}

static void check(const uint8_t *area, unsigned n)
{
	assert_int_equal(area[0], n);
	assert_int_equal(area[BYTES / 2], n);
	assert_int_equal(area[BYTES - 1], n);
}

TEST(test_areas_do_not_overlap)
{
	const uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE);
	FREED_BY(rsh_areas_destroy) struct rsh_areas a;
	uint8_t *taken[MANY];

	rsh_areas_init(&a, BYTES);
	for (unsigned i = 0; i < MANY; i++) {
		taken[i] = rsh_area_take(&a);
		assert_non_null(taken[i]);
		assert_int_equal((uintptr_t)taken[i] % page, 0);
		fill(taken[i], i);
	}
	for (unsigned i = 0; i < MANY; i++)
		check(taken[i], i);
	for (unsigned i = 0; i < MANY; i++)
		rsh_area_return(&a, taken[(i * 7) % MANY]);
}

TEST(test_the_last_one_is_the_next)
{
	FREED_BY(rsh_areas_destroy) struct rsh_areas a;
	void *first, *second;

	rsh_areas_init(&a, BYTES);
	first = rsh_area_take(&a);
	second = rsh_area_take(&a);
	rsh_area_return(&a, second);
	rsh_area_return(&a, first);
	assert_ptr_equal(rsh_area_take(&a), first);
	assert_ptr_equal(rsh_area_take(&a), second);
}

/* However many there were at a time, what is left is one slab. */
TEST(test_memory_goes_back)
{
	struct rsh_areas a;
	void *taken[MANY];

	rsh_areas_init(&a, BYTES);
	for (unsigned round = 0; round < 3; round++) {
		for (unsigned i = 0; i < MANY; i++)
			taken[i] = rsh_area_take(&a);
		assert_int_equal(a.n_slabs, 5);
		for (unsigned i = 0; i < MANY; i++)
			rsh_area_return(&a, taken[(i * 11 + round) % MANY]);
		assert_int_equal(a.n_slabs, 1);
	}
	rsh_areas_destroy(&a);
	assert_int_equal(a.n_slabs, 0);
}

TEST(test_random_use)
{
	FREED_BY(rsh_areas_destroy) struct rsh_areas a;
	uint8_t *taken[MANY] = { NULL };
	unsigned seed = 5;

	rsh_areas_init(&a, BYTES);
	for (unsigned i = 0; i < 2000; i++) {
		unsigned n = (unsigned)rand_r(&seed) % MANY;

		if (taken[n]) {
			check(taken[n], n);
			rsh_area_return(&a, taken[n]);
			taken[n] = NULL;
		} else {
			taken[n] = rsh_area_take(&a);
			assert_non_null(taken[n]);
			taken[n][0] = taken[n][BYTES / 2] =
				taken[n][BYTES - 1] = (uint8_t)n;
		}
	}
}
