/* SPDX-License-Identifier: Apache-2.0 */
/* unit/test_cli_text.c - text for people. */
#include "config.h"

#include "rsh/app/printer.h"
#include "tests.h"

static void assert_shortened(const char *text, size_t n, const char *wanted)
{
	cleanup_free char *s = strdup(text);

	rsh_text_shorten(s, n);
	assert_string_equal(s, wanted);
}

TEST(test_shorten)
{
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
TEST(test_width)
{
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

TEST(test_bytes)
{
	char text[32];

	assert_string_equal(rsh_text_bytes(0, text, sizeof(text)), "0 B");
	assert_string_equal(rsh_text_bytes(1023, text, sizeof(text)), "1023 B");
	assert_string_equal(rsh_text_bytes(1024, text, sizeof(text)),
			    "1.0 KiB");
	assert_string_equal(rsh_text_bytes((1 << 20) - 1, text, sizeof(text)),
			    "1.0 MiB");
	assert_string_equal(rsh_text_bytes(UINT64_MAX, text, sizeof(text)),
			    "16.0 EiB");
}

TEST(test_seconds)
{
	char text[32];

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

/* ---- values ---- */

static void put_pair(struct rsh_printer *out, const void *ctx)
{
	const int *pair = ctx;

	rsh_json(out, "[% %]", pair[0], pair[1]);
	rsh_say(out, "% to %", pair[0], pair[1]);
}

static void print_all(struct rsh_printer *out)
{
	static const struct rsh_column columns[] = {
		{ "name", "NAME" },
		{ "bytes", "SIZE", .right = true },
		{ "only_json", NULL },
		{ NULL, "ONLY TEXT" },
		{ NULL, NULL }
	};
	static const int64_t dims[] = { 2, -3 };
	static const uint32_t ranks[] = { 0, 4294967295u };
	static const int pair[] = { 1, 2 };
	const char *none = NULL;
	const bool yes = true;

	rsh_json(out, "{a:% b:[% %] c:{}", "x\"\x7f\xff", yes,
		 RSH_V_IF(false, 1));
	rsh_say(out, "%, %, % file{|s}, % {is|are}\n", "x\n\xff", none, 1, 2);
	rsh_json(out, "dims:% ranks:% pair:% time:% more:[] rows:",
		 rsh_v_dims(dims, 2), rsh_v_u32s(ranks, 2),
		 rsh_v_call(put_pair, pair), rsh_v_seconds(0.0000015));
	rsh_say(out, "%|%|%|%|%\n", rsh_v_dims(dims, 1),
		rsh_v_u32s(ranks, 2), rsh_v_u32s(ranks, 0),
		rsh_v_call(put_pair, pair), rsh_v_seconds(0.25));
	rsh_rows(out, columns);
	rsh_row(out, "one", rsh_v_bytes(1536), 5, rsh_v_call(put_pair, pair));
	rsh_row(out, none, RSH_V_NULL, none, "z");
	rsh_rows_end(out);
	rsh_json(out, "}");
}

TEST(test_json)
{
	struct rsh_printer out;
	char *text;

	rsh_printer_init_text(&out, 6, 0);
	print_all(&out);
	text = rsh_printer_take(&out);
	assert_string_equal(
		text, "{\"a\":\"x\\\"\\\\x7f\\\\xff\",\"b\":[true,null],"
		"\"c\":{},\"dims\":[2,-3],\"ranks\":[0,4294967295],"
		"\"pair\":[1,2],\"time\":1.5e-6,\"more\":[],\"rows\":["
		"{\"name\":\"one\",\"bytes\":1536,\"only_json\":5},"
		"{\"name\":null,\"bytes\":null,\"only_json\":null}]}");
	free(text);
	rsh_printer_init_text(&out, 6, 2);
	rsh_json(&out, "{a:[] b:[% {c:%}]}", 1, 2);
	text = rsh_printer_take(&out);
	assert_string_equal(text, "{\n  \"a\": [],\n  \"b\": [\n    1,\n"
			    "    {\n      \"c\": 2\n    }\n  ]\n}\n");
	free(text);
}

TEST(test_sentences)
{
	const struct rsh_printer people = { .json = false };
	struct rsh_printer out;
	char *text;

	rsh_printer_init_part(&out, &people);
	print_all(&out);
	text = rsh_printer_take(&out);
	assert_string_equal(text, "x\\x0a\\xff, -, 1 file, 2 are\n"
			    "[2]|0 4294967295|-|1 to 2|250 ms\n"
			    "NAME     SIZE  ONLY TEXT\n"
			    "one   1.5 KiB  1 to 2\n"
			    "-           -  z\n");
	free(text);
}

/* What was printed of JSON is dropped if the command fails. */
TEST(test_failure)
{
	const struct rsh_printer json = { .json = true };
	struct rsh_error err = RSH_ERROR_INIT;
	struct rsh_printer out;

	rsh_printer_init_text(&out, 6, 0);
	rsh_json(&out, "{a:%", 1);
	assert_int_equal(rsh_printer_end(&out, -EIO, &err), -EIO);
	assert_int_equal(rsh_printer_end(&out, 0, &err), 0);
	/* There are fewer values than the format wants. */
	rsh_printer_init_text(&out, 6, 0);
	rsh_json(&out, "{a:% b:%}", 1);
	assert_int_equal(rsh_printer_end(&out, 0, &err), -ENOMEM);
	rsh_printer_init_part(&out, &json);
	rsh_printer_put_part(NULL, &out);
	rsh_printer_put_part(NULL, &out);
}
