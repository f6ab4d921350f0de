/* SPDX-License-Identifier: Apache-2.0 */
/* Quantised elements with scales: every byte with scales of all kinds, blocks
 * that are cut short, every packing, and what is rounded in steps. */
#include <math.h>

#include "rsh/tensor/codec.h"
#include "rsh/tensor/scaled.h"
#include "support.h"

#define NAN_BITS 0x7fc0

static float float_of(uint32_t bits)
{
	float f;

	memcpy(&f, &bits, sizeof(f));
	return f;
}

/* As the format is defined. */
static double value_of(uint8_t v)
{
	const int exponent = v >> 3 & 15, fraction = v & 7;
	double m;

	if ((v & 0x7f) == 0x7f)
		return NAN;
	m = exponent ? ldexp(8 + fraction, exponent - 10) :
		       ldexp(fraction, -9);
	return v & 0x80 ? -m : m;
}

/* What follows the largest number would be 2 to the power of 128, were it not
 * infinite. */
static double bf16_magnitude(uint32_t bits)
{
	return bits == 0x7f80 ? ldexp(1, 128) :
				(double)float_of(bits << 16);
}

/* The nearer one of two neighbours, and of two equally near the even one. */
static uint16_t nearest_bf16(float f)
{
	const uint16_t sign = signbit(f) ? 0x8000 : 0;
	const double m = fabs((double)f);
	uint32_t bits, low;
	double below, above;

	if (isnan(f))
		return NAN_BITS;
	if (isinf(f))
		return sign | 0x7f80;
	memcpy(&bits, &f, sizeof(bits));
	low = (bits & 0x7fffffff) >> 16;
	below = m - bf16_magnitude(low);
	above = bf16_magnitude(low + 1) - m;
	return (uint16_t)(sign | (below < above ||
				  (below == above && low % 2 == 0) ? low :
								     low + 1));
}

/* The product of two exact values is exact as a double, and a float is what is
 * nearest to it. */
static uint16_t naive(uint8_t v, float scale)
{
	return nearest_bf16((float)(value_of(v) * (double)scale));
}

static void assert_half(const uint8_t *got, uint8_t v, float scale)
{
	const uint16_t want = naive(v, scale);

	if ((got[0] | got[1] << 8) != want)
		fail_msg("%#x by %a: %#x, not %#x", v, (double)scale,
			 got[0] | got[1] << 8, want);
}

static void every_byte(float scale)
{
	uint8_t in[256], out[512], same[512];
	struct rsh_scaled m = {
		.to = RSH_DTYPE_BFLOAT16, .rows = 1, .columns = 256,
		.block = { 1, 256 }, .scales = &scale, .scale_columns = 1,
	};

	for (int i = 0; i < 256; i++)
		in[i] = (uint8_t)i;
	rsh_scaled_decode(&m, 0, in, 256, out);
	m.portably = true;
	rsh_scaled_decode(&m, 0, in, 256, same);
	assert_memory_equal(out, same, 512);
	for (int i = 0; i < 256; i++)
		assert_half(out + 2 * i, (uint8_t)i, scale);
}

TEST(test_every_byte)
{
	static const float plain[] = {
		1, -1, 0, -0.0f, 0.5f, 1.0f / 3, 0x1.01p-7f, 0x1.018p0f,
		0x1.ffp127f, 0x1p-126f, 0x1p-133f, 0x1p-149f, 0x1p120f,
		INFINITY, -INFINITY, NAN,
	};
	struct numbers x = { numbers_seed() };

	for (size_t i = 0; i < sizeof(plain) / sizeof(*plain); i++)
		every_byte(plain[i]);
	for (int i = 0; i < rounds(2000); i++)
		every_byte(float_of((uint32_t)numbers_next(&x)));
}

