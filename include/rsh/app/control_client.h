/* SPDX-License-Identifier: Apache-2.0 */
/* app/control_client.h lets commands read the files of a mount's control
 * directory. */
#pragma once

#include <jansson.h>

#include "rsh/util/error.h"

/* Reads the JSON of a file of the control directory of the mount on `path`; the
 * caller drops *out.  Returns 0, or -errno with a sentence: -EINVAL if `path`
 * is not a mount of reshardfs.  The call waits for the mount's daemon.  Any
 * thread may call it. */
int rsh_control_query(const char *path, const char *name, json_t **out,
		      struct rsh_error *err);
/* Sets the sentence for a path that is not a mount of reshardfs; returns
 * -EINVAL. */
int rsh_control_refuse(const char *path, struct rsh_error *err);
