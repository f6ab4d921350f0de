/* SPDX-License-Identifier: Apache-2.0 */
/* cli/stats.h - the command `stats`. */
#ifndef RSH_CLI_STATS_H
#define RSH_CLI_STATS_H

#include "rsh/options/exit.h"
#include "rsh/options/options.h"

enum rsh_exit rsh_stats(const struct rsh_options *o);

#endif
