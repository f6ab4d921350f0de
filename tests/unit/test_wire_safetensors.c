/* SPDX-License-Identifier: Apache-2.0 */
/* The scan of safetensors files: what MindSpore and the library wrote, what
 * the library accepts, and what is damaged. */
#include "wire_support.h"

#include <stdbool.h>
#include <sys/types.h>

#include "rsh/util/checked.h"
#include "support.h"

static struct scanned scan_source(struct rsh_byte_source src)
{
	struct scanned s = { .err = RSH_ERROR_INIT };

	src.path = "test.safetensors";
	s.names = rsh_names_new();
	assert_non_null(s.names);
	s.rc = rsh_safetensors_scan(&src, s.names, &s.index, &s.meta, &s.err);
	if (!s.rc) {
		assert_non_null(s.index);
	} else {
		assert_null(s.index);
		assert_null(s.meta.entries);
		assert_int_equal(s.rc, -s.err.code);
		assert_non_null(strstr(s.err.text, "test.safetensors"));
	}
	return s;
}

static struct scanned scan(struct buffer *b)
{
	return scan_source(buffer_source(b));
}

/* A file of a header, as it stands, and so many bytes of content. */
static struct buffer make_file(const char *header, size_t content)
{
	struct buffer b = { NULL, 0 };
	uint8_t length[8] = { 0 };
	uint64_t len = strlen(header);

	for (int i = 0; i < 8; i++)
		length[i] = (uint8_t)(len >> (8 * i));
	buffer_append(&b, length, sizeof(length));
	buffer_append(&b, header, len);
	for (size_t i = 0; i < content; i++)
		buffer_append(&b, &(uint8_t){ (uint8_t)i }, 1);
	return b;
}

/* Returns the value of a string of the metadata; NULL: there is none. */
static const char *entry_of(const struct scanned *s, const char *key)
{
	for (uint32_t i = 0; i < s->meta.n_entries; i++)
		if (strcmp(s->meta.entries[i].key, key) == 0)
			return s->meta.entries[i].value;
	return NULL;
}

/* As MindSpore and the library lay tensors out: in one piece. */
static void assert_tensor(const struct scanned *s, const char *name,
			  enum rsh_dtype dtype, size_t n_dims,
			  const int64_t *dims, uint64_t content_bytes)
{
	const struct rsh_record *r = record(s, name);

	assert_record(s, name, dtype, n_dims, dims, content_bytes);
	assert_int_equal(r->n_extents, content_bytes ? 1 : 0);
	assert_false(r->wide_bf16);
	if (content_bytes)
		assert_int_equal(s->index->extents[r->first_extent].length,
				 content_bytes);
}

/* The records come in this order, each where the last one ended. */
static void assert_order(const struct scanned *s, const char *const *names,
			 size_t n)
{
	uint64_t end = 0;

	assert_int_equal(s->index->n_records, n);
	for (uint32_t i = 0; i < n; i++) {
		const struct rsh_record *r = &s->index->records[i];
		const struct rsh_extent *e =
			&s->index->extents[r->first_extent];

		assert_string_equal(rsh_names_text(s->names, r->name),
				    names[i]);
		if (!r->n_extents)
			continue;
		if (end)
			assert_int_equal(e->offset, end);
		end = e->offset + e->length;
	}
	assert_int_equal(end, s->index->file_bytes);
}

static void assert_refused(struct buffer *b, int code, const char *word)
{
	cleanup_scanned struct scanned s = scan(b);

	assert_refusal(&s, code, word);
}

static void assert_header_refused(const char *header, size_t content, int code,
				  const char *word)
{
	cleanup_buffer struct buffer b = make_file(header, content);

	assert_refused(&b, code, word);
}

/* ---- files that MindSpore wrote ---- */

