/* SPDX-License-Identifier: Apache-2.0 */
/* The scan of .ckpt files: what MindSpore wrote, what its loader accepts, and
 * what is damaged. */
#include "wire_support.h"

#include <stdbool.h>
#include <sys/types.h>

#include "rsh/util/checked.h"

#define CONTENT(s) (s), sizeof(s) - 1

static struct scanned scan_source(const struct rsh_byte_source *src)
{
	struct scanned s = { .err = RSH_ERROR_INIT };

	s.names = rsh_names_new();
	assert_non_null(s.names);
	s.rc = rsh_ckpt_scan(src, s.names, &s.index, &s.err);
	if (!s.rc)
		assert_non_null(s.index);
	else
		assert_int_equal(s.rc, -s.err.code);
	return s;
}

static struct scanned scan(struct buffer *b)
{
	const struct rsh_byte_source src = buffer_source(b);

	return scan_source(&src);
}

/* The file is refused with that code and a sentence that has `word` in it. */
static void assert_refused(struct buffer *b, int code, const char *word)
{
	cleanup_scanned struct scanned s = scan(b);

	assert_refusal(&s, code, word);
	assert_non_null(strstr(s.err.text, "test.ckpt"));
}

static void assert_hex_refused(const char *hex, int code, const char *word)
{
	cleanup_buffer struct buffer b = { NULL, 0 };

	append_hex(&b, hex);
	assert_refused(&b, code, word);
}

static void assert_record_refused(const struct tensor *t, const char *word)
{
	cleanup_buffer struct buffer b = { NULL, 0 };

	append_record(&b, t);
	assert_refused(&b, EBADMSG, word);
}
#define TENSOR(...) (&(struct tensor){ __VA_ARGS__ })

/* ---- files that MindSpore wrote ---- */

TEST(test_all_dtypes)
{
	static const struct {
		const char *name;
		enum rsh_dtype dtype;
		unsigned size;
	} types[] = {
		{ "net.bool", RSH_DTYPE_BOOL, 1 },
		{ "net.int8", RSH_DTYPE_INT8, 1 },
		{ "net.int16", RSH_DTYPE_INT16, 2 },
		{ "net.int32", RSH_DTYPE_INT32, 4 },
		{ "net.int64", RSH_DTYPE_INT64, 8 },
		{ "net.uint8", RSH_DTYPE_UINT8, 1 },
		{ "net.uint16", RSH_DTYPE_UINT16, 2 },
		{ "net.uint32", RSH_DTYPE_UINT32, 4 },
		{ "net.uint64", RSH_DTYPE_UINT64, 8 },
		{ "net.float16", RSH_DTYPE_FLOAT16, 2 },
		{ "net.float32", RSH_DTYPE_FLOAT32, 4 },
		{ "net.float64", RSH_DTYPE_FLOAT64, 8 },
		{ "net.bfloat16", RSH_DTYPE_BFLOAT16, 2 },
		{ "net.int4", RSH_DTYPE_INT4, 1 },
		{ "net.complex64", RSH_DTYPE_COMPLEX64, 8 },
		{ "net.complex128", RSH_DTYPE_COMPLEX128, 16 },
	};
	const size_t n_types = sizeof(types) / sizeof(types[0]);
	cleanup_buffer struct buffer file = load_data("dtypes.ckpt");
	cleanup_scanned struct scanned s = scan(&file);
	float sixth;

	require(&s);
	assert_int_equal(s.index->n_records, n_types + 3);
	for (size_t i = 0; i < n_types; i++) {
		assert_record(&s, types[i].name, types[i].dtype, DIMS(3, 5),
			      15 * types[i].size);
		/* They come in the order of the file. */
		assert_ptr_equal(record(&s, types[i].name),
				 &s.index->records[i]);
	}
	assert_record(&s, "scalar", RSH_DTYPE_FLOAT32, 0, NULL, 4);
	assert_record(&s, "one", RSH_DTYPE_INT32, DIMS(1), 4);
	assert_int_equal(s.index->records[n_types + 2].content_bytes, 2400);
	assert_false(s.index->has_crc);
	assert_false(record(&s, "net.bfloat16")->wide_bf16);

	memcpy(&sixth, file.data + s.index->extents[10].offset + 6 * 4, 4);
	assert_true(sixth == 6.0f);
	assert_scanned(&s, "net.uint8", &file,
		       "\0\1\2\3\4\5\6\7\10\11\12\13\14\15\16", 15);
}

