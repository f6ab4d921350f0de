/* SPDX-License-Identifier: Apache-2.0 */
/* weights/adapters.h merges PEFT adapters into the weights of a model: element
 * by element when it is read, as struct rsh_scaled says.
 *
 * The tensors of an adapter have the names that PEFT writes:
 * base_model.model.MODULE.lora_A.weight and lora_B.weight, lora_embedding_A and
 * lora_embedding_B, each perhaps with ".default".  Any other tensor replaces
 * the one of the model that has its name.
 *
 * One thread merges; nothing is read. */
#pragma once

#include "rsh/plan/writer.h"
#include "rsh/util/arena.h"
#include "rsh/wire/adapter_config.h"
#include "rsh/wire/model_config.h"

struct rsh_adapter {
	struct rsh_adapter_config *config;
	double scale;  /* multiplies the scaling of the config */
	uint32_t file; /* number of its file in the catalogue */
};

/* The numbers of tensors to which an adapter is added, and that it replaces. */
struct rsh_adapted {
	uint32_t n_merged, n_replaced;
	/* The number of modules of the model for which the config wants
	 * matrices and that have none, and the name of the first one, which is
	 * valid as long as the arena. */
	uint32_t n_lacking;
	const char *lacking;
};

struct rsh_adapters {
	const struct rsh_adapter *v; /* [n] */
	uint32_t n;
	const struct rsh_model_config *config; /* of the model; NULL: none */
	/* Returns what rsh_tensors_same() does. */
	int (*same)(void *ctx, const struct rsh_offer *a,
		    const struct rsh_offer *b, struct rsh_error *err);
	void *ctx;
	/* Set to true if embedding and head were tied, and an adapter gives one
	 * of them a weight of its own. */
	bool *untied;
};

/* Merges the n adapters in this order into the offers, which have Hugging
 * Face's names.  Adds tensors to the catalogue, which are valid as long as
 * `arena`.  Sets out[n].  Returns 0, -ENOMEM, or -EINVAL or -ENOTSUP with a
 * sentence that names file and tensor: it fits no tensor of the model, has
 * another shape or type, its other matrix is missing, or a weight that its
 * config says it replaces. */
int rsh_weights_adapt(const struct rsh_adapters *how, struct rsh_arena *arena,
		      struct rsh_offers *io, struct rsh_adapted *out,
		      struct rsh_error *err);
