/* SPDX-License-Identifier: Apache-2.0 */
/* plan/options.h - what people want of the files that are planned, whatever
 * the source is. */
#ifndef RSH_PLAN_OPTIONS_H
#define RSH_PLAN_OPTIONS_H

#include <stdbool.h>
#include <stdint.h>

#include "rsh/plan/framing.h"
#include "rsh/tensor/dtype.h"

enum rsh_unlisted {
	RSH_UNLISTED_COPY, /* the converter's way */
	RSH_UNLISTED_DROP,
	RSH_UNLISTED_ERROR,
};

struct rsh_plan_options {
	/* Say how the files are written, and what goes into one.  Parts are
	 * for a conversion without a destination strategy. */
	const struct rsh_framing *framing;
	enum rsh_division division;
	uint64_t part_bytes; /* of a part at most; > 0 where there are parts */
	/* Show the bytes that MindSpore's converter writes, also where they are
	 * wrong or lossy.  Where it writes none, this changes nothing. */
	bool compat;
	/* A slice whose file is missing, or lacks the parameter, comes from
	 * another rank that holds the same slice. */
	bool replicas;
	/* Plan although some slices cannot be had: the files that need them
	 * are marked lost. */
	bool allow_missing;
	/* Without any strategy so many ranks are shown, each the copy of its
	 * own file or, with replicas, of whichever there is, and with what that
	 * one lacks and another has.  0: one. */
	uint32_t n_shown_ranks;
	/* Says what becomes of records that the destination's strategy does not
	 * list. */
	enum rsh_unlisted unlisted;
	/* Says which parameters are wanted, by their names in the source; NULL:
	 * all are.  That none is left is an error. */
	bool (*wanted)(void *ctx, const char *name);
	/* Gives the name to be written instead, which must live as long as the
	 * plan, or NULL to keep it; may be NULL. */
	const char *(*rename)(void *ctx, const char *name);
	/* Weights of another floating point type are given this one:
	 * RSH_DTYPE_BFLOAT16, _FLOAT16 or _FLOAT32; RSH_DTYPE_UNKNOWN: none.
	 * Weights are Float32, Float16 and BFloat16 tensors of at least one
	 * dimension that are not the optimizer's. */
	enum rsh_dtype cast;
	/* Each handled parameter is kept by one rank of those that hold the
	 * same slice of it, dealt out as MindSpore's ModelCheckpoint does with
	 * remove_redundancy. */
	bool remove_redundancy;
	/* Hears a sentence for each slice that cannot be had, or one for
	 * several slices of a parameter where they are many; may be NULL. */
	void (*report_lost)(void *ctx, const char *sentence);
	void *ctx;
};

#endif
