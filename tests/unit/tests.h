/* SPDX-License-Identifier: Apache-2.0 */
/* tests.h - the tests of a unit program.  Each one adds itself:
 *
 *	TEST(empty_file_is_refused)
 *	{
 *		assert_int_equal(parse("", 0), -EINVAL);
 *	}
 *
 * They run in the order of the source.  main() is in the support library; a
 * program that prepares something has its own.  The headers that nearly all of
 * them want come with it. */
#ifndef TESTS_H
#define TESTS_H

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "rsh/util/mem.h"
#include "rsh/util/names.h"

/* A test of `void **state` that setup fills and teardown frees; NULL: none. */
#define TEST_WITH(name, setup, teardown)                                     \
	static void name(void **state);                                      \
	__attribute__((constructor)) static void unit_add_##name(void)       \
	{                                                                    \
		unit_add(#name, name, setup, teardown, NULL, __LINE__);      \
	}                                                                    \
	static void name(__attribute__((unused)) void **state)
#define TEST(name) TEST_WITH(name, NULL, NULL)
/* The same of the `struct fixture *f` that setup() makes, teardown() frees. */
#define TEST_OF_FIXTURE(name)                                                \
	static void name##_of(struct fixture *f);                            \
	TEST_WITH(name, setup, teardown)                                     \
	{                                                                    \
		name##_of(*state);                                           \
	}                                                                    \
	static void name##_of(struct fixture *f)

/* A test for each row of a table of structs with a name; *state is the row. */
#define TEST_ROWS(rows)                                                      \
	static void of_##rows(void **state);                                 \
	__attribute__((constructor)) static void unit_add_##rows(void)       \
	{                                                                    \
		for (size_t i = 0; i < sizeof(rows) / sizeof(*(rows)); i++)  \
			unit_add((rows)[i].name, of_##rows, NULL, NULL,      \
				 (void *)(uintptr_t)&(rows)[i], __LINE__);   \
	}                                                                    \
	static void of_##rows(void **state)

/* A test that runs after those of smaller lines. */
void unit_add(const char *name, CMUnitTestFunction test,
	      CMFixtureFunction setup, CMFixtureFunction teardown,
	      void *initial_state, unsigned line);
/* Runs all, between setup and teardown of the program; what main() returns. */
int unit_run(CMFixtureFunction setup, CMFixtureFunction teardown);

/* A text that is written piece by piece, and has to have room for all. */
struct unit_text {
	char s[16384];
	size_t n;
};
__attribute__((format(printf, 2, 3)))
void unit_put(struct unit_text *t, const char *fmt, ...);

/* A scope guard: free_it(&x) is called at the end of the scope of x. */
#define FREED_BY(free_it) __attribute__((cleanup(free_it)))

/* The call returned 0, or the test fails with the sentence of its rsh_error. */
#define assert_good(call, err)                             \
	do {                                               \
		if (call)                                  \
			fail_msg("%s", (err).text);        \
	} while (0)

/* For a test that finds that the machine lacks what it needs, and returns then:
 * its line says "ok ... # SKIP why".  cmocka's skip() writes "not ok", which is
 * a failure to whoever reads TAP. */
#define unit_skip(why) unit_skipped(__func__, why)
void unit_skipped(const char *name, const char *why);

#endif
