/* SPDX-License-Identifier: Apache-2.0 */
/* app/cli/help.h offers what --help and --version print, made from the tables. */
#ifndef RSH_APP_CLI_HELP_H
#define RSH_APP_CLI_HELP_H

#include <stdio.h>

#include "rsh/app/commands.h"
#include "rsh/app/exit.h"

void rsh_help_program(FILE *f);
/* Prints the usual options of a command, or all. */
void rsh_help_command(FILE *f, const struct rsh_command *command, bool all);

/* Runs `help [COMMAND]`. */
enum rsh_exit rsh_help(const struct rsh_options *o);

/* Prints how `command` is called, without a newline. */
void rsh_help_usage(FILE *f, const struct rsh_command *command);

#endif
