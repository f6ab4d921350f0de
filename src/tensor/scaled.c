/* SPDX-License-Identifier: Apache-2.0 */
/* tensor/scaled.c converts quantised elements to floating point, in steps of
 * some elements: numbers as Float32, times scales, rounded, stored.  Each stage
 * is a loop over vectors of the compiler, which maps them to the processor's
 * instructions. */
#include "config.h"

#include "rsh/tensor/scaled.h"

#include <string.h>

#include "rsh/tensor/codec.h"
#include "rsh/util/checked.h"
#include "scaled_i.h"

#define BF16_NAN 0x7fc0u
#define F16_NAN 0x7e00u
#define F32_NAN UINT32_C(0x7fc00000)
#define INFINITE UINT32_C(0x7f800000)

/* Elements of a stage: a multiple of the vectors and of all units. */
#define STEP 128
#define TOGETHER 4
/* A step has several blocks if these are smaller. */
#define BLOCK_LEAST 16

typedef uint8_t bytes4 __attribute__((vector_size(4)));
typedef uint16_t halves4 __attribute__((vector_size(8)));
typedef uint32_t words4 __attribute__((vector_size(16)));
typedef int32_t ints4 __attribute__((vector_size(16)));
typedef float floats4 __attribute__((vector_size(16)));

/* The numbers of a step.  There is room for a last vector. */
struct step {
	float v[STEP + TOGETHER];
};

/* ---- small numbers ---- */

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
			 (is_nan & F32_NAN));
}

static void scaled_e4m3(const uint8_t *in, uint64_t n, float *out)
{
	for (uint64_t i = 0; i < n; i += TOGETHER) {
		bytes4 v = { 0 };
		floats4 value;

		/* A constant size is one instruction. */
		if (n - i >= TOGETHER)
			memcpy(&v, in + i, sizeof(v));
		else
			memcpy(&v, in + i, n - i);
		value = scaled_from_e4m3(__builtin_convertvector(v, words4));
		memcpy(out + i, &value, sizeof(value));
	}
}

static const float scaled_e2m1[16] = {
	0, 0.5f, 1, 1.5f, 2, 3, 4, 6,
	-0.0f, -0.5f, -1, -1.5f, -2, -3, -4, -6,
};

static const float scaled_u4[16] = {
	0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15,
};

static void scaled_nibbles(const float *values, const uint8_t *in, uint64_t n,
			   float *out)
{
	for (uint64_t i = 0; i < n; i += 2) {
		out[i] = values[in[i / 2] & 15];
		out[i + 1] = values[in[i / 2] >> 4];
	}
}

/* The bits of a word from which AWQ's columns 0 to 7 come, divided by 4. */
static const uint8_t scaled_awq_order[8] = { 0, 4, 1, 5, 2, 6, 3, 7 };

static void scaled_numbers(enum rsh_packing p, const uint8_t *in, uint64_t row,
			   uint64_t n, float *out)
{
	switch (p) {
	case RSH_PACK_E4M3:
		scaled_e4m3(in, n, out);
		break;
	case RSH_PACK_E2M1:
		scaled_nibbles(scaled_e2m1, in, n, out);
		break;
	case RSH_PACK_U4:
		scaled_nibbles(scaled_u4, in, n, out);
		break;
	case RSH_PACK_GPTQ:
		/* Each word has a number of this row. */
		for (uint64_t i = 0; i < n; i++)
			out[i] = in[4 * i + row % 8 / 2] >> 4 * (row % 2) & 15;
		break;
	case RSH_PACK_U8:
		for (uint64_t i = 0; i < n; i++)
			out[i] = in[i];
		break;
	case RSH_PACK_AWQ:
		for (uint64_t i = 0; i < n; i++) {
			const unsigned k = scaled_awq_order[i % 8];

			out[i] = in[i / 8 * 4 + k / 2] >> 4 * (k % 2) & 15;
		}
		break;
	case RSH_PACK_BF16:
	case RSH_PACK_F16:
	case RSH_PACK_F32:
		rsh_scaled_widen(rsh_packing_type(p), in, n, out);
		break;
	}
}

/* ---- scales ---- */

static bool scaled_is_integer(enum rsh_packing p)
{
	return p != RSH_PACK_E4M3 && p != RSH_PACK_E2M1;
}

/* Numbers below 512 and their differences are exact. */
static void scaled_by_one(const struct rsh_scaled *m, uint64_t at, uint64_t n,
			  float *v)
{
	const float scale = m->scales[at];
	const float zero = m->zeros ? m->zeros[at] : m->zero;
	const bool is_integer = scaled_is_integer(m->packing);

	for (uint64_t i = 0; i < n; i += TOGETHER) {
		floats4 x;

		memcpy(&x, v + i, sizeof(x));
		/* -0 minus 0 would be +0 only for integers. */
		if (is_integer)
			x -= zero;
		x *= scale;
		memcpy(v + i, &x, sizeof(x));
	}
}

