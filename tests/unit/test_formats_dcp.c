/* SPDX-License-Identifier: Apache-2.0 */
/* unit/test_formats_dcp.c - distributed checkpoints: genuine ones against what is
 * known of them. */
#include "config.h"

#include <jansson.h>
#include <zlib.h>

#include "rsh/formats/dcp.h"
#include "torch_support.h"

static struct rsh_dcp *parse(const char *path)
{
	struct buffer b = load_file(path);
	struct rsh_byte_source src = buffer_source(&b);
	struct rsh_error err = RSH_ERROR_INIT;
	struct rsh_dcp *d;

	if (rsh_dcp_parse(&src, &d, &err))
		fail_msg("%s: %s", path, err.text);
	buffer_free(&b);
	return d;
}

static const struct rsh_dcp_tensor *tensor(const struct rsh_dcp *d,
					   const char *name)
{
	for (uint32_t i = 0; i < d->n_tensors; i++)
		if (strcmp(d->tensors[i].name, name) == 0)
			return &d->tensors[i];
	fail_msg("no tensor \"%s\"", name);
	return NULL;
}

/* ---- genuine ones ---- */

static const char *const genuine[] = {
	"torch-2.4/fsdp2-2", "torch-2.4/kinds", "torch-2.4/replicated",
	"torch-2.4/uneven", "torch-2.15/again", "torch-2.15/async",
	"torch-2.15/fsdp2", "torch-2.15/fsdp2-2", "torch-2.15/fsdp2-bf16",
	"torch-2.15/fsdp_tp", "torch-2.15/kinds", "torch-2.15/manyfiles",
	"torch-2.15/nocrc",
	"torch-2.15/replicated", "torch-2.15/shardedtensor",
	"torch-2.15/threads", "torch-2.15/tp2d", "torch-2.15/uneven",
	"torch-2.15/uneven-3", "torch-2.15/uneven2d",
	"megatron-core-0.16/mcore-torch_dist",
};

#define N_GENUINE (sizeof(genuine) / sizeof(genuine[0]))

static enum rsh_dtype dtype_of(const char *name)
{
	static const struct {
		const char *name;
		enum rsh_dtype dtype;
	} types[] = {
		{ "BOOL", RSH_DTYPE_BOOL }, { "U8", RSH_DTYPE_UINT8 },
		{ "U16", RSH_DTYPE_UINT16 }, { "U32", RSH_DTYPE_UINT32 },
		{ "U64", RSH_DTYPE_UINT64 }, { "I8", RSH_DTYPE_INT8 },
		{ "I16", RSH_DTYPE_INT16 }, { "I32", RSH_DTYPE_INT32 },
		{ "I64", RSH_DTYPE_INT64 }, { "F16", RSH_DTYPE_FLOAT16 },
		{ "F32", RSH_DTYPE_FLOAT32 }, { "F64", RSH_DTYPE_FLOAT64 },
		{ "BF16", RSH_DTYPE_BFLOAT16 },
		{ "C64", RSH_DTYPE_COMPLEX64 },
		{ "F8_E4M3", RSH_DTYPE_FLOAT8E4M3FN },
		{ "F8_E5M2", RSH_DTYPE_FLOAT8E5M2 },
		{ "F8_E8M0", RSH_DTYPE_FLOAT8E8M0 },
	};

	for (size_t i = 0; i < sizeof(types) / sizeof(types[0]); i++)
		if (strcmp(types[i].name, name) == 0)
			return types[i].dtype;
	fail_msg("no type \"%s\"", name);
	return RSH_DTYPE_UNKNOWN;
}

static uint64_t elements(const uint64_t *sizes, uint32_t n)
{
	uint64_t product = 1;

	for (uint32_t i = 0; i < n; i++)
		product *= sizes[i];
	return product;
}

/* The item of a chunk has its type, its sizes and elements that match their
 * CRC. */
