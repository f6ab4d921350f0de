/* SPDX-License-Identifier: Apache-2.0 */
/* Turned matrices are what a plain loop makes of them. */

#include "rsh/tensor/transpose.h"
#include "support.h"

#define CASES 2000
#define BETWEEN 0xa5 /* is where nothing is to be written */

static uint64_t random_side(struct numbers *x)
{
	return numbers_below(x, UINT64_C(2) << numbers_below(x, 8));
}

static uint64_t extent(uint64_t n, uint64_t stride, uint64_t len)
{
	return n && len ? (n - 1) * stride + len : 0;
}

/* The buffers are as large as the matrix, so that a sanitizer sees whoever
 * reads or writes beside it. */
static void queue_one(struct numbers *x, struct rsh_transpose t)
{
	const uint64_t row = t.n_columns * t.unit, column = t.n_rows * t.unit;
	const uint64_t in_bytes = extent(t.n_rows, t.in_stride, row);
	const uint64_t out_bytes = extent(t.n_columns, t.out_stride, column);
	uint8_t *in = malloc(in_bytes + 1), *out = malloc(out_bytes + 1);
	cleanup_free uint8_t *naive = malloc(out_bytes + 1);

	for (uint64_t i = 0; i < in_bytes; i++)
		in[i] = (uint8_t)numbers_next(x);
	memset(out, BETWEEN, out_bytes + 1);
	memset(naive, BETWEEN, out_bytes + 1);
	for (uint64_t r = 0; r < t.n_rows; r++)
		for (uint64_t c = 0; c < t.n_columns; c++)
			memcpy(naive + c * t.out_stride + r * t.unit,
			       in + r * t.in_stride + c * t.unit, t.unit);
	rsh_transpose(&t, in, out);
	if (memcmp(out, naive, out_bytes + 1) != 0)
		fail_msg("%llu rows, %llu columns of %u bytes",
			 (unsigned long long)t.n_rows,
			 (unsigned long long)t.n_columns, t.unit);
	free(in);
	free(out);
}

TEST(test_any_matrix)
{
	static const uint32_t units[] = { 1, 2, 4, 8, 16, 3 };
	struct numbers x = { numbers_seed() };

	for (int i = 0; i < CASES; i++) {
		struct rsh_transpose t = {
			.unit = units[numbers_below(&x, 6)],
			.n_rows = random_side(&x),
			.n_columns = random_side(&x),
		};

		t.in_stride = t.n_columns * t.unit;
		t.out_stride = t.n_rows * t.unit;
		if (numbers_below(&x, 2))
			t.in_stride += numbers_below(&x, 100);
		if (numbers_below(&x, 2))
			t.out_stride += numbers_below(&x, 100);
		queue_one(&x, t);
	}
}
