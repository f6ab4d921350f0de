/* SPDX-License-Identifier: Apache-2.0 */

#include "rsh/util/error.h"
#include "tests.h"

TEST(test_set)
{
	struct rsh_error err = RSH_ERROR_INIT;

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

TEST(test_own_text_as_argument)
{
	struct rsh_error err = RSH_ERROR_INIT;

	rsh_error_set(&err, EINVAL, "inner");
	rsh_error_set(&err, EINVAL, "%s, seen from outside: %s", "w",
		      err.text);
	assert_string_equal(err.text, "w, seen from outside: inner");
}

TEST(test_prefix)
{
	struct rsh_error err = RSH_ERROR_INIT;

	rsh_error_set(&err, EINVAL, "100%% wrong");
	rsh_error_prefix(&err, "rank_%d", 3);
	assert_string_equal(err.text, "rank_3: 100% wrong");
	assert_int_equal(err.code, EINVAL);
	rsh_error_prefix(NULL, "nothing");
}

TEST(test_place)
{
	static const struct {
		const char *text, *path, *placed;
	} cases[] = {
		{ "gone", "dir", "dir: gone" },
		{ "dir: gone", "dir", "dir: gone" },
		{ "dir/a: gone", "dir", "dir/a: gone" },
		{ "dir/a: gone", "dir/", "dir/a: gone" },
		{ "/a: gone", "/", "/a: gone" },
		/* A name that begins as the path does, and a word. */
		{ "__0_0.distcp is missing", "_", "_: __0_0.distcp is missing" },
		{ "tensor w: a gap", "tensor", "tensor: tensor w: a gap" },
		{ "a.pt, item at 9: bad", "a.pt", "a.pt, item at 9: bad" },
	};
	struct rsh_error err = RSH_ERROR_INIT;

	for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
		rsh_error_set(&err, EINVAL, "%s", cases[i].text);
		rsh_error_place(&err, cases[i].path);
		assert_string_equal(err.text, cases[i].placed);
		assert_int_equal(err.code, EINVAL);
	}
}

TEST(test_long_text_is_cut)
{
	struct rsh_error err = RSH_ERROR_INIT;
	char longest[3 * RSH_ERROR_TEXT_MAX];

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