TEST(test_append_dict_and_crc)
{
	cleanup_buffer struct buffer file = load_data("append_crc.ckpt");
	cleanup_scanned struct scanned s = scan(&file);
	const uint8_t *tail = file.data + file.len - 4;

	require(&s);
	assert_int_equal(s.index->n_records, 7);
	assert_int_equal(s.index->file_bytes, file.len);
	assert_record(&s, "epoch_num", RSH_DTYPE_INT64, 0, NULL, 8);
	assert_record(&s, "learning_rate", RSH_DTYPE_FLOAT32, 0, NULL, 4);
	assert_record(&s, "finished", RSH_DTYPE_BOOL, 0, NULL, 1);
	assert_record(&s, "note", RSH_DTYPE_STR, DIMS(0), 7 * 4);
	assert_record(&s, "empty", RSH_DTYPE_STR, DIMS(0), 4);
	assert_scanned(&s, "step_num", &file, "\274\2\0\0\0\0\0\0", 8);
	assert_true(s.index->has_crc);
	assert_int_equal(s.index->crc,
			 (uint32_t)tail[0] << 24 | (uint32_t)tail[1] << 16 |
				 (uint32_t)tail[2] << 8 | tail[3]);
}

TEST(test_chunks_are_joined)
{
	cleanup_buffer struct buffer file = load_data("chunks.ckpt");
	cleanup_scanned struct scanned s = scan(&file);
	const struct rsh_record *large;
	cleanup_buffer struct buffer content;

	require(&s);
	assert_int_equal(s.index->n_records, 4);
	assert_record(&s, "large", RSH_DTYPE_FLOAT32, DIMS(40, 16), 2560);
	assert_record(&s, "exact", RSH_DTYPE_FLOAT32, DIMS(256), 1024);
	large = record(&s, "large");
	assert_int_equal(large->n_extents, 3);
	assert_int_equal(s.index->extents[large->first_extent + 2].length, 512);
	content = content_of(&s, large, &file);
	for (size_t i = 0; i < 640; i++) {
		float v;

		memcpy(&v, content.data + i * sizeof(v), sizeof(v));
		assert_true(v == (float)(i % 128));
	}
}

TEST(test_tensors_without_elements)
{
	cleanup_buffer struct buffer file = load_data("empty.ckpt");
	cleanup_scanned struct scanned s = scan(&file);

	require(&s);
	assert_int_equal(s.index->n_records, 3);
	assert_record(&s, "rows", RSH_DTYPE_FLOAT32, DIMS(3, 0), 0);
	assert_record(&s, "none", RSH_DTYPE_INT32, DIMS(0), 0);
	assert_record(&s, "some", RSH_DTYPE_INT32, DIMS(2), 8);
}

/* ---- what the loader accepts besides ---- */

static struct scanned scan_hex(struct buffer *b, const char *hex)
{
	struct scanned s;

	append_hex(b, hex);
	s = scan(b);
	require(&s);
	return s;
}

TEST(test_fields_in_any_order)
{
	cleanup_buffer struct buffer b = { NULL, 0 };
	/* Value { tensor { content, type, dims }, tag }, an unknown field of
	 * each wire type in every message. */
	cleanup_scanned struct scanned s = scan_hex(&b,
		"1205 0102030405" /* a field of the file that is no record */
		"0a34"
		"  2a02 ffff"
		"  1225"
		"    1a08 0000803f 00000040"
		"    3801"
		"    1207 466c6f61743332"
		"    0802"
		"    41 0102030405060708"
		"    4d 01020304"
		"  4001"
		"  0a03 622e77"
		"  2a00");

	assert_int_equal(s.index->n_records, 1);
	assert_record(&s, "b.w", RSH_DTYPE_FLOAT32, DIMS(2), 8);
	assert_scanned(&s, "b.w", &b, "\0\0\200?\0\0\0@", 8);
}

TEST(test_packed_dims)
{
	cleanup_buffer struct buffer b = { NULL, 0 };
	cleanup_scanned struct scanned s = scan_hex(&b,
		"0a14 0a0161 120f 0a03 009601 1204 496e7438 0801 1a00"
		"0a17 0a0162 1212 0a02 0203 1204 496e7438 1a06 010203040506"
		"0801");

	assert_record(&s, "a", RSH_DTYPE_INT8, DIMS(0, 150, 1), 0);
	assert_record(&s, "b", RSH_DTYPE_INT8, DIMS(2, 3), 6);
}

