/* SPDX-License-Identifier: Apache-2.0 */
/* app/options/unknown_i.h has the errors for options that a command does not
 * have.  It is private to app/options.  Each function returns -EINVAL. */
#ifndef RSH_APP_UNKNOWN_I_H
#define RSH_APP_UNKNOWN_I_H

#include "rsh/app/options.h"

/* Sets the error for --word, which may be ambiguous or an option of another
 * command; `before` says that it is before the name of a command. */
int rsh_unknown_long(const struct rsh_command *command, const char *word,
		     bool before, struct rsh_error *err);
/* Sets the error for a letter in `word`, such as "-xyz". */
int rsh_unknown_letter(const struct rsh_command *command, const char *word,
		       int letter, struct rsh_error *err);

#endif