/* Each column has its own scale. */
static void scaled_by_columns(const struct rsh_scaled *m, uint64_t at,
			      uint64_t n, float *v)
{
	const bool is_integer = scaled_is_integer(m->packing);

	for (uint64_t i = 0; i < n; i++) {
		if (is_integer)
			v[i] -= m->zeros ? m->zeros[at + i] : m->zero;
		v[i] *= m->scales[at + i];
	}
}

/* Multiplies n elements of one row of the whole, from column c on. */
static void scaled_row(const struct rsh_scaled *m, uint64_t row, uint64_t c,
		       uint64_t n, float *v)
{
	while (n) {
		const uint64_t run = rsh_min_u64(n, rsh_scaled_stretch(m, c));
		const uint64_t at = rsh_scaled_at(m, row, c);

		if (m->block[1] == 1) {
			scaled_by_columns(m, at, run, v);
		} else {
			/* The last vector may change numbers that follow, which
			 * are computed again. */
			float after[TOGETHER];

			memcpy(after, v + run, sizeof(after));
			scaled_by_one(m, at, run, v);
			memcpy(v + run, after, sizeof(after));
		}
		v += run;
		c += run;
		n -= run;
	}
}

/* ---- rounding ---- */

static inline words4 scaled_is_nan(words4 f)
{
	return (words4)((ints4)(f & 0x7fffffff) > (ints4){
		INFINITE, INFINITE, INFINITE, INFINITE });
}

static inline words4 scaled_choose(words4 if_true, words4 is, words4 if_not)
{
	return (if_true & is) | (if_not & ~is);
}

static inline words4 scaled_to_bf16(words4 f)
{
	const words4 rounded = (f + 0x7fff + (f >> 16 & 1)) >> 16;
	const words4 nan = { BF16_NAN, BF16_NAN, BF16_NAN, BF16_NAN };

	return scaled_choose(nan, scaled_is_nan(f), rounded);
}

/* Normal numbers lose 13 bits; a carry increments the exponent.  Subnormal
 * numbers are multiples of 2 to the power of -24, as the sum with 0.5 is. */
static inline words4 scaled_to_f16(words4 f)
{
	const words4 abs = f & 0x7fffffff, sign = (f >> 16) & 0x8000;
	const words4 normal = ((abs + 0xfff + (abs >> 13 & 1)) >> 13) -
			      (UINT32_C(112) << 10);
	const floats4 sum = (floats4)abs + 0.5f;
	const words4 few = (words4)sum - UINT32_C(0x3f000000);
	const words4 is_few = (words4)((ints4)abs < 0x38800000);
	/* From 65520 on. */
	const words4 is_large = (words4)((ints4)abs >= 0x477ff000);
	const words4 nan = { F16_NAN, F16_NAN, F16_NAN, F16_NAN };
	const words4 infinite = { 0x7c00, 0x7c00, 0x7c00, 0x7c00 };
	words4 made = scaled_choose(few, is_few, normal);

	made = scaled_choose(infinite, is_large, made) | sign;
	return scaled_choose(nan, scaled_is_nan(f), made);
}

/* Every Float16 is exact as Float32. */
static inline words4 scaled_from_f16(words4 h)
{
	const words4 sign = (h & 0x8000) << 16, low = h & 0x7fff;
	const words4 normal = (low << 13) + (UINT32_C(112) << 23);
	const words4 few = (words4)(__builtin_convertvector((ints4)low,
							    floats4) *
				    0x1p-24f);
	const words4 is_few = (words4)((ints4)low < 0x400);
	const words4 is_large = (words4)((ints4)low >= 0x7c00);
	const words4 large = INFINITE | (low & 0x3ff) << 13;

	return scaled_choose(large, is_large,
			     scaled_choose(few, is_few, normal)) | sign;
}

static void scaled_round(enum rsh_dtype to, uint64_t n, float *v)
{
	for (uint64_t i = 0; i < n; i += TOGETHER) {
		words4 f;

		memcpy(&f, v + i, sizeof(f));
		f = to == RSH_DTYPE_BFLOAT16 ?
			scaled_to_bf16(f) << 16 :
			scaled_from_f16(scaled_to_f16(f));
		memcpy(v + i, &f, sizeof(f));
	}
}

static void scaled_store_halves(enum rsh_dtype to, const float *v, uint64_t n,
				uint8_t *out)
{
	for (uint64_t i = 0; i < n; i += TOGETHER) {
		halves4 made;
		words4 f;

		memcpy(&f, v + i, sizeof(f));
		f = to == RSH_DTYPE_BFLOAT16 ? scaled_to_bf16(f) :
					       scaled_to_f16(f);
		made = __builtin_convertvector(f, halves4);
#if __BYTE_ORDER__ == __ORDER_BIG_ENDIAN__
		made = made << 8 | made >> 8;
#endif
		if (n - i >= TOGETHER)
			memcpy(out + 2 * i, &made, sizeof(made));
		else
			memcpy(out + 2 * i, &made, 2 * (n - i));
	}
}

