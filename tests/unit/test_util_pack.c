/* SPDX-License-Identifier: Apache-2.0 */
/* unit/test_util_pack.c - whatever is packed comes back, whole and in parts, and
 * whatever is unpacked stays within its bounds. */
#include "config.h"

#include "rsh/util/pack.h"
#include "support.h"

#define LEN_MAX (5 * RSH_PACK_PIECE)

static const unsigned units[] = { 0, 1, 2, 3, 4, 8, 16 };

/* Stretches of noise, of zeros, of numbers with low halves of 0, and of runs. */
static size_t draw(struct numbers *x, uint8_t *out)
{
	const size_t len = (size_t)numbers_below(x, LEN_MAX);
	size_t at = 0;

	while (at < len) {
		const uint64_t how = numbers_below(x, 4);
		size_t end = at + 1 + (size_t)numbers_below(x, 30000);

		for (end = end < len ? end : len; at < end; at++)
			out[at] = how == 0 ? (uint8_t)numbers_next(x) :
				  how == 1 ? 0 :
				  how == 2 ? (uint8_t)(at & 2 ?
						       numbers_next(x) : 0) :
					     (uint8_t)(at / 40);
	}
	return len;
}

static void look_at_parts(struct numbers *x, const uint8_t *packed, size_t n,
			  const uint8_t *in, size_t len)
{
	for (int i = 0; i < 10; i++) {
		const size_t at = (size_t)numbers_below(x, len + 1);
		const size_t want = (size_t)numbers_below(x, len - at + 1);
		uint8_t *out = malloc(want + 1);

		out[want] = 0xa5;
		assert_true(rsh_unpack_part(packed, n, len, at, out, want));
		assert_memory_equal(out, in + at, want);
		assert_int_equal(out[want], 0xa5);
		free(out);
	}
	assert_false(rsh_unpack_part(packed, n, len, len + 1, NULL, 0));
	assert_false(rsh_unpack_part(packed, n, len, len, NULL, 1));
}

/* Malloc'd to the byte, so that sanitizers see what goes beyond. */
static void round_trip(struct numbers *x, const uint8_t *in, size_t len,
		       unsigned unit)
{
	const size_t max = rsh_pack_bound(len);
	uint8_t *packed = malloc(max), *out = malloc(len + 1), *exact;
	const size_t n = rsh_pack(in, len, unit, packed, max);

	assert_in_range(n, 1, max);
	assert_int_equal(rsh_pack(in, len, unit, packed, n), n);
	exact = malloc(n);
	memcpy(exact, packed, n);
	out[len] = 0xa5;
	assert_true(rsh_unpack(exact, n, out, len));
	assert_memory_equal(out, in, len);
	assert_int_equal(out[len], 0xa5);
	assert_false(rsh_unpack(exact, n - 1, out, len));
	assert_false(len && rsh_unpack(exact, n, out, len - 1));
	look_at_parts(x, exact, n, in, len);
	assert_int_equal(rsh_pack(in, len, unit, packed, n - 1), 0);
	free(exact);
	free(packed);
	free(out);
}

TEST(test_round_trips)
{
	struct numbers x = { numbers_seed() };
	cleanup_free uint8_t *in = malloc(LEN_MAX);

	for (int i = 0; i < 100; i++) {
		const size_t len = draw(&x, in);

		round_trip(&x, in, i < 40 ? (size_t)i : len,
			   units[numbers_below(&x, 7)]);
	}
}

/* The result may be anything; the bounds are looked at by sanitizers and by what
 * stands behind. */
TEST(test_damage)
{
	struct numbers x = { numbers_seed() };
	uint8_t *in = malloc(LEN_MAX), *packed = malloc(2 * LEN_MAX);
	cleanup_free uint8_t *out = malloc(LEN_MAX + 1);

	for (int i = 0; i < 300; i++) {
		const size_t len = draw(&x, in);
		size_t n = rsh_pack(in, len, units[i % 7], packed, 2 * LEN_MAX);

		for (uint64_t k = numbers_below(&x, 4); n && k; k--)
			packed[numbers_below(&x, k == 1 && n > 8 ? 8 : n)] =
				(uint8_t)numbers_next(&x);
		n = n && i % 3 == 0 ? (size_t)numbers_below(&x, n) : n;
		out[len] = 0xa5;
		rsh_unpack(packed, n, out, len);
		assert_int_equal(out[len], 0xa5);
	}
	free(in);
	free(packed);
}

/* What lies at the same place of all elements is what shrinks. */
TEST(test_units)
{
	static uint8_t in[4 * RSH_PACK_PIECE], out[sizeof(in)];
	struct numbers x = { 1 };

	for (size_t i = 0; i < sizeof(in); i++)
		in[i] = i % 4 < 2 ? 0 : (uint8_t)numbers_next(&x);
	assert_true(rsh_pack_pays(in, sizeof(in), 4));
	assert_false(rsh_pack_pays(in, sizeof(in), 1));
	assert_in_range(rsh_pack(in, sizeof(in), 4, out, sizeof(out)), 1,
			sizeof(in) * 52 / 100);
	for (size_t i = 0; i < sizeof(in); i++)
		in[i] = (uint8_t)numbers_next(&x);
	for (unsigned i = 0; i < 7; i++)
		assert_false(rsh_pack_pays(in, sizeof(in), units[i]));
	/* A third of it, far from the beginning. */
	memset(in + sizeof(in) / 2, 0, sizeof(in) / 3);
	assert_true(rsh_pack_pays(in, sizeof(in), 4));
	assert_false(rsh_pack_pays(in, 0, 4));
}
