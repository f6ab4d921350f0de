/* SPDX-License-Identifier: Apache-2.0 */
/* Growing arrays, scope guards, arenas. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include <errno.h>
#include <fcntl.h>
#include <unistd.h>

#include "rsh/util/arena.h"
#include "rsh/util/checked.h"
#include "rsh/util/mem.h"

static void test_grow(void **state)
{
	uint32_t *v = NULL;
	size_t cap = 0;

	(void)state;
	for (uint32_t i = 0; i < 100000; i++) {
		assert_int_equal(rsh_grow(&v, &cap, i + 1, sizeof(*v)), 0);
		assert_true(cap > i);
		v[i] = i;
	}
	for (uint32_t i = 0; i < 100000; i++)
		assert_int_equal(v[i], i);
	assert_true(cap < 2 * 100000);
	free(v);
}

static void test_grow_refuses_the_impossible(void **state)
{
	uint64_t *v = NULL, *before;
	size_t cap = 0;

	(void)state;
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

static void test_guards(void **state)
{
	char *text;
	int fd;

	(void)state;
	open_and_leave(&fd);
	assert_int_equal(errno, EBADMSG);
	assert_int_equal(fcntl(fd, F_GETFD), -1);

	fd = open_and_keep(&text);
	assert_true(fcntl(fd, F_GETFD) >= 0);
	assert_string_equal(text, "kept");
	close(fd);
	free(text);
}

static void test_arena(void **state)
{
	struct rsh_arena a = { 0 };
	uint64_t *first = rsh_arena_array(&a, uint64_t, 3);
	char *words[2000];

	(void)state;
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

static void test_arena_sizes(void **state)
{
	struct rsh_arena a = { 0 };
	char *large = rsh_arena_alloc(&a, 1 << 20, 16);
	char *small = rsh_arena_alloc(&a, 3, 1);
	char *huge = rsh_arena_alloc(&a, 1 << 21, 16);
	char *next = rsh_arena_alloc(&a, 3, 1);

	(void)state;
	assert_non_null(large);
	assert_non_null(huge);
	memset(large, 1, 1 << 20);
	memset(huge, 2, 1 << 21);
	assert_int_equal(small[0], 0);
	assert_ptr_equal(next, small + 3); /* the block in use is filled up */
	assert_non_null(rsh_arena_alloc(&a, 0, 8));
	assert_null(rsh_arena_array(&a, uint64_t, SIZE_MAX / 4));
	assert_null(rsh_arena_alloc(&a, SIZE_MAX - 8, 8));
	rsh_arena_clear(&a);
}

static void test_checked(void **state)
{
	const int64_t shape[] = { 3, 5, 7 }, zero[] = { 3, 0 };
	const int64_t negative[] = { 3, -1 }, large[] = { INT64_MAX, 2 };
	uint64_t v;

	(void)state;
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

static void test_dir_of(void **state)
{
	int file = open("/dev/null", O_RDONLY | O_CLOEXEC);
	DIR *dir;

	(void)state;
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

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_dir_of),
		cmocka_unit_test(test_grow),
		cmocka_unit_test(test_grow_refuses_the_impossible),
		cmocka_unit_test(test_guards),
		cmocka_unit_test(test_arena),
		cmocka_unit_test(test_arena_sizes),
		cmocka_unit_test(test_checked),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