static void scaled_store_words(const float *v, uint64_t n, uint8_t *out)
{
	for (uint64_t i = 0; i < n; i += TOGETHER) {
		const words4 nan = { F32_NAN, F32_NAN, F32_NAN, F32_NAN };
		words4 f;

		memcpy(&f, v + i, sizeof(f));
		f = scaled_choose(nan, scaled_is_nan(f), f);
#if __BYTE_ORDER__ == __ORDER_BIG_ENDIAN__
		f = f >> 24 | (f >> 8 & 0xff00) | (f << 8 & 0xff0000) | f << 24;
#endif
		if (n - i >= TOGETHER)
			memcpy(out + 4 * i, &f, sizeof(f));
		else
			memcpy(out + 4 * i, &f, 4 * (n - i));
	}
}

/* ---- decoding ---- */

/* Adds the adapters to n elements of a row, from column c on. */
static void scaled_merge(const struct rsh_scaled *m, uint64_t row, uint64_t c,
			 uint64_t n, float *v)
{
	const struct rsh_merge *all = &m->merge;
	const bool rounds = rsh_scaled_is_step(m->then, RSH_DTYPE_FLOAT32);
	const float *at = all->factors;
	struct step more;

	memset(more.v + n, 0, sizeof(float[TOGETHER]));
	if (rounds)
		scaled_round(m->then, n, v);
	for (uint32_t i = 0; i < all->n; i++) {
		const struct rsh_low_rank *by = &all->by[i];
		const float *columns = at + all->n_rows * by->rank;

		rsh_low_rank_product(at + (row - all->first_row) * by->rank,
				     columns + (c - all->first_column),
				     all->n_columns, by->rank, n, more.v);
		rsh_low_rank_scale(by->scale, n, more.v);
		if (rounds && by->rounds)
			scaled_round(m->then, n, more.v);
		rsh_low_rank_add(more.v, n, v);
		if (rounds)
			scaled_round(m->then, n, v);
		at = columns + by->rank * all->n_columns;
	}
}

uint64_t rsh_scaled_row(const struct rsh_scaled *m, uint64_t n)
{
	const uint64_t line = n / m->columns;
	const uint64_t row = m->parts ? line / m->parts : line;
	const uint64_t whole = (m->from[0] + row / m->rows) * m->plane_rows +
			       m->from[1] + row % m->rows;

	return !m->parts ? whole :
		whole * m->row_parts + m->first_part + line % m->parts;
}

/* Returns how many elements are decoded in one step.  A step ends with a block,
 * or with its last unit, so that the next one begins with whole vectors.
 * Elements that are not quantised have no blocks (0). */
static uint64_t scaled_part(const struct rsh_scaled *m, uint64_t c, uint64_t n,
			    uint32_t per)
{
	n = rsh_min_u64(n, STEP);
	if (m->block[1] < BLOCK_LEAST)
		return n;
	return rsh_min_u64(n, (rsh_scaled_stretch(m, c) + per - 1) / per * per);
}

/* Decodes up to STEP elements of one row of the whole. */
static void scaled_step(const struct rsh_scaled *m, uint64_t row, uint64_t c,
			uint64_t n, const uint8_t *in, uint8_t *out)
{
	struct step s;

	/* Bits of an unfinished last vector are not used, but must be
	 * numbers. */
	memset(s.v + n, 0, sizeof(float[TOGETHER]));
	scaled_numbers(m->packing, in, row, n, s.v);
	if (!rsh_packing_is_plain(m->packing))
		scaled_row(m, row, c, n, s.v);
	if (rsh_scaled_is_step(m->via, m->then))
		scaled_round(m->via, n, s.v);
	if (rsh_packing_is_plain(m->packing) || m->merge.n)
		scaled_merge(m, row, c, n, s.v);
	if (rsh_scaled_is_step(m->then, m->to))
		scaled_round(m->then, n, s.v);
	if (m->to == RSH_DTYPE_FLOAT32)
		scaled_store_words(s.v, n, out);
	else
		scaled_store_halves(m->to, s.v, n, out);
}

/* Decodes what the processor's instructions can, of n elements of a row.
 * Returns how many. */
static uint64_t scaled_by_processor(const struct rsh_scaled *m, uint64_t row,
				    uint64_t c, uint64_t n, const uint8_t *in,
				    uint8_t *out)
{
#ifdef __x86_64__
	if (!m->portably && rsh_scaled_x86_can())
		return rsh_scaled_x86(m, row, c, n, in, out);
#endif
	(void)m;
	(void)row;
	(void)c;
	(void)n;
	(void)in;
	(void)out;
	return 0;
}

