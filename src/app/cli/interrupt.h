/* SPDX-License-Identifier: Apache-2.0 */
/* app/cli/interrupt.h lets long commands clean up when a signal ends them. */
#ifndef RSH_APP_CLI_INTERRUPT_H
#define RSH_APP_CLI_INTERRUPT_H

#include <stdatomic.h>
#include <stdbool.h>

/* From now on SIGINT, SIGTERM and SIGHUP set the flag that is returned.  A
 * second signal ends the program at once; the first one ends it after two
 * seconds.  SIGALRM is used for that. */
const atomic_bool *rsh_interrupt_catch(void);

#endif
