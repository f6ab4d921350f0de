/* SPDX-License-Identifier: Apache-2.0 */
/* cli/umount.h - the command `umount`. */
#ifndef RSH_CLI_UMOUNT_H
#define RSH_CLI_UMOUNT_H

#include "rsh/options/exit.h"
#include "rsh/options/options.h"

enum rsh_exit rsh_umount(const struct rsh_options *o);

#endif
