/* SPDX-License-Identifier: Apache-2.0 */
/* Names that are anybody's bytes, escaped. */

#include "rsh/util/text.h"
#include "tests.h"

TEST(test_escape)
{
	static const struct {
		const char *raw, *shown;
	} cases[] = {
		{ "", "" },
		{ "layers.0.weight", "layers.0.weight" },
		{ "gr\xc3\xb6\xc3\x9f" "e \xe5\xb1\x82 \xf0\x9f\x98\x80",
		  "gr\xc3\xb6\xc3\x9f" "e \xe5\xb1\x82 \xf0\x9f\x98\x80" },
		{ "a\nb\tc\x1b[0m\x7f", "a\\x0ab\\x09c\\x1b[0m\\x7f" },
		{ "a\\x0a", "a\\\\x0a" },
		{ "\xc2\x9b", "\\xc2\\x9b" },         /* a C1 control */
		{ "\xe2\x80\xae", "\\xe2\\x80\\xae" }, /* right to left */
		{ "\xe2\x80\xa8", "\\xe2\\x80\\xa8" }, /* a line separator */
		{ "\xf3\xa0\x81\x81", "\\xf3\\xa0\\x81\\x81" }, /* a tag */
		{ "\xff", "\\xff" },
		{ "\x80", "\\x80" },
		{ "\xc3", "\\xc3" },                   /* cut short */
		{ "\xc3z", "\\xc3z" },
		{ "\xc0\xaf", "\\xc0\\xaf" },          /* overlong */
		{ "\xed\xa0\x80", "\\xed\\xa0\\x80" }, /* a surrogate */
		{ "\xf4\x90\x80\x80", "\\xf4\\x90\\x80\\x80" },
		{ "\xe2\x82", "\\xe2\\x82" },
	};

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		char *shown = rsh_text_escape(cases[i].raw);

		assert_string_equal(shown, cases[i].shown);
		free(shown);
	}
}

/* What fits, and three dots instead of what does not. */
TEST(test_put)
{
	static const struct {
		const char *raw;
		size_t size;
		const char *shown;
	} cases[] = {
		{ "", 5, "" },
		{ "abcd", 5, "abcd" },
		{ "abcde", 5, "a..." },
		{ "\n", 5, "\\x0a" },
		{ "\n!", 5, "..." },
		{ "ab\n\n", 10, "ab\\x0a..." },
		{ "ab\n", 7, "ab\\x0a" },
		{ "ab\n", 6, "ab..." },
		{ "\xe5\xb1\x82\xe5\xb1\x82", 7,
		  "\xe5\xb1\x82\xe5\xb1\x82" },
		{ "\xe5\xb1\x82\xe5\xb1\x82z", 7, "\xe5\xb1\x82..." },
	};

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		/* Of that size, so that a sanitizer sees the byte too many. */
		char *to = malloc(cases[i].size);

		assert_ptr_equal(rsh_text_put(to, cases[i].size, cases[i].raw),
				 to);
		assert_string_equal(to, cases[i].shown);
		free(to);
	}
}

/* "\xNN" and "\\\\" back to bytes. */
static size_t unescape(char *s)
{
	char *to = s;
	const char *from = s;
	unsigned byte;

	while (*from) {
		if (*from != '\\') {
			*to++ = *from++;
		} else if (from[1] == '\\') {
			*to++ = '\\';
			from += 2;
		} else {
			assert_int_equal(sscanf(from, "\\x%2x", &byte), 1);
			*to++ = (char)byte;
			from += 4;
		}
	}
	return (size_t)(to - s);
}

/* Whatever the bytes: no control is left, and the name can be had back. */
TEST(test_any_bytes)
{
	static const unsigned char likely[] = {
		'a', '\\', 'x', '0', '\n', 0x1b, 0x7f, 0xc2, 0x9b, 0xe2, 0x80,
		0xae, 0xa8, 0xf3, 0xa0, 0x81, 0xff, 0xed, 0xef, 0xbb, 0xbf,
	};
	unsigned seed = 20261122;
	char raw[24];

	for (int i = 0; i < 100000; i++) {
		size_t n = (size_t)rand_r(&seed) % sizeof(raw);
		char *shown;

		for (size_t k = 0; k < n; k++)
			raw[k] = (char)likely[(size_t)rand_r(&seed) %
					      sizeof(likely)];
		raw[n] = '\0';
		shown = rsh_text_escape(raw);
		assert_non_null(shown);
		for (const char *s = shown; *s; s++)
			assert_true((unsigned char)*s >= 0x20 && *s != 0x7f);
		assert_null(strstr(shown, "\xe2\x80\xae"));
		assert_null(strstr(shown, "\xc2\x9b"));
		assert_int_equal(unescape(shown), n);
		assert_memory_equal(shown, raw, n);
		free(shown);
	}
}

TEST(test_json)
{
	static const struct {
		const char *raw, *shown;
	} cases[] = {
		{ "{\n  \"a\\u001b\": [1]\n}\n",
		  "{\n  \"a\\u001b\": [1]\n}\n" },
		{ "\"gr\xc3\xb6\xc3\x9f" "e\"", "\"gr\xc3\xb6\xc3\x9f" "e\"" },
		{ "\"\x7f\xc2\x9b\"", "\"\\u007f\\u009b\"" },
		{ "\"\xe2\x80\xae\"", "\"\\u202e\"" },
		{ "\"\xf3\xa0\x81\x81\"", "\"\\udb40\\udc41\"" },
	};

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		char *shown = rsh_text_json(cases[i].raw);

		assert_string_equal(shown, cases[i].shown);
		free(shown);
	}
}

TEST(test_hex)
{
	const uint8_t bytes[] = { 0x00, 0x9a, 0xff, 0x10 };
	char text[10] = "*********";

	assert_ptr_equal(rsh_text_hex(text, bytes, 4), text + 8);
	assert_string_equal(text, "009aff10");
	assert_ptr_equal(rsh_text_hex(text, bytes, 0), text);
	assert_string_equal(text, "");
}

TEST(test_number_after)
{
	uint64_t n = 7;

	assert_true(rsh_number_after("step_", "step_012/x", 8, &n));
	assert_int_equal(n, 12);
	assert_true(rsh_number_after("", "3", 1, &n));
	assert_int_equal(n, 3);
	assert_false(rsh_number_after("step_", "step_012/x", 9, &n));
	assert_false(rsh_number_after("step_", "step_", 5, &n));
	assert_false(rsh_number_after("step_", "step_1", 3, &n));
	assert_false(rsh_number_after("step_", "stop_1", 6, &n));
}

TEST(test_word_place)
{
	assert_int_equal(rsh_word_place("a|bc|b", "|", "bc", 2), 1);
	assert_int_equal(rsh_word_place("a|bc|b", "|", "bc", 1), 2);
	assert_int_equal(rsh_word_place("a|bc|b", "|", "", 0), -1);
	assert_int_equal(rsh_word_place("a|bc|b", "|", "a|b", 3), -1);
	assert_int_equal(rsh_word_place("a,bc b", ", ", "b", 1), 2);
	assert_int_equal(rsh_word_place("", "|", "", 0), 0);
	assert_int_equal(rsh_word_place(NULL, "|", "a", 1), -1);
}
