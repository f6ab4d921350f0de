/* SPDX-License-Identifier: Apache-2.0 */
/* Members of a JSON object changed in its text. */
#include "wire_support.h"

#include "rsh/wire/json_edit.h"
#include "rsh/wire/json_load.h"

static struct rsh_json_edit *open_text(const char *text)
{
	struct rsh_error err = RSH_ERROR_INIT;
	struct rsh_json_edit *e;

	if (rsh_json_edit_open(text, strlen(text), "c", &e, &err))
		fail_msg("%s: %s", text, err.text);
	return e;
}

static void assert_written(struct rsh_json_edit *e, const char *wanted)
{
	char *out;
	size_t len;

	assert_int_equal(rsh_json_edit_write(e, &out, &len), 0);
	assert_string_equal(out, wanted);
	assert_int_equal(len, strlen(wanted));
	free(out);
	rsh_json_edit_free(e);
}

TEST(test_nothing)
{
	static const char *const texts[] = {
		"{}", " {\n}\n", "{\"a\":1}",
		"\t{ \"a\" :\r\n[1, {\"b\": {}}] }",
		"{\"a\": NaN, \"b\": [0.0, Infinity, -Infinity], \"a\": -1e9}",
	};

	for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++) {
		struct rsh_json_edit *e = open_text(texts[i]);

		assert_false(rsh_json_edit_changed(e));
		assert_written(e, texts[i]);
	}
}

TEST(test_finding)
{
	struct rsh_json_edit *e = open_text(
		"{\"n\": 12, \"s\": \"a\\u00e9\", \"t\": true, \"z\": null, "
		"\"f\": 1.5, \"m\": -3, \"large\": 18446744073709551616, "
		"\"o\": {\"n\": 1}, \"n\": 13, \"o\": {\"m\": 2}}");
	const struct rsh_json_member *m = rsh_json_edit_find(e, NULL, "n");

	assert_int_equal(m->kind, RSH_JSON_NUMBER);
	assert_int_equal(m->number, 13);
	assert_string_equal(rsh_json_edit_find(e, NULL, "s")->string, "aé");
	assert_int_equal(rsh_json_edit_find(e, NULL, "t")->number, 1);
	assert_int_equal(rsh_json_edit_find(e, NULL, "z")->kind,
			 RSH_JSON_NULL);
	for (unsigned i = 0; i < 3; i++)
		assert_int_equal(rsh_json_edit_find(e, NULL, i == 0 ? "f" :
						    i == 1 ? "m" : "large")
				 ->kind, RSH_JSON_OTHER);
	/* As in Python, the last object of a name is the one. */
	assert_null(rsh_json_edit_find(e, "o", "n"));
	assert_int_equal(rsh_json_edit_find(e, "o", "m")->number, 2);
	assert_null(rsh_json_edit_find(e, "n", "m"));
	assert_string_equal(rsh_json_edit_at(e, 8)->key, "n");
	assert_null(rsh_json_edit_at(e, 10));
	rsh_json_edit_free(e);
}

static bool is_ended(const char *text, size_t n)
{
	struct rsh_error err = RSH_ERROR_INIT;
	struct rsh_memory bytes = { text, n };
	bool ended;

	assert_int_equal(rsh_json_is_ended(&(struct rsh_byte_source){
		rsh_memory_pread, &bytes, n, "c" }, &ended, &err), 0);
	return ended;
}

TEST(test_the_end)
{
	static char large[50000];
	static const char text[] = "{\"a\": [{}, \"}]\\\"}\"], "
				   "\"nan\": NaN, \"o\": {\"p\": 1}}\n";

	for (size_t n = 0; n < sizeof(text); n++)
		assert_int_equal(is_ended(text, n), n + 2 >= sizeof(text));
	assert_true(is_ended("[1]", 3));
	assert_false(is_ended("12\\", 3));
	/* A string that is longer than what is read at once. */
	memset(large, '}', sizeof(large));
	memcpy(large, "{\"a\":\"", 6);
	assert_false(is_ended(large, sizeof(large)));
	memcpy(large + sizeof(large) - 2, "\"}", 2);
	assert_false(is_ended(large, sizeof(large) - 1));
	assert_true(is_ended(large, sizeof(large)));
}

