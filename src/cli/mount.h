/* cli/mount.h - the command `mount`. */
#ifndef RSH_CLI_MOUNT_H
#define RSH_CLI_MOUNT_H

#include "options.h"

/* Mounts and serves, in this process or a daemon; returns the exit code. */
int rsh_mount(const struct rsh_options *o);

#endif
