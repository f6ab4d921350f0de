/* SPDX-License-Identifier: Apache-2.0 */
/* The JSON beside models in parts. */
#include "wire_support.h"

static struct rsh_weight_map parse(const char *text)
{
	struct rsh_error err = RSH_ERROR_INIT;
	struct rsh_weight_map map;

	if (rsh_weight_map_parse(text, strlen(text), "map.json", &map, &err))
		fail_msg("%s", err.text);
	return map;
}

static struct rsh_weight_map parse_file(const char *name)
{
	struct buffer b = load_file(name);
	struct rsh_weight_map map;

	assert_int_equal(rsh_weight_map_parse(b.data, b.len, name, &map, NULL),
			 0);
	buffer_free(&b);
	return map;
}

static void assert_weight(const struct rsh_weight_map *map, uint32_t i,
			  const char *name, const char *file)
{
	assert_true(i < map->n_weights);
	assert_string_equal(map->weights[i].name, name);
	assert_true(map->weights[i].file < map->n_files);
	assert_string_equal(map->files[map->weights[i].file], file);
}

static void assert_refused(const char *text, const char *word)
{
	struct rsh_error err = RSH_ERROR_INIT;
	struct rsh_weight_map map;
	int rc = rsh_weight_map_parse(text, strlen(text), "map.json", &map,
				      &err);

	if (rc != -EBADMSG || err.code != EBADMSG ||
	    !strstr(err.text, "map.json") || !strstr(err.text, word))
		fail_msg("%s: rc %d, \"%s\"; wanted \"%s\"", text, rc, err.text,
			 word);
	assert_int_equal(map.n_weights, 0);
	assert_null(map.weights);
}

/* ---- reading ---- */

TEST(test_hugging_face)
{
	struct rsh_weight_map map =
		parse_file("unit/data/model.safetensors.index.json");

	assert_int_equal(map.n_weights, 8);
	assert_int_equal(map.n_files, 3);
	assert_true(map.has_total_size);
	assert_int_equal(map.total_size, 16060522496);
	assert_weight(&map, 0, "model.layers.0.weight",
		      "model-00001-of-00003.safetensors");
	assert_weight(&map, 2, "model.layers.10.weight",
		      "model-00003-of-00003.safetensors");
	assert_weight(&map, 6, "quote\"back\\tab\t",
		      "model-00001-of-00003.safetensors");
	assert_weight(&map, 7, "\344\270\226\360\237\230\200\177",
		      "model-00003-of-00003.safetensors");
	/* in the order of first mention */
	assert_string_equal(map.files[1], "model-00003-of-00003.safetensors");
	rsh_weight_map_clear(&map);
	assert_null(map.files);
}

TEST(test_mindspore)
{
	struct rsh_weight_map map = parse_file("unit/data/param_name_map.json");

	assert_int_equal(map.n_weights, 4);
	assert_int_equal(map.n_files, 1);
	assert_int_equal(map.total_size, 4 * 48 * 4);
	assert_weight(&map, 0, "blocks.0.ln1.gamma", "part0.safetensors");
	assert_weight(&map, 3, "blocks.1.ln2.gamma", "part0.safetensors");
	rsh_weight_map_clear(&map);
}

/* MindSpore 2.5 */
TEST(test_flat)
{
	struct rsh_weight_map map =
		parse("{\"b\": \"part1.safetensors\", \"metadata\": \"p\","
		      " \"weight_map\": \"part1.safetensors\"}");

	assert_int_equal(map.n_weights, 3);
	assert_int_equal(map.n_files, 2);
	assert_false(map.has_total_size);
	assert_weight(&map, 0, "b", "part1.safetensors");
	assert_weight(&map, 1, "metadata", "p");
	assert_weight(&map, 2, "weight_map", "part1.safetensors");
	rsh_weight_map_clear(&map);
}

TEST(test_total_size_is_optional)
{
	static const char *const metadata[] = {
		"", "\"metadata\":{},", "\"metadata\":null,",
		"\"metadata\":{\"total_size\":1.5e9},",
		"\"metadata\":{\"total_size\":-1},",
	};

	for (size_t i = 0; i < sizeof(metadata) / sizeof(metadata[0]); i++) {
		struct rsh_weight_map map;
		char text[128];

		snprintf(text, sizeof(text), "{%s\"weight_map\":{\"a\":\"f\"}}",
			 metadata[i]);
		map = parse(text);
		assert_false(map.has_total_size);
		assert_weight(&map, 0, "a", "f");
		rsh_weight_map_clear(&map);
	}
}

