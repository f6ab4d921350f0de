/* SPDX-License-Identifier: Apache-2.0 */
/* Strategy files that are written: merged ones, and layouts worked out. */
#include "wire_support.h"

#include <stdbool.h>

#include "rsh/wire/strategy_emit.h"
#include "rsh/wire/strategy_file.h"

static struct rsh_strategy_file *parse(const void *data, size_t len,
				       const char *path)
{
	struct rsh_error err = RSH_ERROR_INIT;
	struct rsh_strategy_file *f = NULL;

	assert_good(rsh_strategy_parse(data, len, path, &f, &err), err);
	return f;
}

static void assert_same_layout(const struct rsh_strategy_item *a,
			       const struct rsh_strategy_item *b)
{
	assert_int_equal(a->n_mesh, b->n_mesh);
	assert_memory_equal(a->mesh, b->mesh, a->n_mesh * sizeof(*a->mesh));
	assert_int_equal(a->n_map, b->n_map);
	assert_int_equal(a->nested, b->nested);
	for (uint32_t i = 0; i < a->n_map; i++) {
		assert_int_equal(a->map[i].n, b->map[i].n);
		for (uint32_t k = 0; k < a->map[i].n; k++)
			assert_int_equal(a->map[i].axes[k],
					 b->map[i].axes[k]);
	}
	assert_int_equal(a->n_shape, b->n_shape);
	for (uint32_t i = 0; i < a->n_shape; i++)
		assert_int_equal(a->shape[i], b->shape[i]);
	assert_int_equal(a->opt_step, b->opt_step);
	assert_int_equal(a->opt_size, b->opt_size);
}

/* ---- merging ---- */

static struct rsh_strategy_file *join(const char *const *names, size_t n,
				      bool json)
{
	struct rsh_error err = RSH_ERROR_INIT;
	struct rsh_strategy_bytes files[4];
	struct rsh_strategy_file *f;
	struct buffer data[4];
	void *out = NULL;
	size_t len = 0;

	for (size_t i = 0; i < n; i++) {
		data[i] = load_file(names[i]);
		files[i] = (struct rsh_strategy_bytes){ names[i], data[i].data,
							data[i].len };
	}
	assert_good(rsh_strategy_join(files, n, json, &out, &len, &err), err);
	f = parse(out, len, json ? "m.json" : "m.ckpt");
	for (size_t i = 0; i < n; i++)
		buffer_free(&data[i]);
	free(out);
	return f;
}

static struct rsh_strategy_file *parse_file(const char *name)
{
	struct buffer b = load_file(name);
	struct rsh_strategy_file *f = parse(b.data, b.len, name);

	buffer_free(&b);
	return f;
}

/* Items from number `at` on are those of the file, "<stage>-" before. */
static uint32_t assert_stage(const struct rsh_strategy_file *merged,
			     uint32_t at, const char *name, unsigned stage)
{
	struct rsh_strategy_file *f = parse_file(name);
	char text[256];

	for (uint32_t i = 0; i < f->n_items; i++, at++) {
		snprintf(text, sizeof(text), "%u-%s", stage, f->items[i].name);
		assert_true(at < merged->n_items);
		assert_string_equal(merged->items[at].name, text);
		assert_same_layout(&merged->items[at], &f->items[i]);
	}
	rsh_strategy_file_free(f);
	return at;
}

#define SET(name, stage, suffix) \
	"data/strategies/" name "/strategy_stage_" stage suffix

TEST(test_join)
{
	/* The order in which they are given does not matter. */
	const char *names[] = { SET("pp3mp8", "2", ".ckpt"),
				SET("pp3mp8", "0", ".ckpt"),
				SET("pp3mp8", "1", ".ckpt") };
	struct rsh_strategy_file *f = join(names, 3, false);
	uint32_t at = assert_stage(f, 0, names[1], 0);

	assert_true(f->has_stage);
	assert_int_equal(f->first_stage, 0);
	at = assert_stage(f, at, names[2], 1);
	at = assert_stage(f, at, names[0], 2);
	assert_int_equal(at, f->n_items);
	assert_int_equal(f->n_ops, 25 + 13 + 17);
	rsh_strategy_file_free(f);
}

