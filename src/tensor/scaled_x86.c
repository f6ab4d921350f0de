/* SPDX-License-Identifier: Apache-2.0 */
/* tensor/scaled_x86.c converts quantised elements by AVX2 and F16C, sixteen at
 * a time.  unit/test_tensor_scaled compares it with scaled.c. */
#include "config.h"

#include "scaled_i.h"

#ifdef __x86_64__

#include <cpuid.h>
#include <immintrin.h>

#include "rsh/util/checked.h"

#define X86 __attribute__((target("avx2,f16c")))
#define X86_INLINE __attribute__((target("avx2,f16c"), always_inline)) inline
#define TOGETHER 16

/* gcc 10 and clang 14 do not know "f16c" by name.  CPUID is asked once: a
 * virtual machine leaves to its host for it, which takes longer than decoding a
 * row.  Threads that ask together get the same answer. */
bool rsh_scaled_x86_can(void)
{
	static _Atomic int known; /* 0: not asked yet; 1: no; 2: yes */
	unsigned a, b, c, d;

	if (!known)
		known = __builtin_cpu_supports("avx2") &&
			__get_cpuid(1, &a, &b, &c, &d) && (c & bit_F16C) ? 2 : 1;
	return known == 2;
}

/* Sixteen numbers as Float32. */
struct x86_numbers {
	__m256 v[2];
};

/* ---- small numbers ---- */

X86_INLINE static struct x86_numbers x86_of_halves(__m128i low, __m128i high)
{
	return (struct x86_numbers){ { _mm256_cvtph_ps(low),
				       _mm256_cvtph_ps(high) } };
}

X86_INLINE static struct x86_numbers x86_of_words(__m256i a, __m256i b)
{
	return (struct x86_numbers){ { _mm256_cvtepi32_ps(a),
				       _mm256_cvtepi32_ps(b) } };
}

X86_INLINE static struct x86_numbers x86_of_bytes(__m128i v)
{
	return x86_of_words(_mm256_cvtepu8_epi32(v),
			    _mm256_cvtepu8_epi32(_mm_srli_si128(v, 8)));
}

/* The exponent biases of E4M3 and Float16 differ by 8. */
X86_INLINE static struct x86_numbers x86_e4m3(const uint8_t *in)
{
	const __m256i v = _mm256_cvtepu8_epi16(
		_mm_loadu_si128((const __m128i *)(const void *)in));
	const __m256i most = _mm256_set1_epi16(0x7f);
	const __m256i low = _mm256_and_si256(v, most);
	const __m256i sign = _mm256_slli_epi16(_mm256_xor_si256(v, low), 8);
	const __m256i nan = _mm256_and_si256(_mm256_cmpeq_epi16(low, most),
					     _mm256_set1_epi16(0x7e00));
	const __m256i half = _mm256_or_si256(
		_mm256_or_si256(_mm256_slli_epi16(low, 7), sign), nan);
	struct x86_numbers x = x86_of_halves(
		_mm256_castsi256_si128(half), _mm256_extracti128_si256(half, 1));

	x.v[0] = _mm256_mul_ps(x.v[0], _mm256_set1_ps(256));
	x.v[1] = _mm256_mul_ps(x.v[1], _mm256_set1_ps(256));
	return x;
}

/* Returns the integers of 4 bits, each in a byte. */
X86_INLINE static __m128i x86_nibbles(const uint8_t *in)
{
	const __m128i v = _mm_loadl_epi64((const __m128i *)(const void *)in);
	const __m128i most = _mm_set1_epi8(15);

	return _mm_unpacklo_epi8(_mm_and_si128(v, most),
				 _mm_and_si128(_mm_srli_epi16(v, 4), most));
}