TEST(test_mindspore_dtypes)
{
	static const struct {
		const char *name;
		enum rsh_dtype dtype;
		unsigned size;
	} types[] = {
		{ "net.uint64", RSH_DTYPE_UINT64, 8 },
		{ "net.int64", RSH_DTYPE_INT64, 8 },
		{ "net.float64", RSH_DTYPE_FLOAT64, 8 },
		{ "net.complex64", RSH_DTYPE_COMPLEX64, 8 },
		{ "net.float32", RSH_DTYPE_FLOAT32, 4 },
		{ "net.uint32", RSH_DTYPE_UINT32, 4 },
		{ "net.int32", RSH_DTYPE_INT32, 4 },
		{ "net.bfloat16", RSH_DTYPE_BFLOAT16, 2 },
		{ "net.float16", RSH_DTYPE_FLOAT16, 2 },
		{ "net.uint16", RSH_DTYPE_UINT16, 2 },
		{ "net.int16", RSH_DTYPE_INT16, 2 },
		{ "net.int4", RSH_DTYPE_INT4, 1 },
		{ "net.int8", RSH_DTYPE_INT8, 1 },
		{ "net.uint8", RSH_DTYPE_UINT8, 1 },
		{ "net.bool", RSH_DTYPE_BOOL, 1 },
	};
	static const char *const order[] = {
		"net.uint64",  "net.int64",  "net.float64", "net.complex64",
		"net.float32", "scalar",     "net.uint32",  "net.int32",
		"one",	       "net.bfloat16", "net.float16", "net.uint16",
		"net.int16",   "net.int4",   "net.int8",    "net.uint8",
		"net.bool",
	};
	cleanup_buffer struct buffer file = load_data("ms_dtypes.safetensors");
	cleanup_scanned struct scanned s = scan(&file);

	require(&s);
	for (size_t i = 0; i < sizeof(types) / sizeof(types[0]); i++)
		assert_tensor(&s, types[i].name, types[i].dtype, DIMS(3, 5),
			      15 * types[i].size);
	assert_tensor(&s, "scalar", RSH_DTYPE_FLOAT32, 0, NULL, 4);
	assert_tensor(&s, "one", RSH_DTYPE_INT32, DIMS(1), 4);
	assert_order(&s, order, sizeof(order) / sizeof(order[0]));
	assert_scanned(&s, "net.uint8", &file,
		       "\0\1\2\3\4\5\6\7\10\11\12\13\14\15\16", 15);
	assert_scanned(&s, "net.int4", &file,
		       "\0\1\2\3\4\5\6\7\0\1\2\3\4\5\6", 15);
	assert_string_equal(entry_of(&s, "format"), "ms");
	assert_int_equal(s.meta.n_entries, 2);
	assert_false(s.meta.has_crc);
	assert_null(entry_of(&s, "remove_redundancy"));
}

TEST(test_mindspore_append_and_crc)
{
	struct buffer file = load_data("ms_append_crc.safetensors");
	struct scanned s = scan(&file);

	require(&s);
	assert_int_equal(s.index->n_records, 4);
	assert_int_equal(s.index->file_bytes, file.len);
	assert_tensor(&s, "epoch_num", RSH_DTYPE_INT64, 0, NULL, 8);
	assert_tensor(&s, "learning_rate", RSH_DTYPE_FLOAT32, 0, NULL, 4);
	assert_tensor(&s, "finished", RSH_DTYPE_BOOL, 0, NULL, 1);
	assert_tensor(&s, "w", RSH_DTYPE_FLOAT32, DIMS(2, 2), 16);
	assert_scanned(&s, "epoch_num", &file, "\3\0\0\0\0\0\0\0", 8);
	assert_true(s.meta.has_crc);
	assert_int_equal(s.meta.crc, 3938311759u);
	/* It is no CRC of the file's bytes, as that of a .ckpt is. */
	assert_false(s.index->has_crc);
	scanned_free(&s);
	buffer_free(&file);
}

TEST(test_mindspore_remove_redundancy)
{
	struct buffer file = load_data("ms_redundancy.safetensors");
	struct scanned s = scan(&file);

	require(&s);
	assert_tensor(&s, "w", RSH_DTYPE_FLOAT16, DIMS(4), 8);
	assert_string_equal(entry_of(&s, "remove_redundancy"), "True");
	assert_int_equal(s.meta.n_entries, 2);
	for (uint32_t i = 0; i < 2; i++) {
		const struct rsh_safetensors_entry *e = &s.meta.entries[i];
		bool format = !strcmp(e->key, "format");

		assert_string_equal(e->key,
				    format ? "format" : "remove_redundancy");
		assert_string_equal(e->value, format ? "ms" : "True");
	}
	scanned_free(&s);
	buffer_free(&file);
}