TEST(test_long_varints)
{
	cleanup_buffer struct buffer b = { NULL, 0 };
	/* Key, length, dimension and nested lengths each with more bytes than
	 * they need; ten bytes are the most. */
	cleanup_scanned struct scanned s = scan_hex(&b,
		"8a00 9e808080808080808000"
		"  8a8000 8100 61"
		"  9200 938000"
		"    8800 838000"
		"    1204 496e7438"
		"    1a83808000 010203");

	assert_record(&s, "a", RSH_DTYPE_INT8, DIMS(3), 3);
	assert_scanned(&s, "a", &b, "\1\2\3", 3);
}

TEST(test_last_chunk_gives_the_shape)
{
	cleanup_buffer struct buffer b = { NULL, 0 };
	cleanup_scanned struct scanned s;

	append_tensor(&b, "a", "Int16", DIMS(9, 9, 9), CONTENT("12"));
	append_tensor(&b, "a", "Int8", DIMS(5), CONTENT("345"));
	append_tensor(&b, "b", "Int8", DIMS(1, 1), CONTENT("6"));
	s = scan(&b);
	require(&s);
	assert_record(&s, "a", RSH_DTYPE_INT8, DIMS(5), 5);
	assert_scanned(&s, "a", &b, "12345", 5);
	assert_record(&s, "b", RSH_DTYPE_INT8, DIMS(1, 1), 1);
}

TEST(test_later_record_replaces)
{
	cleanup_buffer struct buffer b = { NULL, 0 };
	cleanup_scanned struct scanned s;

	append_tensor(&b, "step", "Int8", DIMS(1), CONTENT("1"));
	append_tensor(&b, "w", "Int8", DIMS(2), CONTENT("ww"));
	append_tensor(&b, "step", "Int8", DIMS(3), CONTENT("222"));
	append_tensor(&b, "v", "Int8", DIMS(1), CONTENT("v"));
	append_tensor(&b, "step", "Int16", DIMS(2), CONTENT("3344"));
	s = scan(&b);
	require(&s);
	assert_int_equal(s.index->n_records, 3);
	assert_ptr_equal(record(&s, "step"), &s.index->records[0]);
	assert_ptr_equal(record(&s, "w"), &s.index->records[1]);
	assert_ptr_equal(record(&s, "v"), &s.index->records[2]);
	assert_record(&s, "step", RSH_DTYPE_INT16, DIMS(2), 4);
	assert_scanned(&s, "step", &b, "3344", 4);
	assert_scanned(&s, "v", &b, "v", 1);
}

/* MindSpore <= 2.2: a scalar has dims [0], BFloat16 four bytes an element. */
TEST(test_old_releases)
{
	cleanup_buffer struct buffer b = { NULL, 0 };
	cleanup_scanned struct scanned s;

	append_tensor(&b, "scalar", "Float32", DIMS(0), CONTENT("abcd"));
	append_tensor(&b, "flag", "Bool", DIMS(0), CONTENT("\1"));
	append_tensor(&b, "wide", "BFloat16", DIMS(2), CONTENT("abcdefgh"));
	append_tensor(&b, "wide scalar", "BFloat16", DIMS(0), CONTENT("abcd"));
	append_tensor(&b, "narrow scalar", "BFloat16", DIMS(0), CONTENT("ab"));
	append_tensor(&b, "last", "Int8", DIMS(2, 1), CONTENT("12"));
	s = scan(&b);
	require(&s);
	assert_record(&s, "scalar", RSH_DTYPE_FLOAT32, 0, NULL, 4);
	assert_record(&s, "flag", RSH_DTYPE_BOOL, 0, NULL, 1);
	assert_record(&s, "wide", RSH_DTYPE_BFLOAT16, DIMS(2), 8);
	assert_true(record(&s, "wide")->wide_bf16);
	assert_record(&s, "wide scalar", RSH_DTYPE_BFLOAT16, 0, NULL, 4);
	assert_true(record(&s, "wide scalar")->wide_bf16);
	assert_record(&s, "narrow scalar", RSH_DTYPE_BFLOAT16, 0, NULL, 2);
	assert_false(record(&s, "narrow scalar")->wide_bf16);
	assert_record(&s, "last", RSH_DTYPE_INT8, DIMS(2, 1), 2);
	/* No record's dims are left over: equal files have equal indexes. */
	assert_int_equal(s.index->n_dims, 3);
}

/* Of a file that has nothing else, no dims are kept. */
TEST(test_old_scalar_alone)
{
	cleanup_buffer struct buffer b = { NULL, 0 };
	cleanup_scanned struct scanned s;

	append_tensor(&b, "scalar", "Float32", DIMS(0), CONTENT("abcd"));
	s = scan(&b);
	require(&s);
	assert_record(&s, "scalar", RSH_DTYPE_FLOAT32, 0, NULL, 4);
	assert_int_equal(s.index->n_dims, 0);
}

