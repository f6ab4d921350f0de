/* SPDX-License-Identifier: Apache-2.0 */
/* tensor/codec.c converts stored elements to those of the virtual file. */
#include <string.h>

#include "rsh/tensor/codec.h"

#define BF16_NAN 0x7fc0u
#define F16_NAN 0x7e00u

static const struct {
	uint8_t in, out; /* bytes an element */
} units[RSH_CODEC_COUNT] = {
	[RSH_CODEC_NONE] = { 1, 1 },
	[RSH_CODEC_BF16_WIDE] = { 4, 2 },
	[RSH_CODEC_BF16_NAN] = { 2, 2 },
	[RSH_CODEC_BF16_WIDE_NAN] = { 4, 2 },
	[RSH_CODEC_BF16_TO_F16] = { 2, 2 },
	[RSH_CODEC_BF16_TO_F32] = { 2, 4 },
	[RSH_CODEC_WIDE_TO_F16] = { 4, 2 },
	[RSH_CODEC_WIDE_TO_F32] = { 4, 4 },
	[RSH_CODEC_F16_TO_BF16] = { 2, 2 },
	[RSH_CODEC_F16_TO_F32] = { 2, 4 },
	[RSH_CODEC_F32_TO_BF16] = { 4, 2 },
	[RSH_CODEC_F32_TO_F16] = { 4, 2 },
	[RSH_CODEC_BF16_ADD] = { 2, 2 },
	[RSH_CODEC_F16_ADD] = { 2, 2 },
	[RSH_CODEC_F32_ADD] = { 4, 4 },
	[RSH_CODEC_BF16_SUB] = { 2, 2 },
	[RSH_CODEC_F16_SUB] = { 2, 2 },
	[RSH_CODEC_F32_SUB] = { 4, 4 },
	[RSH_CODEC_SCALED_BF16] = { 1, 2 },
	[RSH_CODEC_SCALED_F16] = { 1, 2 },
	[RSH_CODEC_SCALED_F32] = { 1, 4 },
};

void rsh_codec_units(enum rsh_codec codec, uint32_t *in, uint32_t *out)
{
	*in = units[codec].in;
	*out = units[codec].out;
}

bool rsh_codec_is_scaled(enum rsh_codec codec)
{
	return codec == RSH_CODEC_SCALED_BF16 ||
	       codec == RSH_CODEC_SCALED_F16 || codec == RSH_CODEC_SCALED_F32;
}

enum rsh_codec rsh_codec_scaled(enum rsh_dtype to)
{
	return to == RSH_DTYPE_BFLOAT16 ? RSH_CODEC_SCALED_BF16 :
	       to == RSH_DTYPE_FLOAT16 ? RSH_CODEC_SCALED_F16 :
	       to == RSH_DTYPE_FLOAT32 ? RSH_CODEC_SCALED_F32 : RSH_CODEC_COUNT;
}

enum rsh_dtype rsh_codec_scaled_type(enum rsh_codec codec)
{
	return codec == RSH_CODEC_SCALED_BF16 ? RSH_DTYPE_BFLOAT16 :
	       codec == RSH_CODEC_SCALED_F16 ? RSH_DTYPE_FLOAT16 :
					       RSH_DTYPE_FLOAT32;
}

enum rsh_codec rsh_codec_cast(enum rsh_dtype from, bool wide, enum rsh_dtype to)
{
	if (from == RSH_DTYPE_BFLOAT16 && to == RSH_DTYPE_FLOAT16)
		return wide ? RSH_CODEC_WIDE_TO_F16 : RSH_CODEC_BF16_TO_F16;
	if (from == RSH_DTYPE_BFLOAT16 && to == RSH_DTYPE_FLOAT32)
		return wide ? RSH_CODEC_WIDE_TO_F32 : RSH_CODEC_BF16_TO_F32;
	if (from == RSH_DTYPE_FLOAT16 && to == RSH_DTYPE_BFLOAT16)
		return RSH_CODEC_F16_TO_BF16;
	if (from == RSH_DTYPE_FLOAT16 && to == RSH_DTYPE_FLOAT32)
		return RSH_CODEC_F16_TO_F32;
	if (from == RSH_DTYPE_FLOAT32 && to == RSH_DTYPE_BFLOAT16)
		return RSH_CODEC_F32_TO_BF16;
	if (from == RSH_DTYPE_FLOAT32 && to == RSH_DTYPE_FLOAT16)
		return RSH_CODEC_F32_TO_F16;
	return RSH_CODEC_COUNT;
}

