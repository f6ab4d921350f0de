/* SPDX-License-Identifier: Apache-2.0 */
/* weights/schemes_i.h - what the schemes of quantised weights share; schemes.c
 * has the list of them. */
#pragma once

#include "quantised_i.h"

/* ---- scheme_scales.c ---- */

/* Returns whether config.json names this method. */
bool scheme_is(const struct quantised_work *w, const char *method);
bool scheme_has_shape(const struct rsh_offer *o, uint64_t rows,
		      uint64_t columns);
/* Returns whether the elements are bytes, or pairs of FP4 in a byte. */
bool scheme_is_byte(const struct rsh_offer *o);
bool scheme_is_float(enum rsh_dtype type);
void scheme_set_block(struct quantised_tensor *t, uint64_t rows,
		      uint64_t columns);

/* A matrix that must be beside the one with the elements. */
struct scheme_beside {
	const char *end; /* of its name, after the stem */
	enum rsh_dtype type;
	uint64_t rows, columns;
};
/* Sets *out and takes the matrix from what is shown.  Returns 0, or -errno with
 * a sentence if it is missing or has another type or shape. */
int scheme_take(struct quantised_work *w, const struct quantised_tensor *t,
		const struct scheme_beside *want,
		const struct rsh_tensor **out);
/* Takes the scales of a matrix, which exist, and finds its blocks by their
 * shape.  Returns 0, or -errno with a sentence. */
int scheme_take_blocks(struct quantised_work *w, struct quantised_tensor *t,
		       const char *end);

/* These set a sentence, and return -errno: about the type of a tensor, about
 * scales `s` that must belong to such blocks, or to blocks of the config. */
int scheme_bad_type(const struct quantised_work *w, uint32_t at);
int scheme_bad_blocks(const struct quantised_work *w, const struct rsh_offer *s,
		      const struct quantised_tensor *t,
		      const uint64_t block[2]);
int scheme_bad_scales(const struct quantised_work *w, const struct rsh_offer *s,
		      const struct quantised_tensor *t);

/* ---- scheme_compressed.c ---- */

/* As quantised_recognise(), for compressed-tensors. */
int scheme_recognise_compressed(struct quantised_work *w, uint32_t at,
				struct quantised_tensor *t, bool *is);
