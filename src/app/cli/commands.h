/* SPDX-License-Identifier: Apache-2.0 */
/* app/cli/commands.h declares the commands for main().  Each command takes
 * options that were checked for it, prints its errors, and returns the exit
 * status. */
#ifndef RSH_APP_CLI_COMMANDS_H
#define RSH_APP_CLI_COMMANDS_H

#include "rsh/app/exit.h"
#include "rsh/app/options.h"

enum rsh_exit rsh_umount(const struct rsh_options *o);
enum rsh_exit rsh_ls(const struct rsh_options *o);
enum rsh_exit rsh_plan(const struct rsh_options *o);
enum rsh_exit rsh_export_command(const struct rsh_options *o);
enum rsh_exit rsh_verify(const struct rsh_options *o);
enum rsh_exit rsh_strategy_command(const struct rsh_options *o);
enum rsh_exit rsh_convert_command(const struct rsh_options *o);
enum rsh_exit rsh_warm(const struct rsh_options *o);
enum rsh_exit rsh_stats(const struct rsh_options *o);
enum rsh_exit rsh_steps(const struct rsh_options *o);

#endif
