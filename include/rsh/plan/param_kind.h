/* SPDX-License-Identifier: Apache-2.0 */
/* plan/param_kind.h - derives from the name of a parameter whether it is a
 * weight or belongs to the optimizer, as far as a name tells it (kinds.h). */
#pragma once

#include <stdbool.h>
#include <stddef.h>

/* The kind of a MindSpore parameter, which follows from its name. */
enum rsh_kind {
	RSH_KIND_WEIGHT,  /* of the network, or not known */
	RSH_KIND_STATE,   /* an optimizer's state of a weight */
	RSH_KIND_COUNTER, /* other optimizer parameters: a step, a rate */
	RSH_KIND_GRADIENT,
};
enum rsh_kind rsh_kind_of(const char *name);

/* Returns whether this is the name of optimizer state in a distributed
 * checkpoint or a file of PyTorch.  Such a name joins the keys of nested
 * dictionaries, and the first key is "optimizer", "optim" or another one that
 * programs use, such as "optimizer_state_dict". */
bool rsh_is_flattened_state(const char *name);
/* Returns whether this is the name of what a job saves beside the model and its
 * optimizer, such as "lr_schedulers"; most of it is no tensor.  `keyed`: the
 * weights have the key "state_dict", as Lightning saves them, beside which
 * "callbacks" and "loops" are no modules. */
bool rsh_is_job_state(const char *name, bool keyed);

/* Returns whether the first `length` bytes of a name are a prefix of states in
 * MindSpore that modules have as a name too: it is a state only if there is a
 * parameter with the rest of its name. */
bool rsh_kind_is_state_beside(const char *name, size_t length);

/* Returns whether such parameters belong to the optimizer.  With
 * RSH_DIVIDE_KINDS they are in the second file of a rank. */
static inline bool rsh_kind_is_of_optimizer(enum rsh_kind kind)
{
	return kind == RSH_KIND_STATE || kind == RSH_KIND_COUNTER;
}
