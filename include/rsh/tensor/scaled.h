/* SPDX-License-Identifier: Apache-2.0 */
/* tensor/scaled.h - converts Float8 E4M3 with a scale for each block to
 * BFloat16 (RSH_CODEC_FP8_SCALED).
 *
 * E4M3 has no infinities: 0x7f and 0xff are NaN, 0x7e is 448.  A value and the
 * scale of its block are multiplied as Float32, and the product is rounded to
 * nearest even.  (A Float8 has four significant bits, so the product is nearly
 * always exact.)  A NaN becomes 0x7fc0.
 *
 * This is arithmetic without state; any thread may call it, and nothing
 * fails. */
#ifndef RSH_TENSOR_SCALED_H
#define RSH_TENSOR_SCALED_H

#include <stdint.h>

/* A matrix and the scales of its blocks.  Element [r, c] has the scale
 * [r / block[0], c / block[1]]; blocks at the edges may be smaller. */
struct rsh_scaled {
	uint64_t columns;      /* of the elements */
	uint64_t block[2];     /* rows and columns of a block */
	const uint8_t *scales; /* Float32, little endian, row after row */
	uint64_t scale_columns;
};

/* Decodes elements `first` to first + n - 1 of the matrix in row-major order,
 * from one byte each at `in` to two bytes each at `out`. */
void rsh_scaled_decode(const struct rsh_scaled *m, uint64_t first,
		       const uint8_t *in, uint64_t n, uint8_t *out);

#endif
