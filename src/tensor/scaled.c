/* SPDX-License-Identifier: Apache-2.0 */
/* tensor/scaled.c multiplies Float8 by the scales of their blocks, one run of
 * elements with the same scale at a time. */
#include "config.h"

#include "rsh/tensor/scaled.h"

#include <string.h>

#include "rsh/util/checked.h"

#define BF16_NAN 0x7fc0u

/* This many elements are computed together as vectors of the compiler, which
 * maps them to the processor's instructions. */
#define TOGETHER 4

typedef uint8_t bytes4 __attribute__((vector_size(4)));
typedef uint16_t halves4 __attribute__((vector_size(8)));
typedef uint32_t words4 __attribute__((vector_size(16)));
typedef int32_t ints4 __attribute__((vector_size(16)));
typedef float floats4 __attribute__((vector_size(16)));

static float load_scale(const uint8_t *p)
{
	const uint32_t bits = p[0] | (uint32_t)p[1] << 8 |
			      (uint32_t)p[2] << 16 | (uint32_t)p[3] << 24;
	float f;

	memcpy(&f, &bits, sizeof(f));
	return f;
}

/* The exponent biases of the two types differ by 120.  Subnormal numbers are
 * multiples of 2 to the power of -9. */
static inline floats4 scaled_from_e4m3(words4 v)
{
	const words4 low = v & 0x7f, sign = (v & 0x80) << 24;
	const floats4 few = __builtin_convertvector((ints4)low, floats4) *
			    0x1p-9f;
	const words4 is_few = (words4)((ints4)low < 8);
	const words4 is_nan = (words4)((ints4)low == 0x7f);
	const words4 normal = (low << 20) + (UINT32_C(120) << 23);

	return (floats4)(((words4)few & is_few) | (normal & ~is_few) | sign |
			 (is_nan & UINT32_C(0x7fc00000)));
}

static inline words4 scaled_to_bf16(floats4 value)
{
	const words4 f = (words4)value;
	const words4 is_nan = (words4)((ints4)(f & 0x7fffffff) > 0x7f800000);
	const words4 rounded = (f + 0x7fff + (f >> 16 & 1)) >> 16;

	return (rounded & ~is_nan) | (is_nan & BF16_NAN);
}

static inline void scaled_four(const uint8_t *in, float scale, uint8_t *out)
{
	floats4 value;
	halves4 made;
	bytes4 v;

	memcpy(&v, in, sizeof(v));
	value = scaled_from_e4m3(__builtin_convertvector(v, words4)) * scale;
	made = __builtin_convertvector(scaled_to_bf16(value), halves4);
#if __BYTE_ORDER__ == __ORDER_BIG_ENDIAN__
	made = made << 8 | made >> 8;
#endif
	memcpy(out, &made, sizeof(made));
}

static void scaled_run(const uint8_t *in, uint64_t n, float scale, uint8_t *out)
{
	uint8_t rest[TOGETHER] = { 0 }, made[2 * TOGETHER];

	for (; n >= TOGETHER; n -= TOGETHER) {
		scaled_four(in, scale, out);
		in += TOGETHER;
		out += 2 * TOGETHER;
	}
	if (n == 0)
		return;
	memcpy(rest, in, n);
	scaled_four(rest, scale, made);
	memcpy(out, made, 2 * n);
}

void rsh_scaled_decode(const struct rsh_scaled *m, uint64_t first,
		       const uint8_t *in, uint64_t n, uint8_t *out)
{
	uint64_t row = first / m->columns, column = first % m->columns;

	while (n) {
		const uint64_t block = column / m->block[1];
		const uint64_t end = rsh_min_u64((block + 1) * m->block[1],
						 m->columns);
		const uint64_t run = rsh_min_u64(n, end - column);
		const uint64_t at = row / m->block[0] * m->scale_columns +
				    block;

		scaled_run(in, run, load_scale(m->scales + 4 * at), out);
		in += run;
		out += 2 * run;
		n -= run;
		column += run;
		if (column == m->columns) {
			column = 0;
			row++;
		}
	}
}
