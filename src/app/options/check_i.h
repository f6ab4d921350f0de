/* SPDX-License-Identifier: Apache-2.0 */
/* app/options/check_i.h has what the checks of commands share.  It is private
 * to app/options. */
#ifndef RSH_APP_CHECK_I_H
#define RSH_APP_CHECK_I_H

#include "rsh/app/options.h"

/* Checks --convert and its options, finds the table of rules, and sets what
 * follows from the side that SOURCE is on: strategies, format, and the files
 * beside the weights.  Returns 0, or -errno with a sentence. */
int rsh_check_weights(struct rsh_options *o, struct rsh_error *err);

#endif
