/* SPDX-License-Identifier: Apache-2.0 */
/* plan/param_kind.h - derives from the name of a parameter whether it is a
 * weight or belongs to the optimizer, as far as a name tells it (kinds.h). */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* The kind of a MindSpore parameter, which follows from its name. */
enum rsh_kind {
	RSH_KIND_WEIGHT,  /* of the network, or not known */
	RSH_KIND_STATE,   /* an optimizer's state of a weight */
	RSH_KIND_COUNTER, /* other optimizer parameters: a step, a rate */
	RSH_KIND_GRADIENT,
};
enum rsh_kind rsh_kind_of(const char *name);

/* Returns whether this is the name of optimizer state in a distributed
 * checkpoint.  Such a name joins the keys of nested dictionaries, and the first
 * key is "optimizer" or "optim". */
bool rsh_is_flattened_state(const char *name);

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