static void check_item(const char *tree, const struct rsh_dcp *d,
		       const struct rsh_dcp_tensor *t,
		       const struct rsh_dcp_chunk *c)
{
	struct rsh_error err = RSH_ERROR_INIT;
	struct rsh_dcp_item item;
	struct rsh_byte_source src;
	cleanup_buffer struct buffer b;
	char path[256];

	assert_true(c->file < d->n_files);
	snprintf(path, sizeof(path), "data/dcp/%s/%s", tree, d->files[c->file]);
	b = load_file(path);
	src = buffer_source(&b);
	if (rsh_dcp_item_read(&src, c->offset, c->length, &item, &err))
		fail_msg("%s: %s", path, err.text);
	assert_int_equal(item.dtype, t->dtype);
	assert_int_equal(item.n_dims, t->n_dims);
	for (uint32_t i = 0; i < t->n_dims; i++)
		assert_int_equal(item.dims[i], c->size[i]);
	assert_true(item.offset >= c->offset &&
		    item.offset + item.bytes <= c->offset + c->length);
	assert_int_equal(item.bytes, elements(c->size, t->n_dims) *
					     rsh_dtype_size(t->dtype));
	assert_int_equal(item.has_crc, !strstr(tree, "nocrc"));
	assert_int_equal(item.has_crc ? crc32(0, b.data + item.offset,
					      (uInt)item.bytes) : 0, item.crc);
	assert_int_equal(rsh_dcp_item_check(&src, &item, &err), 0);
	item.crc ^= 1;
	assert_int_equal(rsh_dcp_item_check(&src, &item, &err),
			 item.has_crc ? -EBADMSG : 0);
	for (uint32_t i = 0; i < item.n_dims; i++)
		assert_int_equal(item.order[i],
				 strcmp(t->name, "odd.transposed") ? i :
					 item.n_dims - 1 - i);
}

static void check_tensor(const char *tree, const struct rsh_dcp *d,
			 const char *name, const json_t *known)
{
	const struct rsh_dcp_tensor *t = tensor(d, name);
	const json_t *shape = json_array_get(known, 1);
	uint64_t sum = 0;

	assert_int_equal(t->dtype, dtype_of(json_string_value(
						   json_array_get(known, 0))));
	assert_int_equal(t->n_dims, json_array_size(shape));
	for (uint32_t i = 0; i < t->n_dims; i++)
		assert_int_equal(t->dims[i], json_integer_value(
						     json_array_get(shape, i)));
	for (uint32_t i = 0; i < t->n_chunks; i++) {
		struct rsh_box box;

		rsh_dcp_box(t, &t->chunks[i], &box);
		assert_int_equal(box.n_dims, t->n_dims);
		sum += elements(box.size, box.n_dims);
		check_item(tree, d, t, &t->chunks[i]);
	}
	/* The chunks of these do not overlap. */
	assert_int_equal(sum, elements(t->dims, t->n_dims));
}

static void check_tree(const char *tree)
{
	const json_t *known, *values;
	struct rsh_dcp *d;
	struct buffer b;
	const char *name;
	char path[256];
	json_t *root, *v;

	snprintf(path, sizeof(path), "data/dcp/%s/.metadata", tree);
	d = parse(path);
	snprintf(path, sizeof(path), "data/dcp/%s.json", tree);
	b = load_file(path);
	root = json_loadb((const char *)b.data, b.len, 0, NULL);
	assert_non_null(root);
	known = json_object_get(root, "tensors");
	assert_int_equal(d->n_tensors, json_object_size(known));
	assert_false(d->by_name);
	json_object_foreach(json_object_get(root, "tensors"), name, v)
		check_tensor(tree, d, name, v);
	for (uint32_t i = 1; i < d->n_tensors; i++)
		assert_true(strcmp(d->tensors[i - 1].name,
				   d->tensors[i].name) < 0);
	for (uint32_t i = 1; i < d->n_files; i++)
		assert_true(strcmp(d->files[i - 1], d->files[i]) < 0);
	values = json_object_get(root, "not tensors");
	if (values) {
		assert_int_equal(d->n_values, json_array_size(values));
		for (uint32_t i = 0; i < d->n_values; i++)
			assert_non_null(d->values[i].file);
	}
	json_decref(root);
	buffer_free(&b);
	rsh_dcp_free(d);
}

