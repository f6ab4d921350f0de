/* SPDX-License-Identifier: Apache-2.0 */
/* cli/verify.h - the command `verify`. */
#ifndef RSH_CLI_VERIFY_H
#define RSH_CLI_VERIFY_H

#include "rsh/options/exit.h"
#include "rsh/options/options.h"

enum rsh_exit rsh_verify(const struct rsh_options *o);

#endif