TEST(test_mindspore_without_tensors)
{
	cleanup_buffer struct buffer file = load_data("ms_none.safetensors");
	cleanup_scanned struct scanned s = scan(&file);

	require(&s);
	assert_int_equal(s.index->n_records, 0);
	assert_int_equal(s.meta.n_entries, 0);
	assert_null(entry_of(&s, "format"));
	assert_null(rsh_ckpt_find(s.index, 0));
}

/* ---- files that the library wrote ---- */

TEST(test_library_file)
{
	cleanup_buffer struct buffer file = load_data("library.safetensors");
	cleanup_scanned struct scanned s = scan(&file);

	require(&s);
	assert_int_equal(s.index->n_records, 20);
	assert_tensor(&s, "t.float8_e4m3fn", RSH_DTYPE_FLOAT8E4M3FN,
		      DIMS(2, 3), 6);
	assert_tensor(&s, "t.float8_e5m2", RSH_DTYPE_FLOAT8E5M2, DIMS(2, 3), 6);
	assert_tensor(&s, "t.bfloat16", RSH_DTYPE_BFLOAT16, DIMS(2, 3), 12);
	assert_tensor(&s, "scalar", RSH_DTYPE_FLOAT32, 0, NULL, 4);
	assert_tensor(&s, "empty", RSH_DTYPE_FLOAT32, DIMS(0), 0);
	assert_tensor(&s, "rows", RSH_DTYPE_FLOAT32, DIMS(3, 0), 0);
	assert_tensor(&s, "name \"\\\t\344\270\226", RSH_DTYPE_UINT8, DIMS(5),
		      5);
	assert_scanned(&s, "t.float16", &file,
		       "\0\1\2\3\4\5\6\7\10\11\12\13", 12);
	assert_string_equal(entry_of(&s, "format"), "pt");
}

/* ---- what the library accepts besides ---- */

#define A_2 "\"a\":{\"dtype\":\"I8\",\"shape\":[2],\"data_offsets\":[0,2]}"
#define B_2 "\"b\":{\"dtype\":\"I8\",\"shape\":[2],\"data_offsets\":[2,4]}"

TEST(test_any_order_of_the_header)
{
	static const char *const order[] = { "a", "none", "nil", "b" };
	struct buffer b = make_file(
		" {" B_2 ",\n"
		"\"none\":{\"data_offsets\":[2,2],\"shape\":[0],\"dtype\":\"F32\"},"
		"\"nil\":{\"data_offsets\":[2,2],\"shape\":[0,7],\"dtype\":\"U8\","
		"\"more\":{\"x\":[]}}, " A_2 "} ",
		4);
	struct scanned s = scan(&b);

	require(&s);
	assert_order(&s, order, 4);
	assert_scanned(&s, "a", &b, "\0\1", 2);
	assert_scanned(&s, "b", &b, "\2\3", 2);
	scanned_free(&s);
	buffer_free(&b);
}

TEST(test_metadata)
{
	struct buffer none = make_file("{" A_2 ",\"__metadata__\":null}", 2);
	struct buffer b = make_file(
		"{\"__metadata__\":{\"x\":\"\\u4e16\",\"remove_redundancy\":\"False\","
		"\"b\":\"Int4\",\"crc_num\":\"4294967295\"}," A_2 "," B_2 "}",
		4);
	struct scanned s = scan(&none);

	require(&s);
	assert_int_equal(s.meta.n_entries, 0);
	scanned_free(&s);

	s = scan(&b);
	require(&s);
	assert_int_equal(s.meta.n_entries, 4);
	assert_string_equal(s.meta.entries[0].key, "x");
	assert_string_equal(s.meta.entries[0].value, "\344\270\226");
	assert_string_equal(s.meta.entries[3].key, "crc_num");
	assert_null(entry_of(&s, "format"));
	assert_string_equal(entry_of(&s, "remove_redundancy"), "False");
	assert_int_equal(s.meta.crc, UINT32_MAX);
	assert_tensor(&s, "a", RSH_DTYPE_INT8, DIMS(2), 2);
	assert_tensor(&s, "b", RSH_DTYPE_INT4, DIMS(2), 2);
	scanned_free(&s);
	buffer_free(&none);
	buffer_free(&b);
}