TEST(test_genuine)
{
	for (size_t i = 0; i < N_GENUINE; i++)
		check_tree(genuine[i]);
}

/* ---- made by hand ---- */

/* Reads a checkpoint of one tensor, which is in a file for each of two copies;
 * `more` are attributes of the whole. */
#define TORCH "torch.distributed.checkpoint."
#define HYPER_PARALLEL "hyper_parallel.core.distributed_checkpoint."
static int parse_made(const char *of, const char *info, const char *more,
		      struct rsh_dcp **out, struct rsh_error *err)
{
	struct unit_text t = { "", 0 };
	cleanup_buffer struct buffer b = { NULL, 0 };
	struct rsh_byte_source src;

	unit_put(&t, "%smetadata.Metadata<>!{'state_dict_metadata': {'w': "
		 "%smetadata.TensorStorageMetadata<>!{'properties': "
		 "%smetadata.TensorProperties<>!{'dtype': torch.float32}, "
		 "'size': (2,), 'chunks': [%smetadata.ChunkStorageMetadata<>!{"
		 "'offsets': (0,), 'sizes': (2,)}]}}, 'storage_data': {"
		 "%smetadata.MetadataIndex<>!{'fqn': 'w', 'offset': (0,), "
		 "'index': None}: %s<>!{'relative_path': 'a', 'offset': 7, "
		 "'length': %s}, %smetadata.MetadataIndex<>!{'fqn': 'w', "
		 "'offset': (0,), 'index': 0}: %s<>!{'relative_path': 'b', "
		 "'offset': 8, 'length': %s}}%s}", of, of, of, of, of, info,
		 *of == 'h' ? "-1" : "9", of, info, *of == 'h' ? "-1" : "9",
		 more);
	append_pickle(&b, t.s);
	src = buffer_source(&b);
	*err = (struct rsh_error)RSH_ERROR_INIT;
	return rsh_dcp_parse(&src, out, err);
}
#define parse_torch(more, d, err) \
	parse_made(TORCH, TORCH "filesystem._StorageInfo", more, d, err)
#define parse_hyper(more, d, err) \
	parse_made(HYPER_PARALLEL, HYPER_PARALLEL "metadata.StorageInfo", \
		   more, d, err)

/* The number of a chunk says which of its copies is meant. */
TEST(test_numbers_of_chunks)
{
	struct rsh_error err;
	struct rsh_dcp *d;

	assert_good(parse_torch("", &d, &err), err);
	assert_string_equal(d->files[d->tensors->chunks->file], "b");
	assert_int_equal(d->tensors->chunks->offset, 8);
	assert_int_equal(d->tensors->chunks->length, 9);
	rsh_dcp_free(d);
}

TEST(test_versions_of_hyper_parallel)
{
	static const struct {
		const char *more, *words; /* NULL: it is read */
	} cases[] = {
		{ "", NULL }, { ", 'version': None", NULL },
		{ ", 'version': '1.0'", NULL }, { ", 'version': '2.0'", NULL },
		{ ", 'version': '3.0'", "version 3.0 is not known (1.0, 2.0)" },
		{ ", 'version': 2.0", "its version is not known (1.0, 2.0)" },
	};

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct rsh_error err;
		struct rsh_dcp *d;
		int rc = parse_hyper(cases[i].more, &d, &err);

		if (rc != (cases[i].words ? -ENOTSUP : 0) ||
		    (rc && !strstr(err.text, cases[i].words)))
			fail_msg("%s: rc %d, \"%s\"", cases[i].more, rc,
				 err.text);
		rsh_dcp_free(d);
	}
}

