/* SPDX-License-Identifier: Apache-2.0 */
/* app/options/unknown_i.h has the sentences about options that a command does not
 * have, for this room only.  Each returns -EINVAL. */
#ifndef RSH_APP_UNKNOWN_I_H
#define RSH_APP_UNKNOWN_I_H

#include "rsh/app/options.h"

/* Of --word, which may be ambiguous, or another command's; `before` says that it
 * stands before the name of a command. */
int rsh_unknown_long(const struct rsh_command *command, const char *word,
		     bool before, struct rsh_error *err);
/* Of a letter in `word`, as "-xyz". */
int rsh_unknown_letter(const struct rsh_command *command, const char *word,
		       int letter, struct rsh_error *err);

#endif