/* An entry under a parameter's name means something for I8 alone. */
TEST(test_int4_is_stored_as_i8)
{
	struct buffer b = make_file(
		"{\"__metadata__\":{\"a\":\"Int8\",\"u\":\"Int4\"}," A_2
		",\"u\":{\"dtype\":\"U8\",\"shape\":[2],\"data_offsets\":[2,4]}}",
		4);
	struct scanned s = scan(&b);

	require(&s);
	assert_tensor(&s, "a", RSH_DTYPE_INT8, DIMS(2), 2);
	assert_tensor(&s, "u", RSH_DTYPE_UINT8, DIMS(2), 2);
	scanned_free(&s);
	buffer_free(&b);
}

TEST(test_metadata_is_optional_for_the_caller)
{
	struct buffer file = load_data("ms_append_crc.safetensors");
	const struct rsh_byte_source src = buffer_source(&file);
	struct rsh_names *names = rsh_names_new();
	struct rsh_ckpt_index *ix = NULL;

	assert_int_equal(rsh_safetensors_scan(&src, names, &ix, NULL, NULL), 0);
	assert_int_equal(ix->n_records, 4);
	rsh_ckpt_index_free(ix);
	rsh_names_free(names);
	buffer_free(&file);
}

/* ---- the checksum ---- */

static int check_crc(const struct scanned *s, struct buffer *file,
		     struct rsh_error *err)
{
	const struct rsh_byte_source src = buffer_source(file);

	return rsh_safetensors_check_crc(&src, s->index, s->names, &s->meta,
					 err);
}

/* No bit of MindSpore's file behind its header can change unseen. */
TEST(test_crc_of_contents)
{
	struct buffer file = load_data("ms_append_crc.safetensors");
	struct scanned s = scan(&file);
	struct rsh_error err = RSH_ERROR_INIT;

	require(&s);
	assert_int_equal(check_crc(&s, &file, &err), 0);
	for (size_t bit = 8 * (file.len - 29); bit < 8 * file.len; bit++) {
		file.data[bit / 8] ^= (uint8_t)(1 << bit % 8);
		assert_int_equal(check_crc(&s, &file, &err), -EBADMSG);
		assert_non_null(strstr(err.text, "CRC"));
		file.data[bit / 8] ^= (uint8_t)(1 << bit % 8);
	}
	assert_int_equal(check_crc(&s, &file, &err), 0);
	s.meta.has_crc = false;
	file.data[file.len - 1] ^= 1;
	assert_int_equal(check_crc(&s, &file, &err), 0);
	scanned_free(&s);
	buffer_free(&file);
}

/* In the order of names, not in that of the header: "aa" and so many zeros as
 * its value says, "b", "c" and its bytes. */
#define CRC_HEADER(crc) \
	"{\"__metadata__\":{\"crc_num\":\"" crc "\"}," \
	"\"c\":{\"dtype\":\"F32\",\"shape\":[],\"data_offsets\":[2,6]}," \
	"\"aa\":{\"dtype\":\"U16\",\"shape\":[],\"data_offsets\":[0,2]}," \
	"\"b\":{\"dtype\":\"I64\",\"shape\":[0],\"data_offsets\":[6,6]}}"

static int check_crc_of(const char *header, const uint8_t *content,
			size_t len)
{
	struct buffer file = make_file(header, 0);
	struct rsh_error err = RSH_ERROR_INIT;
	struct scanned s;
	int rc;

	buffer_append(&file, content, len);
	s = scan(&file);
	require(&s);
	rc = check_crc(&s, &file, &err);
	scanned_free(&s);
	buffer_free(&file);
	return rc;
}

