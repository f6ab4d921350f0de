/* SPDX-License-Identifier: Apache-2.0 */
/* app/cli/help.h prints --help and --version, from the tables. */
#ifndef RSH_APP_CLI_HELP_H
#define RSH_APP_CLI_HELP_H

#include <stdbool.h>
#include <stdio.h>

#include "rsh/app/commands.h"
#include "rsh/app/exit.h"

/* Prints the commands and the options that all commands have: those without a
 * value, or all of them. */
void rsh_help_program(FILE *f, bool all);
/* Prints the most important options of a command, or all. */
void rsh_help_command(FILE *f, const struct rsh_command *command, bool all);

/* Runs `help [COMMAND]`. */
enum rsh_exit rsh_help(const struct rsh_options *o);

#endif
