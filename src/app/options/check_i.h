/* SPDX-License-Identifier: Apache-2.0 */
/* app/options/check_i.h has what the checks of commands share, for this room
 * only. */
#ifndef RSH_APP_CHECK_I_H
#define RSH_APP_CHECK_I_H

#include "rsh/app/options.h"

/* Judges --convert and what belongs to it, finds the table, and assumes what
 * follows from the side that SOURCE is of: strategies, format, and what is
 * shown beside the weights.  Returns 0, or -errno with a sentence. */
int rsh_check_weights(struct rsh_options *o, struct rsh_error *err);

#endif