/* What is no path of a name does not matter. */
TEST(test_paths_of_names)
{
	static const struct {
		const char *paths;
		uint32_t n;
	} cases[] = {
		{ "{'w': ('a', 3, 'b')}", 3 }, { "{'w': ['a', 3]}", 2 },
		{ "{'v': ('a',), 'w': ('b', 'c')}", 2 },
		{ "{'w': ('w',)}", 0 }, { "{'w': ()}", 0 }, { "{}", 0 },
		{ "{'w': ('a', -1)}", 0 }, { "{'w': ('a', None)}", 0 },
		{ "{'w': 'a'}", 0 }, { "{'w': 7}", 0 }, { "{'w': {'a': 1}}", 0 },
		{ "{3: ('a', 'b')}", 0 }, { "{None: ['a'], 'w': ['b']}", 1 },
		{ "{('w',): ('a',), 'w': ('b', 'c')}", 2 },
		{ "None", 0 }, { "['w', ('a',)]", 0 },
	};

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct unit_text more = { "", 0 };
		struct rsh_error err;
		struct rsh_dcp *d;

		print_message("# %s\n", cases[i].paths);
		unit_put(&more, ", 'planner_data': %s", cases[i].paths);
		assert_good(parse_torch(more.s, &d, &err), err);
		assert_int_equal(d->tensors->n_keys, cases[i].n);
		rsh_dcp_free(d);
	}
}

/* Of a long item both ends are read first, of a short one all. */
TEST(test_lengths_of_items)
{
	static const uint32_t lengths[] = { 0, 1, 700, 1000, 1024, 5000, 70000 };

	for (size_t i = 0; i < sizeof(lengths) / sizeof(lengths[0]); i++) {
		const uint32_t n = lengths[i];
		cleanup_buffer struct buffer b = { NULL, 0 }, made;
		struct rsh_byte_source src;
		struct rsh_error err = RSH_ERROR_INIT;
		struct rsh_dcp_item item;
		char text[32];
		float v;

		snprintf(text, sizeof(text), "F32[%u]=5", n);
		made = torch_file(text, "archive", 7);
		buffer_append(&b, "before", 6);
		buffer_append(&b, made.data, made.len);
		buffer_append(&b, "behind", 6);
		src = buffer_source(&b);
		assert_good(rsh_dcp_item_read(&src, 6, made.len, &item, &err),
			    err);
		assert_int_equal(item.n_dims, 1);
		assert_int_equal(item.dims[0], n);
		assert_int_equal(item.bytes, 4 * n);
		for (uint32_t k = 0; k < n; k++) {
			memcpy(&v, b.data + item.offset + 4 * (size_t)k, 4);
			assert_true(v == (float)(5 + k));
		}
		assert_good(rsh_dcp_item_check(&src, &item, &err), err);
	}
}

/* ---- HyperParallel's ---- */

#define HYPER "data/checkpoint2/dcp_"

static void assert_chunk(const struct rsh_dcp *d,
			 const struct rsh_dcp_tensor *t, uint32_t i,
			 const char *file, uint64_t row)
{
	const struct rsh_dcp_chunk *c = &t->chunks[i];

	assert_true(i < t->n_chunks);
	assert_true(c->file < d->n_files);
	assert_string_equal(d->files[c->file], file);
	assert_int_equal(c->from[0], row);
	assert_true(c->length == RSH_DCP_BY_NAME);
}

TEST(test_copies)
{
	struct rsh_dcp *d = parse(HYPER "dp2tp2_replicas/.metadata");
	const struct rsh_dcp_tensor *t = tensor(d, "emb.weight");

	assert_true(d->by_name);
	assert_int_equal(d->n_tensors, 8);
	assert_int_equal(t->dtype, RSH_DTYPE_FLOAT32);
	assert_int_equal(t->n_chunks, 4);
	assert_chunk(d, t, 0, "_rank0_.safetensors", 0);
	assert_chunk(d, t, 1, "_rank1_.safetensors", 12);
	assert_chunk(d, t, 2, "_rank2_.safetensors", 0);
	assert_chunk(d, t, 3, "_rank3_.safetensors", 12);
	assert_int_equal(tensor(d, "up.weight")->dtype, RSH_DTYPE_BFLOAT16);
	assert_int_equal(tensor(d, "step")->n_dims, 0);
	assert_int_equal(tensor(d, "step")->n_chunks, 4);
	assert_int_equal(d->n_values, 2);
	assert_string_equal(d->values[0].name, "epoch");
	assert_int_equal(d->values[0].length, 5);
	/* The values' files are not those of the tensors. */
	assert_int_equal(d->n_files, 4);
	rsh_dcp_free(d);
}

