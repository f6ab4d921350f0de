/* SPDX-License-Identifier: Apache-2.0 */
/* tensor/transpose.h - transposes a matrix.  This is arithmetic without state;
 * any thread may call it, and nothing fails. */
#pragma once

#include <stdint.h>

struct rsh_transpose {
	uint32_t unit;              /* bytes of an element */
	uint64_t n_rows, n_columns; /* of the input */
	uint64_t in_stride;         /* bytes from row to row of the input */
	uint64_t out_stride;        /* bytes from column to column of the
				     * output; bytes between columns are not
				     * written */
};

/* Writes element [r, c] of `in` as element r of column c of `out`.  The two
 * must not overlap, and need not be aligned.  Elements of 1, 2, 4 or 8 bytes
 * are moved by vectors if the compiler supports them. */
void rsh_transpose(const struct rsh_transpose *t, const uint8_t *in,
		   uint8_t *out);
