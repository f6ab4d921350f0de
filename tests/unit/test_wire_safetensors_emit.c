/* SPDX-License-Identifier: Apache-2.0 */
/* Headers of safetensors files: byte for byte what the library writes. */
#include "support.h"
#include "wire_support.h"

#include <stdbool.h>

static uint64_t get_u64(const uint8_t *p)
{
	uint64_t v = 0;

	for (int i = 8; i-- > 0;)
		v = v << 8 | p[i];
	return v;
}

/* ---- the library's own headers ---- */

/* The tensors of a header that the library wrote, in a random order. */
struct tensors {
	struct rsh_names *names;
	struct rsh_ckpt_index *index;
	struct rsh_safetensors_meta meta;
	struct rsh_record_shape *shapes;
};

static struct tensors shuffled(struct buffer *header, uint64_t content)
{
	struct rsh_byte_source src = buffer_source(header);
	struct tensors t = { .names = rsh_names_new() };
	struct rsh_error err = RSH_ERROR_INIT;
	uint32_t n;

	src.size += content;
	if (rsh_safetensors_scan(&src, t.names, &t.index, &t.meta, &err))
		fail_msg("%s", err.text);
	n = t.index->n_records;
	t.shapes = calloc(n + 1, sizeof(*t.shapes));
	assert_non_null(t.shapes);
	for (uint32_t i = 0; i < n; i++) {
		const struct rsh_record *r = &t.index->records[i];
		const char *name = rsh_names_text(t.names, r->name);
		uint32_t k = below(i + 1);

		t.shapes[i] = t.shapes[k];
		t.shapes[k] = (struct rsh_record_shape){
			name, strlen(name), (enum rsh_dtype)r->dtype,
			r->n_dims, rsh_record_dims(t.index, r), NULL,
			r->content_bytes,
		};
	}
	return t;
}

static void tensors_free(struct tensors *t)
{
	free(t->shapes);
	rsh_safetensors_meta_clear(&t->meta);
	rsh_ckpt_index_free(t->index);
	rsh_names_free(t->names);
}

static void assert_emitted_again(struct buffer *header, uint64_t content)
{
	struct tensors t = shuffled(header, content);
	struct rsh_error err = RSH_ERROR_INIT;
	uint32_t n = t.index->n_records;
	uint32_t *order = calloc(n + 1, sizeof(*order));
	uint8_t *out = NULL;
	size_t len = 0;

	assert_non_null(order);
	rsh_safetensors_order(t.shapes, n, order);
	if (rsh_safetensors_header(&(struct rsh_safetensors_contents){
		    t.shapes, order, n, t.meta.entries, t.meta.n_entries,
	    }, &out, &len, &err))
		fail_msg("%s", err.text);
	if (len != header->len || memcmp(out, header->data, len))
		fail_msg("emitted %.*s\nwanted  %.*s", (int)(len - 8), out + 8,
			 (int)(header->len - 8), header->data + 8);
	free(out);
	free(order);
	tensors_free(&t);
}

TEST(test_headers_of_the_library)
{
	cleanup_buffer struct buffer all = load_data("library_headers.bin");
	unsigned n = 0;

	for (size_t pos = 0; pos < all.len; n++) {
		uint64_t content = get_u64(all.data + pos);
		struct buffer header = { NULL, 0 };

		buffer_append(&header, all.data + pos + 8,
			      8 + get_u64(all.data + pos + 8));
		assert_emitted_again(&header, content);
		pos += 8 + header.len;
		buffer_free(&header);
	}
	assert_int_equal(n, 64);
}

TEST(test_whole_files)
{
	static const char *const files[] = {
		"unit/data/library.safetensors",
		"unit/data/ms_none.safetensors",
	};

	for (size_t i = 0; i < sizeof(files) / sizeof(files[0]); i++) {
		struct buffer file = load_file(files[i]);
		uint64_t content = file.len;

		file.len = 8 + get_u64(file.data);
		content -= file.len;
		assert_emitted_again(&file, content);
		buffer_free(&file);
	}
}

/* ---- by hand ---- */

