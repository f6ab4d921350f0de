/* SPDX-License-Identifier: Apache-2.0 */
/* cli/export.h - the command `export`. */
#ifndef RSH_CLI_EXPORT_H
#define RSH_CLI_EXPORT_H

#include "rsh/options/exit.h"
#include "rsh/options/options.h"

enum rsh_exit rsh_export_command(const struct rsh_options *o);

#endif