/* The lower byte of each number is 0 as Float16. */
X86_INLINE static struct x86_numbers x86_e2m1(const uint8_t *in)
{
	const __m128i upper = _mm_setr_epi8(
		0, 0x38, 0x3c, 0x3e, 0x40, 0x42, 0x44, 0x46,
		-0x80, -0x48, -0x44, -0x42, -0x40, -0x3e, -0x3c, -0x3a);
	const __m128i v = _mm_shuffle_epi8(upper, x86_nibbles(in));

	return x86_of_halves(_mm_unpacklo_epi8(_mm_setzero_si128(), v),
			     _mm_unpackhi_epi8(_mm_setzero_si128(), v));
}

X86_INLINE static struct x86_numbers x86_u4(const uint8_t *in)
{
	return x86_of_bytes(x86_nibbles(in));
}

X86_INLINE static struct x86_numbers x86_awq(const uint8_t *in)
{
	const __m128i order = _mm_setr_epi8(0, 4, 1, 5, 2, 6, 3, 7,
					    8, 12, 9, 13, 10, 14, 11, 15);

	return x86_of_bytes(_mm_shuffle_epi8(x86_nibbles(in), order));
}

X86_INLINE static struct x86_numbers x86_gptq(const uint8_t *in, uint64_t row)
{
	const __m256i *at = (const __m256i *)(const void *)in;
	const __m128i by = _mm_cvtsi32_si128((int)(row % 8 * 4));
	const __m256i most = _mm256_set1_epi32(15);

	return x86_of_words(
		_mm256_and_si256(_mm256_srl_epi32(_mm256_loadu_si256(at), by),
				 most),
		_mm256_and_si256(_mm256_srl_epi32(_mm256_loadu_si256(at + 1),
						  by), most));
}

X86_INLINE static struct x86_numbers x86_load(enum rsh_packing p, uint64_t row,
					      const uint8_t *in)
{
	switch (p) {
	case RSH_PACK_E4M3:
		return x86_e4m3(in);
	case RSH_PACK_E2M1:
		return x86_e2m1(in);
	case RSH_PACK_U4:
		return x86_u4(in);
	case RSH_PACK_AWQ:
		return x86_awq(in);
	case RSH_PACK_GPTQ:
		return x86_gptq(in, row);
	default:
		return x86_of_bytes(
			_mm_loadu_si128((const __m128i *)(const void *)in));
	}
}

/* ---- rounding ---- */

X86_INLINE static __m256 x86_one_nan(__m256 f)
{
	const __m256i nan = _mm256_set1_epi32(0x7fc00000);

	return _mm256_blendv_ps(f, _mm256_castsi256_ps(nan),
				_mm256_cmp_ps(f, f, _CMP_UNORD_Q));
}

/* Returns the bits of BFloat16 in the upper half of each word; those of the
 * lower half are of no use. */
X86_INLINE static __m256i x86_bf16(__m256 f)
{
	const __m256i v = _mm256_castps_si256(x86_one_nan(f));
	const __m256i odd = _mm256_and_si256(_mm256_srli_epi32(v, 16),
					     _mm256_set1_epi32(1));

	return _mm256_add_epi32(_mm256_add_epi32(v, odd),
				_mm256_set1_epi32(0x7fff));
}

X86_INLINE static __m128i x86_f16(__m256 f)
{
	return _mm256_cvtps_ph(x86_one_nan(f), _MM_FROUND_TO_NEAREST_INT);
}

X86_INLINE static __m256 x86_round(enum rsh_dtype to, __m256 f)
{
	if (to == RSH_DTYPE_FLOAT16)
		return _mm256_cvtph_ps(x86_f16(f));
	return _mm256_castsi256_ps(_mm256_and_si256(
		x86_bf16(f), _mm256_set1_epi32(-0x10000)));
}

X86_INLINE static __m256i x86_halves(enum rsh_dtype to, struct x86_numbers x)
{
	__m256i a, b;

	if (to == RSH_DTYPE_FLOAT16)
		return _mm256_set_m128i(x86_f16(x.v[1]), x86_f16(x.v[0]));
	a = _mm256_srli_epi32(x86_bf16(x.v[0]), 16);
	b = _mm256_srli_epi32(x86_bf16(x.v[1]), 16);
	return _mm256_permute4x64_epi64(_mm256_packus_epi32(a, b), 0xd8);
}

