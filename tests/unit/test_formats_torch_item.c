/* SPDX-License-Identifier: Apache-2.0 */
/* Tensors as torch.save() writes them: how they are cut into chunks, and the
 * archive around the elements of one, also where its numbers have 64 bits. */

#include <inttypes.h>
#include <zlib.h>

#include "rsh/util/checked.h"
#include "rsh/wire/bytes.h"
#include "rsh/wire/pickle_emit.h"
#include "rsh/wire/torch_item.h"
#include "formats/torch/zip_i.h"
#include "tests.h"

#define MIB ((uint64_t)1 << 20)
#define ROUNDS 20000

static struct rsh_record_shape shape_of(enum rsh_dtype t, unsigned n,
					const int64_t *dims)
{
	struct rsh_record_shape s = {
		.name = "w", .name_len = 1, .dtype = t, .n_dims = (uint8_t)n,
		.dims = dims, .content_bytes = rsh_dtype_size(t),
	};

	for (unsigned i = 0; i < n; i++)
		s.content_bytes *= (uint64_t)dims[i];
	return s;
}

/* ---- numbers ---- */

/* Gives the number that an instruction pushes. */
static int64_t number_of(const uint8_t *p)
{
	const unsigned bytes = *p == 'K' ? 1 : *p == 'M' ? 2 : *p == 'J' ? 4 :
			       p[1];
	uint64_t v = 0;

	p += *p == 0x8a ? 2 : 1;
	for (unsigned i = 0; i < bytes; i++)
		v |= (uint64_t)p[i] << 8 * i;
	/* BININT and LONG1 are signed. */
	if (bytes > 2 && bytes < 8 && v >> (8 * bytes - 1))
		v -= UINT64_C(1) << 8 * bytes;
	return (int64_t)v;
}

TEST(test_numbers)
{
	for (unsigned bit = 0; bit <= 63; bit++)
		for (int off = -1; off <= 1; off++) {
			const uint64_t v = (UINT64_C(1) << bit) + (uint64_t)off;
			struct rsh_pickle_out o = { .data = NULL };

			rsh_pickle_put_number(&o, v);
			assert_int_equal(o.failed, v > INT64_MAX);
			if (!o.failed)
				assert_true(number_of(o.data) == (int64_t)v);
			rsh_pickle_clear(&o);
		}
}

/* ---- chunks ---- */

TEST(test_chunks_of_known_shapes)
{
	static const struct {
		unsigned n;
		int64_t dims[4];
		uint64_t elements; /* of a chunk */
	} cases[] = {
		{ 2, { 5, 3 }, 15 },
		{ 2, { 0, 3 }, 0 },
		/* Whole rows, as many as 16 MiB have room for. */
		{ 2, { 8192, 8192 }, 512 * 8192 },
		{ 2, { 100000, 1000 }, 4194 * 1000 },
		{ 3, { 1, 100000, 1000 }, 4194 * 1000 },
		/* A row of 128 MiB is cut into eight parts, */
		{ 3, { 6, 4096, 8192 }, 512 * 8192 },
		/* one of 3 * 2^23 elements into six, */
		{ 3, { 2, 3072, 8192 }, 512 * 8192 },
		/* and one whose length is prime is left whole. */
		{ 3, { 2, 16777259, 1 }, 16777259 },
		{ 4, { 2, 3, 16777259, 2 }, 16777259 * 2 },
	};

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct rsh_record_shape s = shape_of(
			RSH_DTYPE_FLOAT32, cases[i].n, cases[i].dims);

		assert_int_equal(rsh_torch_chunk_bytes(&s),
				 4 * cases[i].elements);
	}
}

/* Parts of a transposed matrix would be columns. */
TEST(test_chunk_of_another_order)
{
	static const uint8_t turned[] = { 1, 0 };
	int64_t dims[] = { 4096, 8192 };
	struct rsh_record_shape s = shape_of(RSH_DTYPE_FLOAT16, 2, dims);

	assert_int_equal(rsh_torch_chunk_bytes(&s), RSH_TORCH_CHUNK_BYTES);
	s.order = turned;
	assert_int_equal(rsh_torch_chunk_bytes(&s), s.content_bytes);
}

/* Elements before the first of a box in the whole tensor. */
static uint64_t first_of(const struct rsh_record_shape *s, const uint64_t *at)
{
	uint64_t first = 0;

	for (unsigned i = 0; i < s->n_dims; i++) {
		const unsigned d = s->order ? s->order[i] : i;

		first = first * (uint64_t)s->dims[d] + at[d];
	}
	return first;
}

/* Chunks of random shapes and orders are boxes whose elements follow each other, and have
 * all elements. */
