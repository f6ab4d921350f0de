/* SPDX-License-Identifier: Apache-2.0 */
/* test_util_library.c loads what every system has, and what none has. */

#include "rsh/util/library.h"
#include "tests.h"

static double (*cosine)(double x);
static void (*nothing)(void);

TEST(test_symbol_is_found)
{
	const struct rsh_library_symbol symbols[] = { { "cos", &cosine } };
	struct rsh_error err = RSH_ERROR_INIT;

	assert_int_equal(rsh_library_load("libm.so.6", "libtest1", "a test", symbols, 1,
					  &err), 0);
	assert_true(cosine(0.0) == 1.0);
}

TEST(test_missing_symbol)
{
	const struct rsh_library_symbol symbols[] = { { "nosuch", &nothing } };
	struct rsh_error err = RSH_ERROR_INIT;

	assert_int_equal(rsh_library_load("libm.so.6", "libtest1", "a test", symbols, 1,
					  &err), -ENOENT);
	assert_non_null(strstr(err.text, "a test needs another version of libm.so.6: "));
	assert_non_null(strstr(err.text, "nosuch"));
	assert_null(nothing);
}

TEST(test_missing_library)
{
	struct rsh_error err = RSH_ERROR_INIT;

	assert_int_equal(rsh_library_load("libnosuch.so.1", "libtest1", "a test", NULL, 0,
					  &err), -ENOENT);
	assert_non_null(strstr(err.text, "a test needs a library: "
			       "libnosuch.so.1: "));
	assert_non_null(strstr(err.text, "; install the package libtest1"));
}
