/* SPDX-License-Identifier: Apache-2.0 */
/* daemon/identity_i.h - what tells one mount from another. */
#ifndef RSH_DAEMON_IDENTITY_I_H
#define RSH_DAEMON_IDENTITY_I_H

#include <jansson.h>

#include "rsh/options/options.h"

/* SOURCE and the options of a mount, each a text, in an order and with paths
 * that do not depend on how they were written; without those that say nothing
 * of what is shown, such as where the log goes.  From jansson; NULL: out of
 * memory.  Looks up paths, so the directory must be that of the command. */
json_t *rsh_identity(const struct rsh_options *o);

#endif
