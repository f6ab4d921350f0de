/* SPDX-License-Identifier: Apache-2.0 */
/* weights/peft.h converts an adapter (LoRA) of PEFT between two forms of names
 * of its model, also where the experts of one form are apart and those of the
 * other are stacked.
 *
 * The tensors have the names of weights/adapters.h.  Of a stack
 * MODULE.gate_up_proj [E, out, in], A is [E r, in], experts slowest, and B is
 * [out, r E], experts fastest.  The name of its matrices is that of the module:
 * if several stacks of it have adapters, the last one has the module's name,
 * and each one before it has ".base_layer" more.
 *
 * Conversions by rule tables are between rsh_weights_take_peft() and
 * rsh_weights_show_peft().  One thread uses these functions; nothing is
 * read. */
#pragma once

#include "rsh/weights/own_adapters.h"
#include "rsh/wire/adapter_config.h"
#include "rsh/wire/adapter_edit.h"

struct rsh_peft_adapter {
	uint32_t n;
	struct rsh_own_adapter *v;
	struct rsh_adapter_module *modules; /* [n] */
	uint32_t first; /* number of the first stand-in in the catalogue */
};

/* Replaces the matrices among the offers by weights without elements, which
 * have the names of the weights to which they belong, so that a table can
 * convert them.  `config` must outlive *out, which is valid as long as the
 * arena and the offers' recipes.  Returns 0, -ENOMEM, or -EINVAL or -ENOTSUP
 * with a sentence: a tensor has no such name, a matrix is missing, or has
 * another shape or rank than the config says. */
int rsh_weights_take_peft(struct rsh_offers *io,
			  const struct rsh_adapter_config *config,
			  struct rsh_arena *arena, struct rsh_peft_adapter *out,
			  struct rsh_error *err);

/* Replaces what a table has made of these weights by matrices.  Experts that
 * become a stack have the rank of all parts of it, and zeros in B where a part
 * has not the rows.  Experts that were a stack have a copy of A each, and their
 * rows of B.  Sets modules[*n], which the arena owns.  Returns 0, -ENOMEM, or
 * -ENOTSUP with a sentence if PEFT cannot have such an adapter. */
int rsh_weights_show_peft(const struct rsh_peft_adapter *a,
			  struct rsh_arena *arena, struct rsh_offers *io,
			  struct rsh_adapter_module **modules, uint32_t *n,
			  struct rsh_error *err);
