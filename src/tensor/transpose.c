/* SPDX-License-Identifier: Apache-2.0 */
/* tensor/transpose.c turns matrices by squares of vectors.
 *
 * A square has as many rows as a vector has elements.  To interleave its upper
 * half with its lower one, as often as the number of rows can be halved, turns
 * it.  Squares go down the rows, so that what is written of a column follows
 * each other.
 */
#include "config.h"

#include "rsh/tensor/transpose.h"

#include <stddef.h>
#include <string.h>

#include "rsh/util/vectors.h"

/* ---- one element after the other, for what is no whole square ---- */

/* Each call has a constant unit, so that the compiler makes a plain load and
 * store of memcpy(). */
static inline void queue_rest(const struct rsh_transpose *t, const uint8_t *in,
			      uint8_t *out, uint32_t unit)
{
	for (uint64_t c = 0; c < t->n_columns; c++)
		for (uint64_t r = 0; r < t->n_rows; r++)
			memcpy(out + c * t->out_stride + r * unit,
			       in + r * t->in_stride + c * unit, unit);
}

static void queue_plainly(const struct rsh_transpose *t, const uint8_t *in,
			  uint8_t *out)
{
	switch (t->unit) {
	case 1:
		queue_rest(t, in, out, 1);
		break;
	case 2:
		queue_rest(t, in, out, 2);
		break;
	case 4:
		queue_rest(t, in, out, 4);
		break;
	case 8:
		queue_rest(t, in, out, 8);
		break;
	default:
		queue_rest(t, in, out, t->unit);
	}
}

#ifdef RSH_HAS_VECTORS

/* ---- squares ---- */

/* Interleaves the upper half of SIDE rows with the lower one. */
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

/* Makes queue_square_UNIT(); the passes leave their result in `result`. */
#define SQUARE(unit, result)                                              \
	static inline void queue_square_##unit(const uint8_t *in,         \
					       uint64_t in_stride,        \
					       uint8_t *out,              \
					       uint64_t out_stride)       \
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

typedef void queue_square_fn(const uint8_t *in, uint64_t in_stride,
			     uint8_t *out, uint64_t out_stride);

/* Turns what is whole squares; `square` and `side` are constants of each
 * call. */
static inline __attribute__((always_inline)) void
queue_by_squares(const struct rsh_transpose *t, const uint8_t *in, uint8_t *out,
		 queue_square_fn *square, uint32_t side)
{
	for (uint64_t c = 0; c + side <= t->n_columns; c += side)
		for (uint64_t r = 0; r + side <= t->n_rows; r += side)
			square(in + r * t->in_stride + c * t->unit,
			       t->in_stride,
			       out + c * t->out_stride + r * t->unit,
			       t->out_stride);
}

/* Returns the side of the squares, 0 if there are none for this unit. */
static uint32_t queue_squares(const struct rsh_transpose *t, const uint8_t *in,
			      uint8_t *out)
{
	switch (t->unit) {
	case 1:
		queue_by_squares(t, in, out, queue_square_1, RSH_VECTOR);
		break;
	case 2:
		queue_by_squares(t, in, out, queue_square_2, RSH_VECTOR / 2);
		break;
	case 4:
		queue_by_squares(t, in, out, queue_square_4, RSH_VECTOR / 4);
		break;
	case 8:
		queue_by_squares(t, in, out, queue_square_8, RSH_VECTOR / 8);
		break;
	default:
		return 0;
	}
	return RSH_VECTOR / t->unit;
}

#else

static uint32_t queue_squares(const struct rsh_transpose *t, const uint8_t *in,
			      uint8_t *out)
{
	(void)t;
	(void)in;
	(void)out;
	return 0;
}

#endif

void rsh_transpose(const struct rsh_transpose *t, const uint8_t *in,
		   uint8_t *out)
{
	const uint32_t side = queue_squares(t, in, out);
	const uint64_t rows = side ? t->n_rows - t->n_rows % side : 0;
	const uint64_t columns = side ? t->n_columns - t->n_columns % side : 0;
	struct rsh_transpose right = *t, below = *t;

	/* What is left lies below the squares and, all the way down, to their
	 * right. */
	below.n_rows -= rows;
	below.n_columns = columns;
	queue_plainly(&below, in + rows * t->in_stride, out + rows * t->unit);
	right.n_columns -= columns;
	queue_plainly(&right, in + columns * t->unit,
		      out + columns * t->out_stride);
}