enum rsh_codec rsh_codec_add(enum rsh_dtype type, int n)
{
	if (type == RSH_DTYPE_BFLOAT16)
		return n > 0 ? RSH_CODEC_BF16_ADD : RSH_CODEC_BF16_SUB;
	if (type == RSH_DTYPE_FLOAT16)
		return n > 0 ? RSH_CODEC_F16_ADD : RSH_CODEC_F16_SUB;
	if (type == RSH_DTYPE_FLOAT32)
		return n > 0 ? RSH_CODEC_F32_ADD : RSH_CODEC_F32_SUB;
	return RSH_CODEC_COUNT;
}

static uint16_t load16(const uint8_t *p)
{
	return (uint16_t)(p[0] | p[1] << 8);
}

static uint32_t load32(const uint8_t *p)
{
	return load16(p) | (uint32_t)load16(p + 2) << 16;
}

static void store16(uint8_t *p, uint16_t v)
{
	p[0] = (uint8_t)v;
	p[1] = (uint8_t)(v >> 8);
}

static void store32(uint8_t *p, uint32_t v)
{
	store16(p, (uint16_t)v);
	store16(p + 2, (uint16_t)(v >> 16));
}

/* Returns a bfloat16 after a conversion to float32 and back. */
static uint16_t canonical(uint16_t v)
{
	return (v & 0x7fff) > 0x7f80 ? BF16_NAN : v;
}

/* ---- from and to the bits of a float32 ---- */

static uint32_t from_f16(uint16_t h)
{
	uint32_t sign = (uint32_t)(h & 0x8000) << 16;
	uint32_t exponent = h >> 10 & 31, fraction = h & 0x3ff;

	if (exponent == 31)
		return sign | 0x7f800000 | fraction << 13;
	if (exponent)
		return sign | (exponent + 112) << 23 | fraction << 13;
	if (!fraction)
		return sign;
	/* A subnormal half is a normal number as a float. */
	for (exponent = 113; !(fraction & 0x400); exponent--)
		fraction <<= 1;
	return sign | exponent << 23 | (fraction & 0x3ff) << 13;
}

static uint16_t to_bf16(uint32_t f)
{
	if ((f & 0x7fffffff) > 0x7f800000)
		return BF16_NAN;
	return (uint16_t)((f + 0x7fff + (f >> 16 & 1)) >> 16);
}

static uint16_t to_f16(uint32_t f)
{
	uint16_t sign = (uint16_t)(f >> 16 & 0x8000);
	uint32_t exponent = f >> 23 & 255, fraction = f & 0x7fffff;
	uint32_t shift, half, rest;

	if (exponent == 255 && fraction)
		return sign | F16_NAN;
	if (exponent >= 143) /* 65536 and more, and infinity */
		return sign | 0x7c00;
	if (exponent >= 113) {
		half = (exponent - 112) << 10 | fraction >> 13;
		rest = fraction & 0x1fff;
		shift = 13;
	} else if (exponent >= 102) {
		/* The result is subnormal: the hidden bit becomes explicit. */
		fraction |= 0x800000;
		shift = 126 - exponent;
		half = fraction >> shift;
		rest = fraction & ((1u << shift) - 1);
	} else {
		return sign;
	}
	/* A carry out of the fraction increments the exponent, up to infinity,
	 * as it should. */
	if (rest > 1u << (shift - 1) ||
	    (rest == 1u << (shift - 1) && (half & 1)))
		half++;
	return (uint16_t)(sign | half);
}

/* Adds to the bits of a float32. */
static uint32_t sum(uint32_t f, float n)
{
	float x;

	memcpy(&x, &f, sizeof(x));
	x += n;
	memcpy(&f, &x, sizeof(f));
	return f;
}

/* ---- decoding ---- */

