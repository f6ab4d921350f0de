/* SPDX-License-Identifier: Apache-2.0 */
/* daemon/signals_i.h - what a running mount is asked for by signals: SIGUSR1
 * for its statistics in the log, SIGUSR2 for all requests there and again for
 * none.
 *
 * A thread waits for them, so that what they ask for may take locks and
 * memory. */
#ifndef RSH_DAEMON_SIGNALS_I_H
#define RSH_DAEMON_SIGNALS_I_H

struct rsh_signals;

/* Before there is any other thread: from here on the signals wait until they are
 * taken. */
void rsh_signals_block(void);
/* Takes them until rsh_signals_stop(); tell(ctx) writes the statistics.  0 or
 * -errno. */
int rsh_signals_start(void (*tell)(void *ctx), void *ctx,
		      struct rsh_signals **out);
void rsh_signals_stop(struct rsh_signals *s);

#endif
