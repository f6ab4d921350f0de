/* SPDX-License-Identifier: Apache-2.0 */
/* app/control_client.h lets commands read what a mount tells about itself.
 */
#ifndef RSH_APP_CONTROL_CLIENT_H
#define RSH_APP_CONTROL_CLIENT_H

#include <jansson.h>

#include "rsh/util/error.h"

/* Reads the JSON of a file of the control directory of the mount on `path`,
 * which is the caller's to drop.  Returns 0, or -errno with a sentence: -EINVAL
 * if that is no mount of ours.  It waits for the mount's daemon.  Any thread
 * may call it. */
int rsh_control_query(const char *path, const char *name, json_t **out,
		      struct rsh_error *err);
/* Sets that sentence; returns -EINVAL. */
int rsh_control_refuse(const char *path, struct rsh_error *err);

#endif
