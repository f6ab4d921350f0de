/* SPDX-License-Identifier: Apache-2.0 */
/* tensor/codec.h - element-wise conversions from stored bytes to the bytes of
 * the virtual file.  A tensor has at most one conversion.  These functions have
 * no state and cannot fail; any thread may call them. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "rsh/tensor/dtype.h"

/* "Wide" means BFloat16 that is stored in 4 bytes. */
enum rsh_codec {
	RSH_CODEC_NONE,      /* byte for byte */
	RSH_CODEC_BF16_WIDE, /* the upper 2 of 4 stored bytes */
	RSH_CODEC_BF16_NAN,  /* compat: every bfloat16 NaN becomes 0x7fc0 */
	RSH_CODEC_BF16_WIDE_NAN, /* BF16_WIDE, then BF16_NAN */
	/* Casts round to nearest even, like MindSpore.  A NaN becomes 0x7fc0 as
	 * BFloat16, and 0x7e00 with its sign as Float16; as Float32 it keeps
	 * its bits. */
	RSH_CODEC_BF16_TO_F16,
	RSH_CODEC_BF16_TO_F32,
	RSH_CODEC_WIDE_TO_F16,
	RSH_CODEC_WIDE_TO_F32,
	RSH_CODEC_F16_TO_BF16,
	RSH_CODEC_F16_TO_F32,
	RSH_CODEC_F32_TO_BF16,
	RSH_CODEC_F32_TO_F16,
	/* The element and 1, or less 1, rounded to nearest even as torch
	 * does. */
	RSH_CODEC_BF16_ADD,
	RSH_CODEC_F16_ADD,
	RSH_CODEC_F32_ADD,
	RSH_CODEC_BF16_SUB,
	RSH_CODEC_F16_SUB,
	RSH_CODEC_F32_SUB,
	/* Quantised elements with scales.  rsh_codec_decode() cannot decode
	 * them, since it needs the scales: see tensor/scaled.h. */
	RSH_CODEC_SCALED_BF16,
	RSH_CODEC_SCALED_F16,
	RSH_CODEC_SCALED_F32,
	RSH_CODEC_COUNT
};

/* Returns whether the elements have scales. */
bool rsh_codec_is_scaled(enum rsh_codec codec);
/* Returns the codec that converts elements with scales to this type, or
 * RSH_CODEC_COUNT if there is none. */
enum rsh_codec rsh_codec_scaled(enum rsh_dtype to);
/* Returns the type to which a codec with scales converts. */
enum rsh_dtype rsh_codec_scaled_type(enum rsh_codec codec);

/* Sets how many bytes of an element a codec reads and writes: 1 and 1 for
 * RSH_CODEC_NONE.  Elements with scales are in units; how large these are is
 * said by their packing (tensor/scaled.h), and `in` is 1. */
void rsh_codec_units(enum rsh_codec codec, uint32_t *in, uint32_t *out);

/* Returns the codec that casts one type to another, or RSH_CODEC_COUNT if there
 * is none.  `wide`: `from` is wide. */
enum rsh_codec rsh_codec_cast(enum rsh_dtype from, bool wide,
			      enum rsh_dtype to);

/* Returns the codec that adds 1 to elements of this type, or takes 1 away if
 * `n` is -1; RSH_CODEC_COUNT: there is none. */
enum rsh_codec rsh_codec_add(enum rsh_dtype type, int n);

/* Decodes n_bytes stored bytes (whole elements) at `in` to `out`.  Returns the
 * number of bytes written.  in == out is allowed if elements do not grow. */
size_t rsh_codec_decode(enum rsh_codec codec, const uint8_t *in,
			size_t n_bytes, uint8_t *out);