void rsh_scaled_decode(const struct rsh_scaled *m, uint64_t first,
		       const uint8_t *in, uint64_t n, uint8_t *out)
{
	const unsigned width = rsh_dtype_size(m->to);
	uint32_t per, bytes;

	rsh_packing_unit(m->packing, &per, &bytes);
	if (rsh_packing_is_plain(m->packing) && !m->merge.n &&
	    rsh_packing_type(m->packing) == m->then) {
		/* Copies and casts keep the bits of a NaN. */
		if (m->then == m->to)
			memcpy(out, in, n * bytes);
		else
			rsh_codec_decode(rsh_codec_cast(m->then, false, m->to),
					 in, n * bytes, out);
		return;
	}
	while (n) {
		const uint64_t c = first % m->columns;
		const uint64_t row = rsh_scaled_row(m, first);
		const uint64_t left = rsh_min_u64(n, m->columns - c);
		uint64_t part = scaled_by_processor(m, row, m->from[2] + c,
						    left, in, out);

		if (!part) {
			part = scaled_part(m, m->from[2] + c, left, per);
			scaled_step(m, row, m->from[2] + c, part, in, out);
		}
		in += part / per * bytes;
		out += part * width;
		first += part;
		n -= part;
	}
}

/* ---- scales and zero points as they are stored ---- */

static float scaled_float(uint32_t bits)
{
	float f;

	memcpy(&f, &bits, sizeof(f));
	return f;
}

static uint32_t scaled_load(const uint8_t *in, unsigned bytes)
{
	uint32_t v = 0;

	while (bytes-- > 0)
		v = v << 8 | in[bytes];
	return v;
}

static float scaled_widen_one(enum rsh_dtype type, const uint8_t *in)
{
	words4 v;

	switch (type) {
	case RSH_DTYPE_FLOAT32:
		return scaled_float(scaled_load(in, 4));
	case RSH_DTYPE_BFLOAT16:
		return scaled_float(scaled_load(in, 2) << 16);
	case RSH_DTYPE_FLOAT16:
		v = (words4){ scaled_load(in, 2) };
		return ((floats4)scaled_from_f16(v))[0];
	case RSH_DTYPE_FLOAT8E4M3FN:
		v = (words4){ *in };
		return scaled_from_e4m3(v)[0];
	default: /* E8M0: 0 is subnormal, 2 to the power of -127 */
		return scaled_float(*in == 0 ? UINT32_C(0x400000) :
				    *in == 255 ? F32_NAN :
						 (uint32_t)*in << 23);
	}
}

/* Converts vectors of numbers of 2 bytes, and returns how many these have. */
static uint64_t scaled_widen_halves(enum rsh_dtype type, const uint8_t *in,
				    uint64_t n, float *out)
{
	uint64_t i = 0;

	for (; n - i >= TOGETHER; i += TOGETHER) {
		halves4 v;
		words4 f;

		memcpy(&v, in + 2 * i, sizeof(v));
#if __BYTE_ORDER__ == __ORDER_BIG_ENDIAN__
		v = v << 8 | v >> 8;
#endif
		f = __builtin_convertvector(v, words4);
		f = type == RSH_DTYPE_BFLOAT16 ? f << 16 : scaled_from_f16(f);
		memcpy(out + i, &f, sizeof(f));
	}
	return i;
}

void rsh_scaled_widen(enum rsh_dtype type, const uint8_t *in, uint64_t n,
		      float *out)
{
	const unsigned width = rsh_dtype_size(type);
	uint64_t i = 0;

	if (type == RSH_DTYPE_BFLOAT16 || type == RSH_DTYPE_FLOAT16)
		i = scaled_widen_halves(type, in, n, out);
	for (; i < n; i++)
		out[i] = scaled_widen_one(type, in + i * width);
}

void rsh_scaled_unpack_zeros(enum rsh_zeros_packing p, unsigned bits,
			     const uint8_t *in, uint64_t n_rows,
			     uint64_t n_columns, uint8_t *out)
{
	const unsigned per = 32 / bits;
	const uint64_t words = p == RSH_ZEROS_ROWS ? n_columns :
						     n_columns / per;

	for (uint64_t r = 0; r < n_rows; r++)
		for (uint64_t c = 0; c < n_columns; c++) {
			const uint64_t word = p == RSH_ZEROS_ROWS ?
				r / per * words + c : r * words + c / per;
			const unsigned at = (unsigned)(p == RSH_ZEROS_ROWS ?
				r % per : p == RSH_ZEROS_AWQ ?
				scaled_awq_order[c % per] : c % per);

			*out++ = (uint8_t)(scaled_load(in + 4 * word, 4) >>
					   at * bits & ((1u << bits) - 1));
		}
}
