/* SPDX-License-Identifier: Apache-2.0 */
/* Strategy files: the planner's own ones in both forms, and broken ones. */
#include "wire_support.h"

#include <stdbool.h>

#include "node_strategy.pb-c.h"
#include "rsh/wire/strategy_file.h"

static struct rsh_strategy_file *parse(const struct buffer *b,
				       const char *path)
{
	struct rsh_error err = RSH_ERROR_INIT;
	struct rsh_strategy_file *f = NULL;

	assert_good(rsh_strategy_parse(b->data, b->len, path, &f, &err), err);
	assert_non_null(f);
	assert_string_equal(f->path, path);
	return f;
}

static struct rsh_strategy_file *parse_file(const char *name)
{
	struct buffer b = load_file(name);
	struct rsh_strategy_file *f = parse(&b, name);

	buffer_free(&b);
	return f;
}

static struct rsh_strategy_file *parse_json(const char *text)
{
	struct buffer b = { NULL, 0 };
	struct rsh_strategy_file *f;

	buffer_append(&b, text, strlen(text));
	f = parse(&b, "s.json");
	buffer_free(&b);
	return f;
}

static void assert_refused(const void *data, size_t len, const char *path,
			   const char *word)
{
	struct rsh_strategy_file *f = NULL;
	struct rsh_error err = RSH_ERROR_INIT;
	int rc = rsh_strategy_parse(data, len, path, &f, &err);

	if (rc != -EBADMSG || !strstr(err.text, word) ||
	    strncmp(err.text, path, strlen(path)))
		fail_msg("rc %d, sentence \"%s\"; wanted \"%s\"", rc, err.text,
			 word);
	assert_null(f);
}

static void assert_json_refused(const char *text, const char *word)
{
	assert_refused(text, strlen(text), "s.json", word);
}

static const struct rsh_strategy_item *
find_item(const struct rsh_strategy_file *f, const char *name)
{
	for (uint32_t i = 0; i < f->n_items; i++)
		if (!strcmp(f->items[i].name, name))
			return &f->items[i];
	fail_msg("no item \"%s\"", name);
	return NULL;
}

/* The item's layout as text: "[2,4] (1)(0,2)() opt 4/-1". */
static const char *layout_text(const struct rsh_strategy_item *it)
{
	static char text[512];
	char *p = text;

	for (uint32_t i = 0; i < it->n_mesh; i++)
		p += sprintf(p, "%s%u", i ? "," : "[", it->mesh[i]);
	p += sprintf(p, "] ");
	for (uint32_t i = 0; i < it->n_map; i++) {
		p += sprintf(p, "(");
		for (uint32_t k = 0; k < it->map[i].n; k++)
			p += sprintf(p, "%s%d", k ? "," : "",
				     it->map[i].axes[k]);
		p += sprintf(p, ")");
	}
	sprintf(p, " opt %d/%d", it->opt_step, it->opt_size);
	return text;
}

static void assert_layout(const struct rsh_strategy_file *f, const char *name,
			  const char *text)
{
	assert_string_equal(layout_text(find_item(f, name)), text);
}

/* ---- genuine files ---- */

TEST(test_genuine_files)
{
	static const struct {
		const char *name;
		uint32_t n_items;
		uint32_t stage;
	} files[] = {
		{ "dp4/strategy_stage_0.ckpt", 159, 0 },
		{ "dp2mp4_layout_opt/strategy_stage_0.ckpt", 159, 0 },
		{ "dp2mp4_layout_json/strategy_stage_0.json", 159, 0 },
		{ "fault_recover_8/strategy_stage_0.ckpt", 9, 0 },
		{ "infer_mp2/strategy_stage_0.ckpt", 53, 0 },
		{ "mf_3d_mp8x4/strategy_stage_0.ckpt", 117, 0 },
		{ "mf_dsv3_dp2mp4ep8/strategy_stage_0.ckpt", 177, 0 },
		{ "mf_moe_mp8/strategy_stage_0.ckpt", 129, 0 },
		{ "pp2dp2mp2_json/strategy_stage_1.json", 112, 1 },
		{ "pp4mp2/strategy_stage_3.ckpt", 64, 3 },
	};

	for (size_t i = 0; i < sizeof(files) / sizeof(files[0]); i++) {
		struct rsh_strategy_file *f;
		char path[256];

		snprintf(path, sizeof(path), "data/strategies/%s",
			 files[i].name);
		f = parse_file(path);
		assert_int_equal(f->n_items, files[i].n_items);
		assert_true(f->has_stage);
		assert_int_equal(f->first_stage, files[i].stage);
		assert_int_equal(f->json, strstr(path, ".json") != NULL);
		rsh_strategy_file_free(f);
	}
}

