/* SPDX-License-Identifier: Apache-2.0 */
/* plan/param_kind.h - what a parameter is, told by its name: a weight, or an
 * optimizer's. */
#ifndef RSH_PLAN_PARAM_KIND_H
#define RSH_PLAN_PARAM_KIND_H

#include <stdbool.h>
#include <stdint.h>

/* This says by its name what a parameter of MindSpore's is. */
enum rsh_kind {
	RSH_KIND_WEIGHT,  /* of the network, or not known */
	RSH_KIND_STATE,   /* what an optimizer keeps of a weight */
	RSH_KIND_COUNTER, /* what it keeps besides: a step, a rate */
	RSH_KIND_GRADIENT,
};
enum rsh_kind rsh_kind_of(const char *name);

/* Is it the state of an optimizer, as distributed checkpoints name it: with all
 * keys of the nested dictionary that it was in, the first being "optimizer" or
 * "optim"? */
bool rsh_is_flattened_state(const char *name);

/* Is it an optimizer's, which stands in the second file of a rank? */
bool rsh_is_apart(const char *written);

/* Is it a weight, which a cast changes?  Scalars are none, nor what has the
 * prefixes that MindSpore's optimizers give their state. */
bool rsh_is_weight(const char *name, uint32_t n_dims);

#endif
