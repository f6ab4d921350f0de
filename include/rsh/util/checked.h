/* SPDX-License-Identifier: Apache-2.0 */
/* util/checked.h - arithmetic on numbers that come from a file.
 *
 * A helper that returns bool returns false on overflow, and *out is then
 * undefined.  All are pure; any thread may call them. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

static inline bool rsh_add_u64(uint64_t a, uint64_t b, uint64_t *out)
{
	return !__builtin_add_overflow(a, b, out);
}

static inline bool rsh_mul_u64(uint64_t a, uint64_t b, uint64_t *out)
{
	return !__builtin_mul_overflow(a, b, out);
}

/* Computes the product of n non-negative int64 values; an empty product is 1.
 * Returns false if a value is negative or the product exceeds INT64_MAX. */
static inline bool rsh_product_i64(const int64_t *v, size_t n, uint64_t *out)
{
	uint64_t p = 1;

	for (size_t i = 0; i < n; i++)
		if (v[i] < 0 || !rsh_mul_u64(p, (uint64_t)v[i], &p) ||
		    p > INT64_MAX)
			return false;
	*out = p;
	return true;
}

/* Computes the product of n numbers; an empty product is 1. */
static inline bool rsh_product_u64(const uint64_t *v, size_t n, uint64_t *out)
{
	uint64_t p = 1;

	for (size_t i = 0; i < n; i++)
		if (!rsh_mul_u64(p, v[i], &p))
			return false;
	*out = p;
	return true;
}

/* Returns how many parts of this size, of which the last may be smaller, n has.
 * 0 has none, of any size. */
static inline uint64_t rsh_div_up(uint64_t n, uint64_t size)
{
	return n ? (n - 1) / size + 1 : 0;
}

static inline uint64_t rsh_min_u64(uint64_t a, uint64_t b)
{
	return a < b ? a : b;
}

/* Returns the greatest common divisor; rsh_gcd(0, n) is n. */
static inline uint64_t rsh_gcd(uint64_t a, uint64_t b)
{
	while (b) {
		const uint64_t rest = a % b;

		a = b;
		b = rest;
	}
	return a;
}

static inline uint64_t rsh_max_u64(uint64_t a, uint64_t b)
{
	return a > b ? a : b;
}

/* Returns whether a number is one of others, all below 2^63. */
static inline bool rsh_is_one_of_(int64_t x, const int64_t *v, size_t n)
{
	while (n > 0 && v[n - 1] != x)
		n--;
	return n > 0;
}
#define rsh_is_one(x, ...)                                               \
	rsh_is_one_of_(x, (const int64_t[]){ __VA_ARGS__ },              \
		       sizeof((const int64_t[]){ __VA_ARGS__ }) /        \
			       sizeof(int64_t))
