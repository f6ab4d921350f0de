/* SPDX-License-Identifier: Apache-2.0 */
/* Growing arrays, scope guards, arenas. */

#include <fcntl.h>
#include <unistd.h>

#include "rsh/util/arena.h"
#include "rsh/util/checked.h"
#include "tests.h"

TEST(test_grow)
{
	cleanup_free uint32_t *v = NULL;
	size_t cap = 0;

	for (uint32_t i = 0; i < 100000; i++) {
		assert_int_equal(rsh_grow(&v, &cap, i + 1, sizeof(*v)), 0);
		assert_true(cap > i);
		v[i] = i;
	}
	for (uint32_t i = 0; i < 100000; i++)
		assert_int_equal(v[i], i);
	assert_true(cap < 2 * 100000);
}

TEST(test_grow_refuses_the_impossible)
{
	uint64_t *v = NULL, *before;
	size_t cap = 0;

	assert_int_equal(rsh_grow(&v, &cap, 1, sizeof(*v)), 0);
	v[0] = 42;
	before = v;
	assert_int_equal(rsh_grow(&v, &cap, SIZE_MAX, 8), -ENOMEM);
	assert_int_equal(rsh_grow(&v, &cap, SIZE_MAX / 8 + 1, 8), -ENOMEM);
	assert_ptr_equal(v, before);
	assert_int_equal(v[0], 42);
	free(v);
	assert_null(rsh_alloc_array(SIZE_MAX / 2, 4));
	before = rsh_alloc_array(0, 8);
	assert_non_null(before);
	free(before);
}

static int open_and_leave(int *number)
{
	cleanup_fd int fd = open("/dev/null", O_RDONLY);
	cleanup_free char *p = malloc(10);

	assert_true(fd >= 0);
	assert_non_null(p);
	*number = fd;
	errno = EBADMSG;
	return fd;
}

static int open_and_keep(char **text)
{
	cleanup_fd int fd = open("/dev/null", O_RDONLY);
	cleanup_free char *p = strdup("kept");

	*text = steal_pointer(&p);
	assert_null(p);
	return steal_fd(&fd);
}

TEST(test_guards)
{
	char *text;
	int fd;

	open_and_leave(&fd);
	assert_int_equal(errno, EBADMSG);
	assert_int_equal(fcntl(fd, F_GETFD), -1);

	fd = open_and_keep(&text);
	assert_true(fcntl(fd, F_GETFD) >= 0);
	assert_string_equal(text, "kept");
	close(fd);
	free(text);
}

TEST(test_arena)
{
	struct rsh_arena a = { 0 };
	uint64_t *first = rsh_arena_array(&a, uint64_t, 3);
	char *words[2000];

	assert_non_null(first);
	first[2] = UINT64_MAX;
	for (size_t i = 0; i < 2000; i++) {
		size_t n = 1 + i % 37;
		uint64_t *numbers;

		words[i] = rsh_arena_strndup(&a, "abcdefghijklmnopqrstuvwxyz"
						 "0123456789xyz", n);
		assert_non_null(words[i]);
		numbers = rsh_arena_array(&a, uint64_t, n);
		assert_int_equal((uintptr_t)numbers % _Alignof(uint64_t), 0);
		for (size_t k = 0; k < n; k++) {
			assert_int_equal(numbers[k], 0);
			numbers[k] = UINT64_MAX;
		}
	}
	/* No piece was given out twice. */
	for (size_t i = 0; i < 2000; i++)
		assert_int_equal(strlen(words[i]), 1 + i % 37);
	assert_true(first[2] == UINT64_MAX);
	rsh_arena_clear(&a);
	assert_null(a.blocks);
}