TEST(test_genuine_layouts)
{
	struct rsh_strategy_file *f =
		parse_file("data/strategies/dp2mp4_layout_opt/strategy_stage_0.ckpt");

	assert_layout(f, "blocks.0.up.weight", "[2,2,2] (1,0)() opt 4/-1");
	assert_true(find_item(f, "blocks.0.up.weight")->nested);
	assert_layout(f, "adam_v.blocks.3.down.weight",
		      "[2,2,2] ()(1,0) opt 4/-1");
	assert_int_equal(find_item(f, "blocks.0.up.weight")->n_shape, 0);
	rsh_strategy_file_free(f);

	f = parse_file("data/strategies/mf_3d_mp8x4/strategy_stage_0.ckpt");
	assert_layout(f, "adam_m.model.layers.1.ffn_norm.weight",
		      "[1,1,1,4,2] (1) opt 0/0");
	assert_layout(f, "adam_v.model.layers.0.attention.wv.weight",
		      "[1,1,1,4,2] (0)(1,2) opt 0/0");
	rsh_strategy_file_free(f);

	f = parse_file("data/strategies/dp2mp4_layout_json/strategy_stage_0.json");
	assert_layout(f, "adam_m.blocks.0.down.weight",
		      "[2,2,2] ()(1)(0) opt 0/0");
	assert_int_equal(find_item(f, "adam_m.blocks.0.down.weight")->n_shape,
			 3);
	assert_int_equal(
		find_item(f, "adam_m.blocks.0.down.weight")->shape[2], 96);
	rsh_strategy_file_free(f);
}

/* The two forms in which one plan was saved say the same. */
TEST(test_forms_agree)
{
	struct rsh_strategy_file *pb =
		parse_file("data/strategies/dp2mp4/strategy_stage_0.ckpt");
	struct rsh_strategy_file *json =
		parse_file("data/strategies/dp2mp4_json/strategy_stage_0.json");

	assert_int_equal(pb->n_items, json->n_items);
	for (uint32_t i = 0; i < pb->n_items; i++) {
		const struct rsh_strategy_item *a = &pb->items[i];
		char text[512];

		snprintf(text, sizeof(text), "%s", layout_text(a));
		assert_layout(json, a->name, text);
	}
	assert_int_not_equal(pb->content_hash, json->content_hash);
	rsh_strategy_file_free(pb);
	rsh_strategy_file_free(json);
}

/* ---- JSON ---- */

#define ITEM(name, body) "\"" name "\":{" body "}"
#define LAYOUTS(items) "{\"parallel_layout_item\":{" items "}}"

TEST(test_json_order_and_repetition)
{
	struct rsh_strategy_file *f = parse_json(LAYOUTS(
		ITEM("z", "\"dev_matrix\":[2],\"tensor_map\":[0]") ","
		ITEM("a", "\"dev_matrix\":[3],\"tensor_map\":[-1]") ","
		ITEM("m", "\"dev_matrix\":[4],\"tensor_map\":[]") ","
		ITEM("z", "\"dev_matrix\":[5,2],\"tensor_map\":[1]")));

	assert_int_equal(f->n_items, 3);
	assert_string_equal(f->items[0].name, "z");
	assert_string_equal(f->items[1].name, "a");
	assert_string_equal(f->items[2].name, "m");
	assert_layout(f, "z", "[5,2] (1) opt 0/0");
	assert_layout(f, "a", "[3] () opt 0/0");
	assert_layout(f, "m", "[4]  opt 0/0");
	assert_false(f->has_stage);
	assert_true(f->json);
	rsh_strategy_file_free(f);
}

