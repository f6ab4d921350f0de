/* SPDX-License-Identifier: Apache-2.0 */
/* tensor/scaled.h - Float8 E4M3 whose blocks have scales, as BFloat16
 * (RSH_CODEC_FP8_SCALED).
 *
 * E4M3 is the kind without infinities: 0x7f and 0xff are NaN, 0x7e is 448.  A
 * value and the Float32 of its block are multiplied as Float32, and the product
 * is rounded to nearest even.  (A Float8 has four bits, so that the product
 * nearly always is exact before it is rounded.)  A NaN becomes 0x7fc0.
 *
 * This is arithmetic without state; any thread may call it, and nothing
 * fails. */
#ifndef RSH_TENSOR_SCALED_H
#define RSH_TENSOR_SCALED_H

#include <stdint.h>

/* This is a matrix and the scales of its blocks.  Element [r, c] has the scale
 * [r / block[0], c / block[1]]; blocks at the edges may be cut short. */
struct rsh_scaled {
	uint64_t columns;      /* of the elements */
	uint64_t block[2];     /* rows and columns of a block */
	const uint8_t *scales; /* Float32, little endian, row after row */
	uint64_t scale_columns;
};

/* Decodes elements `first` to first + n - 1 of the matrix, counted row after
 * row, from one byte each at `in` to two each at `out`.  The scales have to be
 * there for all of them. */
void rsh_scaled_decode(const struct rsh_scaled *m, uint64_t first,
		       const uint8_t *in, uint64_t n, uint8_t *out);

#endif