/* Joins two metadata files. */
static int join(const char *first, const char *second, struct rsh_dcp **out,
		struct rsh_error *err)
{
	const char *const paths[] = { first, second };
	struct rsh_dcp_builder *b = rsh_dcp_builder_new("dir");
	int rc = 0;

	*out = NULL;
	for (size_t i = 0; i < 2 && rc == 0; i++) {
		struct buffer file = load_file(paths[i]);
		struct rsh_byte_source src = buffer_source(&file);

		rc = rsh_dcp_builder_add(b, &src, err);
		buffer_free(&file);
	}
	if (rc == 0)
		rc = rsh_dcp_builder_finish(b, out, err);
	rsh_dcp_builder_free(b);
	return rc;
}

TEST(test_join)
{
	struct rsh_error err = RSH_ERROR_INIT;
	const struct rsh_dcp_tensor *t;
	struct rsh_dcp *d;

	assert_int_equal(join(HYPER "dp1tp2_per_rank/.rank1_metadata",
			      HYPER "dp1tp2_per_rank/.rank0_metadata", &d,
			      &err), 0);
	assert_true(d->by_name);
	assert_int_equal(d->n_tensors, 8);
	assert_int_equal(d->n_files, 2);
	t = tensor(d, "emb.weight");
	assert_int_equal(t->n_chunks, 2);
	assert_chunk(d, t, 0, "_rank0_.safetensors", 0);
	assert_chunk(d, t, 1, "_rank1_.safetensors", 12);
	/* Both ranks hold all of it. */
	t = tensor(d, "buffer");
	assert_int_equal(t->n_chunks, 2);
	assert_chunk(d, t, 1, "_rank1_.safetensors", 0);
	assert_int_equal(d->n_values, 2);
	assert_string_equal(d->values[0].file, "epoch_rank0.bytes");
	rsh_dcp_free(d);
}

TEST(test_join_refuses)
{
	static const char uneven[] = "data/dcp/torch-2.15/uneven/.metadata";
	static const struct {
		const char *first, *second, *word;
	} cases[] = {
		{ HYPER "dp2tp2/.metadata", uneven, "two kinds" },
		{ "data/dcp/torch-2.15/fsdp_tp/.metadata",
		  "data/dcp/torch-2.15/fsdp2-bf16/.metadata", "contradict" },
	};

	for (size_t i = 0; i < 2; i++) {
		struct rsh_error err = RSH_ERROR_INIT;
		struct rsh_dcp *d;

		assert_int_equal(join(cases[i].first, cases[i].second, &d,
				      &err), -EBADMSG);
		assert_non_null(strstr(err.text, cases[i].word));
		assert_null(d);
	}
}

/* A value as a pickle alone: as JSON, and as the pickle that is written. */
static void expect_plain(const char *pickle, size_t n, int rc, const char *json,
			 const char *written, size_t n_written)
{
	struct buffer b = { .data = (uint8_t *)(uintptr_t)pickle, .len = n };
	const struct rsh_byte_source src = buffer_source(&b);
	struct rsh_error err = RSH_ERROR_INIT;
	FREED_BY(rsh_plain_clear) struct rsh_plain found;

	assert_int_equal(rsh_dcp_value_read(&src, 0, n, true, &found, &err),
			 rc);
	assert_true(rc ? *err.text : !*err.text);
	assert_int_equal(json != NULL, found.json != NULL);
	if (json)
		assert_string_equal(found.json, json);
	assert_int_equal(found.n_pickle, n_written);
	if (n_written)
		assert_memory_equal(found.pickle, written, n_written);
}

