/* SPDX-License-Identifier: Apache-2.0 */
/* plan/options.h - the user's options for the files that are planned.  They do
 * not depend on the source's format. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "rsh/plan/framing.h"
#include "rsh/tensor/dtype.h"
#include "rsh/util/option.h"

enum rsh_unlisted {
	RSH_UNLISTED_COPY, /* as MindSpore's converter does */
	RSH_UNLISTED_DROP,
	RSH_UNLISTED_ERROR,
};

struct rsh_plan_options {
	/* How files are written and divided.  Parts are only for a conversion
	 * without a destination strategy. */
	const struct rsh_framing *framing;
	enum rsh_division division;
	uint64_t part_bytes; /* RSH_DIVIDE_PARTS: limit of a part, > 0 */
	/* What the framing writes into each file beside the records, in the
	 * form that it knows.  Not needed after the plan is made. */
	const void *form;
	/* Show the bytes that MindSpore's converter writes, even if they are
	 * wrong or lossy.  This has no effect where the converter writes
	 * nothing. */
	bool compat;
	bool may_compat; /* it could be so with the other options: notes say
			  * when that shows the converter's bytes */
	/* If the file of a slice is missing, or lacks the parameter, read the
	 * slice from another rank that holds it. */
	bool replicas;
	/* Plan although slices are missing; the files that need them are marked
	 * as lost. */
	bool allow_missing;
	/* Without any strategy, show so many ranks (0: one).  The file of a
	 * rank is a copy of the rank's own file or, with replicas, of any file.
	 * Records that it lacks are read from other files. */
	uint32_t n_shown_ranks;
	/* What to do with records that the destination's strategy does not
	 * list. */
	enum rsh_unlisted unlisted;
	/* Selects parameters by their names in the source; NULL: all.  It is an
	 * error if none is left. */
	bool (*wanted)(void *ctx, const char *name);
	/* Returns the name to write instead, which must outlive the plan, or
	 * NULL to keep the name; may be NULL. */
	const char *(*rename)(void *ctx, const char *name);
	/* Convert weights to this type: RSH_DTYPE_BFLOAT16, _FLOAT16 or
	 * _FLOAT32; RSH_DTYPE_UNKNOWN: none.  Weights are Float32, Float16 and
	 * BFloat16 tensors of at least one dimension that are not the
	 * optimizer's. */
	enum rsh_dtype cast;
	/* The file of SOURCE that says that weights are quantised; NULL: none
	 * does, or there is no cast. */
	const char *quantised_by;
	/* Write a parameter to the file of only one rank of each group of
	 * replicas, as MindSpore's ModelCheckpoint does with
	 * remove_redundancy. */
	bool remove_redundancy;
	/* The plan calls this with a sentence for each lost slice.  If a
	 * parameter has many, one sentence covers several slices.  May be
	 * NULL. */
	void (*report_lost)(void *ctx, const char *sentence);
	/* The plan calls this with a sentence if it may not be what is wanted:
	 * names part quantised weights from their scales, or a strategy lists
	 * weights that the source lacks.  May be NULL. */
	void (*report_doubt)(void *ctx, const char *sentence);
	void *ctx;
};

/* The options of this struct; the first list is of those for lost files. */
extern const struct rsh_option rsh_plan_lost_rows[], rsh_plan_rows[];
/* What it is if no option is given. */
extern const struct rsh_plan_options rsh_plan_usual;

/* Sets an enum rsh_dtype by a word of "bfloat16|float16|float32", or by that of
 * another program; the row has rsh_floats_of_words as its `values`. */
rsh_option_setter rsh_set_float;
extern const unsigned rsh_floats_of_words[];

/* Returns whether the parameter of this name in the source was selected. */
static inline bool rsh_plan_wants(const struct rsh_plan_options *o,
				  const char *name)
{
	return !o->wanted || o->wanted(o->ctx, name);
}
