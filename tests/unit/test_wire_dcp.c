/* SPDX-License-Identifier: Apache-2.0 */
/* unit/test_wire_dcp.c - distributed checkpoints: genuine ones against what is
 * known of them, and pickles that nobody would write in good faith. */
#include "config.h"

#include <errno.h>
#include <stdio.h>

#include <jansson.h>
#include <zlib.h>

#include "rsh/wire/dcp.h"
#include "wire_support.h"

#define TORCH "torch.distributed.checkpoint.metadata"

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
	struct buffer b;
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
	assert_int_equal(crc32(0, b.data + item.offset, (uInt)item.bytes),
			 item.crc);
	for (uint32_t i = 0; i < item.n_dims; i++)
		assert_int_equal(item.order[i],
				 strcmp(t->name, "odd.transposed") ? i :
					 item.n_dims - 1 - i);
	buffer_free(&b);
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
			assert_int_not_equal(d->values[i].file,
					     RSH_DCP_NO_FILE);
	}
	json_decref(root);
	buffer_free(&b);
	rsh_dcp_free(d);
}

static void test_genuine(void **state)
{
	(void)state;
	for (size_t i = 0; i < N_GENUINE; i++)
		check_tree(genuine[i]);
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

static void test_copies(void **state)
{
	struct rsh_dcp *d = parse(HYPER "dp2tp2_replicas/.metadata");
	const struct rsh_dcp_tensor *t = tensor(d, "emb.weight");

	(void)state;
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
	rsh_dcp_free(d);
}

static void test_join(void **state)
{
	struct rsh_dcp *const parts[] = {
		parse(HYPER "dp1tp2_per_rank/.rank0_metadata"),
		parse(HYPER "dp1tp2_per_rank/.rank1_metadata"),
	};
	const struct rsh_dcp *const both[] = { parts[1], parts[0] };
	struct rsh_error err = RSH_ERROR_INIT;
	const struct rsh_dcp_tensor *t;
	struct rsh_dcp *d;

	(void)state;
	assert_int_equal(rsh_dcp_join(both, 2, "dir", &d, &err), 0);
	rsh_dcp_free(parts[0]);
	rsh_dcp_free(parts[1]);
	assert_true(d->by_name);
	assert_int_equal(d->n_tensors, 8);
	assert_int_equal(d->n_files, 6);
	t = tensor(d, "emb.weight");
	assert_int_equal(t->n_chunks, 2);
	assert_chunk(d, t, 0, "_rank0_.safetensors", 0);
	assert_chunk(d, t, 1, "_rank1_.safetensors", 12);
	/* Both ranks hold all of it. */
	t = tensor(d, "buffer");
	assert_int_equal(t->n_chunks, 2);
	assert_chunk(d, t, 1, "_rank1_.safetensors", 0);
	assert_int_equal(d->n_values, 2);
	assert_string_equal(d->files[d->values[0].file], "epoch_rank0.bytes");
	rsh_dcp_free(d);
}

static void test_join_refuses(void **state)
{
	static const char *const word[] = { "two kinds", "contradict" };
	static const char *const other[] = {
		"data/dcp/torch-2.15/uneven/.metadata",
		"data/dcp/torch-2.15/tp2d/.metadata",
	};
	struct rsh_dcp *a = parse(HYPER "dp2tp2/.metadata");

	(void)state;
	for (size_t i = 0; i < 2; i++) {
		struct rsh_dcp *b = parse(other[i]), *d;
		const struct rsh_dcp *const both[] = { a, b };
		struct rsh_error err = RSH_ERROR_INIT;

		assert_int_equal(rsh_dcp_join(both, 2, "dir", &d, &err),
				 -EBADMSG);
		assert_non_null(strstr(err.text, word[i]));
		assert_null(d);
		rsh_dcp_free(a);
		/* The same checkpoint, but for the shape of a tensor. */
		a = b;
		if (i == 0) {
			union {
				const uint64_t *in;
				uint64_t *out;
			} dims;

			rsh_dcp_free(a);
			a = parse(other[1]);
			dims.in = a->tensors[0].dims;
			dims.out[0]++;
		}
	}
	rsh_dcp_free(a);
}

/* ---- damage ---- */

static int parse_bytes(struct buffer *b, struct rsh_error *err)
{
	struct rsh_byte_source src = buffer_source(b);
	struct rsh_dcp *d;
	int rc;

	*err = (struct rsh_error)RSH_ERROR_INIT;
	rc = rsh_dcp_parse(&src, &d, err);
	assert_true((rc == 0) == (d != NULL));
	rsh_dcp_free(d);
	return rc;
}

static void test_truncated(void **state)
{
	struct buffer b = load_file("data/dcp/torch-2.15/uneven2d/.metadata");
	struct rsh_error err;

	(void)state;
	for (size_t len = 0; len < b.len; len++) {
		struct buffer cut = { b.data, len };

		assert_int_equal(parse_bytes(&cut, &err), -EBADMSG);
		assert_non_null(strstr(err.text, "test.ckpt: "));
	}
	assert_int_equal(parse_bytes(&b, &err), 0);
	buffer_append(&b, "", 1);
	assert_int_equal(parse_bytes(&b, &err), -EBADMSG);
	assert_non_null(strstr(err.text, "goes on after"));
	buffer_free(&b);
}

/* Whatever bit is wrong, there is a checkpoint or a sentence. */
static void test_flipped(void **state)
{
	struct rsh_error err;

	(void)state;
	for (size_t i = 0; i < N_GENUINE; i += 3) {
		struct buffer b;
		char path[256];

		snprintf(path, sizeof(path), "data/dcp/%s/.metadata",
			 genuine[i]);
		b = load_file(path);
		for (size_t at = 0; at < b.len; at++) {
			const uint8_t bit = (uint8_t)(1u << (at * 5 % 8));
			int rc;

			b.data[at] ^= bit;
			rc = parse_bytes(&b, &err);
			b.data[at] ^= bit;
			if (rc && (rc != -err.code || !err.text[0] ||
				   (rc != -EBADMSG && rc != -ENOTSUP)))
				fail_msg("%s at %zu: rc %d, \"%s\"", path, at,
					 rc, err.text);
		}
		buffer_free(&b);
	}
}

/* ---- made by hand ---- */

static void put(struct buffer *b, const char *bytes)
{
	buffer_append(b, bytes, strlen(bytes));
}

static void put_text(struct buffer *b, const char *text)
{
	const uint8_t head[] = { 0x8c, (uint8_t)strlen(text) };

	buffer_append(b, head, 2);
	put(b, text);
}

static void put_number(struct buffer *b, uint8_t n)
{
	const uint8_t bytes[] = { 'K', n };

	buffer_append(b, bytes, 2);
}

/* An object of a class, to whose attributes what follows is added; end() ends
 * them. */
static void put_object(struct buffer *b, const char *module, const char *class)
{
	put_text(b, module);
	put_text(b, class);
	put(b, "\x93)\x81}(");
}

static void put_end(struct buffer *b)
{
	put(b, "ub");
}

static void put_pair(struct buffer *b, const char *name, uint8_t x, uint8_t y)
{
	put_text(b, name);
	put_number(b, x);
	put_number(b, y);
	put(b, "\x86");
}

/* A checkpoint of one tensor; what is to be odd is said by the test. */
struct made {
	uint8_t rows, from, size; /* of the tensor, of its chunk */
	const char *path;
	const char *dtype;
	const char *extra; /* instructions: an attribute of the item */
	const char *in_size; /* instead of the tensor's size */
};

static void put_chunk(struct buffer *b, const struct made *m)
{
	put_object(b, TORCH, "ChunkStorageMetadata");
	put_pair(b, "offsets", m->from, 0);
	put_pair(b, "sizes", m->size, 2);
	put_end(b);
}

static void put_tensor(struct buffer *b, const struct made *m)
{
	put_object(b, TORCH, "TensorStorageMetadata");
	put_text(b, "properties");
	put_text(b, TORCH);
	put_text(b, "TensorProperties");
	put(b, "\x93)\x81(");
	put_text(b, "torch");
	put_text(b, m->dtype);
	put(b, "\x93tb");
	if (m->in_size) {
		put_text(b, "size");
		put(b, m->in_size);
	} else {
		put_pair(b, "size", m->rows, 2);
	}
	put_text(b, "chunks");
	put(b, "](");
	put_chunk(b, m);
	put(b, "e");
	put_end(b);
}

static void put_storage(struct buffer *b, const struct made *m)
{
	put_object(b, TORCH, "MetadataIndex");
	put_text(b, "fqn");
	put_text(b, "w");
	put_pair(b, "offset", m->from, 0);
	put_end(b);
	put_object(b, "torch.distributed.checkpoint.filesystem",
		   "_StorageInfo");
	put_text(b, "relative_path");
	put_text(b, m->path);
	put_text(b, "offset");
	put_number(b, 7);
	put_text(b, "length");
	put_number(b, 100);
	put(b, m->extra);
	put_end(b);
}

static struct buffer make(const struct made *m)
{
	struct buffer b = { NULL, 0 };

	put(&b, "\x80\x04");
	put_object(&b, TORCH, "Metadata");
	put_text(&b, "state_dict_metadata");
	put(&b, "}(");
	put_text(&b, "w");
	put_tensor(&b, m);
	put(&b, "u");
	put_text(&b, "storage_data");
	put(&b, "}(");
	put_storage(&b, m);
	put(&b, "u");
	put_end(&b);
	put(&b, ".");
	return b;
}

static void test_made(void **state)
{
	static const struct {
		struct made made;
		int code;
		const char *word;
	} cases[] = {
		{ { 9, 4, 5, "f", "float32", "", NULL }, 0, NULL },
		{ { 9, 9, 0, "f", "float32", "", NULL }, 0, NULL },
		/* of a type that is not known */
		{ { 9, 0, 9, "f", "float8_e8m0fnu", "", NULL }, 0, NULL },
		{ { 9, 4, 5, "f", "float32", "\x8c\x15transform_descriptors]",
		    NULL }, 0, NULL },
		{ { 9, 4, 5, "f", "float32", "\x8c\x15transform_descriptors"
		    "](K\1e", NULL }, ENOTSUP, "compressed" },
		{ { 9, 4, 6, "f", "float32", "", NULL }, EBADMSG,
		  "\"w\": a chunk that leaves" },
		{ { 9, 10, 0, "f", "float32", "", NULL }, EBADMSG, "leaves" },
		{ { 9, 4, 5, "a/f", "float32", "", NULL }, EBADMSG, "\"a/f\"" },
		{ { 9, 4, 5, "/f", "float32", "", NULL }, EBADMSG, "\"/f\"" },
		{ { 9, 4, 5, "..", "float32", "", NULL }, EBADMSG, "\"..\"" },
		{ { 9, 4, 5, "", "float32", "", NULL }, EBADMSG, "name" },
		/* negative, too many dimensions, too large, no tuple */
		{ { 9, 4, 5, "f", "float32", "", "J\xff\xff\xff\xffK\1\x86" },
		  EBADMSG, "no number" },
		{ { 9, 4, 5, "f", "float32", "", "K\1\x85" }, EBADMSG,
		  "dimension" },
		{ { 9, 4, 5, "f", "float32", "", "\x8a\x08\1\1\1\1\1\1\1\x7f"
		    "K\2\x86" }, EBADMSG, "counted" },
		{ { 9, 4, 5, "f", "float32", "", "\x8a\x09\1\1\1\1\1\1\1\1\1"
		    "K\2\x86" }, EBADMSG, "no number" },
		{ { 9, 4, 5, "f", "float32", "", "N" }, EBADMSG, "size" },
		/* POP, an extension, INST, a place of the memo, a gap in it,
		 * a persistent id */
		{ { 9, 4, 5, "f", "float32", "0", NULL }, EBADMSG, "0x30" },
		{ { 9, 4, 5, "f", "float32", "\x82\1", NULL }, EBADMSG,
		  "0x82" },
		{ { 9, 4, 5, "f", "float32", "ios\nsystem\n", NULL }, EBADMSG,
		  "0x69" },
		{ { 9, 4, 5, "f", "float32", "h\7", NULL }, EBADMSG, "memo" },
		{ { 9, 4, 5, "f", "float32", "q\7", NULL }, EBADMSG, "memo" },
		{ { 9, 4, 5, "f", "float32", "K\1Q", NULL }, EBADMSG,
		  "persistent" },
		/* a call of what is not known is carried, and ignored */
		{ { 9, 4, 5, "f", "float32", "\x8c\1x" "cos\nsystem\n"
		    "\x8c\2ls\x85R", NULL }, 0, NULL },
		/* a list that contains itself */
		{ { 9, 4, 5, "f", "float32", "\x8c\1x]\x94\x94h\1" "a",
		    NULL }, 0, NULL },
		{ { 9, 4, 5, "f", "float32", "t", NULL }, EBADMSG, "" },
		{ { 9, 4, 5, "f", "float32", "eee", NULL }, EBADMSG, "" },
		{ { 9, 4, 5, "f", "float32", "uuuuuu", NULL }, EBADMSG, "" },
	};

	(void)state;
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct buffer b = make(&cases[i].made);
		struct rsh_error err;
		int rc = parse_bytes(&b, &err);

		if (rc != -cases[i].code ||
		    (rc && !strstr(err.text, cases[i].word)))
			fail_msg("case %zu: rc %d, \"%s\"", i, rc, err.text);
		buffer_free(&b);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_genuine),
		cmocka_unit_test(test_copies),
		cmocka_unit_test(test_join),
		cmocka_unit_test(test_join_refuses),
		cmocka_unit_test(test_truncated),
		cmocka_unit_test(test_flipped),
		cmocka_unit_test(test_made),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
