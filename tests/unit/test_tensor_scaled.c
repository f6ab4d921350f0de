/* SPDX-License-Identifier: Apache-2.0 */
/* Float8 with scales: every byte with scales of all kinds, and blocks that are
 * cut short. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

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
	uint8_t in[256], out[512], scales[4];
	struct rsh_scaled m = { 256, { 1, 256 }, scales, 1 };

	memcpy(scales, &scale, sizeof(scale));
	for (int i = 0; i < 256; i++)
		in[i] = (uint8_t)i;
	rsh_scaled_decode(&m, 0, in, 256, out);
	for (int i = 0; i < 256; i++)
		assert_half(out + 2 * i, (uint8_t)i, scale);
}

static void test_every_byte(void **state)
{
	static const float plain[] = {
		1, -1, 0, -0.0f, 0.5f, 1.0f / 3, 0x1.01p-7f, 0x1.018p0f,
		0x1.ffp127f, 0x1p-126f, 0x1p-133f, 0x1p-149f, 0x1p120f,
		INFINITY, -INFINITY, NAN,
	};
	struct numbers x = { numbers_seed() };

	(void)state;
	for (size_t i = 0; i < sizeof(plain) / sizeof(*plain); i++)
		every_byte(plain[i]);
	for (int i = 0; i < 2000; i++)
		every_byte(float_of((uint32_t)numbers_next(&x)));
}

static void some_matrix(struct numbers *x)
{
	const uint64_t rows = 1 + numbers_below(x, 40);
	const uint64_t columns = 1 + numbers_below(x, 60);
	struct rsh_scaled m = {
		.columns = columns,
		.block = { 1 + numbers_below(x, 20), 1 + numbers_below(x, 20) },
	};
	const uint64_t down = (rows + m.block[0] - 1) / m.block[0];
	const uint64_t first = numbers_below(x, rows * columns);
	const uint64_t n = 1 + numbers_below(x, rows * columns - first);
	uint8_t *in = malloc(n), *out = malloc(2 * n);
	float *scales;

	m.scale_columns = (columns + m.block[1] - 1) / m.block[1];
	scales = malloc(down * m.scale_columns * sizeof(*scales));
	m.scales = (const uint8_t *)scales;
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

static void test_blocks(void **state)
{
	struct numbers x = { numbers_seed() };

	(void)state;
	for (int i = 0; i < 2000; i++)
		some_matrix(&x);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_every_byte),
		cmocka_unit_test(test_blocks),
	};

	return cmocka_run_group_tests_name("tensor_scaled", tests, NULL, NULL);
}
