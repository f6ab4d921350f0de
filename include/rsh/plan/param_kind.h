/* SPDX-License-Identifier: Apache-2.0 */
/* plan/param_kind.h - tells by the name of a parameter whether it is a weight
 * or the optimizer's. */
#ifndef RSH_PLAN_PARAM_KIND_H
#define RSH_PLAN_PARAM_KIND_H

#include <stdbool.h>
#include <stdint.h>

/* What a parameter of MindSpore's is, by its name. */
enum rsh_kind {
	RSH_KIND_WEIGHT,  /* of the network, or not known */
	RSH_KIND_STATE,   /* an optimizer's state of a weight */
	RSH_KIND_COUNTER, /* other optimizer parameters: a step, a rate */
	RSH_KIND_GRADIENT,
};
enum rsh_kind rsh_kind_of(const char *name);

/* Is it optimizer state as distributed checkpoints name it: the keys of nested
 * dictionaries joined, the first being "optimizer" or "optim"? */
bool rsh_is_flattened_state(const char *name);

/* Is it the optimizer's (RSH_DIVIDE_KINDS: in the second file of a rank)? */
bool rsh_is_optimizer_param(const char *written);

/* Is it a weight, which a cast changes?  Scalars are not, nor names with the
 * prefixes that MindSpore's optimizers give their state. */
bool rsh_is_weight(const char *name, uint32_t n_dims);

#endif
