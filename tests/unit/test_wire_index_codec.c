/* SPDX-License-Identifier: Apache-2.0 */
/* unit/test_wire_index_codec.c - indexes that outlive the process: what comes
 * back is what went in, or nothing. */
#include "wire_support.h"

#define XXH_INLINE_ALL
#include <xxhash.h>

#include "rsh/wire/index_codec.h"

static const char *const fixtures[] = {
	"unit/data/dtypes.ckpt", "unit/data/append_crc.ckpt",
	"unit/data/chunks.ckpt", "unit/data/empty.ckpt",
	"unit/data/ms_dtypes.safetensors", "unit/data/library.safetensors",
};
#define N_FIXTURES (sizeof(fixtures) / sizeof(fixtures[0]))

static struct rsh_ckpt_index *scan_buffer(struct buffer *file, const char *name,
					  struct rsh_names *names)
{
	struct rsh_byte_source src = buffer_source(file);
	struct rsh_error err = RSH_ERROR_INIT;
	struct rsh_ckpt_index *ix = NULL;
	int rc = strstr(name, ".safetensors") ?
		rsh_safetensors_scan(&src, names, &ix, NULL, &err) :
		rsh_ckpt_scan(&src, names, &ix, &err);

	if (rc)
		fail_msg("%s: %s", name, err.text);
	return ix;
}

static struct buffer encode(const struct rsh_ckpt_index *ix,
			    const struct rsh_names *names)
{
	struct buffer b;

	assert_int_equal(rsh_index_encode(ix, names, &b.data, &b.len), 0);
	return b;
}

static struct buffer encode_fixture(const char *name)
{
	struct rsh_names *names = rsh_names_new();
	struct buffer file = load_file(name);
	struct rsh_ckpt_index *ix = scan_buffer(&file, name, names);
	struct buffer b = encode(ix, names);

	rsh_ckpt_index_free(ix);
	rsh_names_free(names);
	buffer_free(&file);
	return b;
}

/* The checksum over whatever is there now. */
static void sign(struct buffer *b)
{
	uint64_t sum = XXH3_64bits(b->data + 8, b->len - 8);

	for (unsigned i = 0; i < 8; i++)
		b->data[i] = (uint8_t)(sum >> (8 * i));
}

/* A copy that ends where its allocation does, for the sanitizers. */
static int decode(const struct buffer *b, size_t len, struct rsh_names *names,
		  struct rsh_ckpt_index **out)
{
	uint8_t *copy = malloc(len ? len : 1);
	int rc;

	assert_non_null(copy);
	if (len)
		memcpy(copy, b->data, len);
	rc = rsh_index_decode(copy, len, names, out);
	free(copy);
	return rc;
}

static void assert_same(const struct rsh_ckpt_index *a,
			const struct rsh_names *a_names,
			const struct rsh_ckpt_index *b,
			const struct rsh_names *b_names)
{
	assert_int_equal(a->n_records, b->n_records);
	assert_int_equal(a->file_bytes, b->file_bytes);
	assert_int_equal(a->has_crc, b->has_crc);
	for (uint32_t i = 0; i < a->n_records; i++) {
		const struct rsh_record *x = &a->records[i];
		const struct rsh_record *y = &b->records[i];

		assert_string_equal(rsh_names_text(a_names, x->name),
				    rsh_names_text(b_names, y->name));
		assert_ptr_equal(rsh_ckpt_find(b, y->name), y);
		assert_int_equal(x->dtype, y->dtype);
		assert_int_equal(x->n_dims, y->n_dims);
		assert_int_equal(x->wide_bf16, y->wide_bf16);
		assert_int_equal(x->content_bytes, y->content_bytes);
		assert_int_equal(x->n_extents, y->n_extents);
		assert_memory_equal(rsh_record_dims(a, x),
				    rsh_record_dims(b, y),
				    x->n_dims * sizeof(*a->dims));
		assert_memory_equal(a->extents + x->first_extent,
				    b->extents + y->first_extent,
				    x->n_extents * sizeof(*a->extents));
	}
}

