/* SPDX-License-Identifier: Apache-2.0 */
/* app/line.h offers command lines to be pasted into a shell: what to type
 * next, and what may have been meant.
 *
 * Any thread may call these.  What they return is the caller's, from malloc.
 */
#ifndef RSH_APP_LINE_H
#define RSH_APP_LINE_H

#include "rsh/app/options.h"

/* Makes the line of a command with the operands, which NULL ends, and those
 * options that were given and that it takes; of another command than was called
 * without those that say nothing of a mount.  It can be shown on a terminal as it
 * is.  NULL: out of memory. */
char *rsh_options_line(const struct rsh_options *o,
		       const struct rsh_command *command,
		       const char *const *operands);

/* Makes the line that may have been meant by one that failed: with a SOURCE near
 * the one that is none, or with SOURCE and MOUNTPOINT exchanged.  It looks into
 * directories.  NULL: nothing is known. */
char *rsh_options_meant(const struct rsh_options *o);

#endif
