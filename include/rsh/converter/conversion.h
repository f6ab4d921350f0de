/* SPDX-License-Identifier: Apache-2.0 */
/* converter/conversion.h - MindSpore rank files as they are wanted in another
 * strategy: the dialect of ModelCheckpoint's trees.
 *
 * Its reader makes a catalogue of the ranks' files and the source's strategy;
 * its writer makes the plan that MindSpore's converter would have followed:
 * which records a rank's file has, in which order, and which rank's file a
 * copied one comes from.
 *
 * Where both strategies put every slice on the same ranks, and nothing is asked
 * for that would change it, a rank's file is its source file, byte for byte, or
 * that of a rank that holds the same slice of everything.  One thread makes a
 * plan; what may be done with it then stands in plan/plan.h.
 */
#ifndef RSH_CONVERTER_CONVERSION_H
#define RSH_CONVERTER_CONVERSION_H

#include "rsh/catalogue/files.h"
#include "rsh/plan/framing.h"
#include "rsh/strategy/strategy.h"

enum rsh_unlisted {
	RSH_UNLISTED_COPY, /* the converter's way */
	RSH_UNLISTED_DROP,
	RSH_UNLISTED_ERROR,
};

struct rsh_conversion_options {
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

/* Gives the source ranks that the strategies speak of, whose files are worth
 * indexing: first .. first + n - 1.  Without a source strategy that is any rank
 * (*n is UINT32_MAX), as all hold the same, or with a destination's and no
 * replicas rank 0. */
void rsh_conversion_source_ranks(const struct rsh_strategy *src,
				 const struct rsh_strategy *dst,
				 const struct rsh_names *names, bool replicas,
				 uint32_t *first, uint32_t *n);

/* Plans the file of every destination rank.  A NULL strategy is the whole model
 * on one device.  The plan is the caller's; it keeps pointers into both
 * strategies and the view's indexes and names, which must outlive it; the view
 * itself and its arrays need not.  0, or -errno with a sentence: -EINVAL when
 * the strategies and files contradict each other, -ENOENT when a needed file is
 * missing, -EFBIG when a virtual file would be larger than files can be,
 * -ENOTSUP when its format cannot hold a parameter. */
int rsh_convert(const struct rsh_strategy *src, const struct rsh_strategy *dst,
		const struct rsh_source_view *view,
		const struct rsh_conversion_options *opts,
		struct rsh_plan **out, struct rsh_error *err);

#endif
