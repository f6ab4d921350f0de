/* cli/option_check.h - the `check` of each command: operands, options that are
 * missing, and options that contradict each other. */
#ifndef RSH_CLI_OPTION_CHECK_H
#define RSH_CLI_OPTION_CHECK_H

#include "options.h"

int rsh_check_ls(struct rsh_options *o, struct rsh_error *err);
int rsh_check_warm(struct rsh_options *o, struct rsh_error *err);
int rsh_check_plan(struct rsh_options *o, struct rsh_error *err);
int rsh_check_mount(struct rsh_options *o, struct rsh_error *err);
int rsh_check_umount(struct rsh_options *o, struct rsh_error *err);
int rsh_check_stats(struct rsh_options *o, struct rsh_error *err);

#endif
