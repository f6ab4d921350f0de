/* SPDX-License-Identifier: Apache-2.0 */
/* Regular expressions of options, however deep they are. */

#include "rsh/util/pattern.h"
#include "tests.h"

static int compile(const char *text, struct rsh_error *err)
{
	regex_t re;
	int rc;

	*err = (struct rsh_error)RSH_ERROR_INIT;
	rc = rsh_pattern_compile(&re, "only:", text, err);
	if (rc == 0)
		regfree(&re);
	return rc;
}

TEST(expressions_are_accepted)
{
	static const char *const texts[] = {
		"", "^layers\\.[0-9]+\\.", "(a|b)(c|d)", "\\(\\(\\(", "[(]",
	};
	struct rsh_error err;

	for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++)
		assert_int_equal(compile(texts[i], &err), 0);
	assert_int_equal(compile("(a", &err), -EINVAL);
	assert_non_null(strstr(err.text, "only: \"(a\": "));
}

/* Groups that follow each other are no deeper. */
TEST(groups_in_groups_are_counted)
{
	const size_t depths[] = { 1, RSH_PATTERN_DEPTH, RSH_PATTERN_DEPTH + 1,
				  100000 };
	struct rsh_error err;

	for (size_t i = 0; i < sizeof(depths) / sizeof(depths[0]); i++) {
		const size_t n = depths[i];
		char *text = malloc(2 * n + 2);

		memset(text, '(', n);
		text[n] = 'a';
		memset(text + n + 1, ')', n);
		text[2 * n + 1] = '\0';
		assert_int_equal(compile(text, &err),
				 n <= RSH_PATTERN_DEPTH ? 0 : -EINVAL);
		if (n > RSH_PATTERN_DEPTH)
			assert_non_null(strstr(err.text, "more than 50 groups "
					       "are in one another"));
		for (size_t k = 0; k + 3 <= 2 * n; k += 3)
			memcpy(text + k, "(a)", 3);
		text[2 * n / 3 * 3] = '\0';
		assert_int_equal(compile(n < 1000 ? text : "", &err), 0);
		free(text);
	}
}