TEST(test_crc_of_integers)
{
	const uint8_t content[] = { 1, 2, 9, 8, 7, 6 };
	static const struct {
		const char *dtype;
		size_t len;
		uint8_t content[8];
	} impossible[] = {
		{ "I64", 8, { 255, 255, 255, 255, 255, 255, 255, 255 } },
		{ "I8", 1, { 0x80 } },
		{ "U64", 8, { 0, 0, 0, 0, 0, 0, 0, 0x80 } },
	};

	assert_int_equal(check_crc_of(CRC_HEADER("4170748571"), content, 6), 0);
	assert_int_equal(check_crc_of(CRC_HEADER("4170748570"), content, 6),
			 -EBADMSG);
	for (size_t i = 0; i < sizeof(impossible) / sizeof(impossible[0]);
	     i++) {
		char header[256];

		snprintf(header, sizeof(header),
			 "{\"__metadata__\":{\"crc_num\":\"0\"},\"n\":{\"dtype\":"
			 "\"%s\",\"shape\":[],\"data_offsets\":[0,%zu]}}",
			 impossible[i].dtype, impossible[i].len);
		assert_int_equal(check_crc_of(header, impossible[i].content,
					      impossible[i].len), -EBADMSG);
	}
}

/* ---- damage ---- */

TEST(test_bad_lengths)
{
	static const struct {
		const char *hex;
		const char *word;
	} files[] = {
		{ "", "empty" },
		{ "02000000000000", "within the header's length" },
		{ "0000000000000000", "not JSON" },
		{ "0300000000000000 7b7d", "3 bytes in a file of 10" },
		{ "0300000000000000 7b7d00", "end of file expected" },
		{ "0500000000000000 7b7d200020", "end of file expected" },
		{ "ffffffffffffffff 7b7d", "18446744073709551615 bytes" },
		{ "f8ffffffffffffff 7b7d", "more than the 100000000" },
		{ "01e1f50500000000 7b7d", "more than the 100000000" },
		{ "00e1f50500000000 7b7d", "100000000 bytes in a file of 10" },
		/* the beginning of a .ckpt */
		{ "0a150a027363120f1207", "more than the 100000000" },
	};

	for (size_t i = 0; i < sizeof(files) / sizeof(files[0]); i++) {
		struct buffer b = { NULL, 0 };

		append_hex(&b, files[i].hex);
		assert_refused(&b, EBADMSG, files[i].word);
		buffer_free(&b);
	}
}

TEST(test_bad_json)
{
	static const struct {
		const char *header;
		const char *word;
	} headers[] = {
		{ "{", "not JSON" },
		{ "{} x", "offset 11" },
		{ "{\"__metadata__\":{},\"__metadata__\":{}}", "duplicate" },
		{ "{" A_2 ",}", "a name or '}' expected" },
		{ "{,}", "a name or '}' expected" },
		{ "{\"a\" 1}", "':' expected" },
		{ "{\"a\":}", "not JSON" },
		{ "{" A_2 " " A_2 "}", "',' or '}'" },
		{ "{1:2}", "not JSON" },
		{ "[]", "not a JSON object" },
		{ "{" A_2 "," A_2 "}", "duplicate" },
		{ "{\"a\":{\"dtype\":\"I8\",\"shape\":[0],"
		  "\"data_offsets\":[0,0]},\"a\":{\"dtype\":\"I16\","
		  "\"shape\":[0],\"data_offsets\":[0,0]}}", "duplicate" },
		{ "{\"a\":{\"dtype\":\"I8\",\"dtype\":\"I8\"}}",
		  "duplicate" },
		{ "{\"a\\u0000\":{}}", "NUL" },
		{ "{\"\\ud800\":{}}", "not JSON" },
		{ "{\"a\xff\":{}}", "byte 0xff" },
		{ "{\"a\xc0\x80\":{}}", "byte 0xc0" },
		{ "{\"__metadata__\":[]}", "\"__metadata__\" is not" },
		{ "{\"__metadata__\":{\"k\":1}}", "\"k\" of" },
		{ "{\"__metadata__\":{\"crc_num\":\"\"}}", "\"crc_num\" of" },
		{ "{\"__metadata__\":{\"crc_num\":\"1x\"}}", "32 bits" },
		{ "{\"__metadata__\":{\"crc_num\":\"4294967296\"}}",
		  "32 bits" },
	};

	for (size_t i = 0; i < sizeof(headers) / sizeof(headers[0]); i++)
		assert_header_refused(headers[i].header, 0, EBADMSG,
				      headers[i].word);
}