TEST(test_empty_without_content)
{
	cleanup_buffer struct buffer b = { NULL, 0 };
	cleanup_scanned struct scanned s;

	append_tensor(&b, "e", "Float32", DIMS(2, 0), NULL, 0);
	s = scan(&b);
	require(&s);
	assert_record(&s, "e", RSH_DTYPE_FLOAT32, DIMS(2, 0), 0);
}

/* ---- damage ---- */

TEST(test_missing_parts)
{
	assert_hex_refused("", EBADMSG, "empty");
	assert_record_refused(TENSOR(NULL, "Int8", DIMS(1), CONTENT("1")),
			      "without a parameter name");
	assert_record_refused(TENSOR("a", NULL, DIMS(1), CONTENT("1")),
			      "no element type");
	assert_record_refused(TENSOR("a", "Int8", DIMS(1), NULL, 0),
			      "no content");
	assert_record_refused(TENSOR("a", "Int8", 0, NULL, NULL, 0),
			      "no content");
	assert_hex_refused("0a03 0a0161", EBADMSG, "no tensor");
	assert_hex_refused("0a00", EBADMSG, "without a parameter name");
	/* Fields, but no record: a strategy file, say. */
	assert_hex_refused("0802 1202 0a00", EBADMSG, "not a checkpoint");
}

TEST(test_content_of_another_size)
{
	assert_record_refused(TENSOR("a", "Int32", DIMS(2), CONTENT("1234567")),
			      "7 bytes, which is not Int32 [2]");
	assert_record_refused(TENSOR("a", "Int8", DIMS(2, 3),
				     CONTENT("12345678")),
			      "not Int8 [2,3]");
	assert_record_refused(TENSOR("a", "Int8", DIMS(0), CONTENT("12")),
			      "not Int8 [0]");
	/* Twice the size means something for BFloat16 alone. */
	assert_record_refused(TENSOR("a", "Float16", DIMS(1), CONTENT("1234")),
			      "not Float16 [1]");
	assert_record_refused(TENSOR("a", "BFloat16", DIMS(2),
				     CONTENT("123456")),
			      "not BFloat16 [2]");
	assert_record_refused(TENSOR("a", "str", DIMS(0), CONTENT("123")),
			      "not a multiple of 4");
	assert_record_refused(TENSOR("a", "str", DIMS(0), CONTENT("")),
			      "not a multiple of 4");
}

TEST(test_parameter_written_twice)
{
	static const char *const types[] = { "Float32", "BFloat16", "str" };

	for (size_t i = 0; i < sizeof(types) / sizeof(types[0]); i++) {
		const struct tensor t = { "a", types[i], DIMS(1),
					  "1234", i == 1 ? 2 : 4 };
		struct buffer b = { NULL, 0 };

		append_record(&b, &t);
		append_record(&b, &t);
		assert_refused(&b, EBADMSG, "\"a\"");
		buffer_free(&b);
	}
}

TEST(test_bad_numbers)
{
	int64_t ones[RSH_MAX_DIMS + 1];

	assert_record_refused(TENSOR("a", "Int8", DIMS(-1), CONTENT("1")),
			      "negative dimension (-1)");
	assert_record_refused(TENSOR("a", "Int8", DIMS(INT64_MAX, 2, 2),
				     CONTENT("1")),
			      "out of range");
	assert_record_refused(TENSOR("a", "Int64", DIMS(INT64_MAX),
				     CONTENT("12345678")),
			      "not Int64");
	for (size_t i = 0; i < RSH_MAX_DIMS + 1; i++)
		ones[i] = 1;
	assert_record_refused(TENSOR("a", "Int8", RSH_MAX_DIMS + 1, ones,
				     CONTENT("1")),
			      "more than 32 dimensions");
	assert_record_refused(TENSOR("a", "Float33", DIMS(1), CONTENT("1")),
			      "unknown element type \"Float33\"");
	assert_hex_refused("0a0d 0a036100 62 1206 1204 496e7438", EBADMSG,
			   "NUL");
}

TEST(test_repeated_fields)
{
	assert_hex_refused("0a06 0a0161 0a0162", EBADMSG, "a second name");
	assert_hex_refused("0a07 0a0161 1200 1200", EBADMSG,
			   "a second tensor");
	assert_hex_refused("0a11 0a0161 120c 1204 496e7438 1204 496e7438",
			   EBADMSG, "a second element type");
	assert_hex_refused("0a0f 0a0161 120a 1204 496e7438 1a00 1a00", EBADMSG,
			   "a second content");
}

