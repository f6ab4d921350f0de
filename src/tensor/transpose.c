/* SPDX-License-Identifier: Apache-2.0 */
/* tensor/transpose.c transposes a matrix square by square.
 *
 * A square has as many rows as a vector has elements.  Interleaving its upper
 * half with its lower half, as often as the number of rows can be halved,
 * transposes it.  Squares are taken down the rows, so that each column is
 * written from front to back.
 */
#include "config.h"

#include "rsh/tensor/transpose.h"

#include <stddef.h>
#include <string.h>

#include "rsh/util/vectors.h"

/* Transposes one square from `in` to `out`. */
typedef void transpose_square_fn(const uint8_t *in, uint64_t in_stride,
				 uint8_t *out, uint64_t out_stride);

#ifdef RSH_HAS_VECTORS

/* Interleaves the upper half of SIDE rows with the lower half. */
#define PASS(unit, to, from)                                              \
	do {                                                              \
		RSH_UNROLL                                                \
		for (int i = 0; i < SIDE / 2; i++) {                      \
			to[2 * i] = RSH_LOW_##unit(from[i],               \
						   from[i + SIDE / 2]);   \
			to[2 * i + 1] = RSH_HIGH_##unit(from[i],          \
							from[i + SIDE / 2]); \
		}                                                         \
	} while (0)

#define PASSES_8(a, b) PASS(8, b, a)
#define PASSES_4(a, b) PASS(4, b, a); PASS(4, a, b)
#define PASSES_2(a, b) PASS(2, b, a); PASS(2, a, b); PASS(2, b, a)
#define PASSES_1(a, b) \
	PASS(1, b, a); PASS(1, a, b); PASS(1, b, a); PASS(1, a, b)

/* Defines transpose_square_UNIT(); the passes leave their result in
 * `result`. */
#define SQUARE(unit, result)                                              \
	static inline void transpose_square_##unit(const uint8_t *in,     \
						   uint64_t in_stride,    \
						   uint8_t *out,          \
						   uint64_t out_stride)   \
	{                                                                 \
		enum { SIDE = RSH_VECTOR / unit };                        \
		rsh_vector_##unit a[SIDE], b[SIDE];                       \
                                                                          \
		RSH_UNROLL                                                \
		for (int i = 0; i < SIDE; i++)                            \
			memcpy(&a[i], in + (uint64_t)i * in_stride,       \
			       RSH_VECTOR);                               \
		PASSES_##unit(a, b);                                      \
		RSH_UNROLL                                                \
		for (int i = 0; i < SIDE; i++)                            \
			memcpy(out + (uint64_t)i * out_stride, &result[i], \
			       RSH_VECTOR);                               \
	}

SQUARE(1, a)
SQUARE(2, b)
SQUARE(4, a)
SQUARE(8, b)

#define SQUARES(unit) transpose_square_##unit, RSH_VECTOR / unit

#else
#define SQUARES(unit) NULL, 0
#endif

/* `unit`, `square` and `side` (0: there are no squares) are constants of each
 * call, so that the compiler makes plain loads and stores of memcpy(). */
static inline __attribute__((always_inline)) void
transpose_unit(const struct rsh_transpose *t, const uint8_t *in, uint8_t *out,
	       uint32_t unit, transpose_square_fn *square, uint32_t side)
{
	const uint64_t rows = side ? t->n_rows - t->n_rows % side : 0;
	const uint64_t columns = side ? t->n_columns - t->n_columns % side : 0;

	for (uint64_t c = 0; c < columns; c += side)
		for (uint64_t r = 0; r < rows; r += side)
			square(in + r * t->in_stride + c * unit, t->in_stride,
			       out + c * t->out_stride + r * unit,
			       t->out_stride);
	/* The elements outside the squares. */
	for (uint64_t c = 0; c < t->n_columns; c++)
		for (uint64_t r = c < columns ? rows : 0; r < t->n_rows; r++)
			memcpy(out + c * t->out_stride + r * unit,
			       in + r * t->in_stride + c * unit, unit);
}

void rsh_transpose(const struct rsh_transpose *t, const uint8_t *in,
		   uint8_t *out)
{
	switch (t->unit) {
	case 1:
		transpose_unit(t, in, out, 1, SQUARES(1));
		break;
	case 2:
		transpose_unit(t, in, out, 2, SQUARES(2));
		break;
	case 4:
		transpose_unit(t, in, out, 4, SQUARES(4));
		break;
	case 8:
		transpose_unit(t, in, out, 8, SQUARES(8));
		break;
	default:
		transpose_unit(t, in, out, t->unit, NULL, 0);
	}
}
