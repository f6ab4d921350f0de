/* SPDX-License-Identifier: Apache-2.0 */
/* app/cli/interrupt.h lets long commands end properly at a signal. */
#ifndef RSH_APP_CLI_INTERRUPT_H
#define RSH_APP_CLI_INTERRUPT_H

#include <stdatomic.h>
#include <stdbool.h>

/* From now on SIGINT, SIGTERM and SIGHUP set the flag that is returned; a
 * second one ends the program at once, and the first one does two seconds
 * later.  SIGALRM is used for that. */
const atomic_bool *rsh_interrupt_catch(void);

#endif