TEST(test_json_stage)
{
	struct rsh_strategy_file *f = parse_json(
		"{\"parallel_strategy_item\":{\"n1\":{\"stage\":3},"
		"\"n0\":{\"stage\":0}},\"parallel_layout_item\":{"
		ITEM("3-w", "\"dev_matrix\":[2],\"tensor_map\":[0],"
			    "\"opt_weight_shard_step\":2,"
			    "\"opt_weight_shard_size\":-1") "}}");

	assert_true(f->has_stage);
	assert_int_equal(f->first_stage, 3);
	assert_layout(f, "3-w", "[2] (0) opt 2/-1");
	rsh_strategy_file_free(f);
}

TEST(test_json_nested_map)
{
	struct rsh_strategy_file *f = parse_json(LAYOUTS(
		ITEM("w", "\"dev_matrix\":[2,2,2],"
			  "\"tensor_map\":[[2,0],[-1],1]")));

	assert_layout(f, "w", "[2,2,2] (2,0)()(1) opt 0/0");
	assert_true(f->items[0].nested);
	rsh_strategy_file_free(f);
}

/* Only operators with a list of tuples were planned with some. */
TEST(test_json_tuples)
{
	struct rsh_strategy_file *f = parse_json(
		"{\"parallel_strategy_item\":{\"a\":{\"stage\":0,"
		"\"parallel_strategy\":[[2,1]]},\"b\":{\"stage\":0,"
		"\"parallel_strategy\":[]},\"c\":{\"stage\":0}},"
		"\"parallel_layout_item\":{"
		ITEM("w", "\"dev_matrix\":[2],\"tensor_map\":[0]") "}}");

	assert_int_equal(f->n_ops, 3);
	for (unsigned i = 0; i < 3; i++)
		assert_int_equal(f->ops[i].tuples, i == 0);
	rsh_strategy_file_free(f);
}

/* A file whose layout is right, and whose first operator has this stage. */
#define STAGED(stage)                                                     \
	"{\"parallel_strategy_item\":{\"n\":{\"stage\":" stage "}},"         \
	"\"parallel_layout_item\":{"                                      \
	ITEM("w", "\"dev_matrix\":[2],\"tensor_map\":[0]") "}}"

TEST(test_json_refused)
{
	assert_json_refused("{", "not JSON");
	assert_json_refused("[]", "not an object");
	assert_json_refused("{}", "holds no parameter layout");
	assert_json_refused(LAYOUTS(""), "holds no parameter layout");
	assert_json_refused("{\"parallel_layout_item\":[]}",
			    "\"parallel_layout_item\" is not an object");
	assert_json_refused("{\"parallel_layout_item\":{\"w\":1}}",
			    "\"w\" of \"parallel_layout_item\"");
	assert_json_refused(LAYOUTS(ITEM("w", "\"dev_matrix\":[2]")),
			    "no tensor map");
	assert_json_refused(LAYOUTS(ITEM("w", "\"tensor_map\":[0]")),
			    "no device matrix");
	assert_json_refused(LAYOUTS(ITEM("w", "\"dev_matrix\":[2.0],"
					      "\"tensor_map\":[0]")),
			    "\"dev_matrix\" of \"w\" is not a list");
	assert_json_refused(LAYOUTS(ITEM("w", "\"dev_matrix\":[2],"
					      "\"tensor_map\":\"0\"")),
			    "\"tensor_map\" of \"w\" is not a list");
	assert_json_refused(LAYOUTS(ITEM("w", "\"dev_matrix\":[2],"
					      "\"tensor_map\":[[[0]]]")),
			    "\"tensor_map\" of \"w\" is not a list");
	assert_json_refused(LAYOUTS(ITEM("w", "\"dev_matrix\":[2],"
					      "\"tensor_map\":[0],"
					      "\"opt_weight_shard_size\":\"\"")),
			    "opt_weight_shard_size");
	assert_json_refused(LAYOUTS(ITEM("w", "\"dev_matrix\":[2],"
					      "\"tensor_map\":[0],"
					      "\"tensor_shape\":[-4]")),
			    "dimension -4 in the shape");
	assert_json_refused(STAGED("-1"), "is of stage -1");
	assert_json_refused(STAGED("2147483648"), "is of stage 2147483648");
	assert_json_refused(STAGED("\"0\""), "\"stage\" of \"n\"");
	assert_json_refused(LAYOUTS(ITEM("w", "\"dev_matrix\":"
					      "[99999999999999999999]")),
			    "is not a list of integers");
}