TEST(test_random_chunks)
{
	const char *text = getenv("RSH_TEST_SEED");
	unsigned seed = text ? (unsigned)strtoul(text, NULL, 10) : 1;

	print_message("# RSH_TEST_SEED=%u\n", seed);
	srandom(seed);
	for (unsigned round = 0; round < ROUNDS; round++) {
		int64_t dims[5];
		uint8_t order[5];
		const unsigned n = (unsigned)random() % 6;
		struct rsh_record_shape s;
		struct rsh_torch_chunk c;
		uint64_t bytes, at = 0, count = 0;

		for (unsigned i = 0; i < n; i++)
			dims[i] = 1 + random() % (1L << random() % 14);
		for (unsigned i = 0; i < n; i++) {
			const unsigned k = (unsigned)random() % (i + 1);

			order[i] = order[k];
			order[k] = (uint8_t)i;
		}
		s = shape_of(random() % 2 ? RSH_DTYPE_FLOAT64 :
					    RSH_DTYPE_FLOAT16, n, dims);
		s.order = random() % 2 ? order : NULL;
		if (s.content_bytes > MIB * MIB)
			continue;
		bytes = rsh_torch_chunk_bytes(&s);
		assert_true(bytes > 0);
		assert_true(bytes == s.content_bytes ||
			    bytes >= RSH_TORCH_CHUNK_BYTES / 4);
		for (; at < s.content_bytes; at += c.bytes) {
			uint64_t elements = 1;

			rsh_torch_chunk_at(&s, at, bytes, &c);
			assert_true(c.bytes > 0 && c.bytes <= bytes);
			for (unsigned i = 0; i < n; i++) {
				assert_true(c.sizes[i] > 0);
				assert_true(c.offsets[i] + c.sizes[i] <=
					    (uint64_t)dims[i]);
				elements *= c.sizes[i];
			}
			assert_int_equal(elements * rsh_dtype_size(s.dtype),
					 c.bytes);
			assert_int_equal(first_of(&s, c.offsets) *
					 rsh_dtype_size(s.dtype), at);
			if (++count > 1000)
				break;
		}
		assert_true(count > 1000 || at == s.content_bytes);
	}
}

/* ---- archives ---- */

/* An item whose elements are all zero. */
struct item {
	uint8_t head[RSH_TORCH_HEAD_MAX], tail[RSH_TORCH_TAIL_MAX];
	size_t n_head, n_tail;
	uint64_t bytes;
};

static ssize_t item_pread(void *ctx, void *buf, size_t len, uint64_t offset)
{
	const struct item *it = ctx;
	uint8_t *to = buf;

	for (size_t i = 0; i < len; i++, offset++)
		to[i] = offset < it->n_head ? it->head[offset] :
			offset < it->n_head + it->bytes ? 0 :
			it->tail[offset - it->n_head - it->bytes];
	return (ssize_t)len;
}

static void check_item(enum rsh_dtype t, unsigned n, const uint64_t *sizes,
		       uint64_t bytes, size_t n_tail)
{
	const struct rsh_record_shape s = {
		.dtype = t, .n_dims = (uint8_t)n,
	};
	struct rsh_torch_chunk c = { .bytes = bytes };
	static const char *const names[] = {
		"archive/data.pkl", "archive/byteorder", "archive/data/0",
		"archive/version",
	};
	static uint8_t room[RSH_ZIP_ROOM], local[RSH_ZIP_ROOM / 2];
	struct item it = { .bytes = bytes };
	struct rsh_byte_source src = {
		.pread_fn = item_pread, .ctx = &it, .path = "item",
	};
	struct rsh_zip_directory d;
	struct rsh_error err;
	uint64_t at;

	for (unsigned i = 0; i < n; i++)
		c.sizes[i] = sizes[i];
	it.n_head = rsh_torch_item_head(&s, &c, it.head);
	it.n_tail = rsh_torch_item_tail(&s, &c, it.tail);
	assert_int_equal(it.n_head % RSH_TORCH_ALIGNMENT, 0);
	/* A reader of the directory does not see bytes before the first entry. */
	assert_memory_equal(it.head, "PK\3\4", 4);
	assert_memory_equal(it.tail, "PK\3\4", 4);
	assert_true(it.n_head <= sizeof(it.head));
	assert_int_equal(it.n_tail, n_tail);
	src.size = it.n_head + bytes + it.n_tail;
	assert_int_equal(rsh_zip_read_directory(&src, &d, &err), 0);
	assert_int_equal(d.n_entries, 4);
	at = d.offset;
	for (unsigned i = 0; i < 4; i++) {
		struct rsh_zip_entry e;
		uint64_t content;

		assert_int_equal(rsh_zip_read_entry(&src, &d, &at, room, &e,
						    &err), 0);
		assert_int_equal(e.n_name, strlen(names[i]));
		assert_memory_equal(e.name, names[i], e.n_name);
		assert_int_equal(e.method, RSH_ZIP_STORED);
		assert_int_equal(e.content_bytes, e.original_bytes);
		assert_int_equal(rsh_zip_read_local(&src, &d, &e, local,
						    &content, &err), 0);
		if (i == 2) {
			assert_int_equal(content, it.n_head);
			assert_int_equal(e.content_bytes, bytes);
			assert_int_equal(e.crc, 0);
		} else {
			uint8_t entry[4096];

			item_pread(&it, entry, e.content_bytes, content);
			assert_int_equal(e.crc, crc32(0, entry,
						      (uInt)e.content_bytes));
		}
		e.original_bytes++;
		assert_int_equal(rsh_zip_read_local(&src, &d, &e, local,
						    &content, &err), -EBADMSG);
	}
	assert_int_equal(at, d.end);
}

