/* SPDX-License-Identifier: Apache-2.0 */
/* app/cli/commands.h declares the commands for main().  Each command takes
 * options that were checked for it, prints its errors, and returns the exit
 * status. */
#pragma once

#include <stdio.h>

#include "rsh/app/commands.h"
#include "rsh/app/options.h"

enum rsh_exit rsh_umount(const struct rsh_options *o);
enum rsh_exit rsh_ls(const struct rsh_options *o);
enum rsh_exit rsh_plan(const struct rsh_options *o);
enum rsh_exit rsh_export_command(const struct rsh_options *o);
enum rsh_exit rsh_verify(const struct rsh_options *o);
enum rsh_exit rsh_strategy_command(const struct rsh_options *o);
enum rsh_exit rsh_convert_command(const struct rsh_options *o);
enum rsh_exit rsh_warm(const struct rsh_options *o);
enum rsh_exit rsh_stats(const struct rsh_options *o); /* and `steps` */
enum rsh_exit rsh_help(const struct rsh_options *o);

/* Prints the commands and the options that all commands have: those without a
 * value, or all of them. */
void rsh_help_program(FILE *f, bool all);
/* Prints the most important options of a command, or all. */
void rsh_help_command(FILE *f, const struct rsh_command *command, bool all);

/* Runs a command that changes nothing, and returns the exit status.  If one of
 * its words names a file in a mount of reshardfs, it runs in a separate
 * process, which is killed with a message when it has waited for 8 seconds
 * without progress.  The caller must not have started any thread; both
 * processes return. */
int rsh_supervise(int argc, char **argv, int (*run)(int argc, char **argv));
