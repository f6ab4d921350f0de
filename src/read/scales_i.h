/* SPDX-License-Identifier: Apache-2.0 */
/* read/scales_i.h - what is read beside the elements of a tensor: scales
 * (scales.c) and the matrices of adapters (factors.c); for these files only. */
#pragma once

#include "tiles_i.h"

/* Large enough for the groups of every model. */
#define RSH_SCALES_MAX ((uint64_t)64 * 1024 * 1024)

struct rsh_scales_read {
	struct rsh_source *source;
	struct rsh_kept *kept;
	const struct rsh_wait *wait;
	const struct rsh_scales *by;
	uint8_t *to;
};

/* Reads the elements of a box of a tensor to *out (from malloc), which the
 * caller frees, also after a failure.  Returns 0 or -errno. */
int rsh_scales_read_box(struct rsh_scales_read *r, const struct rsh_tensor *t,
			const struct rsh_box *box, uint8_t **out);

/* ---- factors.c: as the functions of scales.c, for adapters ----
 *
 * A chunk has what a block of the tensor needs, so its size is bounded. */

/* Returns the number of chunks of a tensor. */
uint64_t rsh_factors_chunks(const struct rsh_scales *s);
uint64_t rsh_factors_chunk(const struct rsh_scales *s, uint64_t n);
uint64_t rsh_factors_reach(const struct rsh_scales *s, uint64_t n);
uint64_t rsh_factors_bytes(const struct rsh_scales *s, uint64_t chunk);
int rsh_factors_load(struct rsh_scales_read *r, uint64_t chunk, float *out);
struct rsh_merge rsh_factors_by(const struct rsh_scales *s, uint64_t chunk,
				const float *factors);
