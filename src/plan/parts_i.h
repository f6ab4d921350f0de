/* SPDX-License-Identifier: Apache-2.0 */
/* plan/parts_i.h - the parts of mappings, for the files of plan/ only:
 *   mixed_radix.c  sets of mixed-radix numbers
 *   recipe.c       checks the parts of a recipe
 *   mapping.c      makes the parts of a mapping
 *   cursor.c       from a shown element to its place in the source
 *   digits.c       which cells a slice needs
 *
 * A part is described in spans, as mappings are.  Along a span its factors are
 * the digits of mixed-radix numbers, the most significant first. */
#pragma once

#include "plan_i.h"

/* ---- mixed-radix numbers ---- */

/* Each factor of more than one element at least doubles the size of a part, so
 * there cannot be more factors. */
#define RSH_MAX_FACTORS 64

/* The numbers base + sum of k * step, with 0 <= k < size for each digit. Digits
 * are sorted by step, the largest first; each step is at least size * step of
 * the next digit.  All numbers are below 2^62. */
struct rsh_mixed_radix {
	uint64_t base;
	uint32_t n;
	struct rsh_digit {
		uint64_t size, step;
	} of[RSH_MAX_FACTORS];
};

/* Inserts a digit in order; there must be room. */
void rsh_mixed_radix_add(struct rsh_mixed_radix *v, uint64_t size,
			 uint64_t step);
/* Returns whether the digits have the order of struct rsh_mixed_radix, and all
 * numbers are below `limit`. */
bool rsh_mixed_radix_valid(const struct rsh_mixed_radix *v, uint64_t limit);
/* Returns the largest number. */
uint64_t rsh_mixed_radix_last(const struct rsh_mixed_radix *v);
/* Returns how many of the numbers n have from <= n < to. */
uint64_t rsh_mixed_radix_between(const struct rsh_mixed_radix *v, uint64_t from,
				 uint64_t to);
/* Returns whether both sets have a number in common.  *budget limits the steps
 * of the search, which reduces it.  Once it is 0 the result is always true. */
bool rsh_mixed_radix_meet(const struct rsh_mixed_radix *a,
			  const struct rsh_mixed_radix *b, uint32_t *budget);

/* ---- recipes ---- */

/* Checks that each part is well formed and of the right type.  0, or -EINVAL
 * with a message. */
int rsh_recipe_check(const struct rsh_plan *p, const struct rsh_shown *t,
		     struct rsh_error *err);
/* Returns whether the part has no elements. */
bool rsh_recipe_is_empty(const struct rsh_recipe_part *r);

/* ---- parts ---- */

#define RSH_NO_FACTOR UINT8_MAX

struct rsh_part {
	const struct rsh_tensor *tensor;
	/* shown_dim and dim of a factor are spans.  Those of shown span g are
	 * factors[first[g]] .. factors[first[g + 1] - 1], from the largest
	 * shown_step on. */
	const struct rsh_factor *factors;
	const uint8_t *first;
	const uint64_t *from, *to; /* [shown span]: its elements are within */
	const struct rsh_in_span *in;
	const struct rsh_alike *alike;
	uint8_t n, n_in, n_alike;
	bool is_plain; /* a span has one factor at most, and its steps are 1:
			* so it is a run, or rows of runs */
	/* The factors with step 1 in the shown tensor, and in the source, and
	 * the one along which runs repeat; RSH_NO_FACTOR: none. */
	uint8_t x, y, row;
};

/* Gives the indexes that a part has along a shown span. */
void rsh_part_digits(const struct rsh_part *f, uint32_t span,
		     struct rsh_mixed_radix *out);

/* ---- needs ---- */

/* Elements of a part in a slice: all whose digit along factor i is from[i] <=
 * digit < to[i]. */
struct rsh_digit_box {
	const struct rsh_part *part;
	const struct rsh_box *slice;
	uint64_t from[RSH_MAX_FACTORS], to[RSH_MAX_FACTORS];
};

/* Calls `each` for the digit boxes that make up the elements of a part in a
 * slice; n factors make at most 2 n - 1 along a span.  Stops when `each`
 * returns false, and returns that. */
typedef bool rsh_digit_box_fn(void *ctx, const struct rsh_digit_box *b);
bool rsh_part_each(const struct rsh_mapping *w, uint32_t part,
		   const struct rsh_box *slice, rsh_digit_box_fn *each,
		   void *ctx);
/* Gives the smallest box of the part's tensor that has all the elements. */
void rsh_digit_box_bounds(const struct rsh_digit_box *b, struct rsh_box *out);
/* Returns whether all elements of these bounds are in the digit box. */
bool rsh_digit_box_fills(const struct rsh_digit_box *b,
			 const struct rsh_box *bounds);
/* Returns how many of the elements are in a box of the part's tensor. */
uint64_t rsh_digit_box_count(const struct rsh_digit_box *b,
			     const struct rsh_box *in);
/* Gives a small box of the shown tensor that has all the elements that are in a
 * cell; there must be some. */
void rsh_digit_box_shown(const struct rsh_digit_box *b,
			 const struct rsh_mapping *w,
			 const struct rsh_box *cell, struct rsh_box *out);
/* Returns whether some of the elements are in no cell of the part's tensor.
 * Then *gap contains some of these elements, and no others. */
bool rsh_digit_box_gap(const struct rsh_digit_box *b, struct rsh_box *gap);
