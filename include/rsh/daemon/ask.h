/* SPDX-License-Identifier: Apache-2.0 */
/* daemon/ask.h - reading what a mount tells about itself. */
#ifndef RSH_DAEMON_ASK_H
#define RSH_DAEMON_ASK_H

#include <jansson.h>

#include "rsh/util/error.h"

/* The JSON of a file of the control directory of the mount on `path`, to be
 * dropped.  0 or -errno with a sentence: -EINVAL if that is no mount of ours.
 * Waits for the mount's daemon. */
int rsh_ask(const char *path, const char *name, json_t **out,
	    struct rsh_error *err);
/* That sentence; -EINVAL. */
int rsh_ask_refuse(const char *path, struct rsh_error *err);

#endif