X86_INLINE static void x86_store(enum rsh_dtype to, struct x86_numbers x,
				 uint8_t *out)
{
	__m256i *at = (__m256i *)(void *)out;

	if (to != RSH_DTYPE_FLOAT32) {
		_mm256_storeu_si256(at, x86_halves(to, x));
		return;
	}
	for (unsigned k = 0; k < 2; k++)
		_mm256_storeu_si256(at + k,
				    _mm256_castps_si256(x86_one_nan(x.v[k])));
}

/* ---- decoding ---- */

/* The scales and zero points of sixteen elements. */
struct x86_by {
	struct x86_numbers scale, zero;
};

X86_INLINE static void x86_load_by(const struct rsh_scaled *m, uint64_t at,
				   struct x86_by *by)
{
	by->scale.v[0] = _mm256_loadu_ps(m->scales + at);
	by->scale.v[1] = _mm256_loadu_ps(m->scales + at + 8);
	if (m->zeros)
		by->zero = x86_of_bytes(_mm_loadu_si128(
			(const __m128i *)(const void *)(m->zeros + at)));
}

X86_INLINE static void x86_set_by(const struct rsh_scaled *m, uint64_t at,
				  struct x86_by *by)
{
	by->scale.v[0] = by->scale.v[1] = _mm256_set1_ps(m->scales[at]);
	by->zero.v[0] = by->zero.v[1] =
		_mm256_set1_ps(m->zeros ? m->zeros[at] : m->zero);
}

/* How the sixteen elements of a vector are converted. */
struct x86_how {
	const struct rsh_scaled *m;
	enum rsh_packing packing;
	uint64_t row;
	bool via, then;
	unsigned in, out; /* bytes of sixteen elements */
};

X86_INLINE static __m256 x86_make_eight(const struct x86_how *how,
					const struct x86_by *by, unsigned k,
					__m256 v)
{
	const struct rsh_scaled *m = how->m;

	/* -0 minus 0 would be +0 only for integers. */
	if (how->packing != RSH_PACK_E4M3 && how->packing != RSH_PACK_E2M1)
		v = _mm256_sub_ps(v, by->zero.v[k]);
	v = _mm256_mul_ps(v, by->scale.v[k]);
	if (how->via)
		v = x86_round(m->via, v);
	if (how->then)
		v = x86_round(m->then, v);
	return v;
}

X86_INLINE static struct x86_numbers x86_make(const struct x86_how *how,
					      const struct x86_by *by,
					      struct x86_numbers x)
{
	return (struct x86_numbers){ { x86_make_eight(how, by, 0, x.v[0]),
				       x86_make_eight(how, by, 1, x.v[1]) } };
}

/* Decodes n elements, of whole vectors, whose scales are at `at` or follow each
 * other from there. */
X86_INLINE static void x86_decode(const struct x86_how *how, uint64_t at,
				  uint64_t n, const uint8_t *in, uint8_t *out)
{
	const struct rsh_scaled *m = how->m;
	struct x86_by by;

	x86_set_by(m, at, &by);
	for (uint64_t i = 0; i < n; i += TOGETHER) {
		if (m->block[1] == 1)
			x86_load_by(m, at + i, &by);
		x86_store(m->to, x86_make(how, &by, x86_load(how->packing,
							     how->row, in)),
			  out);
		in += how->in;
		out += how->out;
	}
}

/* Elements of 4 bits with one scale have sixteen values. */
X86_INLINE static bool x86_has_table(const struct x86_how *how)
{
	return (how->packing == RSH_PACK_E2M1 ||
		how->packing == RSH_PACK_U4) &&
	       how->m->block[1] >= TOGETHER &&
	       how->m->to != RSH_DTYPE_FLOAT32;
}

