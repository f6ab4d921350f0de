/* SPDX-License-Identifier: Apache-2.0 */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include <errno.h>

#include "rsh/util/error.h"

static void test_set(void **state)
{
	struct rsh_error err = RSH_ERROR_INIT;

	(void)state;
	assert_int_equal(err.code, 0);
	assert_string_equal(err.text, "");
	assert_int_equal(rsh_error_set(&err, EINVAL, "%s: %d", "a.ckpt", 7),
			 -EINVAL);
	assert_int_equal(err.code, EINVAL);
	assert_string_equal(err.text, "a.ckpt: 7");
	assert_int_equal(rsh_error_set(&err, EIO, "other"), -EIO);
	assert_string_equal(err.text, "other");
	assert_int_equal(rsh_error_set(NULL, ENOENT, "%s", "x"), -ENOENT);
	assert_int_equal(rsh_error_nomem(&err), -ENOMEM);
	assert_int_equal(err.code, ENOMEM);
}

static void test_own_text_as_argument(void **state)
{
	struct rsh_error err = RSH_ERROR_INIT;

	(void)state;
	rsh_error_set(&err, EINVAL, "inner");
	rsh_error_set(&err, EINVAL, "%s, seen from outside: %s", "w",
		      err.text);
	assert_string_equal(err.text, "w, seen from outside: inner");
}

static void test_prefix(void **state)
{
	struct rsh_error err = RSH_ERROR_INIT;

	(void)state;
	rsh_error_set(&err, EINVAL, "100%% wrong");
	rsh_error_prefix(&err, "rank_%d", 3);
	assert_string_equal(err.text, "rank_3: 100% wrong");
	assert_int_equal(err.code, EINVAL);
	rsh_error_prefix(NULL, "nothing");
}

static void test_long_text_is_cut(void **state)
{
	struct rsh_error err = RSH_ERROR_INIT;
	char longest[3 * RSH_ERROR_TEXT_MAX];

	(void)state;
	memset(longest, 'x', sizeof(longest) - 1);
	longest[RSH_ERROR_TEXT_MAX - 1] = '\0';
	rsh_error_set(&err, EINVAL, "%s", longest);
	assert_string_equal(err.text, longest); /* it just fits */

	longest[RSH_ERROR_TEXT_MAX - 1] = 'x';
	longest[sizeof(longest) - 1] = '\0';
	rsh_error_set(&err, EINVAL, "%s", longest);
	assert_int_equal(strlen(err.text), RSH_ERROR_TEXT_MAX - 1);
	assert_string_equal(err.text + RSH_ERROR_TEXT_MAX - 5, "x...");
	rsh_error_prefix(&err, "front");
	assert_memory_equal(err.text, "front: x", 8);
	assert_string_equal(err.text + RSH_ERROR_TEXT_MAX - 4, "...");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_set),
		cmocka_unit_test(test_own_text_as_argument),
		cmocka_unit_test(test_prefix),
		cmocka_unit_test(test_long_text_is_cut),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
