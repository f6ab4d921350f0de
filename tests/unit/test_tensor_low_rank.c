/* SPDX-License-Identifier: Apache-2.0 */
/* Products of two small matrices against the C library's fmaf(), and adapters
 * that are added to elements of each type. */
#include <math.h>

#include "rsh/tensor/scaled.h"
#include "support.h"

#define RANK_MAX 70
#define COLUMNS_MAX 150

static struct numbers numbers;

static uint32_t draw(void)
{
	return (uint32_t)(numbers_next(&numbers) >> 32);
}

/* Numbers of many sizes: sums that are exact, that lose bits, that cancel, that
 * are subnormal or too large. */
static float draw_float(int spread)
{
	const float fraction = (float)((int32_t)draw() / 256) / 0x1p23f;

	return ldexpf(fraction, (int)(draw() % (unsigned)(2 * spread + 1)) -
				spread);
}

static void assert_same(const float *a, const float *b, uint64_t n)
{
	for (uint64_t i = 0; i < n; i++)
		if (!(isnan(a[i]) && isnan(b[i])) &&
		    memcmp(&a[i], &b[i], sizeof(*a)) != 0)
			fail_msg("number %u is %a instead of %a", (unsigned)i,
				 (double)a[i], (double)b[i]);
}

static void check_product(int spread)
{
	static float columns[RANK_MAX * COLUMNS_MAX];
	const uint32_t rank = 1 + draw() % RANK_MAX;
	const uint64_t n = 1 + draw() % COLUMNS_MAX;
	const uint64_t stride = n + draw() % (COLUMNS_MAX - n + 1);
	float row[RANK_MAX], want[COLUMNS_MAX], got[COLUMNS_MAX];

	for (uint32_t k = 0; k < rank; k++)
		row[k] = draw_float(spread);
	for (uint64_t i = 0; i < rank * stride; i++)
		columns[i] = draw_float(spread);
	for (uint64_t i = 0; i < n; i++) {
		want[i] = 0;
		for (uint32_t k = 0; k < rank; k++)
			want[i] = fmaf(row[k], columns[k * stride + i],
				       want[i]);
	}
	rsh_low_rank_product(row, columns, stride, rank, n, got);
	assert_same(got, want, n);
	rsh_low_rank_portable(row, columns, stride, rank, n, got);
	assert_same(got, want, n);
}

TEST(products)
{
	static const int spreads[] = { 0, 2, 12, 30, 63, 75 };
	const int n = rounds(3000);

	numbers.state = numbers_seed();
	for (int i = 0; i < n; i++)
		check_product(spreads[i % 6]);
}

/* The square of 1 + e is 1 + 2e + ee.  The last term is kept only if the product
 * is not rounded, and it is lost if the product comes first. */
TEST(rounded_once)
{
	const float e1 = 0x1.000002p0f, e2 = 0x1.000004p0f;
	const float first[] = { e1, -1 }, last[] = { -1, e1 };
	const float columns[] = { e1, e2, e2, e1 };
	float got;

	rsh_low_rank_product(first, columns, 1, 2, 1, &got);
	assert_true(got == 0);
	rsh_low_rank_portable(first, columns, 1, 2, 1, &got);
	assert_true(got == 0);
	rsh_low_rank_product(last, columns + 2, 1, 2, 1, &got);
	assert_true(got == 0x1p-46f);
	rsh_low_rank_portable(last, columns + 2, 1, 2, 1, &got);
	assert_true(got == 0x1p-46f);
}

