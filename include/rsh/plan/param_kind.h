/* SPDX-License-Identifier: Apache-2.0 */
/* plan/param_kind.h - derives from the name of a parameter whether it is a
 * weight or belongs to the optimizer. */
#pragma once

#include <stdbool.h>
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

/* Returns whether the parameter belongs to the optimizer.  With
 * RSH_DIVIDE_KINDS such parameters are in the second file of a rank. */
bool rsh_is_optimizer_param(const char *written);

/* Returns whether the parameter is a weight, which a cast changes.  Scalars are
 * not weights.  Names with the prefixes of MindSpore's optimizer states are not
 * weights either. */
bool rsh_is_weight(const char *name, uint32_t n_dims);