TEST(test_broken_framing)
{
	assert_hex_refused("00", EBADMSG, "not a checkpoint");
	assert_hex_refused("7b226122 3a317d", EBADMSG, "not a checkpoint");
	/* A group, in a record and behind one. */
	assert_hex_refused("0a04 0a0161 1b", EBADMSG, "wire type 3");
	assert_hex_refused("0a0d 0a0161 1208 1204 496e7438 1a00 0b", EBADMSG,
			   "wire type 3");
	/* Lengths beyond the message around: by a little and by exabytes. */
	assert_hex_refused("0a06 0a0161 1202 08", EBADMSG,
			   "a field of 2 bytes in a message that has 1 left");
	assert_hex_refused("0a0d 0a0161 12ff ffffffffffffff7f", EBADMSG,
			   "in a message that has 0 left");
	assert_hex_refused("0aff ffffffffffffff7f", EBADMSG, "truncated");
	/* The name is told where it can still be read. */
	assert_hex_refused("0a80808004 0a03 622e77 12", EBADMSG, "\"b.w\"");
	/* Numbers of 11 bytes and of 65 bits. */
	assert_hex_refused("0a8080808080808080808000", EBADMSG,
			   "not a checkpoint");
	assert_hex_refused("0a0b 08ffffffffffffffffff02", EBADMSG,
			   "cut short or too long");
}

TEST(test_not_supported)
{
	assert_hex_refused("0a05 0a0161 1a00", ENOTSUP, "\"a\"");
	assert_hex_refused("d85e3a7f 00000000", ENOTSUP, "AES-GCM");
	assert_hex_refused("d95e3a7f", ENOTSUP, "AES-CBC");
	assert_hex_refused("da5e3a7f 00", ENOTSUP, "SM4-CBC");
}

TEST(test_crc_trailer)
{
	struct buffer b = { NULL, 0 };
	struct scanned s;

	/* Nothing but a trailer. */
	append_hex(&b, "6372635f6e756d 000000000000 01020304");
	assert_refused(&b, EBADMSG, "no parameter");
	buffer_free(&b);

	append_tensor(&b, "a", "Int8", DIMS(1), CONTENT("1"));
	append_hex(&b, "6372635f6e756d 000000000000 f1020304");
	s = scan(&b);
	require(&s);
	assert_true(s.index->has_crc);
	assert_int_equal(s.index->crc, 0xf1020304);
	assert_int_equal(s.index->file_bytes, b.len);
	scanned_free(&s);

	b.data[b.len - 5] = 1;
	assert_refused(&b, EBADMSG, "32 bits");
	buffer_free(&b);
}

/* What holds of every index, wherever it came from. */
static void assert_sound(const struct scanned *s, const struct buffer *file)
{
	const struct rsh_ckpt_index *ix = s->index;

	assert_true(ix->n_records > 0);
	for (uint32_t i = 0; i < ix->n_records; i++) {
		const struct rsh_record *r = &ix->records[i];
		struct buffer content = content_of(s, r, file);
		uint64_t bytes = content.len;

		buffer_free(&content);
		assert_true(r->first_dim + r->n_dims <= ix->n_dims);
		assert_true(r->first_extent + r->n_extents <= ix->n_extents);
		assert_ptr_equal(rsh_ckpt_find(ix, r->name), r);
		if (r->dtype == RSH_DTYPE_STR) {
			assert_int_equal(bytes % 4, 0);
			continue;
		}
		assert_true(rsh_product_i64(rsh_record_dims(ix, r), r->n_dims,
					    &bytes));
		assert_true(rsh_mul_u64(bytes,
					rsh_dtype_size(r->dtype) *
						(r->wide_bf16 ? 2 : 1),
					&bytes));
		assert_int_equal(bytes, r->content_bytes);
	}
}

/* Ends of the top-level fields, by a reading of lengths as plain as can be. */
static bool is_record_boundary(const struct buffer *file, size_t end)
{
	size_t pos = 0;

	while (pos < end) {
		size_t len = 0;
		unsigned shift = 0;

		assert_int_equal(file->data[pos++], 0x0a);
		do {
			len |= (size_t)(file->data[pos] & 0x7f) << shift;
			shift += 7;
		} while (file->data[pos++] & 0x80);
		pos += len;
	}
	return pos == end;
}