TEST(test_join_json)
{
	const char *names[] = { SET("pp2dp2mp2_json", "1", ".json"),
				SET("pp2dp2mp2_json", "0", ".json") };
	struct rsh_strategy_file *f = join(names, 2, true);
	uint32_t at = assert_stage(f, 0, names[1], 0);

	at = assert_stage(f, at, names[0], 1);
	assert_int_equal(at, f->n_items);
	rsh_strategy_file_free(f);
}

/* The same stage twice: the first file given counts. */
TEST(test_join_repeated_stage)
{
	const char *names[] = { SET("pp2mp4", "0", ".ckpt"),
				SET("pp2dp2mp2", "0", ".ckpt"),
				SET("pp2mp4", "1", ".ckpt") };
	struct rsh_strategy_file *f = join(names, 3, false);
	uint32_t at = assert_stage(f, 0, names[0], 0);

	at = assert_stage(f, at, names[2], 1);
	assert_int_equal(at, f->n_items);
	rsh_strategy_file_free(f);
}

/* The very bytes of Python's json.dump. */
TEST(test_join_json_bytes)
{
	static const char one[] =
		"{\"parallel_strategy_item\":{\"A\":{\"stage\":1,"
		"\"parallel_strategy\":[[2,1]]}},\"parallel_layout_item\":"
		"{\"w\xc3\xa9\":{\"dev_matrix\":[2],\"tensor_map\":[-1]}}}";
	static const char want[] =
		"{\"current_stage\": 1, \"parallel_strategy_item\": {\"A\": "
		"{\"stage\": 1, \"parallel_strategy\": [[2, 1]]}}, "
		"\"parallel_layout_item\": {\"1-w\\u00e9\": {\"dev_matrix\": "
		"[2], \"tensor_map\": [-1]}}}";
	const struct rsh_strategy_bytes file = { "s.json", one, strlen(one) };
	struct rsh_error err = RSH_ERROR_INIT;
	cleanup_free void *out = NULL;
	size_t len = 0;

	assert_int_equal(rsh_strategy_join(&file, 1, true, &out, &len, &err),
			 0);
	assert_int_equal(len, strlen(want));
	assert_memory_equal(out, want, len);
}

static void assert_join_refused(const char *text, bool json, const char *word)
{
	const struct rsh_strategy_bytes file = { "some/file", text,
						 strlen(text) };
	struct rsh_error err = RSH_ERROR_INIT;
	void *out = NULL;
	size_t len;

	assert_int_equal(rsh_strategy_join(&file, 1, json, &out, &len, &err),
			 -EBADMSG);
	if (!strstr(err.text, word) || !strstr(err.text, "some/file"))
		fail_msg("%s", err.text);
	assert_null(out);
}

TEST(test_join_refused)
{
	assert_join_refused("{", true, "not JSON");
	assert_join_refused("[1]", true, "not a strategy file");
	assert_join_refused("{}", true, "cannot be merged");
	assert_join_refused("{\"parallel_strategy_item\":{\"A\":{}}}", true,
			    "cannot be merged");
	assert_join_refused("{\"parallel_layout_item\":{\"A\":{}}}", true,
			    "cannot be merged");
	assert_join_refused("\x0a\xff", false, "damaged");
	assert_join_refused("\x08\x01", false, "cannot be merged");
}

/* ---- layouts worked out ---- */

static const uint32_t mesh[] = { 2, 2, 2 };
static const int32_t axis0[] = { 0 };
static const int32_t axes10[] = { 1, 0 };
static const struct rsh_map_entry flat[] = { { 1, axis0 }, { 0, NULL } };
static const struct rsh_map_entry nested[] = { { 0, NULL }, { 2, axes10 } };
static const struct rsh_map_entry vector[] = { { 2, axes10 } };
static const int64_t shape[] = { 16, 8 };

#define ITEM(label, m, deep, step, size)                                  \
	{ .name = label, .n_mesh = 3, .mesh = mesh,                       \
	  .n_map = sizeof(m) / sizeof((m)[0]), .map = m, .nested = deep,  \
	  .opt_step = step, .opt_size = size }

static struct rsh_strategy_file *emit(const struct rsh_staged_item *items,
				      size_t n, uint32_t n_stages, bool json)
{
	struct rsh_error err = RSH_ERROR_INIT;
	struct rsh_strategy_file *f;
	void *out = NULL;
	size_t len = 0;

	if (rsh_strategy_emit(&(struct rsh_staged_items){ n_stages, n, items },
			      json, &out, &len, &err))
		fail_msg("%s", err.text);
	f = parse(out, len, json ? "s.json" : "s.ckpt");
	free(out);
	return f;
}

