/* SPDX-License-Identifier: Apache-2.0 */
/* unit/test_wire_manifest.c - lines of manifests, to text and back. */
#include "config.h"

#include <jansson.h>

#include "rsh/wire/manifest.h"
#include "tests.h"

static void emit_and_parse(const struct rsh_manifest_line *line,
			   struct rsh_manifest_line *out)
{
	struct rsh_error err = RSH_ERROR_INIT;
	size_t len;
	char *text;

	assert_int_equal(rsh_manifest_emit(line, &text, &len), 0);
	assert_int_equal(text[len - 1], '\n');
	assert_null(memchr(text, '\n', len - 1));
	assert_good(rsh_manifest_parse(text, len - 1, "m", 1, out, &err), err);
	free(text);
}

TEST(test_head)
{
	const struct rsh_manifest_line line = {
		.kind = RSH_MANIFEST_HEAD,
		.head = { .program = "1.2", .source = "/a b", .step = "epoch 3",
			  .src = { "s.ckpt", UINT64_C(0xfedcba9876543210) },
			  .conversion = 7, .n_files = 4, .bytes = 1 << 20 },
	};
	FREED_BY(rsh_manifest_line_clear) struct rsh_manifest_line out;

	emit_and_parse(&line, &out);
	assert_int_equal(out.kind, RSH_MANIFEST_HEAD);
	assert_string_equal(out.head.source, "/a b");
	assert_string_equal(out.head.src.path, "s.ckpt");
	assert_true(out.head.src.xxh3 == line.head.src.xxh3);
	assert_null(out.head.dst.path);
	assert_true(out.head.conversion == 7);
	assert_int_equal(out.head.n_files, 4);
	assert_int_equal(out.head.bytes, 1 << 20);
}

TEST(test_source_and_end)
{
	struct rsh_manifest_line line = {
		.kind = RSH_MANIFEST_SOURCE,
		.source = { 3, "rank_3/x.ckpt", 10, 11, -5, 999999999 },
	}, out;

	emit_and_parse(&line, &out);
	assert_int_equal(out.kind, RSH_MANIFEST_SOURCE);
	assert_string_equal(out.source.path, "rank_3/x.ckpt");
	assert_int_equal(out.source.rank, 3);
	assert_int_equal(out.source.mtime_s, -5);
	assert_int_equal(out.source.mtime_ns, 999999999);
	rsh_manifest_line_clear(&out);
	line = (struct rsh_manifest_line){ .kind = RSH_MANIFEST_END,
					   .n_files = 12 };
	emit_and_parse(&line, &out);
	assert_int_equal(out.kind, RSH_MANIFEST_END);
	assert_int_equal(out.n_files, 12);
	rsh_manifest_line_clear(&out);
}

TEST(test_file)
{
	const int64_t dims[] = { 2, 0, INT64_MAX };
	const struct rsh_manifest_record records[] = {
		{ "a\"\n\xff", RSH_DTYPE_BFLOAT16, 3, dims, 0, 0, 1 },
		{ "b", RSH_DTYPE_STR, 0, dims, 10, 90, UINT64_MAX },
	};
	const struct rsh_manifest_line line = {
		.kind = RSH_MANIFEST_FILE,
		.file = { .path = "rank_0/x", .size = 100, .xxh3 = 5,
			  .written = true, .inode = UINT64_MAX - 9,
			  .mtime_s = 1,
			  .mtime_ns = 2, .n_records = 2, .records = records },
	};
	FREED_BY(rsh_manifest_line_clear) struct rsh_manifest_line out;

	emit_and_parse(&line, &out);
	assert_int_equal(out.kind, RSH_MANIFEST_FILE);
	assert_true(out.file.written);
	assert_int_equal(out.file.inode, UINT64_MAX - 9);
	assert_int_equal(out.file.n_records, 2);
	assert_string_equal(out.file.records[0].name, "a\"\n\\xff");
	assert_int_equal(out.file.records[0].dtype, RSH_DTYPE_BFLOAT16);
	assert_int_equal(out.file.records[0].n_dims, 3);
	assert_true(out.file.records[0].dims[2] == INT64_MAX);
	assert_int_equal(out.file.records[1].offset, 10);
	assert_int_equal(out.file.records[1].bytes, 90);
	assert_true(out.file.records[1].xxh3 == UINT64_MAX);
}

#define HEAD_REST "\"program\":\"1\",\"source\":\"/s\",\"step\":\"x\"," \
	"\"src_strategy\":null,\"dst_strategy\":null," \
	"\"conversion\":\"0000000000000001\",\"tree_files\":1,\"tree_bytes\":1}"
#define FILE_HEAD "{\"file\":\"a/b\",\"size\":10,\"xxh3\":\"00000000000000aa\","
#define TYPE "\"name\":\"n\",\"dtype\":\"Int8\",\"shape\":[1]"
#define PLACE "\"shape\":[1],\"offset\":0,\"bytes\":1," \
	"\"xxh3\":\"00000000000000aa\""
