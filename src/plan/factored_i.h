/* SPDX-License-Identifier: Apache-2.0 */
/* plan/factored_i.h - recipes of factored parts, for the files of plan/ only:
 *   mixed_radix.c          the numbers that factors count to along one
 * dimension factored.c        the parts made and checked factored_cursor.c from
 * an element that is shown to its place factored_needs.c  which cells a slice
 * needs
 *
 * A part is kept in spans, as walks are, and its factors are *digits*: along a
 * span, numbers with a first digit that counts most and a last one that counts
 * least. */
#ifndef RSH_PLAN_FACTORED_I_H
#define RSH_PLAN_FACTORED_I_H

#include "mapping_build_i.h"

/* ---- numbers of digits ---- */

/* Each factor of more than one element at least doubles a part. */
#define RSH_MAX_FACTORS 64

/* These are base + sum of k * step, with 0 <= k < size, sorted by step from the
 * largest on; each step is no smaller than size * step of the next digit.  All
 * of them are below 2^62. */
struct rsh_mixed_radix {
	uint64_t base;
	uint32_t n;
	struct rsh_digit {
		uint64_t size, step;
	} of[RSH_MAX_FACTORS];
};

/* Puts a digit where it belongs; there is room. */
void rsh_mixed_radix_add(struct rsh_mixed_radix *v, uint64_t size,
			 uint64_t step);
/* Do the digits follow the rules above, and are all numbers below `limit`? */
bool rsh_mixed_radix_valid(const struct rsh_mixed_radix *v, uint64_t limit);
/* Gives the largest number. */
uint64_t rsh_mixed_radix_last(const struct rsh_mixed_radix *v);
/* Tells how many of the numbers are from <= number < to. */
uint64_t rsh_mixed_radix_between(const struct rsh_mixed_radix *v, uint64_t from,
				 uint64_t to);
/* Have both a number in common?  *budget is how many steps may be taken, and
 * how many are left then; once it is 0 the answer is always yes. */
bool rsh_mixed_radix_meet(const struct rsh_mixed_radix *a,
			  const struct rsh_mixed_radix *b, uint32_t *budget);

/* ---- parts ---- */

#define RSH_NO_FACTOR UINT32_MAX

struct rsh_factored {
	const struct rsh_tensor *tensor;
	const struct rsh_tensor *scale; /* NULL: none */
	uint64_t block[2];              /* of the scale */
	/* shown_dim and dim of a factor are spans.  Those of shown span g are
	 * factors[first[g]] .. factors[first[g + 1] - 1], from the largest
	 * shown_step on. */
	uint32_t n;
	const struct rsh_factor *factors;
	const uint8_t *first;
	const uint64_t *from, *to; /* [shown span]: its elements are within */
	uint32_t n_in;
	const struct rsh_in_span *in; /* `axis` has no meaning */
	/* The factor along which elements that are shown follow each other, and
	 * the one along which they do in the source; RSH_NO_FACTOR: none. */
	uint32_t x, y;
};

/* Gives the numbers that a part has along a shown span. */
void rsh_factored_digits(const struct rsh_factored *f, uint32_t span,
			 struct rsh_mixed_radix *out);
/* Finds a unit, which stands at these places along the shown spans, as
 * rsh_cursor_find() does. */
bool rsh_factored_find(const struct rsh_mapping *w, const uint64_t *at,
		       struct rsh_cursor *s);

/* Says a factored recipe as parts that are boxes, if it is that and neighbours
 * that are shown are neighbours in the source.  False: it is not, or (with
 * *failed) memory is out. */
bool rsh_factored_as_boxes(struct rsh_mapping_build *k, bool *failed);
/* Says parts that are boxes as factored ones.  0 or -ENOMEM. */
int rsh_factored_of_boxes(struct rsh_mapping_build *k);
/* Is each part well formed, and of the right type?  0, or -EINVAL or -ENOTSUP
 * with a sentence. */
int rsh_factored_check(const struct rsh_mapping_build *k,
		       struct rsh_error *err);
/* Do steps along dimension d go on in dimension d - 1, on both sides? */
bool rsh_factored_goes_on(const struct rsh_mapping_build *k, uint32_t d);
/* Makes the parts of a mapping that has its spans, and finds out whether they
 * have each element once.  0, -EINVAL with a sentence, or -ENOMEM with one. */
int rsh_factored_make(struct rsh_mapping_build *k, struct rsh_error *err);

/* ---- needs ---- */

/* This is what a slice has of a part, or some of that: all elements whose digit
 * along factor i is from[i] <= digit < to[i]. */
struct rsh_digit_box {
	const struct rsh_factored *part;
	uint64_t from[RSH_MAX_FACTORS], to[RSH_MAX_FACTORS];
};

/* Tells `each` the digit boxes that make up what a slice has of a part; of n
 * factors there are at most 2 n - 1 along a span.  Ends when it gives false,
 * and gives that. */
typedef bool rsh_digit_box_fn(void *ctx, const struct rsh_digit_box *b);
bool rsh_factored_each(const struct rsh_mapping *w, uint32_t part,
		       const struct rsh_box *slice, rsh_digit_box_fn *each,
		       void *ctx);
/* Gives the smallest box of the part's tensor that has all elements. */
void rsh_digit_box_bounds(const struct rsh_digit_box *b, struct rsh_box *out);
/* Tells how many of the elements lie in a box of the part's tensor. */
uint64_t rsh_digit_box_count(const struct rsh_digit_box *b,
			     const struct rsh_box *in);
/* Gives a small box of the shown tensor that has all of the elements that are
 * in a cell, of which there are some. */
void rsh_digit_box_shown(const struct rsh_digit_box *b,
			 const struct rsh_mapping *w,
			 const struct rsh_box *cell, struct rsh_box *out);
/* Are some of the elements in no cell of the part's tensor?  *gap has some of
 * them, and no others. */
bool rsh_digit_box_gap(const struct rsh_digit_box *b, struct rsh_box *gap);

#endif
