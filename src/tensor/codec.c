/* SPDX-License-Identifier: Apache-2.0 */
/* tensor/codec.c converts stored elements to those of the virtual file. */
#include <string.h>

#include "rsh/tensor/codec.h"

#define BF16_NAN 0x7fc0u
#define F16_NAN 0x7e00u

/* An element is loaded as the bits of a float32, a number is added to it, and
 * it is stored. */
struct form {
	enum rsh_dtype from; /* UNKNOWN: it has scales */
	bool wide;
	int8_t add;
	enum rsh_dtype to;
};

/* UInt16 is BFloat16 that keeps the bits of a NaN. */
#define FORMS(X)                                       \
	X(BF16_WIDE, UINT16, true, 0, UINT16)          \
	X(BF16_NAN, BFLOAT16, false, 0, BFLOAT16)      \
	X(BF16_WIDE_NAN, BFLOAT16, true, 0, BFLOAT16)  \
	X(BF16_TO_F16, BFLOAT16, false, 0, FLOAT16)    \
	X(BF16_TO_F32, BFLOAT16, false, 0, FLOAT32)    \
	X(WIDE_TO_F16, BFLOAT16, true, 0, FLOAT16)     \
	X(WIDE_TO_F32, BFLOAT16, true, 0, FLOAT32)     \
	X(F16_TO_BF16, FLOAT16, false, 0, BFLOAT16)    \
	X(F16_TO_F32, FLOAT16, false, 0, FLOAT32)      \
	X(F32_TO_BF16, FLOAT32, false, 0, BFLOAT16)    \
	X(F32_TO_F16, FLOAT32, false, 0, FLOAT16)      \
	X(BF16_ADD, BFLOAT16, false, 1, BFLOAT16)      \
	X(F16_ADD, FLOAT16, false, 1, FLOAT16)         \
	X(F32_ADD, FLOAT32, false, 1, FLOAT32)         \
	X(BF16_SUB, BFLOAT16, false, -1, BFLOAT16)     \
	X(F16_SUB, FLOAT16, false, -1, FLOAT16)        \
	X(F32_SUB, FLOAT32, false, -1, FLOAT32)
#define FORM(from, wide, add, to)                                         \
	((struct form){ RSH_DTYPE_##from, wide, add, RSH_DTYPE_##to })
#define FORM_OF(name, ...) [RSH_CODEC_##name] = FORM(__VA_ARGS__),

static const struct form forms[RSH_CODEC_COUNT] = {
	[RSH_CODEC_NONE] = { RSH_DTYPE_UINT8, false, 0, RSH_DTYPE_UINT8 },
	FORMS(FORM_OF)
	[RSH_CODEC_SCALED_BF16] = { .to = RSH_DTYPE_BFLOAT16 },
	[RSH_CODEC_SCALED_F16] = { .to = RSH_DTYPE_FLOAT16 },
	[RSH_CODEC_SCALED_F32] = { .to = RSH_DTYPE_FLOAT32 },
};

static inline uint32_t form_in(struct form f)
{
	return f.wide || f.from == RSH_DTYPE_FLOAT32 ? 4 :
	       f.from == RSH_DTYPE_UNKNOWN || f.from == RSH_DTYPE_UINT8 ? 1 : 2;
}

static inline uint32_t form_out(struct form f)
{
	return f.to == RSH_DTYPE_FLOAT32 ? 4 : f.to == RSH_DTYPE_UINT8 ? 1 : 2;
}

void rsh_codec_units(enum rsh_codec codec, uint32_t *in, uint32_t *out)
{
	*in = form_in(forms[codec]);
	*out = form_out(forms[codec]);
}

static enum rsh_codec codec_find(enum rsh_dtype from, bool wide, int add,
				 enum rsh_dtype to)
{
	uint32_t c = RSH_CODEC_NONE + 1;

	while (c < RSH_CODEC_COUNT &&
	       !(forms[c].from == from && forms[c].wide == wide &&
		 forms[c].add == add && forms[c].to == to))
		c++;
	return (enum rsh_codec)c;
}

bool rsh_codec_is_scaled(enum rsh_codec codec)
{
	return codec < RSH_CODEC_COUNT &&
	       forms[codec].from == RSH_DTYPE_UNKNOWN;
}

enum rsh_codec rsh_codec_scaled(enum rsh_dtype to)
{
	return codec_find(RSH_DTYPE_UNKNOWN, false, 0, to);
}

enum rsh_dtype rsh_codec_scaled_type(enum rsh_codec codec)
{
	return forms[codec].to;
}

enum rsh_codec rsh_codec_cast(enum rsh_dtype from, bool wide, enum rsh_dtype to)
{
	return from == to || from == RSH_DTYPE_UNKNOWN ? RSH_CODEC_COUNT :
	       codec_find(from, wide, 0, to);
}

enum rsh_codec rsh_codec_add(enum rsh_dtype type, int n)
{
	return codec_find(type, false, n, type);
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

static inline void decode_one(struct form f, const uint8_t *in, uint8_t *out)
{
	uint32_t v = f.from == RSH_DTYPE_FLOAT32 ? load32(in) :
		     f.from == RSH_DTYPE_FLOAT16 ? from_f16(load16(in)) :
		     (uint32_t)load16(in + 2 * f.wide) << 16;

	if (f.add)
		v = sum(v, f.add);
	if (f.to == RSH_DTYPE_FLOAT32)
		store32(out, v);
	else if (f.to == RSH_DTYPE_FLOAT16)
		store16(out, to_f16(v));
	else if (f.to == RSH_DTYPE_BFLOAT16 && (f.from != f.to || f.add))
		store16(out, to_bf16(v));
	else
		store16(out, f.to == RSH_DTYPE_BFLOAT16 ?
			canonical((uint16_t)(v >> 16)) : (uint16_t)(v >> 16));
}

/* The form is a constant of each loop, so that the compiler removes the
 * conditions from it. */
#define LOOP(name, ...)                                                   \
	case RSH_CODEC_##name:                                            \
		for (size_t i = 0; i < n; i++)                            \
			decode_one(FORM(__VA_ARGS__),                     \
				   in + i * form_in(FORM(__VA_ARGS__)),   \
				   out + i * form_out(FORM(__VA_ARGS__)));\
		break;

size_t rsh_codec_decode(enum rsh_codec codec, const uint8_t *in, size_t n_bytes,
			uint8_t *out)
{
	const size_t n = n_bytes / form_in(forms[codec]);

	switch (codec) {
	FORMS(LOOP)
	case RSH_CODEC_NONE:
	case RSH_CODEC_SCALED_BF16:
	case RSH_CODEC_SCALED_F16:
	case RSH_CODEC_SCALED_F32:
	case RSH_CODEC_COUNT:
		memmove(out, in, n_bytes);
	}
	return n * form_out(forms[codec]);
}
