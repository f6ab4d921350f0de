/* SPDX-License-Identifier: Apache-2.0 */
/* What Python writes and JSON does not have, in files that are JSON. */
#include "wire_support.h"

#include <jansson.h>

#include "rsh/wire/json_load.h"

static int load(const char *text, json_t **out, struct rsh_error *err)
{
	*err = (struct rsh_error)RSH_ERROR_INIT;
	return rsh_json_load(&(struct rsh_memory){ text, strlen(text) }, 0,
			     "x.json", "a file", out, err);
}

TEST(test_python)
{
	static const char *const values[] = {
		"NaN", "Infinity", "-Infinity", "1e999", "-1E+400",
		"9223372036854775808", "-9223372036854775809",
		"1000000000000000019884624838656",
		"123456789012345678901234567890123456789012345678901234567890",
	};
	char text[1024];

	for (size_t i = 0; i < sizeof(values) / sizeof(values[0]); i++) {
		cleanup_json json_t *root = NULL;
		struct rsh_error err;

		snprintf(text, sizeof(text), "{\"a\": %s, \"b\": [%s,%s], "
			 "\"NaN \\\" %s\": \"Infinity\", \"c\": -7, "
			 "\"d\": 0.5}", values[i], values[i], values[i],
			 values[i]);
		assert_int_equal(load(text, &root, &err), 0);
		/* No number: nobody computes with it. */
		assert_true(json_is_string(json_object_get(root, "a")));
		assert_int_equal(json_array_size(json_object_get(root, "b")),
				 2);
		snprintf(text, sizeof(text), "NaN \" %s", values[i]);
		assert_string_equal(json_string_value(
			json_object_get(root, text)), "Infinity");
		assert_int_equal(json_integer_value(
			json_object_get(root, "c")), -7);
		assert_true(json_real_value(json_object_get(root, "d")) == 0.5);
	}
}

TEST(test_limits)
{
	cleanup_json json_t *root = NULL;
	struct rsh_error err;

	assert_int_equal(load("{\"x\": NaN, \"a\": 9223372036854775807, "
			      "\"b\": -9223372036854775808, \"c\": 1e308, "
			      "\"d\": 12345678901234567890.5}", &root, &err),
			 0);
	assert_true(json_integer_value(json_object_get(root, "a")) ==
		    INT64_MAX);
	assert_true(json_integer_value(json_object_get(root, "b")) ==
		    INT64_MIN);
	assert_true(json_is_real(json_object_get(root, "c")));
	assert_true(json_is_real(json_object_get(root, "d")));
}

TEST(test_wrong)
{
	static const char *const texts[] = {
		"{\"a\": NaN, \"b\": nan}", "{\"a\": +Infinity}",
		"{\"a\": NaN", "{\"a\": NaN \"b\": 1}", "{\"a\": Nan}",
		"{\"a\": \"NaN}", "{\"a\": \"\\", "{NaN: 1}x", "", "{\"a\": -}",
		"{\"a\": 1e999e}", "{\"a\": 99999999999999999999-}x",
	};

	for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++) {
		cleanup_json json_t *root = NULL;
		struct rsh_error err;

		if (load(texts[i], &root, &err) != -EBADMSG)
			fail_msg("%s", texts[i]);
		assert_non_null(strstr(err.text, "x.json: not JSON: "));
	}
}

/* A message has the place in the text as it is in the file. */
TEST(test_places)
{
	cleanup_json json_t *root = NULL;
	struct rsh_error err;

	assert_int_equal(load("{\"a\": NaN,\n\"b\": [-Infinity, nan]}", &root,
			      &err), -EBADMSG);
	if (!strstr(err.text, "near 'nan' (line 2, column 20)"))
		fail_msg("%s", err.text);
}