TEST(test_round_trip)
{
	for (size_t i = 0; i < N_FIXTURES; i++) {
		struct rsh_names *names = rsh_names_new();
		struct rsh_names *others = rsh_names_new();
		struct buffer file = load_file(fixtures[i]);
		struct rsh_ckpt_index *ix, *back;
		struct buffer b, again;

		ix = scan_buffer(&file, fixtures[i], names);
		b = encode(ix, names);
		/* Other numbers for the names, in another order. */
		rsh_names_add(others, "unrelated", 9);
		for (uint32_t n = rsh_names_count(names); n-- > 0;)
			rsh_names_add(others, rsh_names_text(names, n),
				      strlen(rsh_names_text(names, n)));
		assert_int_equal(decode(&b, b.len, others, &back), 0);
		assert_same(ix, names, back, others);
		again = encode(back, others);
		assert_int_equal(again.len, b.len);
		assert_memory_equal(again.data, b.data, b.len);
		rsh_ckpt_index_free(back);

		/* With the names as they were it can be shared with others. */
		assert_int_equal(decode(&b, b.len, names, &back), 0);
		assert_true(rsh_ckpt_index_equal(ix, back));
		rsh_ckpt_index_free(back);
		rsh_ckpt_index_free(ix);
		buffer_free(&again);
		buffer_free(&b);
		buffer_free(&file);
		rsh_names_free(others);
		rsh_names_free(names);
	}
}

TEST(test_metadata)
{
	struct rsh_names *names = rsh_names_new();
	struct buffer file = load_file(fixtures[0]);
	struct rsh_ckpt_index *ix = scan_buffer(&file, fixtures[0], names);
	struct rsh_ckpt_index *back;
	struct buffer b;

	ix->metadata = strdup("{\"a\":\"b\"}");
	b = encode(ix, names);
	assert_int_equal(decode(&b, b.len, names, &back), 0);
	assert_string_equal(back->metadata, ix->metadata);
	assert_true(rsh_ckpt_index_equal(ix, back));
	free(back->metadata);
	back->metadata = NULL;
	assert_false(rsh_ckpt_index_equal(ix, back));
	rsh_ckpt_index_free(back);
	/* A NUL in it, and none where the head says that there is one. */
	b.data[b.len - 1] = '\0';
	sign(&b);
	assert_int_equal(decode(&b, b.len, names, &back), -EBADMSG);
	b.len -= strlen(ix->metadata);
	sign(&b);
	assert_int_equal(decode(&b, b.len, names, &back), -EBADMSG);
	buffer_free(&b);
	rsh_ckpt_index_free(ix);
	buffer_free(&file);
	rsh_names_free(names);
}

/* What older builds have written is read again: another form needs another
 * version of the cache's files. */
TEST(test_form_is_fixed)
{
	cleanup_buffer struct buffer known = load_data("dtypes.index");
	struct buffer b = encode_fixture("unit/data/dtypes.ckpt");

	assert_int_equal(b.len, known.len);
	assert_memory_equal(b.data, known.data, b.len);
	buffer_free(&b);
}

/* A record that a later one of its name replaced leaves gaps in the arrays,
 * which are not kept. */
TEST(test_replaced_records)
{
	const struct tensor tensors[] = {
		{ "a", "UInt8", DIMS(2, 2), "1234", 4 },
		{ "b", "UInt8", DIMS(3), "567", 3 },
		{ "a", "UInt8", DIMS(5), "89abc", 5 },
	};
	cleanup_names struct rsh_names *names = rsh_names_new();
	struct buffer file = { NULL, 0 }, b;
	struct rsh_ckpt_index *ix, *back;

	for (unsigned i = 0; i < 3; i++)
		append_record(&file, &tensors[i]);
	ix = scan_buffer(&file, "a.ckpt", names);
	b = encode(ix, names);
	assert_int_equal(decode(&b, b.len, names, &back), 0);
	assert_int_equal(back->n_records, 2);
	assert_same(ix, names, back, names);
	rsh_ckpt_index_free(back);
	rsh_ckpt_index_free(ix);
	buffer_free(&b);
	buffer_free(&file);
}

TEST(test_every_truncation)
{
	cleanup_names struct rsh_names *names = rsh_names_new();
	struct rsh_ckpt_index *ix;

	for (size_t i = 0; i < N_FIXTURES; i++) {
		struct buffer b = encode_fixture(fixtures[i]);

		for (size_t len = 0; len < b.len; len++)
			assert_int_equal(decode(&b, len, names, &ix), -EBADMSG);
		/* Also where the checksum is right. */
		for (struct buffer cut = b; --cut.len >= 8;) {
			sign(&cut);
			assert_int_equal(decode(&cut, cut.len, names, &ix),
					 -EBADMSG);
		}
		buffer_free(&b);
	}
}

/* A text may have any dims, but no negative ones. */
TEST(test_negative_dims)
{
	const struct tensor tensors[] = {
		{ "a", "str", DIMS(7), "text", 4 },
		{ "b", "UInt8", DIMS(4), "1234", 4 },
	};

	for (unsigned i = 0; i < 2; i++) {
		cleanup_names struct rsh_names *names = rsh_names_new();
		cleanup_buffer struct buffer file = { NULL, 0 };
		struct rsh_ckpt_index *ix, *back;
		struct buffer b;

		append_record(&file, &tensors[i]);
		ix = scan_buffer(&file, "a.ckpt", names);
		for (int negative = 0; negative < 2; negative++) {
			ix->dims[0] = negative ? -1 : ix->dims[0];
			b = encode(ix, names);
			assert_int_equal(decode(&b, b.len, names, &back),
					 negative ? -EBADMSG : 0);
			if (!negative)
				rsh_ckpt_index_free(back);
			buffer_free(&b);
		}
		rsh_ckpt_index_free(ix);
	}
}

