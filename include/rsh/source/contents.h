/* SPDX-License-Identifier: Apache-2.0 */
/* source/contents.h - whether a strategy is this tree's, by the bytes.
 *
 * Whatever a strategy says of a tensor can be held against what lies in the
 * files: ranks that hold the same slice hold the same bytes, and ranks that
 * hold different slices do not.  A sample is compared: of each layout a few
 * tensors, of each tensor a block of 4 KiB of a few ranks, which are chosen so
 * that any two meshes would show (rank 0, and for each way to divide the ranks
 * one that differs from it in that alone).  What is constant tells nothing.
 *
 * One tensor that contradicts the strategy is not always a wrong strategy: data
 * parallel ranks keep moving averages and loads for themselves, experts may
 * have begun as copies of one, tables repeat.  Weights and optimizer states do
 * not.  So the kind of a tensor, and what others of the same cut say, decide
 * whether it is an error or a line in the log.
 *
 * What the bytes cannot tell is which dimension is cut, and in which order.
 */
#ifndef RSH_SOURCE_CONTENTS_H
#define RSH_SOURCE_CONTENTS_H

#include "rsh/strategy/grid.h"
#include "rsh/strategy/strategy.h"
#include "rsh/source/source.h"

/* Holds the chosen files, which are indexed, against `src`; NULL: all ranks
 * hold the whole model.  `dst` (may be NULL) is tried as an explanation.  How
 * much is read follows from the source's options; a sample that was found right
 * is remembered in the index cache.  Converter's rule: the tree was written by
 * MindSpore's converter.
 * 0; -EINVAL with a sentence that names a parameter, two ranks, what the
 * strategy and what the bytes say of them; -ENOMEM.  What cannot be read is no
 * error here. */
int rsh_source_check_contents(struct rsh_source *s,
			      const struct rsh_strategy *src,
			      const struct rsh_strategy *dst,
			      enum rsh_grid_rule rule, struct rsh_names *names,
			      struct rsh_error *err);

/* Whether ranks beyond those of `src` have a file of the chosen step: 0, or
 * -EINVAL with a sentence that names both numbers; `dst` (may be NULL) is tried
 * as an explanation.  A warning if nothing but the structure is to be checked. */
int rsh_source_check_ranks(const struct rsh_source *s,
			   const struct rsh_strategy *src,
			   const struct rsh_strategy *dst,
			   struct rsh_error *err);

/* One tensor as rsh_source_infer() sees it; valid during the call. */
struct rsh_inferred {
	uint32_t name;
	uint32_t state_of; /* the parameter of which it is an optimizer state,
			    * or RSH_NAME_NONE */
	/* Shape and type of a slice: that of the lowest rank. */
	const struct rsh_ckpt_index *index;
	const struct rsh_record *record;
	const uint32_t *holders; /* ranks that hold it, ascending */
	uint32_t n_holders;
	uint32_t odd_rank; /* one whose slice has another shape or type;
			    * UINT32_MAX: none */
	/* Those that were compared: group[i] < n_holders is a number that
	 * ranks[i], which ascend, shares with those that hold the same. */
	uint32_t n;
	const uint32_t *ranks;
	const uint32_t *group;
	uint32_t n_groups;
	uint32_t n_failed; /* ranks that could not be read, and are left out */
	/* Some ranks hold the same as far as was read, but that is so simple
	 * (zeros, a lone number) that others might hold it as well. */
	bool simple;
	/* By its name it is neither weight nor optimizer state, and may be what
	 * each rank keeps for itself. */
	bool may_be_private;
};

/* Finds out, without any strategy, which ranks of the chosen files, which are
 * indexed, hold the same of each tensor that is `wanted` (NULL: of all); tensors
 * in the order of the lowest rank that has them, and of that rank's file.  Up to
 * 64 ranks that hold a tensor are all compared, of more those that tell meshes
 * apart; by a block of 4 KiB each, and up to three more where that is simple.
 * 0, what `fn` returns if that is not 0, or -ENOMEM. */
int rsh_source_infer(struct rsh_source *s, struct rsh_names *names,
		     bool (*wanted)(void *ctx, const char *name),
		     int (*fn)(void *ctx, const struct rsh_inferred *t),
		     void *ctx);

#endif