/* ---- values that no layout has ---- */

static void assert_values_refused(const char *mesh, const char *map,
				  const char *word)
{
	char text[1024];

	snprintf(text, sizeof(text),
		 LAYOUTS(ITEM("net.w", "\"dev_matrix\":%s,\"tensor_map\":%s")),
		 mesh, map);
	assert_json_refused(text, word);
	assert_json_refused(text, "\"net.w\"");
}

TEST(test_values_refused)
{
	static const char forty[] =
		"[1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,"
		"1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1]";

	assert_values_refused("[]", "[]", "no device matrix");
	assert_values_refused("[2,0]", "[0]", "size 0 in the device matrix");
	assert_values_refused("[-2]", "[0]", "size -2 in the device matrix");
	assert_values_refused("[65536,65536]", "[0]", "2^31");
	assert_values_refused("[4294967297]", "[0]", "size 4294967297");
	assert_values_refused(forty, "[0]", "40 dimensions");
	assert_values_refused("[2]", "[1]", "mesh axis 1, the device matrix has 1");
	assert_values_refused("[2]", "[-2]", "mesh axis -2");
	assert_values_refused("[2,2]", "[1,1]", "mesh axis 1 twice");
	assert_values_refused("[2,2]", "[[1,0],[0]]", "mesh axis 0 twice");
	assert_values_refused("[2,2]", "[[1,-1]]", "mesh axis -1");
	assert_values_refused("[2]", forty, "a tensor map of 40 dimensions");
	assert_values_refused("[2]", "[[0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,"
				     "0,0,0,0,0,0,0,0,0,0,0,0,0,0]]",
			      "33 mesh axes on one dimension");
	assert_values_refused("[2]", "[-1],\"tensor_shape\":[1,1,1,1,1,1,1,1,1,"
				     "1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,"
				     "1,1,1]", "a shape of 33 dimensions");
	assert_refused("", (size_t)1 << 30, "s.ckpt",
		       "not a strategy file: it has 1073741824 bytes");
}

/* ---- protobuf ---- */

/* A strategy of one item "w", packed by protobuf-c.  Of two TensorMap
 * messages the second is empty. */
static struct buffer packed_item(uint32_t *mesh, size_t n_mesh, size_t n_maps,
				 int32_t size)
{
	int32_t axis = 0;
	Rsh__Pb__DevMatrix dev = RSH__PB__DEV_MATRIX__INIT;
	Rsh__Pb__TensorMap map = RSH__PB__TENSOR_MAP__INIT;
	Rsh__Pb__TensorMap empty = RSH__PB__TENSOR_MAP__INIT;
	Rsh__Pb__ParallelLayouts layouts = RSH__PB__PARALLEL_LAYOUTS__INIT;
	Rsh__Pb__ParallelLayoutItem item = RSH__PB__PARALLEL_LAYOUT_ITEM__INIT;
	Rsh__Pb__ParallelStrategyMap all = RSH__PB__PARALLEL_STRATEGY_MAP__INIT;
	Rsh__Pb__DevMatrix *devs = &dev;
	Rsh__Pb__TensorMap *maps[] = { &map, &empty };
	Rsh__Pb__ParallelLayoutItem *items = &item;
	uint8_t name[] = "w";
	struct buffer b;

	dev.n_dim = n_mesh;
	dev.dim = mesh;
	map.n_dim = 1;
	map.dim = &axis;
	layouts.n_dev_matrix = n_mesh ? 1 : 0;
	layouts.dev_matrix = &devs;
	layouts.n_tensor_map = n_maps;
	layouts.tensor_map = maps;
	layouts.has_opt_weight_shard_size = true;
	layouts.opt_weight_shard_size = size;
	item.has_param_name = true;
	item.param_name.data = name;
	item.param_name.len = 1;
	item.parallel_layouts = &layouts;
	all.n_parallel_layout_item = 1;
	all.parallel_layout_item = &items;
	b.len = rsh__pb__parallel_strategy_map__get_packed_size(&all);
	b.data = malloc(b.len);
	assert_non_null(b.data);
	rsh__pb__parallel_strategy_map__pack(&all, b.data);
	return b;
}