TEST(test_arena_sizes)
{
	FREED_BY(rsh_arena_clear) struct rsh_arena a = { 0 };
	char *large = rsh_arena_alloc(&a, 1 << 20, 16);
	char *small = rsh_arena_alloc(&a, 3, 1);
	char *huge = rsh_arena_alloc(&a, 1 << 21, 16);
	char *next = rsh_arena_alloc(&a, 3, 1);

	assert_non_null(large);
	assert_non_null(huge);
	memset(large, 1, 1 << 20);
	memset(huge, 2, 1 << 21);
	assert_int_equal(small[0], 0);
	assert_ptr_equal(next, small + 3); /* the block in use is filled up */
	assert_non_null(rsh_arena_alloc(&a, 0, 8));
	assert_null(rsh_arena_array(&a, uint64_t, SIZE_MAX / 4));
	assert_null(rsh_arena_alloc(&a, SIZE_MAX - 8, 8));
}

TEST(test_checked)
{
	const int64_t shape[] = { 3, 5, 7 }, zero[] = { 3, 0 };
	const int64_t negative[] = { 3, -1 }, large[] = { INT64_MAX, 2 };
	uint64_t v;

	assert_true(rsh_add_u64(UINT64_MAX - 1, 1, &v));
	assert_true(v == UINT64_MAX);
	assert_false(rsh_add_u64(UINT64_MAX, 1, &v));
	assert_false(rsh_mul_u64(UINT64_MAX / 2, 3, &v));
	assert_true(rsh_product_i64(shape, 3, &v));
	assert_int_equal(v, 105);
	assert_true(rsh_product_i64(NULL, 0, &v));
	assert_int_equal(v, 1);
	assert_true(rsh_product_i64(zero, 2, &v));
	assert_int_equal(v, 0);
	assert_false(rsh_product_i64(negative, 2, &v));
	assert_false(rsh_product_i64(large, 2, &v));
}

TEST(test_dir_of)
{
	int file = open("/dev/null", O_RDONLY | O_CLOEXEC);
	DIR *dir;

	errno = ELOOP;
	assert_null(rsh_dir_of(-1));
	assert_int_equal(errno, ELOOP);
	/* What is none is closed as well. */
	assert_true(file >= 0);
	assert_null(rsh_dir_of(file));
	assert_int_equal(errno, ENOTDIR);
	assert_int_equal(fcntl(file, F_GETFD), -1);
	dir = rsh_dir_of(open("/", O_RDONLY | O_DIRECTORY | O_CLOEXEC));
	assert_non_null(dir);
	assert_non_null(readdir(dir));
	closedir(dir);
}

TEST(test_products_and_parts)
{
	const uint64_t v[] = { 3, UINT64_C(1) << 62, 4 };
	uint64_t n = 7;

	assert_true(rsh_product_u64(v, 0, &n));
	assert_int_equal(n, 1);
	assert_true(rsh_product_u64(v, 2, &n));
	assert_true(n == UINT64_C(3) << 62);
	assert_false(rsh_product_u64(v, 3, &n));
	assert_int_equal(rsh_div_up(9, 3), 3);
	assert_int_equal(rsh_div_up(10, 3), 4);
	assert_int_equal(rsh_div_up(1, UINT64_MAX), 1);
	assert_true(rsh_div_up(UINT64_MAX, 1) == UINT64_MAX);
	assert_int_equal(rsh_div_up(0, 0), 0);
}

TEST(test_index)
{
	const int v[] = { 4, 7, 7 };
	const uint8_t n = 3;
	int asked = 0;

	assert_int_equal(rsh_index(i, n, v[i] == 7), 1);
	assert_int_equal(rsh_index(i, n, v[i] == 8), 3);
	assert_true(rsh_any(i, n, (asked++, v[i] == 4)));
	assert_int_equal(asked, 1);
	assert_false(rsh_any(i, 0, v[i] == 4));
	assert_true(rsh_all(i, n, v[i] > 3));
	assert_false(rsh_all(i, n, v[i] > 4));
	assert_true(rsh_all(i, 0, v[i] > 4));
}