static void some_matrix(struct numbers *x)
{
	const uint64_t rows = 1 + numbers_below(x, 40);
	const uint64_t columns = 1 + numbers_below(x, 60);
	struct rsh_scaled m = {
		.to = RSH_DTYPE_BFLOAT16, .rows = rows, .columns = columns,
		.block = { 1 + numbers_below(x, 20), 1 + numbers_below(x, 20) },
	};
	const uint64_t down = (rows + m.block[0] - 1) / m.block[0];
	const uint64_t first = numbers_below(x, rows * columns);
	const uint64_t n = 1 + numbers_below(x, rows * columns - first);
	uint8_t *in = malloc(n), *out = malloc(2 * n);
	float *scales;

	m.scale_columns = (columns + m.block[1] - 1) / m.block[1];
	scales = malloc(down * m.scale_columns * sizeof(*scales));
	m.scales = scales;
	for (uint64_t i = 0; i < down * m.scale_columns; i++)
		scales[i] = float_of(0x38000000 +
				     (uint32_t)numbers_below(x, 0x10000000));
	for (uint64_t i = 0; i < n; i++)
		in[i] = (uint8_t)numbers_next(x);
	rsh_scaled_decode(&m, first, in, n, out);
	for (uint64_t i = 0; i < n; i++) {
		const uint64_t r = (first + i) / columns / m.block[0];
		const uint64_t c = (first + i) % columns / m.block[1];

		assert_half(out + 2 * i, in[i],
			    scales[r * m.scale_columns + c]);
	}
	free(in);
	free(out);
	free(scales);
}

TEST(test_blocks)
{
	struct numbers x = { numbers_seed() };

	for (int i = 0; i < rounds(2000); i++)
		some_matrix(&x);
}

/* ---- other packings ---- */

static unsigned bits_at(const uint8_t *in, uint64_t bit, unsigned n)
{
	unsigned v = 0;

	for (unsigned i = 0; i < n; i++)
		v |= (unsigned)(in[(bit + i) / 8] >> (bit + i) % 8 & 1) << i;
	return v;
}

/* The number of element [r, c] of a matrix, as each format is defined. */
static float number_of(enum rsh_packing p, const uint8_t *in, uint64_t r,
		       uint64_t c, uint64_t columns)
{
	static const float fp4[] = { 0, 0.5f, 1, 1.5f, 2, 3, 4, 6 };
	static const unsigned awq[] = { 0, 4, 1, 5, 2, 6, 3, 7 };
	const uint64_t n = r * columns + c;
	unsigned v;

	switch (p) {
	case RSH_PACK_E4M3:
		return (float)value_of(in[n]);
	case RSH_PACK_E2M1:
		v = bits_at(in, 4 * n, 4);
		return v & 8 ? -fp4[v & 7] : fp4[v];
	case RSH_PACK_U4:
		return (float)bits_at(in, 4 * n, 4);
	case RSH_PACK_U8:
		return in[n];
	case RSH_PACK_AWQ:
		return (float)bits_at(in, 32 * (n / 8) + 4 * awq[n % 8], 4);
	case RSH_PACK_GPTQ:
		return (float)bits_at(in, 32 * (r / 8 * columns + c) +
					  4 * (r % 8), 4);
	case RSH_PACK_BF16:
	case RSH_PACK_F16:
	case RSH_PACK_F32:
		break; /* test_tensor_low_rank.c */
	}
	return 0;
}

static uint16_t half_of(float f)
{
	uint8_t in[4], out[2];

	memcpy(in, &f, sizeof(f));
	rsh_codec_decode(RSH_CODEC_F32_TO_F16, in, 4, out);
	return isnan(f) ? 0x7e00 : (uint16_t)(out[0] | out[1] << 8);
}

static float rounded(enum rsh_dtype to, float f)
{
	uint8_t in[2], out[4];
	const uint16_t h = to == RSH_DTYPE_FLOAT16 ? half_of(f) :
						     nearest_bf16(f);

	if (to != RSH_DTYPE_FLOAT16 && to != RSH_DTYPE_BFLOAT16)
		return f;
	in[0] = (uint8_t)h;
	in[1] = (uint8_t)(h >> 8);
	rsh_codec_decode(to == RSH_DTYPE_FLOAT16 ? RSH_CODEC_F16_TO_F32 :
			 RSH_CODEC_BF16_TO_F32, in, 2, out);
	memcpy(&f, out, sizeof(f));
	return f;
}