TEST(test_archives)
{
	const uint64_t small[] = { 5, 3 }, flat[] = { 7 };
	const uint64_t large[] = { (uint64_t)4831838208 };
	uint64_t many[RSH_MAX_DIMS];

	check_item(RSH_DTYPE_FLOAT32, 2, small, 60, 315);
	check_item(RSH_DTYPE_FLOAT8E4M3FN, 1, flat, 7, 315);
	check_item(RSH_DTYPE_INT64, 0, NULL, 8, 315);
	/* More than 32 bits: fields of zip64 come in, as torch has them. */
	check_item(RSH_DTYPE_UINT8, 1, large, large[0], 423);
	for (unsigned i = 0; i < RSH_MAX_DIMS; i++)
		many[i] = 1;
	many[0] = (uint64_t)1 << 40;
	check_item(RSH_DTYPE_BFLOAT16, RSH_MAX_DIMS, many, many[0] * 2, 423);
}

TEST(test_every_type)
{
	const uint64_t sizes[] = { 2 };

	for (enum rsh_dtype t = 1; t < RSH_DTYPE_COUNT; t++)
		if (rsh_torch_dtype_name(t))
			check_item(t, 1, sizes, 2 * rsh_dtype_size(t), 315);
	assert_null(rsh_torch_dtype_name(RSH_DTYPE_STR));
	assert_null(rsh_torch_dtype_name(RSH_DTYPE_INT4));
	assert_string_equal(rsh_torch_dtype_name(RSH_DTYPE_BFLOAT16),
			    "bfloat16");
}

/* ---- extra fields ---- */

static ssize_t entry_pread(void *ctx, void *buf, size_t len, uint64_t offset)
{
	memcpy(buf, (const uint8_t *)ctx + offset, len);
	return (ssize_t)len;
}

/* The numbers of zip64 come behind extra fields of other kinds. */
TEST(test_extra_fields)
{
	/* The lengths of the other fields, and how much their last one claims to
	 * have more. */
	static const struct { uint8_t n, len[2], more; int rc; } cases[] = {
		{ 0, { 0 }, 0, 0 }, { 1, { 0 }, 0, 0 }, { 1, { 1 }, 0, 0 },
		{ 2, { 5, 3 }, 0, 0 }, { 1, { 4 }, 29, -EBADMSG },
		{ 1, { 200 }, 0, 0 },
	};
	static uint8_t room[RSH_ZIP_ROOM];

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		uint8_t h[512] = "PK\1\2", *p = h + 47;
		struct rsh_byte_source src = {
			.pread_fn = entry_pread, .ctx = h, .path = "entry",
			.size = sizeof(h),
		};
		const struct rsh_zip_directory d = { .end = sizeof(h) };
		struct rsh_zip_entry e;
		struct rsh_error err;

		memset(h + 20, 0xff, 8); /* both sizes */
		memset(h + 42, 0xff, 4); /* and the offset are in zip64 */
		h[28] = 1;
		h[46] = 'n';
		for (unsigned k = 0; k < cases[i].n; k++) {
			p[0] = 0x55;
			p[2] = cases[i].len[k];
			p += 4 + p[2];
		}
		p[cases[i].n ? 2 - 4 - cases[i].len[cases[i].n - 1] : 3] +=
			cases[i].more;
		p[0] = 1;
		p[2] = 24;
		p[4] = 70;
		p[12] = 80;
		p[20] = 90;
		h[30] = (uint8_t)(p + 28 - h - 47);
		assert_int_equal(rsh_zip_read_entry(&src, &d, &(uint64_t){ 0 }, room, &e,
						    &err), cases[i].rc);
		if (cases[i].rc)
			continue;
		assert_true(e.is_wide);
		assert_int_equal(e.original_bytes, 70);
		assert_int_equal(e.content_bytes, 80);
		assert_int_equal(e.local_offset, 90);
	}
}
