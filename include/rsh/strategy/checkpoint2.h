/* SPDX-License-Identifier: Apache-2.0 */
/* strategy/checkpoint2.h makes the strategy that a metadata.json of Checkpoint
 * 2.0 describes. */
#pragma once

#include "rsh/strategy/strategy.h"
#include "rsh/wire/checkpoint2.h"

/* Makes the strategy of the job that saved the step.  The ranks of a layout are
 * a stage: each such list must be as long as the longest one, n, and must be
 * the ranks s * n .. s * n + n - 1 in this order.  A tensor that is not split
 * may have other ranks: it is unsplit in each stage that has one of them.  If
 * there is no layout, the job has one stage.  Accumulated gradients
 * (accu_grads.*) are left out, because no checkpoint has them.
 *
 * `c` is not needed afterwards.  Returns 0 and *out, which the caller frees;
 * -ENOMEM; or -EINVAL with a sentence: the ranks of a parameter, which it
 * names, are not a stage, or an error of rsh_strategy_merge().
 */
int rsh_strategy_of_checkpoint2(const struct rsh_ckpt2 *c, const char *path,
				struct rsh_names *names,
				struct rsh_strategy **out,
				struct rsh_error *err);