TEST(test_emit)
{
	const struct rsh_staged_item items[] = {
		{ 0, true, ITEM("flat", flat, false, 2, -1) },
		{ 0, true, ITEM("nested", nested, true, 0, 0) },
		{ 0, true, ITEM("vector", vector, true, 4, 2) },
	};
	struct rsh_strategy_file *f = emit(items, 3, 1, false);

	assert_true(f->has_stage);
	assert_int_equal(f->n_ops, 3);
	assert_string_equal(f->ops[0].name, "Parameter_flat");
	assert_true(f->ops[0].tuples);
	assert_int_equal(f->n_items, 3);
	for (uint32_t i = 0; i < 3; i++) {
		assert_string_equal(f->items[i].name, items[i].item.name);
		assert_same_layout(&f->items[i], &items[i].item);
	}
	rsh_strategy_file_free(f);
}

TEST(test_emit_stages)
{
	const struct rsh_staged_item items[] = {
		{ 0, true, ITEM("a", flat, false, 0, 0) },
		{ 1, false, ITEM("a", flat, false, 2, 4) },
	};

	for (int json = 0; json < 2; json++) {
		struct rsh_strategy_file *f = emit(items, 2, 2, json);

		assert_int_equal(f->n_items, 2);
		assert_string_equal(f->items[0].name, "0-a");
		assert_string_equal(f->items[1].name, "1-a");
		assert_same_layout(&f->items[1], &items[1].item);
		rsh_strategy_file_free(f);
	}
}

TEST(test_emit_json)
{
	struct rsh_staged_item item = { 0, true, ITEM("a", flat, false, 2, -1) };
	struct rsh_error err = RSH_ERROR_INIT;
	struct rsh_strategy_file *f;
	void *out = NULL;
	size_t len;

	item.item.n_shape = 2;
	item.item.shape = shape;
	f = emit(&item, 1, 1, true);
	assert_same_layout(&f->items[0], &item.item);
	rsh_strategy_file_free(f);

	item.item.nested = true;
	assert_int_equal(rsh_strategy_emit(&(struct rsh_staged_items){
			1, 1, &item }, true, &out, &len, &err), -EINVAL);
	assert_non_null(strstr(err.text, "parameter a"));
	assert_null(out);
}

/* ---- reading on after a bad item ---- */

static void count(void *ctx, const char *sentence)
{
	assert_non_null(strstr(sentence, "s.json: layout of parameter"));
	++*(unsigned *)ctx;
}

TEST(test_parse_all)
{
	static const char text[] =
		"{\"parallel_layout_item\":{"
		"\"a\":{\"dev_matrix\":[2],\"tensor_map\":[7]},"
		"\"b\":{\"dev_matrix\":[2],\"tensor_map\":[0]},"
		"\"c\":{\"dev_matrix\":[0],\"tensor_map\":[0]}}}";
	struct rsh_error err = RSH_ERROR_INIT;
	struct rsh_strategy_file *f = NULL;
	unsigned n = 0;

	assert_int_equal(rsh_strategy_parse_all(&(struct rsh_memory){
			text, strlen(text) }, "s.json", count, &n, &f, &err), 0);
	assert_int_equal(n, 2);
	assert_int_equal(f->n_items, 1);
	assert_string_equal(f->items[0].name, "b");
	rsh_strategy_file_free(f);
}

/* Which operators were given by numbers and which by Layout objects. */
TEST(test_ops)
{
	struct rsh_strategy_file *f =
		parse_file(SET("dp2mp4_layout", "0", ".ckpt"));
	unsigned tuples = 0, up = 0;

	assert_int_equal(f->n_ops, 53);
	for (uint32_t i = 0; i < f->n_ops; i++) {
		tuples += f->ops[i].tuples;
		if (strstr(f->ops[i].name, ".up.weight")) {
			assert_false(f->ops[i].tuples);
			up++;
		}
	}
	assert_int_equal(up, 4);
	assert_int_equal(tuples, 53 - 8);
	rsh_strategy_file_free(f);
}
