/* SPDX-License-Identifier: Apache-2.0 */
/* plan/factored_i.h - recipes of factored parts, for the files of plan/ only:
 *   mixed_radix.c      sets of mixed-radix numbers
 *   factored.c         makes and checks the parts
 *   factored_cursor.c  from a shown element to its place in the source
 *   factored_needs.c   which cells a slice needs
 *
 * A part is described in spans, as mappings are.  Along a span its factors are
 * the digits of mixed-radix numbers, the most significant first. */
#pragma once

#include "plan_i.h"

/* A mapping while it is made (mapping.c, factored.c). */
struct rsh_mapping_build {
	struct rsh_plan *p;
	const struct rsh_shown *t;
	struct rsh_mapping *w;
	uint64_t local[RSH_MAX_DIMS]; /* size of a cell; of the tensor if the
				       * cut is a list of boxes */
	bool joined[RSH_MAX_DIMS];    /* it belongs to the span of d - 1 */
	uint64_t inner[RSH_MAX_DIMS]; /* [dim]: units of one step along it
				       * through the dimensions joined to it */
	uint32_t span_of[RSH_MAX_DIMS];
	struct rsh_shown other;       /* t, if its recipe is rewritten */
	const struct rsh_cut *part_cut; /* as in struct rsh_mapping */
};

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

/* ---- parts ---- */

#define RSH_NO_FACTOR UINT32_MAX

struct rsh_factored {
	const struct rsh_tensor *tensor;
	/* shown_dim and dim of a factor are spans.  Those of shown span g are
	 * factors[first[g]] .. factors[first[g + 1] - 1], from the largest
	 * shown_step on. */
	uint32_t n;
	const struct rsh_factor *factors;
	const uint8_t *first;
	const uint64_t *from, *to; /* [shown span]: its elements are within */
	uint32_t n_in;
	const struct rsh_in_span *in; /* `axis` has no meaning */
	/* The factors with step 1 in the shown tensor, and in the source;
	 * RSH_NO_FACTOR: none. */
	uint32_t x, y;
};

/* Gives the indexes that a part has along a shown span. */
void rsh_factored_digits(const struct rsh_factored *f, uint32_t span,
			 struct rsh_mixed_radix *out);
/* Does what rsh_cursor_find() does for the unit at index at[span]. */
bool rsh_factored_find(const struct rsh_mapping *w, const uint64_t *at,
		       struct rsh_cursor *s);

/* Rewrites a factored recipe as boxes, if its parts are boxes and neighbours in
 * the shown tensor are neighbours in the source.  False: they are not, or
 * (*failed) memory is out. */
bool rsh_factored_as_boxes(struct rsh_mapping_build *k, bool *failed);
/* Rewrites parts that are boxes as factored parts.  0 or -ENOMEM. */
int rsh_factored_of_boxes(struct rsh_mapping_build *k);
/* Checks that each part is well formed and of the right type.  0, or -EINVAL or
 * -ENOTSUP with a message. */
int rsh_factored_check(const struct rsh_mapping_build *k,
		       struct rsh_error *err);
/* Returns whether dimensions d - 1 and d are contiguous in the shown tensor and
 * in all parts. */
bool rsh_factored_goes_on(const struct rsh_mapping_build *k, uint32_t d);
/* Makes the parts of a mapping whose spans are made, and checks that each
 * element is in exactly one part.  0, or -EINVAL or -ENOMEM with a message. */
int rsh_factored_make(struct rsh_mapping_build *k, struct rsh_error *err);

/* ---- needs ---- */

/* Elements of a part: all whose digit along factor i is from[i] <= digit <
 * to[i]. */
struct rsh_digit_box {
	const struct rsh_factored *part;
	uint64_t from[RSH_MAX_FACTORS], to[RSH_MAX_FACTORS];
};

/* Calls `each` for the digit boxes that make up the elements of a part in a
 * slice; n factors make at most 2 n - 1 along a span.  Stops when `each`
 * returns false, and returns that. */
typedef bool rsh_digit_box_fn(void *ctx, const struct rsh_digit_box *b);
bool rsh_factored_each(const struct rsh_mapping *w, uint32_t part,
		       const struct rsh_box *slice, rsh_digit_box_fn *each,
		       void *ctx);
/* Gives the smallest box of the part's tensor that has all the elements. */
void rsh_digit_box_bounds(const struct rsh_digit_box *b, struct rsh_box *out);
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