TEST(test_truncation_anywhere)
{
	cleanup_buffer struct buffer file = load_data("dtypes.ckpt");
	unsigned n_whole = 0;

	for (size_t end = 0; end <= file.len; end++) {
		struct buffer cut = { NULL, 0 };
		struct scanned s;

		/* A copy of that size: reading behind it is then an error that
		 * the sanitizer sees. */
		buffer_append(&cut, file.data, end);
		s = scan(&cut);
		if (end && is_record_boundary(&file, end)) {
			require(&s);
			assert_sound(&s, &cut);
			n_whole++;
		} else {
			assert_int_equal(s.rc, -EBADMSG);
			assert_non_null(strstr(s.err.text, "test.ckpt: "));
		}
		scanned_free(&s);
		buffer_free(&cut);
	}
	assert_int_equal(n_whole, 19);
}

static void flip_every_byte(const char *name, uint8_t mask)
{
	cleanup_buffer struct buffer file = load_file(name);

	for (size_t i = 0; i < file.len; i++) {
		struct scanned s;

		file.data[i] ^= mask;
		s = scan(&file);
		if (!s.rc)
			assert_sound(&s, &file);
		else
			assert_non_null(strstr(s.err.text, "test.ckpt: "));
		scanned_free(&s);
		file.data[i] ^= mask;
	}
}

TEST(test_flipped_bytes)
{
	static const uint8_t masks[] = { 0x01, 0x02, 0x04, 0x08, 0x10,
					 0x20, 0x40, 0x80, 0xff, 0x7f };

	for (size_t i = 0; i < sizeof(masks); i++) {
		flip_every_byte("unit/data/append_crc.ckpt", masks[i]);
		flip_every_byte("unit/data/empty.ckpt", masks[i]);
		flip_every_byte("unit/data/chunks.ckpt", masks[i]);
	}
}

/* ---- reading ---- */

/* A file of many large tensors that exists only as a rule: records of
 * one header and content_bytes bytes. */
struct sparse_file {
	uint32_t n_records;
	uint64_t content_bytes;
	uint32_t n_reads;
	uint64_t bytes_read;
	uint64_t fail_at; /* a read that covers this offset fails */
};

static struct buffer sparse_header(const struct sparse_file *f, uint32_t i)
{
	struct buffer b = { NULL, 0 };
	char name[32];
	int64_t dims[] = { (int64_t)f->content_bytes };
	uint8_t header[128];
	struct rsh_record_shape shape = {
		.name = name,
		.dtype = RSH_DTYPE_INT8,
		.n_dims = 1,
		.dims = dims,
		.content_bytes = f->content_bytes,
	};

	/* Names of one length, and three records a name: chunks. */
	snprintf(name, sizeof(name), "layer.%06u.weight", i / 3);
	dims[0] *= 3;
	shape.name_len = strlen(name);
	buffer_append(&b, header,
		      rsh_ckpt_header_write(&shape, f->content_bytes, header));
	return b;
}

static uint64_t sparse_record_bytes(const struct sparse_file *f)
{
	struct buffer header = sparse_header(f, 0);
	uint64_t n = header.len + f->content_bytes;

	buffer_free(&header);
	return n;
}

static ssize_t pread_sparse(void *ctx, void *buf, size_t len, uint64_t offset)
{
	struct sparse_file *f = ctx;
	uint64_t record_bytes = sparse_record_bytes(f);
	uint64_t size = record_bytes * f->n_records;
	size_t n = rsh_min_u64(len, size - offset);
	uint64_t first = offset / record_bytes;
	uint64_t last = (offset + n - 1) / record_bytes;

	if (offset <= f->fail_at && f->fail_at < offset + n)
		return -EIO;
	f->n_reads++;
	f->bytes_read += n;
	memset(buf, 0xee, n);
	for (uint64_t i = first; i <= last && i < f->n_records; i++) {
		struct buffer header = sparse_header(f, (uint32_t)i);

		for (size_t k = 0; k < header.len; k++) {
			uint64_t at = i * record_bytes + k;

			if (at >= offset && at < offset + n)
				((uint8_t *)buf)[at - offset] = header.data[k];
		}
		buffer_free(&header);
	}
	return (ssize_t)n;
}

static struct rsh_byte_source sparse_source(struct sparse_file *f)
{
	return (struct rsh_byte_source){
		pread_sparse, f, sparse_record_bytes(f) * f->n_records,
		"test.ckpt"
	};
}