#define W(dtype, shape, offsets)                             \
	"{\"w\":{\"dtype\":" dtype ",\"shape\":" shape \
	",\"data_offsets\":" offsets "}}"

TEST(test_bad_tensors)
{
	static const struct {
		const char *header;
		size_t content;
		const char *word;
	} cases[] = {
		{ "{\"\":{\"dtype\":\"I8\",\"shape\":[],\"data_offsets\":[0,1]}}",
		  1, "name of 0 bytes" },
		{ "{\"w\":[\"I8\",[1],[0,1]]}", 1, "\"w\"" },
		{ "{\"w\":{\"shape\":[1],\"data_offsets\":[0,1]}}", 1,
		  "\"dtype\"" },
		{ "{\"w\":{\"dtype\":\"I8\",\"data_offsets\":[0,1]}}", 1,
		  "\"shape\"" },
		{ "{\"w\":{\"dtype\":\"I8\",\"shape\":[1]}}", 1,
		  "\"data_offsets\"" },
		{ W("8", "[1]", "[0,1]"), 1, "\"dtype\" is not a string" },
		{ W("\"i8\"", "[1]", "[0,1]"), 1, "type \"i8\"" },
		{ W("\"I8\"", "1", "[0,1]"), 1, "\"shape\" is not a list" },
		{ W("\"I8\"", "[1.0]", "[0,1]"), 1, "dimension 0" },
		{ W("\"I8\"", "[1,-1]", "[0,1]"), 1, "dimension 1" },
		{ W("\"I8\"", "[1,[]]", "[0,1]"), 1, "dimension 1" },
		{ W("\"I8\"", "[1]", "[0]"), 1, "pair of offsets" },
		{ W("\"I8\"", "[1]", "[0,1,1]"), 1, "pair of offsets" },
		{ W("\"I8\"", "[1]", "[-1,0]"), 1, "pair of offsets" },
		{ W("\"I8\"", "[1]", "[0,1e0]"), 1, "pair of offsets" },
		{ W("\"I8\"", "[1]", "[0,\"1\"]"), 1, "pair of offsets" },
		{ W("\"I8\"", "[1]", "[0,9223372036854775808]"), 1,
		  "not JSON" },
		{ W("\"I8\"", "[1]", "[0,9223372036854775807]"), 1,
		  "beyond the end" },
		{ W("\"I8\"", "[1]", "[1,2]"), 2, "begin at 1" },
		{ W("\"I8\"", "[1]", "[1,0]"), 1, "begin at 1" },
		{ W("\"I8\"", "[4]", "[0,4]"), 3,
		  "its 4 bytes reach beyond the end of the file at " },
		{ W("\"I8\"", "[4]", "[0,4]"), 5, "the file has" },
		{ W("\"I8\"", "[4]", "[0,5]"), 5, "shape and type make 4" },
		{ W("\"I16\"", "[2,2]", "[0,4]"), 4, "shape and type make 8" },
		{ W("\"I8\"", "[4294967296,4294967296]", "[0,0]"), 0,
		  "out of range" },
		{ W("\"I64\"", "[9223372036854775807]", "[0,0]"), 0,
		  "out of range" },
		{ W("\"I8\"",
		    "[1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1]",
		    "[0,1]"),
		  1, "more than 32 dimensions" },
		/* a hole, an overlap */
		{ "{" A_2 ",\"c\":{\"dtype\":\"I8\",\"shape\":[1],"
		  "\"data_offsets\":[3,4]}}",
		  4, "\"c\"" },
		{ "{" A_2 ",\"c\":{\"dtype\":\"I8\",\"shape\":[3],"
		  "\"data_offsets\":[1,4]}}",
		  4, "\"c\"" },
		{ "{" A_2 ",\"c\":{\"dtype\":\"I8\",\"shape\":[4],"
		  "\"data_offsets\":[0,4]}}",
		  4, "\"c\"" },
		{ "{" A_2 ",\"c\":{\"dtype\":\"I8\",\"shape\":[1],"
		  "\"data_offsets\":[2,1]}}",
		  4, "its data_offsets are 2 and 1" },
	};

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++)
		assert_header_refused(cases[i].header, cases[i].content,
				      EBADMSG, cases[i].word);
}