static void assert_made(const struct rsh_scaled *m, const uint8_t *out,
			float f)
{
	uint32_t got = 0, want;

	f = rounded(m->then, rounded(m->via, f));
	memcpy(&want, &f, sizeof(want));
	if (isnan(f))
		want = 0x7fc00000;
	if (m->to != RSH_DTYPE_FLOAT32)
		want = m->to == RSH_DTYPE_FLOAT16 ? half_of(f) :
						    nearest_bf16(f);
	for (unsigned i = rsh_dtype_size(m->to); i-- > 0;)
		got = got << 8 | out[i];
	if (got != want)
		fail_msg("%#x, not %#x (%a)", got, want, (double)f);
}

static enum rsh_dtype some_type(struct numbers *x)
{
	static const enum rsh_dtype types[] = {
		RSH_DTYPE_BFLOAT16, RSH_DTYPE_FLOAT16, RSH_DTYPE_FLOAT32,
	};

	return types[numbers_below(x, 3)];
}

static bool has_zeros(enum rsh_packing p)
{
	return p != RSH_PACK_E4M3 && p != RSH_PACK_E2M1;
}

/* A cell of a matrix of any packing, decoded from any unit on. */
static void some_cell(struct numbers *x)
{
	const enum rsh_packing p =
		(enum rsh_packing)numbers_below(x, RSH_PACK_GPTQ + 1);
	const bool gptq = p == RSH_PACK_GPTQ;
	uint32_t per, bytes, unit_rows;
	struct rsh_scaled m = {
		.packing = p, .via = some_type(x), .then = some_type(x),
		.to = some_type(x),
	};
	uint64_t n, first, down, across, at_unit;
	uint8_t *in, *out, *same, *zeros;
	uint32_t *groups;
	float *scales;

	rsh_packing_unit(p, &per, &bytes);
	m.rows = 1 + numbers_below(x, 20);
	unit_rows = rsh_packing_rows(p);
	m.rows *= unit_rows;
	m.columns = per * (1 + numbers_below(x, 40 + 160 / per));
	m.from[1] = numbers_below(x, 9) * unit_rows;
	m.from[2] = per * numbers_below(x, 9);
	m.block[0] = 1 + numbers_below(x, 9);
	m.block[1] = numbers_below(x, 3) ? 1 + numbers_below(x, 80) : 1;
	if (gptq)
		m.block[1] = 1;
	m.first_row = gptq ? 0 : m.from[1] / m.block[0];
	across = m.from[2] + m.columns;
	across = (across + m.block[1] - 1) / m.block[1];
	m.scale_columns = across;
	down = gptq ? 7 : (m.from[1] + m.rows - 1) / m.block[0] + 1;
	in = malloc(m.rows * m.columns / per * bytes);
	out = malloc(4 * m.rows * m.columns);
	same = malloc(4 * m.rows * m.columns);
	scales = malloc(down * across * sizeof(*scales));
	zeros = malloc(down * across);
	groups = malloc((m.from[1] + m.rows) * sizeof(*groups));
	for (uint64_t i = 0; i < m.rows * m.columns / per * bytes; i++)
		in[i] = (uint8_t)numbers_next(x);
	for (uint64_t i = 0; i < down * across; i++) {
		scales[i] = float_of(numbers_below(x, 8) ?
			0x30000000 + (uint32_t)numbers_below(x, 0x18000000) :
			(uint32_t)numbers_next(x));
		zeros[i] = (uint8_t)numbers_below(x, 17);
	}
	for (uint64_t i = 0; i < m.from[1] + m.rows; i++)
		groups[i] = (uint32_t)numbers_below(x, down);
	m.scales = scales;
	m.zero = has_zeros(p) ? 8 : 0;
	m.zeros = gptq || (has_zeros(p) && numbers_below(x, 2)) ? zeros : NULL;
	m.groups = gptq ? groups : NULL;
	first = numbers_below(x, m.rows * m.columns / per) * per;
	n = (1 + numbers_below(x, (m.rows * m.columns - first) / per)) * per;
	at_unit = first / per;
	if (gptq) {
		n = 1 + numbers_below(x, m.columns - first % m.columns);
		at_unit = first / m.columns / 8 * m.columns + first % m.columns;
	}
	rsh_scaled_decode(&m, first, in + at_unit * bytes, n, out);
	m.portably = true;
	rsh_scaled_decode(&m, first, in + at_unit * bytes, n, same);
	assert_memory_equal(out, same, n * rsh_dtype_size(m.to));
	for (uint64_t i = 0; i < n; i++) {
		uint64_t r = (first + i) / m.columns;
		uint64_t c = (first + i) % m.columns, at;
		float v;

		v = number_of(p, in, r, c, m.columns);
		at = (gptq ? groups[m.from[1] + r] :
		      (m.from[1] + r) / m.block[0] - m.first_row) * across +
		     (m.from[2] + c) / m.block[1];
		if (has_zeros(p))
			v -= m.zeros ? zeros[at] : m.zero;
		assert_made(&m, out + i * rsh_dtype_size(m.to),
			    v * scales[at]);
	}
	free(in);
	free(out);
	free(same);
	free(scales);
	free(zeros);
	free(groups);
}

