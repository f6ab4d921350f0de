/* SPDX-License-Identifier: Apache-2.0 */
/* cli/mount.h - the command `mount`. */
#ifndef RSH_CLI_MOUNT_H
#define RSH_CLI_MOUNT_H

#include "exit.h"
#include "options.h"

/* Mounts and serves, in this process or a daemon. */
enum rsh_exit rsh_mount(const struct rsh_options *o);

#endif
