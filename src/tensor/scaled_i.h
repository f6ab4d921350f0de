/* SPDX-License-Identifier: Apache-2.0 */
/* tensor/scaled_i.h - the same conversion by the instructions of a processor;
 * for scaled.c only. */
#pragma once

#include <stdbool.h>

#include "rsh/tensor/scaled.h"

#ifdef __x86_64__

/* Returns whether the processor has what the next function needs. */
bool rsh_scaled_x86_can(void);
/* Decodes elements of one row of the whole, from column c on, as long as whole
 * vectors have one scale, or scales that follow each other.  Returns how many
 * of the n elements it decoded, which may be none.  Elements that are not
 * quantised and those with adapters are left alone. */
uint64_t rsh_scaled_x86(const struct rsh_scaled *m, uint64_t row, uint64_t c,
			uint64_t n, const uint8_t *in, uint8_t *out);

#endif

/* Returns how many elements from column c on have scales that follow in
 * memory, or one scale. */
static inline uint64_t rsh_scaled_stretch(const struct rsh_scaled *m,
					  uint64_t c)
{
	return m->block[1] == 1 ? UINT64_MAX : m->block[1] - c % m->block[1];
}

/* Returns the index of the scale of an element.  Columns that only fill the
 * last unit have no scales. */
static inline uint64_t rsh_scaled_at(const struct rsh_scaled *m, uint64_t row,
				     uint64_t c)
{
	const uint64_t line = m->groups ? m->groups[row] :
			      row / m->block[0] - m->first_row;
	const uint64_t at = c / m->block[1];

	return line * m->scale_columns +
	       (at < m->scale_columns ? at : m->scale_columns - 1);
}

/* Rounding twice to one type is rounding once, and Float32 is no step.  Returns
 * whether the product is rounded to `via`, or to `then`, on the way. */
static inline bool rsh_scaled_is_step(enum rsh_dtype step, enum rsh_dtype next)
{
	return (step == RSH_DTYPE_BFLOAT16 || step == RSH_DTYPE_FLOAT16) &&
	       step != next;
}
