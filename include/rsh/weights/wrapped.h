/* SPDX-License-Identifier: Apache-2.0 */
/* weights/wrapped.h - names of weights that were saved from a wrapped module.
 *
 * torch.compile puts "_orig_mod." before the names of what it compiles, FSDP
 * "_fsdp_wrapped_module.", activation checkpointing
 * "_checkpoint_wrapped_module.", and DataParallel, DistributedDataParallel and
 * DeepSpeed "module.", Fabric "_forward_module." before all names of the model.
 *
 * This is arithmetic without I/O. */
#pragma once

#include "rsh/plan/writer.h"
#include "rsh/util/arena.h"

/* Returns whether the name has a word of a wrapper, at its beginning or after a
 * dot; "module." counts only at the beginning. */
bool rsh_name_is_wrapped(const char *name);
/* Returns whether the name begins with the key "model." of a training state,
 * and not with the model's own word: with "model.model.", "model.lm_head.",
 * "model.module." or "model._forward_module.". */
bool rsh_name_is_keyed(const char *name);

/* Gives offers the names without wrappers.  "module." and "_forward_module."
 * are removed, as often as they are there, only if all have them, and so are
 * the keys "state_dict.", "model_state_dict." and "model." of a training state
 * before that; what its optimizer has is not looked at.  `key` is the one under
 * which the source says that all weights are; NULL: it does not say.  *n is the
 * number of names that changed.  The names are added to the table of the
 * catalogue.  Returns 0, -ENOMEM, or -EINVAL with a sentence if two names would
 * be one. */
int rsh_weights_unwrap(struct rsh_offers *io, const char *key,
		       struct rsh_arena *arena, uint32_t *n,
		       struct rsh_error *err);
