/* SPDX-License-Identifier: Apache-2.0 */
/* tensor/transpose.h - turns a matrix of elements, so that its columns follow
 * each other where its rows did.  This is arithmetic without state; any thread
 * may call it, and nothing fails. */
#ifndef RSH_TENSOR_TRANSPOSE_H
#define RSH_TENSOR_TRANSPOSE_H

#include <stdint.h>

struct rsh_transpose {
	uint32_t unit;              /* bytes of an element */
	uint64_t n_rows, n_columns; /* of the matrix that comes in */
	uint64_t in_stride;         /* bytes from row to row of it */
	uint64_t out_stride;        /* bytes from column to column where they
				     * go; between them nothing is written */
};

/* Turns the matrix at `in`: element [r, c] goes to column c, place r of `out`.
 * The two must not overlap, and need not be aligned.  Elements of 1, 2, 4 or 8
 * bytes go by vectors where the compiler has them. */
void rsh_transpose(const struct rsh_transpose *t, const uint8_t *in,
		   uint8_t *out);

#endif