TEST(test_setting)
{
	struct rsh_json_edit *e = open_text(
		"{\"a\" : 1,\"o\":{\"a\":2 , \"b\":3},\n\"a\":[ 4 ]}\n");

	rsh_json_edit_set(e, NULL, "a", "\"x\"");
	rsh_json_edit_set(e, "o", "b", "5");
	rsh_json_edit_set(e, "o", "none", "6");
	assert_true(rsh_json_edit_changed(e));
	assert_written(e, "{\"a\" : \"x\",\"o\":{\"a\":2 , \"b\":5},\n"
		       "\"a\":\"x\"}\n");
}

TEST(test_adding)
{
	static const char *const texts[][2] = {
		{ "{}", "{\"k\": 1,\"l\": 2}" },
		{ " { } ", " {\"k\": 1,\"l\": 2 } " },
		{ "{\"a\":{}}", "{\"a\":{},\"k\":1,\"l\":2}" },
		{ "{\n  \"b\": 1,\n  \"a\": 1\n}\n",
		  "{\n  \"b\": 1,\n  \"a\": 1,\n  \"k\": 1,\n  \"l\": 2\n}\n" },
		{ "{ \"a\" : \"}\" }",
		  "{ \"a\" : \"}\", \"k\" : 1, \"l\" : 2 }" },
	};

	for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++) {
		struct rsh_json_edit *e = open_text(texts[i][0]);

		rsh_json_edit_set(e, NULL, "k", "0");
		rsh_json_edit_set(e, NULL, "l", "2");
		rsh_json_edit_set(e, NULL, "k", "1");
		assert_written(e, texts[i][1]);
	}
}

TEST(test_leaving_out)
{
	static const struct {
		const char *drop, *text;
	} cases[] = {
		{ "a", "{ \"b\": {\"a\": 2} , \"c\":3 }" },
		{ "b", "{ \"a\": 1 , \"c\":3 }" },
		{ "c", "{ \"a\": 1, \"b\": {\"a\": 2} }" },
		{ "ab", "{ \"c\":3 }" },
		{ "bc", "{ \"a\": 1 }" },
		{ "ac", "{ \"b\": {\"a\": 2} }" },
		{ "abc", "{  }" },
	};

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct rsh_json_edit *e = open_text(
			"{ \"a\": 1, \"b\": {\"a\": 2} , \"c\":3 }");

		for (const char *k = cases[i].drop; *k; k++)
			rsh_json_edit_drop(e, NULL, (char[]){ *k, '\0' });
		assert_written(e, cases[i].text);
	}
}

TEST(test_all_at_once)
{
	struct rsh_json_edit *e = open_text(
		"{\n  \"q\": {\"x\": 1},\n  \"o\": {\"q\": 1, \"t\": \"a\"},\n"
		"  \"t\": \"a\",\n  \"q\": 0\n}");

	rsh_json_edit_drop(e, NULL, "q");
	rsh_json_edit_drop(e, "o", "q");
	rsh_json_edit_set(e, "o", "t", "\"b\"");
	rsh_json_edit_set(e, NULL, "t", "\"b\"");
	rsh_json_edit_set(e, NULL, "k", "1");
	assert_written(e, "{\n  \"o\": {\"t\": \"b\"},\n  \"t\": \"b\",\n"
		       "  \"k\": 1\n}");
}

TEST(test_damage)
{
	static const char *const texts[] = {
		"", "[]", "{", "{\"a\"", "{\"a\": }", "{\"a\": 1,}", "{} x",
		"{\"a\": Nan}", "{\"a\": -Inf}", "{a: 1}",
	};

	for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++) {
		struct rsh_error err = RSH_ERROR_INIT;
		struct rsh_json_edit *e;

		assert_int_equal(rsh_json_edit_open(texts[i],
						    strlen(texts[i]), "c", &e,
						    &err), -EBADMSG);
		assert_non_null(strstr(err.text, "c: damaged at offset"));
	}
}
