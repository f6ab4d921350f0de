/* SPDX-License-Identifier: Apache-2.0 */
/* unit/test_cli_text.c - text for people. */
#include "config.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "app/cli/printer.h"

static void assert_shortened(const char *text, size_t n, const char *wanted)
{
	char *s = strdup(text);

	rsh_text_shorten(s, n);
	assert_string_equal(s, wanted);
	free(s);
}

static void test_shorten(void **state)
{
	(void)state;
	assert_shortened("abcdefghij", 10, "abcdefghij");
	assert_shortened("abcdefghij", 9, "abc...hij");
	assert_shortened("abcdefghij", 8, "ab...hij");
	assert_shortened("abcdefghij", 4, "...j");
	assert_shortened("abc", 20, "abc");
	assert_shortened("\xc3\xa4\xc3\xb6\xc3\xbc\xc3\x9f\xc3\xa4\xc3\xb6", 5,
			 "\xc3\xa4...\xc3\xb6");
	/* U+5C42 has two columns. */
	assert_shortened("\xe5\xb1\x82\xe5\xb1\x82\xe5\xb1\x82" "abc", 8,
			 "\xe5\xb1\x82...abc");
	assert_shortened("ab\xe5\xb1\x82\xe5\xb1\x82\xe5\xb1\x82", 7,
			 "ab...\xe5\xb1\x82");
	assert_shortened("\xe5\xb1\x82\xe5\xb1\x82\xe5\xb1\x82\xe5\xb1\x82", 6,
			 "...\xe5\xb1\x82");
	assert_shortened("\xe5\xb1\x82\xe5\xb1\x82\xe5\xb1\x82", 6,
			 "\xe5\xb1\x82\xe5\xb1\x82\xe5\xb1\x82");
}

/* The locale of the program does not matter. */
static void test_width(void **state)
{
	(void)state;
	assert_int_equal(rsh_text_width(""), 0);
	assert_int_equal(rsh_text_width("\xc3\xa4z"), 2);
	assert_int_equal(rsh_text_width("\xe5\xb1\x82" "a"), 3);
	assert_int_equal(rsh_text_width("\xed\x95\x9c\xea\xb8\x80"), 4);
	assert_int_equal(rsh_text_width("\xef\xbc\x81\xf0\xa0\x80\x80"), 4);
	assert_int_equal(rsh_text_width("a\xcc\x88"), 1);
	assert_int_equal(rsh_text_width("\xff" "a"), 2);
	assert_int_equal(rsh_text_fitting("\xe5\xb1\x82\xe5\xb1\x82", 3), 3);
	assert_int_equal(rsh_text_fitting("a\xcc\x88" "bc", 2), 4);
	assert_int_equal(rsh_text_fitting("abc", 9), 3);
}

static void test_bytes(void **state)
{
	char text[32];

	(void)state;
	assert_string_equal(rsh_text_bytes(0, text, sizeof(text)), "0 B");
	assert_string_equal(rsh_text_bytes(1023, text, sizeof(text)), "1023 B");
	assert_string_equal(rsh_text_bytes(1024, text, sizeof(text)),
			    "1.0 KiB");
	assert_string_equal(rsh_text_bytes((1 << 20) - 1, text, sizeof(text)),
			    "1.0 MiB");
	assert_string_equal(rsh_text_bytes(UINT64_MAX, text, sizeof(text)),
			    "16.0 EiB");
}

static void test_seconds(void **state)
{
	char text[32];

	(void)state;
	assert_string_equal(rsh_text_seconds(0.00025, text, sizeof(text)),
			    "0.25 ms");
	assert_string_equal(rsh_text_seconds(0.9, text, sizeof(text)),
			    "900 ms");
	assert_string_equal(rsh_text_seconds(1, text, sizeof(text)), "1.0 s");
	assert_string_equal(rsh_text_seconds(120, text, sizeof(text)),
			    "2.0 min");
	assert_string_equal(rsh_text_seconds(9000, text, sizeof(text)),
			    "2.5 h");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_shorten),
		cmocka_unit_test(test_width),
		cmocka_unit_test(test_bytes),
		cmocka_unit_test(test_seconds),
	};

	return cmocka_run_group_tests_name("cli_text", tests, NULL, NULL);
}