TEST(test_protobuf_item)
{
	uint32_t mesh[] = { 4, 2 };
	struct buffer b = packed_item(mesh, 2, 1, -1);
	struct rsh_strategy_file *f = parse(&b, "s.ckpt");

	assert_layout(f, "w", "[4,2] (0) opt 0/-1");
	assert_false(f->items[0].nested);
	assert_false(f->has_stage);
	assert_false(f->json);
	rsh_strategy_file_free(f);
	buffer_free(&b);

	/* As MindSpore writes the map of a vector since 2.6. */
	b = packed_item(mesh, 2, 2, 0);
	f = parse(&b, "s.ckpt");
	assert_layout(f, "w", "[4,2] (0) opt 0/0");
	assert_true(f->items[0].nested);
	rsh_strategy_file_free(f);
	buffer_free(&b);
}

TEST(test_protobuf_repetition)
{
	uint32_t early[] = { 8 }, late[] = { 4, 2 };
	cleanup_buffer struct buffer b = packed_item(early, 1, 1, 0);
	cleanup_buffer struct buffer more = packed_item(late, 2, 1, -1);
	struct rsh_strategy_file *f;

	/* Two messages one behind the other are one, of both's items. */
	append_hex(&b, "1a0e 0a0178 1209 0a020803 12030a0100");
	buffer_append(&b, more.data, more.len);
	f = parse(&b, "s.ckpt");
	assert_int_equal(f->n_items, 2);
	assert_string_equal(f->items[0].name, "w");
	assert_layout(f, "w", "[4,2] (0) opt 0/-1");
	assert_layout(f, "x", "[3] (0) opt 0/0");
	rsh_strategy_file_free(f);
}

static void assert_packed_refused(struct buffer b, const char *word)
{
	assert_refused(b.data, b.len, "s.ckpt", word);
	buffer_free(&b);
}

TEST(test_protobuf_refused)
{
	uint32_t mesh[] = { 2 }, none[] = { 0 };
	struct buffer b = { NULL, 0 };

	assert_refused("", 0, "s.ckpt", "empty");
	assert_packed_refused(packed_item(NULL, 0, 1, 0), "no device matrix");
	assert_packed_refused(packed_item(none, 1, 1, 0), "size 0");
	assert_packed_refused(packed_item(mesh, 1, 0, 0), "no tensor map");
	assert_packed_refused(packed_item(mesh, 1, 1, -2),
			      "opt_weight_shard_size is -2");
	/* current_stage alone, an item without a name, JSON by another name. */
	assert_refused("\10\1", 2, "s.ckpt", "no parameter layout");
	assert_refused("\10\1\32\0", 4, "s.ckpt", "no parameter name");
	assert_refused("{\"a\":1}", 7, "s.ckpt", "has to be named *.json");
	append_hex(&b, "1a04 0a02 6100");
	assert_packed_refused(b, "damaged");
}

