/* SPDX-License-Identifier: Apache-2.0 */
/* app/cli/strategy.h has the parts of the command `strategy`. */
#ifndef RSH_APP_CLI_STRATEGY_H
#define RSH_APP_CLI_STRATEGY_H

#include "rsh/app/exit.h"
#include "rsh/strategy/derive.h"

enum rsh_exit rsh_strategy_check_command(const struct rsh_options *o);

/* Reads the shapes in the tree at o->checkpoint, which was saved under `src`
 * (NULL: the tensors are whole); *out is NULL if no tree is given.  Returns 0
 * or -errno with a sentence. */
int rsh_strategy_shapes(const struct rsh_options *o,
			const struct rsh_strategy *src,
			struct rsh_names *names,
			struct rsh_derive_shapes **out, struct rsh_error *err);

#endif