TEST(test_packings)
{
	struct numbers x = { numbers_seed() };

	for (int i = 0; i < rounds(3000); i++)
		some_cell(&x);
}

/* A plane of a stack begins at its own row of the whole. */
TEST(test_planes)
{
	const struct rsh_scaled m = {
		.rows = 3, .columns = 4, .plane_rows = 10, .from = { 2, 5, 0 },
	};

	assert_int_equal(rsh_scaled_row(&m, 0), 25);
	assert_int_equal(rsh_scaled_row(&m, 11), 27);
	assert_int_equal(rsh_scaled_row(&m, 12), 35);
}

/* Each of the two blocks of a row, of seven of the whole, is a row. */
TEST(test_parts_of_blocks)
{
	const struct rsh_scaled m = {
		.rows = 3, .columns = 4, .plane_rows = 10, .from = { 2, 5, 8 },
		.parts = 2, .first_part = 3, .row_parts = 7,
	};

	assert_int_equal(rsh_scaled_row(&m, 0), 25 * 7 + 3);
	assert_int_equal(rsh_scaled_row(&m, 7), 25 * 7 + 4);
	assert_int_equal(rsh_scaled_row(&m, 8), 26 * 7 + 3);
	assert_int_equal(rsh_scaled_row(&m, 24), 35 * 7 + 3);
}

TEST(test_scales_widen)
{
	static const uint8_t e8m0[] = { 0, 1, 0x7f, 0xfe, 0xff };
	static const uint8_t bf16[] = { 0x30, 0x3c }, f16[] = { 0x1f, 0x21 };
	static const uint8_t e4m3[] = { 0x5a };
	float f[5];

	rsh_scaled_widen(RSH_DTYPE_FLOAT8E8M0, e8m0, 5, f);
	assert_true(f[0] == 0x1p-127f && f[1] == 0x1p-126f && f[2] == 1 &&
		    f[3] == 0x1p127f && isnan(f[4]));
	rsh_scaled_widen(RSH_DTYPE_BFLOAT16, bf16, 1, f);
	assert_true(f[0] == float_of(0x3c300000));
	rsh_scaled_widen(RSH_DTYPE_FLOAT16, f16, 1, f);
	assert_true(f[0] == 0x1.47cp-7f);
	rsh_scaled_widen(RSH_DTYPE_FLOAT8E4M3FN, e4m3, 1, f);
	assert_true(f[0] == 20);
}

TEST(test_zeros_unpack)
{
	/* The word 0x76543210. */
	static const uint8_t word[] = { 0x10, 0x32, 0x54, 0x76 };
	static const uint8_t plain[] = { 0, 1, 2, 3, 4, 5, 6, 7 };
	static const uint8_t awq[] = { 0, 4, 1, 5, 2, 6, 3, 7 };
	uint8_t out[8];

	rsh_scaled_unpack_zeros(RSH_ZEROS_COLUMNS, 4, word, 1, 8, out);
	assert_memory_equal(out, plain, 8);
	rsh_scaled_unpack_zeros(RSH_ZEROS_AWQ, 4, word, 1, 8, out);
	assert_memory_equal(out, awq, 8);
	rsh_scaled_unpack_zeros(RSH_ZEROS_ROWS, 4, word, 8, 1, out);
	assert_memory_equal(out, plain, 8);
	rsh_scaled_unpack_zeros(RSH_ZEROS_ROWS, 8, word, 4, 1, out);
	assert_memory_equal(out, word, 4);
}