#define RECORD(offset, bytes) "{\"name\":\"n\",\"dtype\":\"Int8\"," \
	"\"shape\":[1],\"offset\":" offset ",\"bytes\":" bytes \
	",\"xxh3\":\"00000000000000aa\"}"

TEST(test_later_keys_do_no_harm)
{
	static const char *const good[] = {
		"{\"manifest\":\"reshardfs\",\"version\":1,\"new\":[1]," HEAD_REST,
		FILE_HEAD "\"records\":[],\"new\":{}}",
		FILE_HEAD "\"records\":[" RECORD("0", "4") ","
			RECORD("4", "6") "]}",
		"{\"end\":\"reshardfs\",\"files\":0,\"new\":null}",
	};
	struct rsh_manifest_line out;

	for (size_t i = 0; i < sizeof(good) / sizeof(good[0]); i++) {
		assert_int_equal(rsh_manifest_parse(good[i], strlen(good[i]),
						    "m", 1, &out, NULL), 0);
		rsh_manifest_line_clear(&out);
	}
}

TEST(test_bad_lines)
{
	static const struct {
		const char *text, *word;
		int code;
	} bad[] = {
		{ "", "not JSON", EBADMSG },
		{ "[]", "not a line", EBADMSG },
		{ "{}", "not a line", EBADMSG },
		{ "{\"end\":\"reshardfs\",\"files\":-1}", "not a line",
		  EBADMSG },
		{ "{\"manifest\":\"else\",\"version\":1," HEAD_REST,
		  "not the head", EBADMSG },
		{ "{\"manifest\":\"reshardfs\",\"version\":2}", "version 2",
		  ENOTSUP },
		{ "{\"manifest\":\"reshardfs\",\"version\":1}", "lacks",
		  EBADMSG },
		{ "{\"source\":\"a\",\"rank\":-1}", "lacks", EBADMSG },
		{ "{\"source\":\"a\",\"rank\":0,\"size\":1,\"inode\":1,"
		  "\"mtime\":[0,1000000000]}", "lacks", EBADMSG },
		{ FILE_HEAD "\"records\":{}}", "without records", EBADMSG },
		{ FILE_HEAD "\"records\":[{}]}", "record", EBADMSG },
		{ FILE_HEAD "\"records\":[" RECORD("0", "11") "]}", "record",
		  EBADMSG },
		{ FILE_HEAD "\"records\":[" RECORD("11", "0") "]}", "record",
		  EBADMSG },
		{ FILE_HEAD "\"records\":[" RECORD("0", "5") ","
		  RECORD("4", "1") "]}", "record", EBADMSG },
		{ FILE_HEAD "\"records\":[{" PLACE "}]}", "record", EBADMSG },
		{ FILE_HEAD "\"records\":[{" TYPE "}]}", "record", EBADMSG },
		{ FILE_HEAD "\"written\":{},\"records\":[]}", "written",
		  EBADMSG },
		{ "{\"file\":\"a\",\"size\":1,\"xxh3\":\"AA000000000000aa\","
		  "\"records\":[]}", "lacks", EBADMSG },
		{ "{\"file\":\"a\",\"size\":1,\"xxh3\":\"aa\","
		  "\"records\":[]}", "lacks", EBADMSG },
		{ "{\"file\":\"a\",\"file\":\"b\"}", "not JSON", EBADMSG },
	};

	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		struct rsh_error err = RSH_ERROR_INIT;
		struct rsh_manifest_line out;

		assert_int_equal(rsh_manifest_parse(bad[i].text,
						    strlen(bad[i].text),
						    "m.jsonl", 9, &out, &err),
				 -bad[i].code);
		assert_non_null(strstr(err.text, bad[i].word));
		assert_non_null(strstr(err.text, "m.jsonl"));
		assert_null(out.owner_);
	}
}

TEST(test_long_lines)
{
	struct rsh_error err = RSH_ERROR_INIT;
	struct rsh_manifest_line out;

	assert_int_equal(rsh_manifest_parse("", RSH_MANIFEST_LINE_MAX + 1,
					    "m.jsonl", 9, &out, &err), -EBADMSG);
	assert_non_null(strstr(err.text, "longer than lines of a manifest are"));
}

TEST(test_paths_stay_in_the_tree)
{
	static const char *const bad[] = { "", "/a", "a/", "a//b", ".", "..",
					   "../a", "a/../b", "a/..", "./a" };
	char text[256];

	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		struct rsh_error err = RSH_ERROR_INIT;
		struct rsh_manifest_line out;

		snprintf(text, sizeof(text), "{\"file\":\"%s\",\"size\":0,"
			 "\"xxh3\":\"00000000000000aa\",\"records\":[]}",
			 bad[i]);
		assert_int_equal(rsh_manifest_parse(text, strlen(text), "m", 1,
						    &out, &err), -EBADMSG);
		assert_non_null(strstr(err.text, "below the tree"));
	}
}

