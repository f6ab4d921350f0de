/* SPDX-License-Identifier: Apache-2.0 */
/* contents/contents.h - whether a strategy fits the bytes of a tree.
 *
 * Whatever a strategy says of a tensor can be compared with the files: ranks
 * that hold the same slice hold the same bytes, and ranks that hold different
 * slices do not.  A sample is compared: of each layout a few tensors, of each
 * tensor a block of 4 KiB of a few ranks, which are chosen so that any two
 * meshes would show (rank 0, and for each way to divide the ranks one that
 * differs from it in that alone).  What is constant tells nothing.
 *
 * One tensor that contradicts the strategy is not always a wrong strategy: data
 * parallel ranks keep moving averages and loads for themselves, experts may
 * have begun as copies of one, tables repeat.  Weights and optimizer states do
 * not.  So the kind of a tensor, and what others of the same cut say, decide
 * whether it is an error or a line in the log.
 *
 * What the bytes cannot tell is which dimension is cut, and in which order. One
 * thread calls what is here; it reads on several.  Nothing is owned beyond a
 * call. */
#ifndef RSH_CONTENTS_CONTENTS_H
#define RSH_CONTENTS_CONTENTS_H

#include "rsh/source/source.h"
#include "rsh/strategy/grid.h"
#include "rsh/strategy/strategy.h"

/* Compares the chosen files, which are indexed, with `src`; NULL: all ranks
 * hold the whole model.  `dst` (may be NULL) is tried as an explanation.  How
 * much is read follows from the source's options; a sample that was found right
 * is remembered in the index cache.  `rule` is the converter's where
 * MindSpore's converter wrote the tree.  0; -EINVAL with a sentence that names
 * a parameter, two ranks, what the strategy and what the bytes say of them;
 * -ENOMEM.  What cannot be read is no error here. */
int rsh_contents_check(struct rsh_source *s, const struct rsh_strategy *src,
		       const struct rsh_strategy *dst, enum rsh_grid_rule rule,
		       struct rsh_names *names, struct rsh_error *err);

/* Compares tensors that `src` does not list and that are copied from one rank,
 * as copied[name] says, with the other ranks of their stage, and warns where
 * they differ: such a tensor is cut, and `src` may be that of another network.
 * Where nothing differs that is remembered, too.  0 or -ENOMEM. */
int rsh_contents_check_unlisted(struct rsh_source *s,
				const struct rsh_strategy *src,
				struct rsh_names *names, const bool *copied,
				struct rsh_error *err);

/* Checks whether ranks beyond those of `src` have a file of the chosen step: 0,
 * or -EINVAL with a sentence that names both numbers; `dst` (may be NULL) is
 * tried as an explanation.  It is a warning if nothing but the structure is to
 * be checked. */
int rsh_contents_check_ranks(const struct rsh_source *s,
			     const struct rsh_strategy *src,
			     const struct rsh_strategy *dst,
			     struct rsh_error *err);

/* Checks by an older step, where ranks beyond those of `src` have no file of
 * the chosen one, which is indexed: were there more slices of the same shape
 * than `src` says?  0, -EINVAL with a sentence, or -ENOMEM.  `opts` is what the
 * source was opened with. */
int rsh_contents_check_older(struct rsh_source *s,
			     const struct rsh_source_options *opts,
			     const struct rsh_strategy *src,
			     enum rsh_grid_rule rule, struct rsh_names *names,
			     struct rsh_error *err);

#endif
