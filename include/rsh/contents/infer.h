/* SPDX-License-Identifier: Apache-2.0 */
/* contents/infer.h tells what the bytes of a tree say of its strategy, without
 * having one.  One thread calls what is here; it reads on several. */
#ifndef RSH_CONTENTS_INFER_H
#define RSH_CONTENTS_INFER_H

#include "rsh/source/source.h"

/* This is one tensor as rsh_contents_infer() sees it; it is valid during the
 * call of `fn`. */
struct rsh_inferred {
	uint32_t name;
	uint32_t state_of; /* the parameter of which it is an optimizer state,
			    * or RSH_NAME_NONE */
	/* They have the shape and the type of a slice, which is the one of the
	 * lowest rank. */
	const struct rsh_ckpt_index *index;
	const struct rsh_record *record;
	const uint32_t *holders; /* ranks that hold it, ascending */
	uint32_t n_holders;
	uint32_t odd_rank; /* a rank whose slice has another shape or type;
			    * UINT32_MAX: none */
	/* These are the ranks that were compared: group[i] < n_holders is a
	 * number that ranks[i], which ascend, shares with those that hold the
	 * same. */
	uint32_t n;
	const uint32_t *ranks;
	const uint32_t *group;
	uint32_t n_groups;
	uint32_t n_failed; /* ranks that could not be read, and are left out */
	/* Some ranks hold the same as far as was read, but that is so simple
	 * (zeros, a lone number) that others might hold it as well. */
	bool simple;
	/* By its name the tensor is neither weight nor optimizer state, and may
	 * be what each rank keeps for itself. */
	bool may_be_private;
};

/* Finds out, without any strategy, which ranks of the chosen files, which are
 * indexed, hold the same of each tensor that is `wanted` (NULL: of all).  `fn`
 * gets the tensors in the order of the lowest rank that has them, and of that
 * rank's file.  Up to 64 ranks that hold a tensor are all compared, of more
 * those that tell meshes apart; by a block of 4 KiB each, and up to three more
 * where that is simple.  0, what `fn` returns if that is not 0, or -ENOMEM. */
int rsh_contents_infer(struct rsh_source *s, struct rsh_names *names,
		       bool (*wanted)(void *ctx, const char *name),
		       int (*fn)(void *ctx, const struct rsh_inferred *t),
		       void *ctx);

#endif