/* ---- lines that lack something ---- */

static const int64_t one_dim[] = { 4 };
static const struct rsh_manifest_record one_record = {
	"w", RSH_DTYPE_INT8, 1, one_dim, 2, 4, 7,
};

/* A line of each kind, with everything that it may have. */
static const struct rsh_manifest_line whole[] = {
	{ .kind = RSH_MANIFEST_HEAD,
	  .head = { .program = "1", .source = "/s", .step = "x",
		    .src = { "s.ckpt", 1 }, .dst = { "d.ckpt", 2 },
		    .conversion = 3, .n_files = 4, .bytes = 5 } },
	{ .kind = RSH_MANIFEST_SOURCE,
	  .source = { 3, "rank_3/x.ckpt", 10, 11, 12, 13 } },
	{ .kind = RSH_MANIFEST_FILE,
	  .file = { .path = "a", .size = 6, .xxh3 = 1, .written = true,
		    .inode = 2, .mtime_s = 3, .mtime_ns = 4, .n_records = 1,
		    .records = &one_record } },
	{ .kind = RSH_MANIFEST_END, .n_files = 12 },
};

static int parse_json(const json_t *line)
{
	char *text = json_dumps(line, JSON_COMPACT);
	struct rsh_error err = RSH_ERROR_INIT;
	struct rsh_manifest_line out;
	int rc;

	assert_non_null(text);
	rc = rsh_manifest_parse(text, strlen(text), "m", 1, &out, &err);
	rsh_manifest_line_clear(&out);
	free(text);
	return rc;
}

/* A line without this key is refused, and one in which it is an object without
 * keys; then it is put back. */
static void check_key(const json_t *line, json_t *of, const char *key)
{
	json_t *value = json_incref(json_object_get(of, key));

	json_object_set_new(of, key, json_object());
	/* The value of "end" is not looked at. */
	if (strcmp(key, "end") != 0 && parse_json(line) != -EBADMSG)
		fail_msg("\"%s\" may be {}", key);
	json_object_del(of, key);
	/* A file need not have been written. */
	if (strcmp(key, "written") != 0 && parse_json(line) != -EBADMSG)
		fail_msg("\"%s\" may be absent", key);
	json_object_set_new(of, key, value);
	assert_int_equal(parse_json(line), 0);
}

static void check_keys(const json_t *line, json_t *of)
{
	char *keys[16];
	unsigned n = 0;
	json_t *value;
	size_t i;

	for (void *at = json_object_iter(of); at;
	     at = json_object_iter_next(of, at)) {
		assert_true(n < sizeof(keys) / sizeof(*keys));
		keys[n++] = strdup(json_object_iter_key(at));
	}
	for (unsigned k = 0; k < n; k++) {
		json_t *inner = json_object_get(of, keys[k]);

		check_keys(line, inner);
		json_array_foreach(inner, i, value)
			check_keys(line, value);
		check_key(line, of, keys[k]);
		free(keys[k]);
	}
}

TEST(test_every_key_is_needed)
{
	for (size_t i = 0; i < sizeof(whole) / sizeof(whole[0]); i++) {
		json_t *line;
		char *text;
		size_t len;

		assert_int_equal(rsh_manifest_emit(&whole[i], &text, &len), 0);
		line = json_loadb(text, len, 0, NULL);
		assert_non_null(line);
		assert_int_equal(parse_json(line), 0);
		check_keys(line, line);
		json_decref(line);
		free(text);
	}
}

/* ---- records in their file ---- */

TEST(test_places_of_records)
{
	static const struct {
		const char *first, *second;
		bool good;
	} cases[] = {
		{ RECORD("0", "0"), RECORD("0", "0"), true },
		{ RECORD("0", "10"), RECORD("10", "0"), true },
		{ RECORD("3", "4"), RECORD("7", "3"), true },
		{ RECORD("3", "4"), RECORD("9", "1"), true },
		{ RECORD("3", "4"), RECORD("6", "1"), false },
		{ RECORD("3", "4"), RECORD("7", "4"), false },
		{ RECORD("3", "4"), RECORD("11", "0"), false },
		{ RECORD("3", "9223372036854775807"), RECORD("0", "0"), false },
		{ RECORD("-1", "1"), RECORD("5", "0"), false },
		{ RECORD("0", "-1"), RECORD("5", "0"), false },
	};

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct rsh_error err = RSH_ERROR_INIT;
		struct rsh_manifest_line out;
		char text[512];
		int rc;

		snprintf(text, sizeof(text), FILE_HEAD "\"records\":[%s,%s]}",
			 cases[i].first, cases[i].second);
		rc = rsh_manifest_parse(text, strlen(text), "m", 1, &out, &err);
		assert_int_equal(rc, cases[i].good ? 0 : -EBADMSG);
		rsh_manifest_line_clear(&out);
	}
}
