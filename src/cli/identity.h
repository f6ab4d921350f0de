/* SPDX-License-Identifier: Apache-2.0 */
/* cli/identity.h - what tells one mount from another. */
#ifndef RSH_CLI_IDENTITY_H
#define RSH_CLI_IDENTITY_H

#include <jansson.h>

#include "options.h"

/* SOURCE and the options of a mount, each a text, in an order and with paths
 * that do not depend on how they were written; without those that say nothing
 * of what is shown, such as where the log goes.  From jansson; NULL: out of
 * memory.  Looks up paths, so the directory must be that of the command. */
json_t *rsh_identity(const struct rsh_options *o);

#endif
