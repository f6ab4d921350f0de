/* SPDX-License-Identifier: Apache-2.0 */
/* unit/test_wire_zip_emit.c - headers, directories and ends of zip archives, as
 * APPNOTE.TXT of zip has them. */
#include "config.h"

#include "rsh/wire/zip_emit.h"
#include "tests.h"

/* What is written, field by field: widths and values. */
struct field {
	unsigned width;
	uint64_t value;
};

static void check_fields(const uint8_t *p, size_t n, const struct field *f)
{
	size_t at = 0;

	for (; f->width; at += f++->width) {
		uint64_t v = 0;

		assert_true(at + f->width <= n);
		for (unsigned i = 0; i < f->width; i++)
			v |= (uint64_t)p[at + i] << 8 * i;
		if (v != f->value)
			fail_msg("at %zu: %llu, not %llu", at,
				 (unsigned long long)v,
				 (unsigned long long)f->value);
	}
	assert_int_equal(at, n);
}

#define END(at, bytes, n) \
	{ 4, 0x06054b50 }, { 2, 0 }, { 2, 0 }, { 2, n }, { 2, n }, \
	{ 4, bytes }, { 4, at }, { 2, 0 }, { 0, 0 }
#define WIDE_END(at, bytes, n) \
	{ 4, 0x06064b50 }, { 8, 44 }, { 2, 45 }, { 2, 45 }, { 4, 0 }, \
	{ 4, 0 }, { 8, n }, { 8, n }, { 8, bytes }, { 8, at }, \
	{ 4, 0x07064b50 }, { 4, 0 }, { 8, (at) + (bytes) }, { 4, 1 }

TEST(test_end_records)
{
	static const uint64_t far = (uint64_t)5 << 30;
	static const struct field small[] = { END(70, 80, 3) };
	static const struct field most[] = { END(70, 80, 65534) };
	static const struct field many[] = {
		WIDE_END(70, 80, 65535), END(70, 80, 65535),
	};
	static const struct field wide[] = {
		WIDE_END(((uint64_t)5 << 30), 80, 3), END(UINT32_MAX, 80, 3),
	};
	uint8_t buf[256];

	check_fields(buf, rsh_zip_end(70, 80, 3, buf), small);
	check_fields(buf, rsh_zip_end(70, 80, 65534, buf), most);
	check_fields(buf, rsh_zip_end(70, 80, 65535, buf), many);
	check_fields(buf, rsh_zip_end(far, 80, 3, buf), wide);
}

#define COMMON(version, shown, extra) \
	{ 2, version }, { 2, 0 }, { 2, 0 }, { 4, 0x00210000 }, { 4, 9 }, \
	{ 4, shown }, { 4, shown }, { 2, 1 }, { 2, extra }
#define CENTRAL(version, of_entry, shown, extra, at) \
	{ 4, 0x02014b50 }, { 2, version }, COMMON(of_entry, shown, extra), \
	{ 2, 0 }, { 2, 0 }, { 2, 0 }, { 4, 0 }, { 4, at }, { 1, 'n' }

/* An entry says that it needs zip64 where it does, and has these fields. */
TEST(test_entries)
{
	static const uint64_t far = (uint64_t)5 << 30;
	static const struct field local[] = {
		{ 4, 0x04034b50 }, COMMON(20, 100, 0), { 1, 'n' }, { 0, 0 },
	};
	static const struct field central[] = {
		CENTRAL(20, 20, 100, 0, 7), { 0, 0 },
	};
	static const struct field wide_local[] = {
		{ 4, 0x04034b50 }, COMMON(45, UINT32_MAX, 20), { 1, 'n' },
		{ 2, 1 }, { 2, 16 }, { 8, far }, { 8, far }, { 0, 0 },
	};
	static const struct field wide_central[] = {
		CENTRAL(45, 45, UINT32_MAX, 20, 7), { 2, 1 }, { 2, 16 },
		{ 8, far }, { 8, far }, { 0, 0 },
	};
	static const struct field far_central[] = {
		CENTRAL(45, 20, 100, 12, UINT32_MAX), { 2, 1 }, { 2, 8 },
		{ 8, far }, { 0, 0 },
	};
	struct rsh_zip_entry e = {
		.name = "n", .offset = 7, .bytes = 100, .crc = 9,
	};
	uint8_t buf[256];

	check_fields(buf, rsh_zip_local(&e, 0, buf), local);
	check_fields(buf, rsh_zip_central(&e, buf), central);
	e.offset = far;
	check_fields(buf, rsh_zip_central(&e, buf), far_central);
	e.offset = 7;
	e.bytes = far;
	check_fields(buf, rsh_zip_local(&e, 0, buf), wide_local);
	check_fields(buf, rsh_zip_central(&e, buf), wide_central);
	/* With padding the content is where it is to be. */
	for (e.offset = 0; e.offset < 70; e.offset++) {
		assert_int_equal((e.offset + rsh_zip_local(&e, 64, buf)) % 64, 0);
		e.bytes = 100 + far - e.bytes;
	}
}