static void assert_header(const struct rsh_record_shape *shapes, uint32_t n,
			  const struct rsh_safetensors_entry *entries,
			  uint32_t n_entries, const char *wanted)
{
	size_t wanted_len = strlen(wanted), len;
	uint8_t *out;

	assert_int_equal(rsh_safetensors_header(
		&(struct rsh_safetensors_contents){
			shapes, NULL, n, entries, n_entries,
		}, &out, &len, NULL), 0);
	assert_int_equal(len, 8 + wanted_len);
	assert_int_equal(get_u64(out), wanted_len);
	assert_memory_equal(out + 8, wanted, wanted_len);
	free(out);
}

TEST(test_metadata_is_sorted)
{
	static const struct rsh_safetensors_entry entries[] = {
		{ "w", "Int4" },
		{ "format", "ms" },
		{ "remove_redundancy", "False" },
	};
	const struct rsh_record_shape w = { "w", 1, RSH_DTYPE_INT4,
					    DIMS(2, 3), NULL, 6 };

	assert_header(&w, 1, entries, 3,
		      "{\"__metadata__\":{\"format\":\"ms\",\"remove_redundancy\":\"False\",\"w\":\"Int4\"},"
		      "\"w\":{\"dtype\":\"I8\",\"shape\":[2,3],\"data_offsets\":[0,6]}}   ");
	assert_header(NULL, 0, entries, 1,
		      "{\"__metadata__\":{\"w\":\"Int4\"}}   ");
	assert_header(NULL, 0, NULL, 0, "{}      ");
}

TEST(test_large_numbers)
{
	const struct rsh_record_shape shapes[] = {
		{ "a", 1, RSH_DTYPE_INT8, DIMS(INT64_MAX), NULL, INT64_MAX },
		{ "b", 1, RSH_DTYPE_INT8, DIMS(INT64_MAX), NULL, INT64_MAX },
	};

	assert_header(shapes, 2, NULL, 0,
		      "{\"a\":{\"dtype\":\"I8\",\"shape\":[9223372036854775807],"
		      "\"data_offsets\":[0,9223372036854775807]},"
		      "\"b\":{\"dtype\":\"I8\",\"shape\":[9223372036854775807],"
		      "\"data_offsets\":[9223372036854775807,18446744073709551614]}}"
		      "    ");
}

TEST(test_order_of_types)
{
	static const enum rsh_dtype sorted[] = {
		RSH_DTYPE_UINT64,  RSH_DTYPE_INT64,	  RSH_DTYPE_FLOAT64,
		RSH_DTYPE_COMPLEX64, RSH_DTYPE_FLOAT32,	  RSH_DTYPE_UINT32,
		RSH_DTYPE_INT32,   RSH_DTYPE_BFLOAT16,	  RSH_DTYPE_FLOAT16,
		RSH_DTYPE_UINT16,  RSH_DTYPE_INT16, RSH_DTYPE_FLOAT8E8M0,
		RSH_DTYPE_FLOAT8E4M3FN, RSH_DTYPE_FLOAT8E5M2, RSH_DTYPE_INT8,
		RSH_DTYPE_UINT8, RSH_DTYPE_FLOAT4X2, RSH_DTYPE_BOOL,
	};
	enum { N = sizeof(sorted) / sizeof(sorted[0]) };
	struct rsh_record_shape shapes[N];
	uint32_t order[N];

	/* Names in the opposite order: the type comes first. */
	for (uint32_t i = 0; i < N; i++)
		shapes[N - 1 - i] = (struct rsh_record_shape){
			&"zyxwvutsrqponmlkji"[i], 1, sorted[i],
			0, NULL, NULL, 1,
		};
	rsh_safetensors_order(shapes, N, order);
	for (uint32_t i = 0; i < N; i++)
		assert_int_equal(order[i], N - 1 - i);
}

/* Bytewise: shorter first, and bytes above 0x7f last. */
TEST(test_order_of_names)
{
	static const char *const sorted[] = { "A", "a", "a.b", "aa", "b", "~",
					      "\303\251", "\360\237\230\200" };
	enum { N = sizeof(sorted) / sizeof(sorted[0]) };
	struct rsh_record_shape shapes[N];
	uint32_t order[N];

	/* Int4 is I8 and stands among it. */
	for (uint32_t i = 0; i < N; i++)
		shapes[N - 1 - i] = (struct rsh_record_shape){
			sorted[i], strlen(sorted[i]),
			i % 2 ? RSH_DTYPE_INT4 : RSH_DTYPE_INT8,
			0, NULL, NULL, 1,
		};
	rsh_safetensors_order(shapes, N, order);
	for (uint32_t i = 0; i < N; i++)
		assert_int_equal(order[i], N - 1 - i);
}

