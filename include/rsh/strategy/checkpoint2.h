/* SPDX-License-Identifier: Apache-2.0 */
/* strategy/checkpoint2.h - the strategy that a metadata.json of Checkpoint 2.0
 * describes. */
#ifndef RSH_STRATEGY_CHECKPOINT2_H
#define RSH_STRATEGY_CHECKPOINT2_H

#include "rsh/strategy/strategy.h"
#include "rsh/wire/checkpoint2.h"

/* Makes the strategy of the job that saved the step.  A stage is a list of
 * ranks that a layout has: all such lists have to be as long as the longest, n,
 * and have the ranks s * n .. s * n + n - 1 in this order.  A tensor that is
 * not split may have other ranks: it is unsplit in each stage that has one.
 * Without any layout the job is one stage.  Gradients that are accumulated
 * (accu_grads.*) are left out, since no checkpoint holds them.
 *
 * Nothing of `c` is needed afterwards.  Returns 0 and *out, which the caller
 * frees, -ENOMEM, or -EINVAL with a sentence that names the parameter: its
 * ranks are not a stage, or what rsh_strategy_merge() says. */
int rsh_strategy_of_checkpoint2(const struct rsh_ckpt2 *c, const char *path,
				struct rsh_names *names,
				struct rsh_strategy **out,
				struct rsh_error *err);

#endif