static void decode_one(enum rsh_codec codec, const uint8_t *in, uint8_t *out)
{
	switch (codec) {
	case RSH_CODEC_NONE:
	case RSH_CODEC_SCALED_BF16:
	case RSH_CODEC_SCALED_F16:
	case RSH_CODEC_SCALED_F32:
	case RSH_CODEC_COUNT:
		break;
	case RSH_CODEC_BF16_WIDE:
		store16(out, load16(in + 2));
		break;
	case RSH_CODEC_BF16_NAN:
		store16(out, canonical(load16(in)));
		break;
	case RSH_CODEC_BF16_WIDE_NAN:
		store16(out, canonical(load16(in + 2)));
		break;
	case RSH_CODEC_BF16_TO_F16:
		store16(out, to_f16((uint32_t)load16(in) << 16));
		break;
	case RSH_CODEC_WIDE_TO_F16:
		store16(out, to_f16((uint32_t)load16(in + 2) << 16));
		break;
	case RSH_CODEC_BF16_TO_F32:
		store32(out, (uint32_t)load16(in) << 16);
		break;
	case RSH_CODEC_WIDE_TO_F32:
		store32(out, (uint32_t)load16(in + 2) << 16);
		break;
	case RSH_CODEC_F16_TO_BF16:
		store16(out, to_bf16(from_f16(load16(in))));
		break;
	case RSH_CODEC_F16_TO_F32:
		store32(out, from_f16(load16(in)));
		break;
	case RSH_CODEC_F32_TO_BF16:
		store16(out, to_bf16(load32(in)));
		break;
	case RSH_CODEC_F32_TO_F16:
		store16(out, to_f16(load32(in)));
		break;
	case RSH_CODEC_BF16_ADD:
		store16(out, to_bf16(sum((uint32_t)load16(in) << 16, 1)));
		break;
	case RSH_CODEC_F16_ADD:
		store16(out, to_f16(sum(from_f16(load16(in)), 1)));
		break;
	case RSH_CODEC_F32_ADD:
		store32(out, sum(load32(in), 1));
		break;
	case RSH_CODEC_BF16_SUB:
		store16(out, to_bf16(sum((uint32_t)load16(in) << 16, -1)));
		break;
	case RSH_CODEC_F16_SUB:
		store16(out, to_f16(sum(from_f16(load16(in)), -1)));
		break;
	case RSH_CODEC_F32_SUB:
		store32(out, sum(load32(in), -1));
		break;
	}
}

/* The codec is a constant of each loop, so that the compiler removes the switch
 * from it. */
#define LOOP(c)                                                          \
	case c:                                                          \
		for (size_t i = 0; i < n; i++)                           \
			decode_one(c, in + i * units[c].in,              \
				   out + i * units[c].out);              \
		break

size_t rsh_codec_decode(enum rsh_codec codec, const uint8_t *in, size_t n_bytes,
			uint8_t *out)
{
	size_t n = n_bytes / units[codec].in;

	switch (codec) {
	case RSH_CODEC_NONE:
	case RSH_CODEC_SCALED_BF16:
	case RSH_CODEC_SCALED_F16:
	case RSH_CODEC_SCALED_F32:
	case RSH_CODEC_COUNT:
		memmove(out, in, n_bytes);
		break;
	LOOP(RSH_CODEC_BF16_WIDE);
	LOOP(RSH_CODEC_BF16_NAN);
	LOOP(RSH_CODEC_BF16_WIDE_NAN);
	LOOP(RSH_CODEC_BF16_TO_F16);
	LOOP(RSH_CODEC_BF16_TO_F32);
	LOOP(RSH_CODEC_WIDE_TO_F16);
	LOOP(RSH_CODEC_WIDE_TO_F32);
	LOOP(RSH_CODEC_F16_TO_BF16);
	LOOP(RSH_CODEC_F16_TO_F32);
	LOOP(RSH_CODEC_F32_TO_BF16);
	LOOP(RSH_CODEC_F32_TO_F16);
	LOOP(RSH_CODEC_BF16_ADD);
	LOOP(RSH_CODEC_F16_ADD);
	LOOP(RSH_CODEC_F32_ADD);
	LOOP(RSH_CODEC_BF16_SUB);
	LOOP(RSH_CODEC_F16_SUB);
	LOOP(RSH_CODEC_F32_SUB);
	}
	return n * units[codec].out;
}