/* ---- what cannot be written ---- */

static void assert_no_header(const struct rsh_record_shape *shapes, uint32_t n,
			     const struct rsh_safetensors_entry *entries,
			     uint32_t n_entries, int code, const char *word)
{
	struct rsh_error err = RSH_ERROR_INIT;
	uint8_t *out = NULL;
	size_t len;

	assert_int_equal(rsh_safetensors_header(
		&(struct rsh_safetensors_contents){
			shapes, NULL, n, entries, n_entries,
		}, &out, &len, &err), -code);
	assert_null(out);
	if (err.code != code || !strstr(err.text, word))
		fail_msg("sentence \"%s\"; wanted \"%s\"", err.text, word);
}

TEST(test_types_without_a_name)
{
	static const enum rsh_dtype types[] = {
		RSH_DTYPE_STR, RSH_DTYPE_COMPLEX128, RSH_DTYPE_HIFLOAT8,
		RSH_DTYPE_UNKNOWN,
	};

	for (size_t i = 0; i < sizeof(types) / sizeof(types[0]); i++) {
		const struct rsh_record_shape shapes[] = {
			{ "no", 2, types[i], DIMS(0), NULL, 4 },
			{ "w", 1, RSH_DTYPE_BOOL, DIMS(1), NULL, 1 },
		};
		uint32_t order[2];

		assert_null(rsh_safetensors_dtype(types[i]));
		assert_no_header(shapes, 2, NULL, 0, ENOTSUP, "\"no\"");
		rsh_safetensors_order(shapes, 2, order);
		assert_int_equal(order[0], 1);
	}
	assert_string_equal(rsh_safetensors_dtype(RSH_DTYPE_BFLOAT16), "BF16");
	assert_string_equal(rsh_safetensors_dtype(RSH_DTYPE_INT4), "I8");
}

TEST(test_names_that_are_not_utf8)
{
	static const char *const names[] = {
		"\377",	       "a\200",		   "\300\200", "\303",
		"\355\240\200", "\364\220\200\200", "\340\200\200",
		"\360\237\230", "\370\210\200\200\200",
	};

	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
		const struct rsh_record_shape w = { names[i], strlen(names[i]),
						    RSH_DTYPE_INT8, DIMS(1),
						    NULL, 1 };
		const struct rsh_safetensors_entry key = { names[i], "v" };
		const struct rsh_safetensors_entry value = { "k", names[i] };

		assert_no_header(&w, 1, NULL, 0, EINVAL, "not UTF-8");
		assert_no_header(NULL, 0, &key, 1, EINVAL, "not UTF-8");
		assert_no_header(NULL, 0, &value, 1, EINVAL, "\"k\"");
	}
}

TEST(test_name_of_the_metadata)
{
	const struct rsh_record_shape w = { "__metadata__", 12, RSH_DTYPE_INT8,
					    DIMS(1), NULL, 1 };

	assert_no_header(&w, 1, NULL, 0, EINVAL, "__metadata__");
}

TEST(test_too_large)
{
	static const size_t name_len = 100000000;
	cleanup_free char *name = malloc(name_len);
	const struct rsh_record_shape shapes[] = {
		{ "a", 1, RSH_DTYPE_INT8, DIMS(1), NULL, UINT64_MAX },
		{ "b", 1, RSH_DTYPE_INT8, DIMS(1), NULL, 1 },
	};
	const struct rsh_record_shape w = { name, name_len, RSH_DTYPE_INT8,
					    DIMS(1), NULL, 1 };

	assert_non_null(name);
	memset(name, 'n', name_len);
	assert_no_header(shapes, 2, NULL, 0, EFBIG, "2^64");
	assert_no_header(&w, 1, NULL, 0, EFBIG, "readers take 100000000");
}