/* Decodes n such elements.  It makes all values of the scale, and looks up the
 * low bytes and the high ones. */
X86_INLINE static void x86_look_up(const struct x86_how *how, uint64_t at,
				   uint64_t n, const uint8_t *in, uint8_t *out)
{
	static const uint8_t all[8] = {
		0x10, 0x32, 0x54, 0x76, 0x98, 0xba, 0xdc, 0xfe,
	};
	const struct rsh_scaled *m = how->m;
	__m256i values, bytes;
	__m128i low, high;
	struct x86_by by;

	x86_set_by(m, at, &by);
	values = x86_halves(m->to, x86_make(how, &by,
		how->packing == RSH_PACK_E2M1 ? x86_e2m1(all) : x86_u4(all)));
	bytes = _mm256_permute4x64_epi64(
		_mm256_packus_epi16(
			_mm256_and_si256(values, _mm256_set1_epi16(0xff)),
			_mm256_srli_epi16(values, 8)), 0xd8);
	low = _mm256_castsi256_si128(bytes);
	high = _mm256_extracti128_si256(bytes, 1);
	for (uint64_t i = 0; i < n; i += TOGETHER) {
		__m128i *to = (__m128i *)(void *)out;
		const __m128i v = x86_nibbles(in);
		const __m128i a = _mm_shuffle_epi8(low, v);
		const __m128i b = _mm_shuffle_epi8(high, v);

		_mm_storeu_si128(to, _mm_unpacklo_epi8(a, b));
		_mm_storeu_si128(to + 1, _mm_unpackhi_epi8(a, b));
		in += how->in;
		out += how->out;
	}
}

/* The packing is a constant of each call, so that the compiler removes what
 * depends on it from the loops. */
X86_INLINE static uint64_t x86_row(const struct rsh_scaled *m,
				   enum rsh_packing packing, uint64_t row,
				   uint64_t c, uint64_t n, const uint8_t *in,
				   uint8_t *out)
{
	uint64_t at, last, run, done = 0;
	struct x86_how how = {
		.m = m, .packing = packing, .row = row,
		.via = rsh_scaled_is_step(m->via, m->then),
		.then = rsh_scaled_is_step(m->then, m->to),
		.out = TOGETHER * rsh_dtype_size(m->to),
	};
	uint32_t per, bytes;

	rsh_packing_unit(packing, &per, &bytes);
	how.in = TOGETHER / per * bytes;
	at = rsh_scaled_at(m, row, c);
	last = rsh_scaled_at(m, row, UINT64_MAX);
	run = rsh_scaled_stretch(m, c);
	for (;;) {
		const uint64_t whole = rsh_min_u64(run, n) / TOGETHER;

		if (x86_has_table(&how))
			x86_look_up(&how, at, whole * TOGETHER, in, out);
		else
			x86_decode(&how, at, whole * TOGETHER, in, out);
		done += whole * TOGETHER;
		n -= whole * TOGETHER;
		if (whole * TOGETHER != run || n < TOGETHER)
			return done;
		in += whole * how.in;
		out += whole * how.out;
		at += at < last;
		run = m->block[1];
	}
}

#define ROW(p) \
	case p: \
		return x86_row(m, p, row, c, n, in, out)

X86 uint64_t rsh_scaled_x86(const struct rsh_scaled *m, uint64_t row,
			    uint64_t c, uint64_t n, const uint8_t *in,
			    uint8_t *out)
{
	if (m->merge.n || n < TOGETHER)
		return 0;
	switch (m->packing) {
	ROW(RSH_PACK_E4M3);
	ROW(RSH_PACK_E2M1);
	ROW(RSH_PACK_U4);
	ROW(RSH_PACK_U8);
	ROW(RSH_PACK_AWQ);
	ROW(RSH_PACK_GPTQ);
	default:
		return 0;
	}
}

#else

/* A file has to declare something. */
typedef int rsh_scaled_x86_unused;

#endif