/* No memory is taken for records that are not there. */
TEST(test_counts_too_large)
{
	static const unsigned at[] = { 8, 12, 16 };
	cleanup_names struct rsh_names *names = rsh_names_new();
	struct rsh_ckpt_index *ix;

	for (size_t i = 0; i < sizeof(at) / sizeof(at[0]); i++) {
		cleanup_buffer struct buffer b = encode_fixture(fixtures[0]);

		memset(b.data + at[i], 0xff, 4);
		sign(&b);
		assert_int_equal(decode(&b, b.len, names, &ix), -EBADMSG);
	}
}

TEST(test_bytes_too_many)
{
	cleanup_buffer struct buffer b = encode_fixture(fixtures[0]);
	cleanup_names struct rsh_names *names = rsh_names_new();
	struct rsh_ckpt_index *ix;

	buffer_append(&b, "", 1);
	assert_int_equal(decode(&b, b.len, names, &ix), -EBADMSG);
	sign(&b);
	assert_int_equal(decode(&b, b.len, names, &ix), -EBADMSG);
}

TEST(test_every_flipped_bit)
{
	cleanup_names struct rsh_names *names = rsh_names_new();
	struct rsh_ckpt_index *ix;

	for (size_t i = 0; i < N_FIXTURES; i++) {
		struct buffer b = encode_fixture(fixtures[i]);

		for (size_t bit = 0; bit < b.len * 8; bit++) {
			b.data[bit / 8] ^= (uint8_t)(1 << bit % 8);
			assert_int_equal(decode(&b, b.len, names, &ix),
					 -EBADMSG);
			b.data[bit / 8] ^= (uint8_t)(1 << bit % 8);
		}
		assert_int_equal(decode(&b, b.len, names, &ix), 0);
		rsh_ckpt_index_free(ix);
		buffer_free(&b);
	}
}

/* Whatever is accepted with a right checksum must be in itself right. */
static void assert_sound(const struct rsh_ckpt_index *ix)
{
	uint64_t extents = 0, dims = 0;

	for (uint32_t i = 0; i < ix->n_records; i++) {
		const struct rsh_record *r = &ix->records[i];
		uint64_t sum = 0;

		assert_int_equal(r->first_extent, extents);
		assert_int_equal(r->first_dim, dims);
		extents += r->n_extents;
		dims += r->n_dims;
		assert_true(r->dtype > RSH_DTYPE_UNKNOWN &&
			    r->dtype < RSH_DTYPE_COUNT);
		for (uint32_t d = 0; d < r->n_dims; d++)
			assert_true(rsh_record_dims(ix, r)[d] >= 0);
		for (uint32_t k = 0; k < r->n_extents; k++) {
			const struct rsh_extent *e =
				&ix->extents[r->first_extent + k];

			assert_true(e->offset < ix->file_bytes &&
				    e->length <= ix->file_bytes - e->offset);
			sum += e->length;
		}
		assert_int_equal(sum, r->content_bytes);
	}
	assert_int_equal(extents, ix->n_extents);
	assert_int_equal(dims, ix->n_dims);
}

TEST(test_signed_nonsense)
{
	unsigned refused = 0, accepted = 0;
	cleanup_buffer struct buffer b = encode_fixture(fixtures[0]);

	for (size_t bit = 0; bit < (b.len - 8) * 8; bit++) {
		struct rsh_names *names = rsh_names_new();
		struct rsh_ckpt_index *ix;
		struct buffer again;

		b.data[8 + bit / 8] ^= (uint8_t)(1 << bit % 8);
		sign(&b);
		if (decode(&b, b.len, names, &ix)) {
			refused++;
		} else {
			accepted++;
			assert_sound(ix);
			/* Other bytes are another index. */
			again = encode(ix, names);
			assert_int_equal(again.len, b.len);
			assert_memory_equal(again.data, b.data, b.len);
			buffer_free(&again);
			rsh_ckpt_index_free(ix);
		}
		b.data[8 + bit / 8] ^= (uint8_t)(1 << bit % 8);
		rsh_names_free(names);
	}
	/* Names and offsets may be others; counts, dims and types may not. */
	assert_true(refused > 1000);
	assert_true(accepted > 1000);
}