/* The sentence says where in the file. */
TEST(test_offset_in_the_sentence)
{
	static const char header[] =
		"{" A_2 ",\"c\":{\"dtype\":\"I8\",\"shape\":[1],"
		"\"data_offsets\":[3,4]}}";
	char word[64];

	snprintf(word, sizeof(word), "\"c\" is damaged at offset %zu:",
		 8 + sizeof(header) - 1 + 2);
	assert_header_refused(header, 4, EBADMSG, word);
}

TEST(test_types_that_are_not_supported)
{
	static const char *const types[] = {
		"F6_E2M3", "F6_E3M2", "F8_E4M3FNUZ", "F8_E5M2FNUZ",
	};

	for (size_t i = 0; i < sizeof(types) / sizeof(types[0]); i++) {
		char header[128], word[64];

		snprintf(header, sizeof(header), W("\"%s\"", "[0]", "[0,0]"),
			 types[i]);
		snprintf(word, sizeof(word), "\"w\" is of element type %s,",
			 types[i]);
		assert_header_refused(header, 0, ENOTSUP, word);
	}
}

/* Two F4 are an element of one byte; the shape in the file counts numbers. */
TEST(test_f4_and_e8m0)
{
	static const char header[] =
		"{\"p\":{\"dtype\":\"F4\",\"shape\":[2,6],\"data_offsets\":"
		"[0,6]},\"s\":{\"dtype\":\"F8_E8M0\",\"shape\":[3],"
		"\"data_offsets\":[6,9]}}";
	struct buffer file = make_file(header, 9);
	struct scanned s = scan(&file);

	require(&s);
	assert_tensor(&s, "p", RSH_DTYPE_FLOAT4X2, DIMS(2, 3), 6);
	assert_tensor(&s, "s", RSH_DTYPE_FLOAT8E8M0, DIMS(3), 3);
	scanned_free(&s);
	buffer_free(&file);
	assert_header_refused(W("\"F4\"", "[2,3]", "[0,3]"), 3, EBADMSG,
			      "rows of F4 are not complete bytes");
	assert_header_refused(W("\"F4\"", "[]", "[0,1]"), 1, EBADMSG,
			      "rows of F4 are not complete bytes");
}

static const char *const fixtures[] = {
	"unit/data/ms_dtypes.safetensors",
	"unit/data/ms_append_crc.safetensors",
	"unit/data/ms_redundancy.safetensors",
	"unit/data/ms_none.safetensors",
	"unit/data/library.safetensors",
};

#define N_FIXTURES (sizeof(fixtures) / sizeof(fixtures[0]))

/* No beginning of a file is a file. */
TEST(test_truncation_anywhere)
{
	for (size_t i = 0; i < N_FIXTURES; i++) {
		struct buffer file = load_file(fixtures[i]);

		for (size_t len = 0; len < file.len; len++) {
			struct buffer part = { NULL, 0 };

			/* Of that size, so that a sanitizer sees more. */
			buffer_append(&part, file.data, len);
			assert_refused(&part, EBADMSG, "test.safetensors");
			buffer_free(&part);
		}
		buffer_append(&file, "", 1);
		assert_refused(&file, EBADMSG, "the tensors end here");
		buffer_free(&file);
	}
}

static void assert_within_file(const struct scanned *s)
{
	const struct rsh_ckpt_index *ix = s->index;
	uint64_t content = 0;

	for (uint32_t i = 0; i < ix->n_records; i++) {
		const struct rsh_record *r = &ix->records[i];

		assert_ptr_equal(rsh_ckpt_find(ix, r->name), r);
		assert_true(r->first_dim + r->n_dims <= ix->n_dims);
		assert_true(r->first_extent + r->n_extents <= ix->n_extents);
		content += r->content_bytes;
	}
	for (uint32_t i = 0; i < ix->n_extents; i++) {
		const struct rsh_extent *e = &ix->extents[i];

		assert_true(e->offset <= ix->file_bytes &&
			    e->length <= ix->file_bytes - e->offset);
		content -= e->length;
	}
	assert_int_equal(content, 0);
}

/* A flipped bit makes another file or a sentence, never an index that leaves
 * the file. */
