/* SPDX-License-Identifier: Apache-2.0 */
/* cli/warm.h - the command `warm`: look at the files of a mount, and read
 * them, before the job does. */
#ifndef RSH_CLI_WARM_H
#define RSH_CLI_WARM_H

#include "rsh/options/exit.h"
#include "rsh/options/options.h"

enum rsh_exit rsh_warm(const struct rsh_options *o);

#endif
