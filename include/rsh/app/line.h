/* SPDX-License-Identifier: Apache-2.0 */
/* app/line.h makes command lines that can be pasted into a shell: the next
 * command to type, or a corrected command line.
 *
 * Any thread may call these.  The caller owns what they return (from malloc).
 */
#ifndef RSH_APP_LINE_H
#define RSH_APP_LINE_H

#include "rsh/app/options.h"

/* Makes the command line of a command with the operands (the array ends with
 * NULL) and those given options that the command takes.  If it is not the
 * command that was called, options that do not change what a mount shows are
 * left out.  The line can be printed on a terminal.  NULL: out of memory. */
char *rsh_options_line(const struct rsh_options *o,
		       const struct rsh_command *command,
		       const char *const *operands);

/* Makes a corrected line for one that failed: with a SOURCE near the one that
 * is not valid, or with SOURCE and MOUNTPOINT exchanged.  It looks into
 * directories.  NULL: no correction is known. */
char *rsh_options_meant(const struct rsh_options *o);

#endif