TEST(test_flipped_bits)
{
	for (size_t i = 0; i < N_FIXTURES; i++) {
		struct buffer file = load_file(fixtures[i]);
		const int n = rounds((int)file.len * 8);

		for (int k = 0; k < n; k++) {
			const size_t bit = file.len * 8 * (size_t)k / (size_t)n;
			struct scanned s;

			file.data[bit / 8] ^= (uint8_t)(1 << bit % 8);
			s = scan(&file);
			if (!s.rc)
				assert_within_file(&s);
			scanned_free(&s);
			file.data[bit / 8] ^= (uint8_t)(1 << bit % 8);
		}
		buffer_free(&file);
	}
}

/* ---- reading ---- */

/* A file that is larger than any memory: only its beginning can be read. */
struct sparse {
	struct buffer head;
	uint64_t read_end;
	int fail_after; /* reads; -1: never */
	bool cut;       /* reads give a byte less */
};

static ssize_t pread_sparse(void *ctx, void *buf, size_t len, uint64_t offset)
{
	struct sparse *f = ctx;

	if (!f->fail_after--)
		return -EIO;
	assert_true(offset + len <= f->head.len);
	memcpy(buf, f->head.data + offset, len);
	f->read_end = rsh_max_u64(f->read_end, offset + len);
	return (ssize_t)(len - f->cut);
}

TEST(test_content_is_not_read)
{
	struct sparse f = {
		make_file(W("\"F64\"", "[131072,1048576]", "[0,1099511627776]"),
			  0),
		0, -1, false,
	};
	const struct rsh_byte_source src = {
		pread_sparse, &f, f.head.len + (UINT64_C(1) << 40), "",
	};
	struct scanned s = scan_source(src);

	require(&s);
	assert_tensor(&s, "w", RSH_DTYPE_FLOAT64, DIMS(131072, 1048576),
		      UINT64_C(1) << 40);
	assert_int_equal(f.read_end, f.head.len);
	scanned_free(&s);
	buffer_free(&f.head);
}

TEST(test_read_errors)
{
	struct sparse f = { make_file("{" A_2 "}", 2), 0, 0, false };
	const struct rsh_byte_source src = { pread_sparse, &f, f.head.len, "" };
	struct scanned s;

	for (int reads = 0; reads < 2; reads++) {
		f.fail_after = reads;
		s = scan_source(src);
		assert_int_equal(s.rc, -EIO);
		assert_non_null(strstr(s.err.text, "cannot read at offset"));
		scanned_free(&s);
	}
	f.fail_after = -1;
	f.cut = true;
	s = scan_source(src);
	assert_int_equal(s.rc, -EBADMSG);
	assert_non_null(strstr(s.err.text, "ends here"));
	scanned_free(&s);
	buffer_free(&f.head);
}

/* ---- indexes ---- */

static struct rsh_ckpt_index *scan_with(struct rsh_names *names,
					const char *header, size_t content)
{
	struct buffer b = make_file(header, content);
	const struct rsh_byte_source src = buffer_source(&b);
	struct rsh_ckpt_index *ix = NULL;

	assert_int_equal(rsh_safetensors_scan(&src, names, &ix, NULL, NULL), 0);
	buffer_free(&b);
	return ix;
}

/* Files of the same records at the same places share an index, whatever order
 * their headers have; names may have their numbers from another file. */
TEST(test_equal_indexes)
{
	cleanup_names struct rsh_names *names = rsh_names_new();
	struct rsh_ckpt_index *x, *y, *z;
	uint32_t b = rsh_names_add(names, "b", 1);

	x = scan_with(names, "{" A_2 "," B_2 "}", 4);
	y = scan_with(names, "{" B_2 "," A_2 "}", 4);
	z = scan_with(names, "{" A_2 "," B_2 "} ", 4);
	assert_true(rsh_ckpt_index_equal(x, y));
	assert_true(rsh_ckpt_index_hash(x) == rsh_ckpt_index_hash(y));
	assert_false(rsh_ckpt_index_equal(x, z));
	assert_ptr_equal(rsh_ckpt_find(x, b), &x->records[1]);
	rsh_ckpt_index_free(x);
	rsh_ckpt_index_free(y);
	rsh_ckpt_index_free(z);
}