/* A table that is split manually, in both forms. */
TEST(test_rows)
{
	static const uint8_t pb[] = {
		0x1a, 30, 0x0a, 1, 'w', 0x12, 25,
		0x0a, 2, 8, 2,                   /* dev_matrix 2 */
		0x12, 2, 8, 0,                   /* tensor_map 0 */
		0x1a, 5, 8, 3, 8, 0x85, 2,       /* param_split_shape 3, 261 */
		0x22, 4, 8, 0, 8, 3,             /* indices_offset 0, 3 */
		0x28, 0, 0x30, 0,
	};
	struct rsh_strategy_file *files[2];
	struct rsh_error err = RSH_ERROR_INIT;

	files[0] = parse_json(LAYOUTS(ITEM("w", "\"dev_matrix\":[2],"
		"\"tensor_map\":[0],\"param_split_shape\":[3,261],"
		"\"indices_offset\":[0,3]")));
	if (rsh_strategy_parse(pb, sizeof(pb), "s.ckpt", &files[1], &err))
		fail_msg("%s", err.text);
	for (int i = 0; i < 2; i++) {
		const struct rsh_strategy_item *it = find_item(files[i], "w");

		assert_int_equal(it->n_rows, 2);
		assert_int_equal(it->rows[0], 3);
		assert_int_equal(it->rows[1], 261);
		assert_int_equal(it->n_offsets, 2);
		rsh_strategy_file_free(files[i]);
	}
	assert_json_refused(LAYOUTS(ITEM("w", "\"dev_matrix\":[2],"
		"\"tensor_map\":[0],\"param_split_shape\":[3,\"5\"]")),
		"\"param_split_shape\" of \"w\" is not a list of integers");
	assert_json_refused(LAYOUTS(ITEM("w", "\"dev_matrix\":[2],"
		"\"tensor_map\":[0],\"param_split_shape\":3")),
		"is not a list of integers");
}

TEST(test_checkpoint_given)
{
	cleanup_buffer struct buffer b = load_data("append_crc.ckpt");

	assert_refused(b.data, b.len, "rank_0/net.ckpt", "this is a checkpoint");
	assert_refused(b.data, b.len, "net.json", "this is a checkpoint");
}

/* ---- damage: an error with a sentence or a sound file, never worse ---- */

static void parse_damaged(const uint8_t *data, size_t len, const char *path)
{
	struct rsh_error err = RSH_ERROR_INIT;
	struct rsh_strategy_file *f = NULL;
	int rc = rsh_strategy_parse(data, len, path, &f, &err);

	if (rc) {
		assert_int_equal(rc, -EBADMSG);
		assert_ptr_equal(strstr(err.text, path), err.text);
		return;
	}
	assert_true(f->n_items > 0);
	for (uint32_t i = 0; i < f->n_items; i++)
		assert_true(f->items[i].n_mesh > 0 && layout_text(&f->items[i]));
	rsh_strategy_file_free(f);
}

static void damage_everywhere(struct buffer *file, const char *path)
{
	for (size_t i = 0; i < file->len; i++) {
		struct buffer cut = { NULL, 0 };

		buffer_append(&cut, file->data, i);
		parse_damaged(cut.data, cut.len, path);
		buffer_free(&cut);
		for (unsigned bit = 0; bit < 8; bit++) {
			file->data[i] ^= (uint8_t)(1U << bit);
			parse_damaged(file->data, file->len, path);
			file->data[i] ^= (uint8_t)(1U << bit);
		}
	}
}

TEST(test_damage)
{
	static const char json[] =
		"{\"parallel_layout_item\":{"
		ITEM("a", "\"dev_matrix\":[2,2],\"tensor_map\":[[1,0],[-1]],"
			  "\"tensor_shape\":[8,4],\"opt_weight_shard_size\":2")
		"},\"parallel_strategy_item\":{\"n\":{\"stage\":1}}}";
	struct buffer b =
		load_file("data/strategies/fault_recover_8/strategy_stage_0.ckpt");

	damage_everywhere(&b, "s.ckpt");
	buffer_free(&b);
	buffer_append(&b, json, sizeof(json) - 1);
	damage_everywhere(&b, "s.json");
	buffer_free(&b);
}
