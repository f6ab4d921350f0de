/* SPDX-License-Identifier: Apache-2.0 */
/* weights/own_adapters.h finds the adapters (LoRA) that a checkpoint of
 * MindSpore has beside its weights.  They are merged into these weights, or
 * shown under the names that PEFT gives them.
 *
 * The matrices of the weight MODULE.weight are A [rank, in] and B [out, rank]:
 *
 *   MODULE.lora_A.weight          networks with the names of Megatron-Core
 *   MODULE.mindpet_delta_lora_a   layers of mindpet; also with a capital A
 *   MODULE.lora_a                 PyNative
 *
 * and the same with B.  One thread uses these functions; nothing is read. */
#pragma once

#include "rsh/weights/weights.h"

struct rsh_own_adapter {
	const char *module;
	struct rsh_offer a, b;
};

struct rsh_own_adapters {
	uint32_t n;
	struct rsh_own_adapter *v;
};

/* Takes the matrices of all adapters out of the offers, and optimizer states of
 * matrices.  The rest keeps its order.  What is found is valid as long as the
 * arena and the offers' recipes.  Returns 0, -ENOMEM, or -EINVAL or -ENOTSUP
 * with a sentence: there is no adapter, a matrix is missing, has another shape
 * or type than a matrix of an adapter has, or belongs to experts. */
int rsh_weights_take_own(struct rsh_offers *io, struct rsh_arena *arena,
			 struct rsh_own_adapters *out, struct rsh_error *err);

/* Merges the adapters into the weights among the offers, as
 * rsh_weights_adapt() does, with the scaling alpha / rank.  Returns 0, -ENOMEM,
 * or -EINVAL or -ENOTSUP with a sentence: the weight is missing, has another
 * shape or type. */
int rsh_weights_merge_own(const struct rsh_own_adapters *a, double alpha,
			  struct rsh_arena *arena, struct rsh_offers *io,
			  struct rsh_error *err);

/* Makes offers of the adapted weights, which have no elements, so that a table
 * can convert them.  Nothing is added to the catalogue between two of them.
 * Returns 0 or -ENOMEM with a sentence. */
int rsh_weights_stand_ins(const struct rsh_own_adapters *a,
			  struct rsh_catalogue *cat, struct rsh_arena *arena,
			  struct rsh_offers *out, struct rsh_error *err);

/* Replaces offers that a table has made of the stand-ins.  Instead of each
 * there are two matrices with PEFT's names: the A of the weight of which it is
 * a part, and those rows of its B that are the rows of this part.  Returns 0,
 * -ENOMEM, or -ENOTSUP with a sentence if PEFT cannot have such an adapter: a
 * tensor is made of several weights, or has its columns in another order, or
 * ranks differ. */
int rsh_weights_show_own(const struct rsh_own_adapters *a,
			 const struct rsh_offers *stand_ins,
			 struct rsh_arena *arena, struct rsh_offers *io,
			 struct rsh_error *err);
