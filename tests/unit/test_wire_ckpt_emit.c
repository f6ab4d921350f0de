/* SPDX-License-Identifier: Apache-2.0 */
/* Record headers: byte for byte what MindSpore and protobuf-c write. */
#include "support.h"
#include "wire_support.h"

#include <stdbool.h>

#define RANDOM_RECORDS 20000

static void assert_bytes(const uint8_t *got, size_t len,
			 const struct buffer *wanted)
{
	assert_int_equal(len, wanted->len);
	assert_memory_equal(got, wanted->data, len);
}

/* MindSpore's bytes of `sc`, a scalar of 3.5. */
TEST(test_golden_scalar)
{
	const struct rsh_record_shape shape = { "sc", 2, RSH_DTYPE_FLOAT32,
						0, NULL, NULL, 4 };
	cleanup_buffer struct buffer wanted = { NULL, 0 };
	uint8_t out[64];
	size_t len;

	append_hex(&wanted, "0a15 0a027363 120f 1207466c6f61743332 1a04");
	assert_int_equal(rsh_ckpt_header_size(&shape, 4), wanted.len);
	len = rsh_ckpt_header_write(&shape, 4, out);
	assert_bytes(out, len, &wanted);
}

/* Writes what a file's index says once more. */
static struct buffer emit_again(const struct buffer *file,
				const struct rsh_ckpt_index *ix,
				const struct rsh_names *names)
{
	struct buffer out = { NULL, 0 };

	for (uint32_t i = 0; i < ix->n_records; i++) {
		const struct rsh_record *r = &ix->records[i];
		const char *name = rsh_names_text(names, r->name);
		const struct rsh_record_shape shape = {
			name, strlen(name), (enum rsh_dtype)r->dtype,
			r->n_dims, rsh_record_dims(ix, r), NULL,
			r->content_bytes,
		};

		for (uint32_t k = 0; k < r->n_extents; k++) {
			const struct rsh_extent *e =
				&ix->extents[r->first_extent + k];
			uint8_t header[1024];

			buffer_append(&out, header,
				      rsh_ckpt_header_write(&shape, e->length,
							    header));
			buffer_append(&out, file->data + e->offset, e->length);
		}
	}
	return out;
}

/* Every header in a file of MindSpore comes out the same from its index. */
TEST(test_mindspore_files)
{
	static const struct {
		const char *name;
		size_t trailer;
	} files[] = {
		{ "unit/data/dtypes.ckpt", 0 },
		{ "unit/data/chunks.ckpt", 0 },
		{ "unit/data/append_crc.ckpt", 17 },
	};

	for (size_t i = 0; i < sizeof(files) / sizeof(files[0]); i++) {
		struct buffer file = load_file(files[i].name), again;
		const struct rsh_byte_source src = buffer_source(&file);
		struct rsh_names *names = rsh_names_new();
		struct rsh_ckpt_index *ix = NULL;

		assert_int_equal(rsh_ckpt_scan(&src, names, &ix, NULL), 0);
		again = emit_again(&file, ix, names);
		file.len -= files[i].trailer;
		assert_bytes(again.data, again.len, &file);
		rsh_ckpt_index_free(ix);
		rsh_names_free(names);
		buffer_free(&again);
		buffer_free(&file);
	}
}

/* The file of a tensor without elements has a record all the same. */
TEST(test_empty_tensor)
{
	const struct rsh_record_shape shape = { "none", 4, RSH_DTYPE_INT32,
						DIMS(0), 0 };
	cleanup_buffer struct buffer wanted = { NULL, 0 };
	uint8_t out[64];
	uint64_t size;

	append_tensor(&wanted, "none", "Int32", DIMS(0), "", 0);
	assert_bytes(out, rsh_ckpt_header_write(&shape, 0, out), &wanted);
	assert_true(rsh_ckpt_emit_size(&shape, &size));
	assert_int_equal(size, wanted.len);
	assert_int_equal(rsh_ckpt_emit_chunks(0), 1);
}

/* A random record: sizes around the places where a varint grows. */
static void draw(struct numbers *x, char *name, int64_t *dims, uint8_t *content,
		 struct tensor *t, struct rsh_record_shape *s)
{
	size_t name_len = 1 + numbers_below(x, 300);
	size_t n_dims = numbers_below(x, 9);
	enum rsh_dtype dtype = (enum rsh_dtype)(
		1 + numbers_below(x, RSH_DTYPE_COUNT - 1));
	size_t content_len = numbers_below(x, 40000);