/* A block of a matrix, with two adapters. */
TEST(merges)
{
	static const struct rsh_low_rank by[] = {
		{ 1, 0.5f, false }, { 2, -1, true },
	};
	/* Rows 4 and 5, columns 8 to 10. */
	static const float factors[] = {
		2, 4, /* rows */ 1, 3, 5, /* columns */
		1, 0, 0, 1, /* rows */ 1, 2, 3, 0x1p-9f, 0x1p-9f, 7,
	};
	const struct rsh_scaled m = {
		.packing = RSH_PACK_F32, .then = RSH_DTYPE_BFLOAT16,
		.to = RSH_DTYPE_FLOAT32, .rows = 2, .columns = 2,
		.from = { 0, 4, 9 },
		.merge = { .n = 2, .by = by, .factors = factors,
			   .first_row = 4, .n_rows = 2, .first_column = 8,
			   .n_columns = 3 },
	};
	/* The last one is NaN. */
	const uint8_t in[] = { 0, 0, 0x80, 0x3f, 0, 0, 0, 0x40,
			       0xff, 0xff, 0x80, 0x3f, 1, 0, 0xc0, 0xff };
	float got[4];
	uint8_t out[16];

	rsh_scaled_decode(&m, 0, in, 4, out);
	rsh_scaled_widen(RSH_DTYPE_FLOAT32, out, 4, got);
	assert_true(got[0] == 1 + 3 - 2);
	assert_true(got[1] == 2 + 5 - 3);
	/* 1.0078124 becomes 1.0078125 first; 7.0078125 - 2 to the power of -9
	 * is not a BFloat16. */
	assert_true(got[2] == 7);
	assert_true(isnan(got[3]));
	assert_int_equal(out[12] | out[13] << 8 | out[14] << 16,
			 0xc00000);
}

/* 1 and a little more, which the type of the weight does not have, are added to
 * -1: the little is left unless the sum of the adapter is rounded first. */
TEST(sums_are_rounded)
{
	static const struct {
		enum rsh_dtype type;
		float little;
		bool rounds;
	} rows[] = {
		{ RSH_DTYPE_BFLOAT16, 0x1p-9f, false },
		{ RSH_DTYPE_BFLOAT16, 0x1p-9f, true },
		{ RSH_DTYPE_FLOAT16, 0x1p-12f, false },
		{ RSH_DTYPE_FLOAT16, 0x1p-12f, true },
		{ RSH_DTYPE_FLOAT32, 0x1p-12f, true },
	};
	enum { MOST = 9 };

	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++)
		for (unsigned n = 1; n <= MOST; n++) {
			const struct rsh_low_rank by = { 1, 1, rows[i].rounds };
			float factors[1 + MOST] = { 1 }, got[MOST];
			const struct rsh_scaled m = {
				.packing = RSH_PACK_F32, .then = rows[i].type,
				.to = RSH_DTYPE_FLOAT32, .rows = 1,
				.columns = n,
				.merge = { .n = 1, .by = &by,
					   .factors = factors, .n_rows = 1,
					   .n_columns = n },
			};
			const bool left = !rows[i].rounds ||
					  rows[i].type == RSH_DTYPE_FLOAT32;
			uint8_t bytes[4 * MOST], out[4 * MOST];

			for (unsigned k = 0; k < n; k++) {
				factors[1 + k] = 1 + rows[i].little;
				memcpy(bytes + 4 * k, (const uint8_t[]){
					0, 0, 0x80, 0xbf }, 4);
			}
			rsh_scaled_decode(&m, 0, bytes, n, out);
			rsh_scaled_widen(RSH_DTYPE_FLOAT32, out, n, got);
			for (unsigned k = 0; k < n; k++)
				assert_true(got[k] == (left ? rows[i].little :
							      0));
		}
}

/* Elements without adapters keep their bits, and are cast as others are. */
TEST(copies)
{
	const struct rsh_scaled same = {
		.packing = RSH_PACK_BF16, .then = RSH_DTYPE_BFLOAT16,
		.to = RSH_DTYPE_BFLOAT16, .rows = 1, .columns = 3,
	};
	struct rsh_scaled wide = same;
	const uint8_t in[] = { 0xc1, 0xff, 0x80, 0x3f, 1, 0 };
	const uint8_t widened[] = { 0, 0, 0xc1, 0xff, 0, 0, 0x80, 0x3f, 0, 0,
				    1, 0 };
	uint8_t out[12];

	rsh_scaled_decode(&same, 0, in, 3, out);
	assert_memory_equal(out, in, sizeof(in));
	wide.to = RSH_DTYPE_FLOAT32;
	rsh_scaled_decode(&wide, 0, in, 3, out);
	assert_memory_equal(out, widened, sizeof(widened));
}
