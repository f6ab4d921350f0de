/* SPDX-License-Identifier: Apache-2.0 */
/* app/exit.h defines the program's exit statuses, which are the same for all
 * commands. */
#ifndef RSH_APP_EXIT_H
#define RSH_APP_EXIT_H

#include "rsh/app/options.h"

enum rsh_exit {
	RSH_EXIT_GOOD = 0,
	RSH_EXIT_NO = 1,    /* the command worked, and its answer is no */
	RSH_EXIT_USAGE = 2, /* the command line is wrong */
	RSH_EXIT_INPUT = 3, /* an input is absent or not valid */
	RSH_EXIT_IO = 4,    /* the system refused: I/O, permission, memory */
};

/* Returns the exit status for 0 or -errno. */
enum rsh_exit rsh_exit_of(int rc);

/* Writes the error to standard error and the log; returns the exit status for
 * `rc`. */
enum rsh_exit rsh_exit_failed(const struct rsh_options *o, int rc,
			      const struct rsh_error *err);

#endif