TEST(test_names_of_files)
{
	struct rsh_weight_map map =
		parse("{\"a\":\"..b\",\"b\":\"a b\\\\\",\"c\":\"...\"}");

	assert_weight(&map, 0, "a", "..b");
	assert_weight(&map, 1, "b", "a b\\");
	assert_weight(&map, 2, "c", "...");
	rsh_weight_map_clear(&map);

	/* Paths below the directory of the map, two of which are equal. */
	map = parse("{\"a\":\"./f\",\"b\":\"f\",\"c\":\"a//./b/..c\"}");
	assert_int_equal(map.n_files, 2);
	assert_weight(&map, 0, "a", "f");
	assert_weight(&map, 1, "b", "f");
	assert_weight(&map, 2, "c", "a/b/..c");
	rsh_weight_map_clear(&map);

	assert_refused("{\"w\":\"\"}", "\"w\"");
	assert_refused("{\"w\":\".\"}", "not a file below");
	assert_refused("{\"w\":\"..\"}", "not a file below");
	assert_refused("{\"w\":\"a/\"}", "\"a/\"");
	assert_refused("{\"w\":\"a/.\"}", "\"a/.\"");
	assert_refused("{\"w\":\"a/..\"}", "\"a/..\"");
	assert_refused("{\"w\":\"/etc/passwd\"}", "\"/etc/passwd\"");
	assert_refused("{\"w\":\"../f\"}", "\"../f\"");
	assert_refused("{\"w\":\"a/../b\"}", "\"a/../b\"");
	assert_refused("{\"w\":\"./\"}", "\"./\"");
	assert_refused("{\"w\":\"b\\u0000\"}", "not JSON");
	assert_refused("{\"weight_map\":{\"v\":\"f\",\"w\":\"/b\"}}", "\"w\"");
}

TEST(test_other_json)
{
	assert_refused("", "not JSON");
	assert_refused("{\"a\":\"b\"", "line 1");
	assert_refused("[]", "not an object");
	assert_refused("\"a\"", "not");
	assert_refused("{}", "names no weight");
	assert_refused("{\"weight_map\":{}}", "names no weight");
	assert_refused("{\"weight_map\":[]}", "\"weight_map\"");
	assert_refused("{\"weight_map\":null}", "\"weight_map\"");
	assert_refused("{\"weight_map\":{\"w\":1}}", "\"w\" is not a string");
	assert_refused("{\"w\":{\"dtype\":\"F32\"}}", "\"w\" is not a string");
	assert_refused("{\"w\":\"f\",\"w\":\"g\"}", "duplicate");
}

/* No beginning of a map is a map. */
TEST(test_truncation_anywhere)
{
	struct buffer b =
		load_data("model.safetensors.index.json");

	/* The last byte is the newline after it. */
	for (size_t len = 0; len < b.len - 1; len++) {
		struct rsh_weight_map map;

		assert_int_equal(rsh_weight_map_parse(b.data, len, "map.json",
						      &map, NULL),
				 -EBADMSG);
	}
	buffer_free(&b);
}

/* ---- writing ---- */

static void assert_format(const struct rsh_weight_map *map, const void *wanted,
			  size_t wanted_len)
{
	cleanup_free char *out = NULL;
	size_t len = 0;

	assert_int_equal(rsh_weight_map_format(map, &out, &len, NULL), 0);
	assert_int_equal(strlen(out), len);
	assert_int_equal(len, wanted_len);
	assert_memory_equal(out, wanted, wanted_len);
}

/* As transformers wrote it, from the weights in another order. */
TEST(test_format_as_hugging_face)
{
	struct buffer b = load_data("model.safetensors.index.json");
	struct rsh_weight_map map, turned;
	struct rsh_weight weights[8];

	map = parse_file("unit/data/model.safetensors.index.json");
	for (uint32_t i = 0; i < 8; i++)
		weights[7 - i] = map.weights[i];
	turned = map;
	turned.weights = weights;
	assert_format(&turned, b.data, b.len);
	rsh_weight_map_clear(&map);
	buffer_free(&b);
}

TEST(test_format_of_little)
{
	static const char none[] =
		"{\n  \"metadata\": {},\n  \"weight_map\": {}\n}\n";
	static const char *const files[] = { "f" };
	static const struct rsh_weight w[] = { { "\001\010\037/", 0 } };
	static const char one[] = "{\n  \"metadata\": {\n    \"total_size\": 0\n  },\n"
				  "  \"weight_map\": {\n"
				  "    \"\\u0001\\b\\u001f/\": \"f\"\n  }\n}\n";
	const struct rsh_weight_map empty = { .n_weights = 0 };
	const struct rsh_weight_map map = {
		.n_weights = 1, .weights = w, .n_files = 1, .files = files,
		.has_total_size = true,
	};

	assert_format(&empty, none, sizeof(none) - 1);
	assert_format(&map, one, sizeof(one) - 1);
}

TEST(test_format_refuses)
{
	static const char *const files[] = { "f", "\377" };
	static const struct rsh_weight weights[] = { { "a", 0 },
						     { "\300\200", 0 },
						     { "b", 1 } };
	struct rsh_weight_map map = { .n_weights = 1, .n_files = 2,
				      .files = files };
	struct rsh_error err = RSH_ERROR_INIT;
	char *out = NULL;
	size_t len;

	map.weights = &weights[1];
	assert_int_equal(rsh_weight_map_format(&map, &out, &len, &err),
			 -EINVAL);
	assert_non_null(strstr(err.text, "parameter"));
	map.weights = &weights[2];
	assert_int_equal(rsh_weight_map_format(&map, &out, &len, &err),
			 -EINVAL);
	assert_non_null(strstr(err.text, "file name"));
	assert_null(out);
}
