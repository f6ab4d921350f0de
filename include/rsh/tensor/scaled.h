/* SPDX-License-Identifier: Apache-2.0 */
/* tensor/scaled.h - converts quantised elements with scales to floating point
 * (the scaled codecs of tensor/codec.h).
 *
 * A quantised element is a small number; several may be packed in a unit of 1
 * or 4 bytes.  Its value is (number - zero point) * scale, computed as Float32.
 * The product is then rounded to nearest even, step by step: to `via`, to
 * `then`, and to the type that is written.  Subnormal numbers are kept.  A NaN
 * becomes 0x7fc0, 0x7e00 or 0x7fc00000.
 *
 * This is arithmetic without state; any thread may call it, and nothing
 * fails. */
#pragma once

#include <stdint.h>

#include "rsh/tensor/dtype.h"
#include "rsh/tensor/low_rank.h"

enum rsh_packing {
	RSH_PACK_E4M3, /* Float8 E4M3: 0x7f and 0xff are NaN, no infinities */
	RSH_PACK_E2M1, /* FP4, two in a byte, the low bits first */
	RSH_PACK_U4,   /* two integers in a byte, the low bits first */
	RSH_PACK_U8,
	RSH_PACK_AWQ,  /* eight integers of 4 bits in a word, in AWQ's order */
	/* Eight integers of 4 bits in a word, the low bits first, which belong
	 * to eight rows of one column: each of these rows has an element in
	 * every word of a row of words. */
	RSH_PACK_GPTQ,
	/* Elements that are not quantised, to which adapters are added. */
	RSH_PACK_BF16,
	RSH_PACK_F16,
	RSH_PACK_F32,
};

/* Returns whether the elements are not quantised. */
bool rsh_packing_is_plain(enum rsh_packing p);
/* Returns the type of such elements. */
enum rsh_dtype rsh_packing_type(enum rsh_packing p);

/* Sets how many elements of a row a unit has, and how many bytes. */
void rsh_packing_unit(enum rsh_packing p, uint32_t *elements, uint32_t *bytes);
/* Returns how many rows have elements in one unit: 8 for RSH_PACK_GPTQ, or
 * 1. */
uint32_t rsh_packing_rows(enum rsh_packing p);

/* How zero points are packed: each is `bits` wide, the low bits first, in words
 * of 32 bits along the columns of their matrix, in AWQ's order along its
 * columns, or along its rows. */
enum rsh_zeros_packing {
	RSH_ZEROS_COLUMNS,
	RSH_ZEROS_AWQ,
	RSH_ZEROS_ROWS,
};

/* Adapters, and what they need for a block of a matrix: for each adapter the
 * numbers of its rows [n_rows][rank], then those of its columns
 * [rank][n_columns]. */
struct rsh_merge {
	uint32_t n;
	const struct rsh_low_rank *by;
	const float *factors;
	uint64_t first_row, n_rows;
	uint64_t first_column, n_columns;
};

/* A cell of a matrix, or of a stack of matrices (planes), and its scales.  The
 * whole stack is one matrix with the rows of all planes.  Element [r, c] of it
 * has scale [r / block[0], c / block[1]]; blocks at the edges are smaller. */
struct rsh_scaled {
	enum rsh_packing packing;
	enum rsh_dtype via, then; /* RSH_DTYPE_UNKNOWN: no such step */
	enum rsh_dtype to;        /* what is written */
	uint64_t rows, columns;   /* of a plane of the cell */
	uint64_t plane_rows;      /* of a plane of the whole */
	uint64_t from[3];         /* plane, row and column of the cell's first
				   * element */
	/* If the cell has a part of each block, a row is divided into blocks,
	 * and each is a row of `columns` elements of the whole matrix: the
	 * blocks of a row of the cell (0: rows are not divided), the first of
	 * them, and those of a row of the whole. */
	uint64_t parts, first_part, row_parts;
	uint64_t block[2];
	uint64_t first_row;       /* of the scales: scales[0] is in this row */
	uint64_t scale_columns;
	const float *scales;
	const uint8_t *zeros;     /* as scales; NULL: all are `zero` */
	uint8_t zero;
	const uint32_t *groups;   /* [row of the whole]: the row of scales;
				   * NULL: rows are in blocks */
	/* Elements that are not quantised have no scales.  After elements of
	 * both kinds were rounded to `then`, for each adapter in order scale *
	 * sum is added (tensor/low_rank.h) and the result rounded to `then`.
	 * Elements that are not quantised and have no adapters keep their
	 * bits. */
	struct rsh_merge merge;
	bool portably; /* for tests: as on every processor */
};

/* Returns the row of the whole matrix that has element `n` of the cell. */
uint64_t rsh_scaled_row(const struct rsh_scaled *m, uint64_t n);

/* Decodes elements `first` to first + n - 1 of the cell in row-major order,
 * from `in`.  The first one and the one after the last begin a unit.  If units
 * have several rows these elements are of one row, whose units are at `in`. */
void rsh_scaled_decode(const struct rsh_scaled *m, uint64_t first,
		       const uint8_t *in, uint64_t n, uint8_t *out);

/* Converts n scales of this type to Float32. */
void rsh_scaled_widen(enum rsh_dtype type, const uint8_t *in, uint64_t n,
		      float *out);
/* Unpacks the zero points of n_rows x n_columns.  `in` has the words of these
 * rows (packed along rows: those from a multiple of 32 / bits on). */
void rsh_scaled_unpack_zeros(enum rsh_zeros_packing p, unsigned bits,
			     const uint8_t *in, uint64_t n_rows,
			     uint64_t n_columns, uint8_t *out);
