/* SPDX-License-Identifier: Apache-2.0 */
/* contents/infer.h finds what the bytes of a tree show about its strategy,
 * without a strategy.  Threads: one thread calls these functions, which read
 * with several threads. */
#pragma once

#include "rsh/source/source.h"

/* This is one tensor as rsh_contents_infer() reports it; it is valid during the
 * call of `fn`. */
struct rsh_inferred {
	uint32_t name;
	uint32_t state_of; /* the parameter whose optimizer state it is, or
			    * RSH_NAME_NONE */
	/* These have shape and type of the slice of the lowest rank. */
	const struct rsh_ckpt_index *index;
	const struct rsh_record *record;
	const uint32_t *holders; /* ranks that hold the tensor, ascending */
	uint32_t n_holders;
	uint32_t odd_rank; /* a rank whose slice has another shape or type;
			    * UINT32_MAX: none */
	/* These are the ranks that were compared, ascending.  group[i] <
	 * n_holders is a number; ranks with equal bytes have the same
	 * number. */
	uint32_t n;
	const uint32_t *ranks;
	const uint32_t *group;
	uint32_t n_groups;
	uint32_t n_failed; /* ranks that could not be read; they are left out */
	/* Some ranks have equal bytes in what was read, but with so few values
	 * (zeros, a single number) that other ranks may have them as well. */
	bool simple;
	/* By its name the tensor is neither a weight nor an optimizer state,
	 * and may differ by rank. */
	bool may_be_private;
};

/* Finds without a strategy which ranks of the chosen files, which must be
 * indexed, hold equal bytes of each tensor that is `wanted` (NULL: of all
 * tensors).  `fn` gets the tensors in the order of the lowest rank that has
 * them, and in the order of that rank's file.  If up to 64 ranks hold a tensor,
 * all are compared; of more only those that distinguish meshes.  A block of 4
 * KiB of each is read, and up to three more if the bytes are too simple.
 * Returns 0, the result of `fn` if it is not 0, or -ENOMEM. */
typedef bool rsh_infer_wanted_fn(void *ctx, const char *name);
typedef int rsh_infer_fn(void *ctx, const struct rsh_inferred *t);
int rsh_contents_infer(struct rsh_source *s, struct rsh_names *names,
		       rsh_infer_wanted_fn *wanted, rsh_infer_fn *fn,
		       void *ctx);
