/* SPDX-License-Identifier: Apache-2.0 */
/* tensor/codec.h - the one element-wise step that a tensor may take on its way
 * from the stored bytes to those that are shown.  This is arithmetic without
 * state; any thread may call it, and nothing fails. */
#ifndef RSH_TENSOR_CODEC_H
#define RSH_TENSOR_CODEC_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "rsh/tensor/dtype.h"

/* A codec says how stored elements become those of the virtual file.  "Wide"
 * means BFloat16 that is stored as 4 bytes. */
enum rsh_codec {
	RSH_CODEC_NONE,      /* byte for byte */
	RSH_CODEC_BF16_WIDE, /* 4 stored bytes, of which the upper 2 count */
	RSH_CODEC_BF16_NAN,  /* compat: every bfloat16 NaN becomes 0x7fc0 */
	RSH_CODEC_BF16_WIDE_NAN, /* BF16_WIDE, then BF16_NAN */
	/* The following are casts, which round to nearest even as MindSpore
	 * does.  A NaN becomes 0x7fc0 as BFloat16, and 0x7e00 with its sign as
	 * Float16; it keeps its bits where the wider type has them. */
	RSH_CODEC_BF16_TO_F16,
	RSH_CODEC_BF16_TO_F32,
	RSH_CODEC_WIDE_TO_F16,
	RSH_CODEC_WIDE_TO_F32,
	RSH_CODEC_F16_TO_BF16,
	RSH_CODEC_F16_TO_F32,
	RSH_CODEC_F32_TO_BF16,
	RSH_CODEC_F32_TO_F16,
	/* Float8 E4M3 (without infinities), times a Float32 of its block; the
	 * product is rounded once, to BFloat16.  It takes scales:
	 * rsh_codec_decode() does not know it, tensor/scaled.h does. */
	RSH_CODEC_FP8_SCALED,
	RSH_CODEC_COUNT
};

/* Tells how many bytes of an element a codec reads and how many it writes; they
 * are 1 and 1 for RSH_CODEC_NONE. */
void rsh_codec_units(enum rsh_codec codec, uint32_t *in, uint32_t *out);

/* Gives the codec that casts one type to another, RSH_CODEC_COUNT where there
 * is none.  `wide` says that `from` is wide. */
enum rsh_codec rsh_codec_cast(enum rsh_dtype from, bool wide,
			      enum rsh_dtype to);

/* Decodes n_bytes stored bytes (whole elements) at `in` to `out`, which has
 * room for what they become.  Returns the number of bytes written.  in == out
 * is allowed where elements do not grow. */
size_t rsh_codec_decode(enum rsh_codec codec, const uint8_t *in,
			size_t n_bytes, uint8_t *out);

#endif
