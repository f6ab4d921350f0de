/* SPDX-License-Identifier: Apache-2.0 */
/* tensor/codec.h - the one element-wise step that a tensor may take on its way
 * from the stored bytes to those that are shown.  Pure; any thread. */
#ifndef RSH_TENSOR_CODEC_H
#define RSH_TENSOR_CODEC_H

#include <stddef.h>
#include <stdint.h>

/* How stored elements become the virtual file's. */
enum rsh_codec {
	RSH_CODEC_NONE,      /* byte for byte */
	RSH_CODEC_BF16_WIDE, /* 4 stored bytes, of which the upper 2 count */
	RSH_CODEC_BF16_NAN,  /* compat: every bfloat16 NaN becomes 0x7fc0 */
	RSH_CODEC_BF16_WIDE_NAN, /* both */
	/* Casts, rounding to nearest even as MindSpore does; a NaN becomes
	 * 0x7fc0 as BFloat16 and 0x7e00 with its sign as Float16, and keeps its
	 * bits where the wider type has them. */
	RSH_CODEC_BF16_TO_F16,
	RSH_CODEC_BF16_TO_F32,
	RSH_CODEC_WIDE_TO_F16,
	RSH_CODEC_WIDE_TO_F32,
	RSH_CODEC_F16_TO_BF16,
	RSH_CODEC_F16_TO_F32,
	RSH_CODEC_F32_TO_BF16,
	RSH_CODEC_F32_TO_F16,
	RSH_CODEC_COUNT
};

/* Bytes an element that a codec reads and writes; 1 and 1 without one. */
void rsh_codec_units(enum rsh_codec codec, uint32_t *in, uint32_t *out);

/* Decodes n_bytes stored bytes (whole elements) at `in` to `out`, which has room
 * for them; returns the bytes written.  in == out is allowed where elements do
 * not grow. */
size_t rsh_codec_decode(enum rsh_codec codec, const uint8_t *in,
			size_t n_bytes, uint8_t *out);

#endif