TEST(test_content_is_not_read)
{
	struct sparse_file f = { .n_records = 300,
				 .content_bytes = RSH_CKPT_CHUNK_BYTES,
				 .fail_at = UINT64_MAX };
	const struct rsh_byte_source src = sparse_source(&f);
	cleanup_scanned struct scanned s = scan_source(&src);

	require(&s);
	assert_int_equal(s.index->n_records, 100);
	assert_int_equal(s.index->records[99].n_extents, 3);
	assert_int_equal(s.index->records[99].content_bytes,
			 3 * RSH_CKPT_CHUNK_BYTES);
	/* One read a header and one for the trailer; kilobytes of 150 GiB. */
	assert_true(f.n_reads <= f.n_records + 1);
	assert_true(f.bytes_read < 2 * 1024 * 1024);
}

TEST(test_small_records_share_reads)
{
	struct sparse_file f = { .n_records = 3000,
				 .content_bytes = 40,
				 .fail_at = UINT64_MAX };
	const struct rsh_byte_source src = sparse_source(&f);
	cleanup_scanned struct scanned s = scan_source(&src);

	require(&s);
	assert_int_equal(s.index->n_records, 1000);
	assert_true(f.n_reads <= src.size / (60 * 1024) + 2);
}

TEST(test_read_errors)
{
	struct sparse_file f = { .n_records = 6,
				 .content_bytes = 100000 };
	struct rsh_byte_source src = sparse_source(&f);
	cleanup_buffer struct buffer b = { NULL, 0 };
	struct scanned s;

	f.fail_at = 3 * sparse_record_bytes(&f); /* the fourth header */
	s = scan_source(&src);
	assert_int_equal(s.rc, -EIO);
	assert_non_null(strstr(s.err.text, "test.ckpt: cannot read"));
	scanned_free(&s);

	/* A file that lost its end after its size was taken. */
	append_tensor(&b, "a", "Int8", DIMS(4), CONTENT("1234"));
	src = buffer_source(&b);
	b.len -= 2;
	s = scan_source(&src);
	assert_int_equal(s.rc, -EBADMSG);
	assert_non_null(strstr(s.err.text, "the file ends here"));
	scanned_free(&s);
}

TEST(test_name_across_windows)
{
	/* Records of growing names, so that every part of a header comes to
	 * lie on the edge of a window. */
	cleanup_buffer struct buffer b = { NULL, 0 };
	char name[700];
	cleanup_scanned struct scanned s;

	for (unsigned i = 1; i < sizeof(name); i++) {
		memset(name, 'a' + (int)(i % 26), i);
		name[i] = '\0';
		append_tensor(&b, name, "Int16", DIMS(3), CONTENT("123456"));
	}
	s = scan(&b);
	require(&s);
	assert_int_equal(s.index->n_records, sizeof(name) - 1);
	assert_sound(&s, &b);
	for (uint32_t i = 0; i < s.index->n_records; i++)
		assert_int_equal(strlen(rsh_names_text(s.names, i)), i + 1);
}

/* ---- index ---- */

static struct rsh_ckpt_index *scan_with(struct rsh_names *names,
					struct buffer *b)
{
	const struct rsh_byte_source src = buffer_source(b);
	struct rsh_ckpt_index *index = NULL;

	assert_int_equal(rsh_ckpt_scan(&src, names, &index, NULL), 0);
	return index;
}

TEST(test_equal_indexes)
{
	const struct tensor a = { "a", "Int8", DIMS(2), CONTENT("12") };
	const struct tensor other_bytes = { "a", "Int8", DIMS(2),
					    CONTENT("99") };
	const struct tensor other_dims = { "a", "Int8", DIMS(2, 1),
					   CONTENT("12") };
	const struct tensor other_name = { "b", "Int8", DIMS(2),
					   CONTENT("12") };
	const struct tensor other_type = { "a", "Bool", DIMS(2),
					   CONTENT("12") };
	const struct {
		const struct tensor *t;
		bool equal;
	} cases[] = { { &a, true },
		      { &other_bytes, true },
		      { &other_dims, false },
		      { &other_name, false },
		      { &other_type, false } };
	cleanup_names struct rsh_names *names = rsh_names_new();
	cleanup_buffer struct buffer first = { NULL, 0 };
	struct rsh_ckpt_index *x;

	append_record(&first, &a);
	x = scan_with(names, &first);
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct buffer b = { NULL, 0 };
		struct rsh_ckpt_index *y;

		append_record(&b, cases[i].t);
		y = scan_with(names, &b);
		assert_int_equal(rsh_ckpt_index_equal(x, y), cases[i].equal);
		assert_int_equal(rsh_ckpt_index_hash(x) ==
					 rsh_ckpt_index_hash(y),
				 cases[i].equal);
		rsh_ckpt_index_free(y);
		buffer_free(&b);
	}
	rsh_ckpt_index_free(x);
}

