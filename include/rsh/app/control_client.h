/* SPDX-License-Identifier: Apache-2.0 */
/* app/control_client.h lets commands read the files of a mount's control
 * directory. */
#pragma once

#include <jansson.h>

#include "rsh/app/mounted.h"
#include "rsh/util/error.h"

/* Reads the JSON of a file of the control directory of the mount on `path`; the
 * caller drops *out.  Returns 0, or -errno with a sentence: -EINVAL if `path`
 * is not a mount of reshardfs.  The call waits for the mount's daemon.  Any
 * thread may call it. */
int rsh_control_query(const char *path, const char *name, json_t **out,
		      struct rsh_error *err);
/* Reads `n` of these files by a separate process, as the user of the mount if
 * `as_user` is true and this process is root's: a process that waits for a
 * daemon that hangs cannot be ended.  *out is an array of them behind one other
 * value; the caller drops it.  Returns 0 or -errno, -ETIMEDOUT if there is no
 * answer in `ms`. */
int rsh_control_ask(const struct rsh_mounted *m, bool as_user,
		    const char *const *names, size_t n, int ms, json_t **out);
/* Sets the sentence for a path that is not a mount of reshardfs; returns
 * -EINVAL. */
int rsh_control_refuse(const char *path, struct rsh_error *err);