/* torch writes a value as torch.save() does.  One with tensors is none that is
 * shown. */
TEST(test_values_in_archives)
{
	static const struct {
		const char *value, *json;
		bool has_floats;
	} v[] = {
		{ "{'a': 7, 'b': [True, 0.5]}",
		  "{\"a\": 7, \"b\": [true, 0.5]}" },
		{ "'x'", "\"x\"" }, { "F32[2]", NULL, true },
		{ "{'a': 7, 'w': F32[2]}", NULL, true },
		{ "(BF16[2], F64[1])", NULL, true },
		{ "{'seeds': [U8[16], I64[2]]}", NULL },
	};

	for (size_t i = 0; i < sizeof(v) / sizeof(v[0]); i++) {
		cleanup_buffer struct buffer b = torch_file(v[i].value, "x", 1);
		const struct rsh_byte_source src = buffer_source(&b);
		struct rsh_error err = RSH_ERROR_INIT;
		FREED_BY(rsh_plain_clear) struct rsh_plain found;

		assert_good(rsh_dcp_value_read(&src, 0, b.len, false, &found,
					       &err), err);
		if (v[i].json)
			assert_string_equal(found.json, v[i].json);
		else
			assert_null(found.json);
		assert_int_equal(found.has_floats, v[i].has_floats);
	}
}

#define value_is(pickle, json, written) \
	expect_plain(pickle, sizeof(pickle) - 1, 0, json, written, \
		     sizeof(written) - 1)
#define value_is_none(pickle, rc) \
	expect_plain(pickle, sizeof(pickle) - 1, rc, NULL, NULL, 0)

TEST(test_values)
{
	value_is("\x80\2K\7.", "7", "\x80\2K\7.");
	value_is("\x80\2J\xff\xff\xff\xff.", "-1",
		 "\x80\2J\xff\xff\xff\xff.");
	value_is("\x80\2\x8a\5\0\0\0\0\xff.", "-4294967296",
		 "\x80\2\x8a\x8\0\0\0\0\xff\xff\xff\xff.");
	value_is("\x80\2G\x3f\xb9\x99\x99\x99\x99\x99\x9a.", "0.1",
		 "\x80\2G\x3f\xb9\x99\x99\x99\x99\x99\x9a.");
	value_is("\x80\2G\x40\x08\0\0\0\0\0\0.", "3.0",
		 "\x80\2G\x40\x08\0\0\0\0\0\0.");
	value_is("\x80\2}q\0(K\1NX\2\0\0\0\"xK\2\x88\x86u.",
		 "{\"1\": null, \"\\\"x\": [2, true]}",
		 "\x80\2}(K\1NX\2\0\0\0\"x(K\2\x88tu.");
	value_is("\x80\4]\x94(X\1\0\0\0a\x94h\1)\x89""e.",
		 "[\"a\", \"a\", [], false]",
		 "\x80\2](X\1\0\0\0aX\1\0\0\0a(t\x89""e.");
	/* JSON has neither a NaN nor such a key. */
	value_is("\x80\2G\x7f\xf8\0\0\0\0\0\0.", NULL,
		 "\x80\2G\x7f\xf8\0\0\0\0\0\0.");
	value_is("\x80\2}(NK\1u.", NULL, "\x80\2}(NK\1u.");
	/* A dictionary cannot have such a key. */
	value_is_none("\x80\2}(]K\1u.", 0);
	value_is_none("\x80\2]q\0h\0a.", 0);
	value_is_none("\x80\4C\1a.", 0);
	value_is_none("\x80\2X\1\0\0\0\xff.", 0);
	value_is_none("\x80\2G\x3f\xb9", -EBADMSG);
	value_is_none("\x80\2cos\nsystem\nX\1\0\0\0a\x85R.", 0);
}
