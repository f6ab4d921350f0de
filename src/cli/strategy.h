/* SPDX-License-Identifier: Apache-2.0 */
/* cli/strategy.h - the command `strategy`. */
#ifndef RSH_CLI_STRATEGY_H
#define RSH_CLI_STRATEGY_H

#include "rsh/derive/derive.h"
#include "rsh/options/exit.h"

enum rsh_exit rsh_strategy_check_command(const struct rsh_options *o);

/* The shapes in the tree at o->checkpoint, which was saved under `src` (NULL:
 * whole tensors); *out is NULL if none is given.  0 or -errno with a sentence.
 */
int rsh_strategy_shapes(const struct rsh_options *o,
			const struct rsh_strategy *src,
			struct rsh_names *names,
			struct rsh_derive_shapes **out, struct rsh_error *err);

#endif
