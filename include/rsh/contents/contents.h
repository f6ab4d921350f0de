/* SPDX-License-Identifier: Apache-2.0 */
/* contents/contents.h checks whether a strategy fits the bytes of a tree.
 *
 * What a strategy says about a tensor can be compared with the files: ranks
 * that hold the same slice must have equal bytes, and ranks that hold different
 * slices must not.  A sample is compared: a few tensors of each layout, and of
 * each tensor a block of 4 KiB of a few ranks.  These ranks distinguish any two
 * meshes: rank 0 and, for each way to divide the ranks, one that differs from
 * it only there.  Constant bytes prove nothing.
 *
 * One tensor that contradicts the strategy does not always prove that the
 * strategy is wrong: data parallel ranks have their own moving averages and
 * loads, experts may be copies of one, and tables may repeat.  Weights and
 * optimizer states do not.  So the kind of a tensor, and the other tensors with
 * the same cut, decide whether it is an error or a line in the log.
 *
 * The bytes cannot show which dimension is cut, and in which order.
 *
 * Threads: one thread calls these functions, which read with several threads.
 * They keep nothing after a call.
 */
#pragma once

#include "rsh/source/source.h"
#include "rsh/strategy/grid.h"
#include "rsh/strategy/strategy.h"

/* Compares the chosen files, which must be indexed, with `src`; NULL: all ranks
 * hold the whole model.  `dst` (may be NULL) is tried as an explanation.  The
 * source's options decide how much is read; a sample that fits is remembered in
 * the index cache.  `rule` is RSH_GRID_CONVERTER if MindSpore's converter wrote
 * the tree.  Returns 0; -EINVAL with a sentence that names a parameter, two
 * ranks, and what the strategy and the bytes say about them; or -ENOMEM.  A
 * file that cannot be read is not an error here. */
int rsh_contents_check(struct rsh_source *s, const struct rsh_strategy *src,
		       const struct rsh_strategy *dst, enum rsh_grid_rule rule,
		       struct rsh_names *names, struct rsh_error *err);

/* Compares tensors that `src` does not list and that are copied from one rank,
 * as copied[name] says, with the other ranks of their stage, and warns if they
 * differ: such a tensor is cut, and `src` may belong to another network.  If
 * nothing differs, this is remembered, too.  Returns 0 or -ENOMEM. */
int rsh_contents_check_unlisted(struct rsh_source *s,
				const struct rsh_strategy *src,
				struct rsh_names *names, const bool *copied,
				struct rsh_error *err);

/* Checks whether ranks that `src` does not have have a file of the chosen step.
 * Returns 0, or -EINVAL with a sentence that names both numbers of ranks; `dst`
 * (may be NULL) is tried as an explanation.  If only the structure is checked,
 * it is a warning. */
int rsh_contents_check_ranks(const struct rsh_source *s,
			     const struct rsh_strategy *src,
			     const struct rsh_strategy *dst,
			     struct rsh_error *err);

/* Checks with an older step, if ranks that `src` does not have have no file of
 * the chosen step, which must be indexed: it is an error if the older step has
 * more slices of the same shape than `src` says.  Returns 0, -EINVAL with a
 * sentence, or -ENOMEM.  `opts` are the options with which the source was
 * opened. */
int rsh_contents_check_older(struct rsh_source *s,
			     const struct rsh_source_options *opts,
			     const struct rsh_strategy *src,
			     enum rsh_grid_rule rule, struct rsh_names *names,
			     struct rsh_error *err);

/* These are slices of one rank's file that it lacks, as all others do. */
struct rsh_lost_slices {
	uint32_t n;
	uint32_t name; /* the parameter of one of them */
};
/* Finds the slices that no file has although other slices of the parameter in
 * the stage are there, by the names in the indexes of n_ranks ranks; NULL: a
 * rank has no file.  Adds each to the lowest rank that holds it by the strategy
 * and has a file; `out` has an element for each rank of the strategy, zeroed
 * before.  A slice of which no rank has a file is not counted.  Returns 0 or
 * -ENOMEM. */
int rsh_contents_lost_slices(const struct rsh_strategy *s,
			     const struct rsh_ckpt_index *const *index,
			     uint32_t n_ranks, struct rsh_lost_slices *out);
