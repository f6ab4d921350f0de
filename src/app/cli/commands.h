/* SPDX-License-Identifier: Apache-2.0 */
/* app/cli/commands.h declares the commands for main(). */
#pragma once

#include <stdio.h>

#include "rsh/app/commands.h"
#include "rsh/app/printer.h"

/* This is the run of a command: main() begins and ends its output, and prints
 * the error. */
struct rsh_run {
	struct rsh_printer out;
	struct rsh_error err;
	enum rsh_exit status; /* if the command returns 0 */
};

/* Each command takes options that were checked for it.  Returns 0, or -errno
 * with a sentence. */
int rsh_umount(const struct rsh_options *o, struct rsh_run *run);
int rsh_ls(const struct rsh_options *o, struct rsh_run *run);
int rsh_plan(const struct rsh_options *o, struct rsh_run *run);
int rsh_export_command(const struct rsh_options *o, struct rsh_run *run);
int rsh_verify(const struct rsh_options *o, struct rsh_run *run);
int rsh_strategy_command(const struct rsh_options *o, struct rsh_run *run);
int rsh_convert_command(const struct rsh_options *o, struct rsh_run *run);
int rsh_infer(const struct rsh_options *o, struct rsh_run *run);
int rsh_warm(const struct rsh_options *o, struct rsh_run *run);
int rsh_stats(const struct rsh_options *o, struct rsh_run *run); /* `steps` */
int rsh_list(const struct rsh_options *o, struct rsh_run *run);
int rsh_completion(const struct rsh_options *o, struct rsh_run *run);
int rsh_doctor(const struct rsh_options *o, struct rsh_run *run);
int rsh_help(const struct rsh_options *o, struct rsh_run *run);

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