	if (numbers_below(x, 2))
		content_len %= 200;
	memset(name, 'n', name_len);
	name[name_len] = '\0';
	for (size_t i = 0; i < n_dims; i++)
		dims[i] = (int64_t)(numbers_next(x) >> (1 + numbers_below(x, 63)));
	memset(content, (int)(name_len & 0xff), content_len);
	*t = (struct tensor){ name, rsh_dtype_name(dtype), n_dims, dims,
			      content, content_len };
	*s = (struct rsh_record_shape){ name, name_len, dtype,
					(uint8_t)n_dims, dims, NULL,
					content_len };
}

TEST(test_random_records)
{
	struct numbers x = { numbers_seed() };
	static uint8_t content[40000], out[41000];
	char name[512];
	int64_t dims[8];

	for (unsigned i = 0; i < RANDOM_RECORDS; i++) {
		struct buffer wanted = { NULL, 0 };
		struct rsh_record_shape shape;
		struct tensor tensor;
		uint64_t size;
		size_t len;

		draw(&x, name, dims, content, &tensor, &shape);
		append_record(&wanted, &tensor);
		len = rsh_ckpt_header_write(&shape, shape.content_bytes, out);
		assert_int_equal(rsh_ckpt_header_size(&shape,
						      shape.content_bytes),
				 len);
		memcpy(out + len, content, shape.content_bytes);
		assert_bytes(out, len + shape.content_bytes, &wanted);
		assert_true(rsh_ckpt_emit_size(&shape, &size));
		assert_int_equal(size, wanted.len);
		buffer_free(&wanted);
	}
}

TEST(test_chunks)
{
	const uint64_t chunk = RSH_CKPT_CHUNK_BYTES;
	const struct {
		uint64_t content;
		uint64_t chunks;
	} cases[] = {
		{ 1, 1 },	  { chunk - 1, 1 },	{ chunk, 1 },
		{ chunk + 1, 2 }, { 2 * chunk, 2 }, { 513 << 20, 2 },
		{ UINT64_MAX, UINT64_MAX / chunk + 1 },
	};

	assert_int_equal(chunk, 536870912);
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++)
		assert_int_equal(rsh_ckpt_emit_chunks(cases[i].content),
				 cases[i].chunks);
}

/* A float32 tensor of 513 MiB: two records, 536870912 and 1048576 bytes. */
TEST(test_size_of_chunked_tensor)
{
	const struct rsh_record_shape shape = { "w", 1, RSH_DTYPE_FLOAT32,
						DIMS(513, 512, 512),
						NULL, 513 << 20 };
	/* 0a <5> 0a0177 12 <5> (08 <2>){3} 1207Float32 1a <5>; the small chunk
	 * needs numbers of 3, 3 and 3 bytes. */
	const uint64_t large_header = 6 + 3 + 6 + 9 + 9 + 6;
	const uint64_t small_header = 4 + 3 + 4 + 9 + 9 + 4;
	uint64_t size;

	assert_int_equal(rsh_ckpt_header_size(&shape, RSH_CKPT_CHUNK_BYTES),
			 large_header);
	assert_int_equal(rsh_ckpt_header_size(&shape, 1 << 20), small_header);
	assert_true(rsh_ckpt_emit_size(&shape, &size));
	assert_int_equal(size, large_header + small_header + (513 << 20));
}

TEST(test_overflow)
{
	struct rsh_record_shape shape = { "w", 1, RSH_DTYPE_INT8, DIMS(1),
					  NULL, UINT64_MAX };
	uint64_t size;

	assert_int_equal(rsh_ckpt_header_size(&shape, UINT64_MAX), 0);
	assert_int_equal(rsh_ckpt_header_size(&shape, UINT64_MAX - 20), 0);
	assert_false(rsh_ckpt_emit_size(&shape, &size));
	shape.name_len = SIZE_MAX;
	assert_int_equal(rsh_ckpt_header_size(&shape, 1), 0);
}

TEST(test_dtypes)
{
	for (int t = RSH_DTYPE_UNKNOWN + 1; t < RSH_DTYPE_COUNT; t++) {
		const char *name = rsh_dtype_name((enum rsh_dtype)t);

		assert_int_equal(rsh_dtype_parse(name, strlen(name)), t);
		assert_true(rsh_dtype_size((enum rsh_dtype)t) > 0);
		assert_int_not_equal(rsh_dtype_parse(name, strlen(name) - 1),
				     t);
	}
	assert_int_equal(rsh_dtype_parse("", 0), RSH_DTYPE_UNKNOWN);
	assert_int_equal(rsh_dtype_parse("?", 1), RSH_DTYPE_UNKNOWN);
	assert_int_equal(rsh_dtype_parse("float32", 7), RSH_DTYPE_UNKNOWN);
	assert_int_equal(rsh_dtype_size(RSH_DTYPE_UNKNOWN), 0);
	assert_string_equal(rsh_dtype_name(RSH_DTYPE_UNKNOWN), "?");
}