/* Records at the same places, but only one file ends in a CRC. */
TEST(test_crc_makes_a_difference)
{
	const struct tensor a = { "a", "Int8", DIMS(2), CONTENT("12") };
	struct rsh_names *names = rsh_names_new();
	struct buffer with = { NULL, 0 }, without = { NULL, 0 };
	cleanup_buffer struct buffer other = { NULL, 0 };
	struct rsh_ckpt_index *x, *y, *z;

	append_record(&with, &a);
	append_record(&without, &a);
	append_record(&other, &a);
	append_hex(&with, "6372635f6e756d 000000000000 01020304");
	append_hex(&other, "6372635f6e756d 000000000000 05060708");
	append_hex(&without, "120f 000000000000000000000000000000");
	x = scan_with(names, &with);
	y = scan_with(names, &without);
	z = scan_with(names, &other);
	assert_int_equal(x->file_bytes, y->file_bytes);
	assert_false(rsh_ckpt_index_equal(x, y));
	assert_true(rsh_ckpt_index_hash(x) != rsh_ckpt_index_hash(y));
	/* Its value is the content's affair. */
	assert_true(rsh_ckpt_index_equal(x, z));
	assert_true(rsh_ckpt_index_hash(x) == rsh_ckpt_index_hash(z));
	rsh_ckpt_index_free(x);
	rsh_ckpt_index_free(y);
	rsh_ckpt_index_free(z);
	rsh_names_free(names);
	buffer_free(&with);
	buffer_free(&without);
}

/* Names get their numbers from another file, in another order. */
TEST(test_find_by_name)
{
	cleanup_names struct rsh_names *names = rsh_names_new();
	cleanup_buffer struct buffer b = { NULL, 0 };
	struct rsh_ckpt_index *index;
	uint32_t absent;

	for (int i = 99; i >= 0; i--) {
		char name[16];

		snprintf(name, sizeof(name), "p%d", i);
		rsh_names_add(names, name, strlen(name));
	}
	absent = rsh_names_add(names, "absent", 6);
	for (int i = 0; i < 100; i += 2) {
		char name[16];

		snprintf(name, sizeof(name), "p%d", i);
		append_tensor(&b, name, "Int8", DIMS(1), CONTENT("1"));
	}
	index = scan_with(names, &b);
	assert_int_equal(index->n_records, 50);
	for (uint32_t id = 0; id < 100; id++) {
		const struct rsh_record *r = rsh_ckpt_find(index, id);

		if (id % 2)
			assert_ptr_equal(r, &index->records[(99 - id) / 2]);
		else
			assert_null(r);
	}
	assert_null(rsh_ckpt_find(index, absent));
	rsh_ckpt_index_free(index);
}

/* The extents of a content that is read from its begin to its end are looked at
 * once: those before the place get a length that would be seen. */
TEST(test_content_in_many_places)
{
	enum { N = 1000 };
	struct rsh_ckpt_index *ix = rsh_ckpt_index_new(1, N + 2, 0);
	const struct rsh_record r = { .first_extent = 1, .n_extents = N };
	struct rsh_content c;
	uint64_t where = 7, to = 0;

	assert_non_null(ix);
	/* Every third extent is empty.  The neighbours are of other records. */
	for (uint32_t i = 0; i < N + 2; i++)
		ix->extents[i] = (struct rsh_extent){ 100 * i,
						      i % 3 ? 4 : 0 };
	c = rsh_record_content(ix, &r);
	for (uint32_t i = 1; i <= N; i++) {
		if (i % 3 == 0)
			continue;
		for (uint32_t k = 0; k < 4; k++, to++) {
			assert_int_equal(rsh_content_move(&c, to, &where),
					 4 - k);
			assert_int_equal(where, 100 * i + k);
		}
		for (uint32_t k = 1; k < i; k++)
			ix->extents[k].length = 1;
	}
	assert_int_equal(rsh_content_move(&c, to, &where), 0);
	assert_int_equal(rsh_content_move(&c, UINT64_MAX, &where), 0);
	/* A move back begins again. */
	assert_int_equal(rsh_content_move(&c, 2, &where), 1);
	assert_int_equal(where, 300);
	assert_int_equal(rsh_content_move(&c, 0, &where), 1);
	assert_int_equal(where, 100);
	rsh_ckpt_index_free(ix);
}
