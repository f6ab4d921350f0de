/* SPDX-License-Identifier: Apache-2.0 */
/* tensor/low_rank.c computes elements of the product of two small matrices.
 *
 * Every element is computed by fused multiply-adds in the same order.  Where
 * the processor has none, numbers of double precision give the same result. */
#include "config.h"

#include "rsh/tensor/low_rank.h"

#include <string.h>

#ifdef __x86_64__
#include <immintrin.h>
#endif

/* The compiler must not join these two functions to a multiply-add, which would
 * round once instead of twice. */
__attribute__((noinline)) void rsh_low_rank_scale(float scale, uint64_t n,
						  float *v)
{
	for (uint64_t i = 0; i < n; i++)
		v[i] *= scale;
}

__attribute__((noinline)) void rsh_low_rank_add(const float *more, uint64_t n,
						float *v)
{
	for (uint64_t i = 0; i < n; i++)
		v[i] += more[i];
}

#ifdef __FP_FAST_FMAF

static float low_rank_fma(float a, float b, float sum)
{
	return __builtin_fmaf(a, b, sum);
}

#else

/* The product is exact as a double.  The sum is rounded to odd, which keeps
 * enough to round it to Float32 as if it were exact. */
static float low_rank_fma(float a, float b, float sum)
{
	const double product = (double)a * b;
	double s = product + sum;
	const double part = s - product;
	const double lost = (product - (s - part)) + (sum - part);
	uint64_t bits;

	/* `lost` is NaN if the sum is infinite or NaN. */
	if (!(lost < 0) && !(lost > 0))
		return (float)s;
	memcpy(&bits, &s, sizeof(bits));
	if (bits % 2 == 0)
		bits += (lost > 0) == (s > 0) ? 1 : UINT64_MAX;
	memcpy(&s, &bits, sizeof(s));
	return (float)s;
}

#endif

void rsh_low_rank_portable(const float *row, const float *columns,
			   uint64_t stride, uint32_t rank, uint64_t n,
			   float *out)
{
	for (uint64_t i = 0; i < n; i++)
		out[i] = 0;
	for (uint32_t k = 0; k < rank; k++)
		for (uint64_t i = 0; i < n; i++)
			out[i] = low_rank_fma(row[k], columns[k * stride + i],
					      out[i]);
}

#ifdef __x86_64__

#define LANES 8
#define VECTORS 8 /* sums that are computed together, in registers */

__attribute__((target("avx2,fma"))) static void
low_rank_vectors(const float *row, const float *columns, uint64_t stride,
		 uint32_t rank, float *out)
{
	__m256 sums[VECTORS];

	for (unsigned j = 0; j < VECTORS; j++)
		sums[j] = _mm256_setzero_ps();
	for (uint32_t k = 0; k < rank; k++) {
		const __m256 x = _mm256_set1_ps(row[k]);
		const float *at = columns + k * stride;

#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC unroll 8
#endif
		for (unsigned j = 0; j < VECTORS; j++)
			sums[j] = _mm256_fmadd_ps(
				x, _mm256_loadu_ps(at + LANES * j), sums[j]);
	}
	for (unsigned j = 0; j < VECTORS; j++)
		_mm256_storeu_ps(out + LANES * j, sums[j]);
}

__attribute__((target("avx2,fma"))) static void
low_rank_x86(const float *row, const float *columns, uint64_t stride,
	     uint32_t rank, uint64_t n, float *out)
{
	uint64_t i = 0;

	for (; n - i >= LANES * VECTORS; i += LANES * VECTORS)
		low_rank_vectors(row, columns + i, stride, rank, out + i);
	for (; n - i >= LANES; i += LANES) {
		__m256 sum = _mm256_setzero_ps();

		for (uint32_t k = 0; k < rank; k++)
			sum = _mm256_fmadd_ps(
				_mm256_set1_ps(row[k]),
				_mm256_loadu_ps(columns + k * stride + i), sum);
		_mm256_storeu_ps(out + i, sum);
	}
	for (; i < n; i++) {
		out[i] = 0;
		for (uint32_t k = 0; k < rank; k++)
			out[i] = __builtin_fmaf(row[k], columns[k * stride + i],
						out[i]);
	}
}

#endif

void rsh_low_rank_product(const float *row, const float *columns,
			  uint64_t stride, uint32_t rank, uint64_t n,
			  float *out)
{
#ifdef __x86_64__
	if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) {
		low_rank_x86(row, columns, stride, rank, n, out);
		return;
	}
#endif
	rsh_low_rank_portable(row, columns, stride, rank, n, out);
}
