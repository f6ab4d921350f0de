/* SPDX-License-Identifier: Apache-2.0 */
/* util/vectors.h - interleaves vectors of 16 bytes, which processors do in one
 * instruction.  RSH_HAS_VECTORS is defined if the compiler supports it; the
 * including file also has code without vectors. */
#pragma once

#include <stdint.h>

#if defined(__has_builtin)
#if __has_builtin(__builtin_shufflevector)
#define RSH_HAS_VECTORS
#endif
#endif

#define RSH_VECTOR 16

/* The elements have 1, 2, 4 or 8 bytes. */
typedef uint8_t rsh_vector_1 __attribute__((vector_size(RSH_VECTOR)));
typedef uint16_t rsh_vector_2 __attribute__((vector_size(RSH_VECTOR)));
typedef uint32_t rsh_vector_4 __attribute__((vector_size(RSH_VECTOR)));
typedef uint64_t rsh_vector_8 __attribute__((vector_size(RSH_VECTOR)));

/* RSH_LOW_UNIT interleaves the elements of the first halves of two vectors,
 * RSH_HIGH_UNIT those of the second halves. */
#define RSH_LOW_1(a, b)                                                     \
	__builtin_shufflevector(a, b, 0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, \
				21, 6, 22, 7, 23)
#define RSH_HIGH_1(a, b)                                                    \
	__builtin_shufflevector(a, b, 8, 24, 9, 25, 10, 26, 11, 27, 12, 28, \
				13, 29, 14, 30, 15, 31)
#define RSH_LOW_2(a, b) \
	__builtin_shufflevector(a, b, 0, 8, 1, 9, 2, 10, 3, 11)
#define RSH_HIGH_2(a, b) \
	__builtin_shufflevector(a, b, 4, 12, 5, 13, 6, 14, 7, 15)
#define RSH_LOW_4(a, b) __builtin_shufflevector(a, b, 0, 4, 1, 5)
#define RSH_HIGH_4(a, b) __builtin_shufflevector(a, b, 2, 6, 3, 7)
#define RSH_LOW_8(a, b) __builtin_shufflevector(a, b, 0, 2)
#define RSH_HIGH_8(a, b) __builtin_shufflevector(a, b, 1, 3)

/* Put this before a loop over an array of vectors.  Without it GCC keeps the
 * vectors in memory, not in registers. */
#if defined(__GNUC__) && !defined(__clang__)
#define RSH_UNROLL _Pragma("GCC unroll 16")
#else
#define RSH_UNROLL
#endif
