/* SPDX-License-Identifier: Apache-2.0 */
/* tensor/low_rank.h - the product of two small matrices, as an adapter (LoRA)
 * has them: one with a row for each row of a weight, one with a column for each
 * of its columns.
 *
 * An element is a sum of `rank` products.  It begins with 0, and the products
 * are added in order, each by one fused multiply-add of Float32: the product is
 * not rounded, the sum is rounded to nearest even.  So the result is the same
 * on every processor.
 *
 * This is arithmetic without state; any thread may call it, and nothing
 * fails. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

/* The largest sum of the ranks of all adapters of a weight: the numbers of a
 * block of it must fit into memory. */
#define RSH_LOW_RANK_MAX 200000

/* What an adapter does to a weight. */
struct rsh_low_rank {
	uint32_t rank;
	float scale;
	bool rounds; /* scale * sum is rounded to the type of the weight before
		      * it is added */
};

/* Computes n elements of a row.  `row` has `rank` numbers; number k of column i
 * is columns[k * stride + i]. */
void rsh_low_rank_product(const float *row, const float *columns,
			  uint64_t stride, uint32_t rank, uint64_t n,
			  float *out);
/* Does the same without instructions that only some processors have. */
void rsh_low_rank_portable(const float *row, const float *columns,
			   uint64_t stride, uint32_t rank, uint64_t n,
			   float *out);
/* Multiplies n numbers. */
void rsh_low_rank_scale(float scale, uint64_t n, float *v);
/* Adds n numbers to `v`. */
void rsh_low_rank_add(const float *more, uint64_t n, float *v);
