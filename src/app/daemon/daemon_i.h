/* SPDX-License-Identifier: Apache-2.0 */
/* app/daemon/daemon_i.h has a child process that serves the mount, and the parent
 * that waits until it does.
 *
 * The child keeps the standard streams until it serves, so that whatever goes
 * wrong before is seen by whoever typed the command, and then says so on a
 * pipe.  The parent looks at the mount itself before it believes that.
 */
#ifndef RSH_APP_DAEMON_I_H
#define RSH_APP_DAEMON_I_H

#include <stdbool.h>
#include <sys/types.h>

#include "rsh/app/exit.h"

struct rsh_daemon {
	pid_t child; /* 0 in the child */
	int pipe;    /* this process's end of it */
};

/* Forks; both processes return.  Returns 0 or -errno. */
int rsh_daemon_start(struct rsh_daemon *d);

/* The parent calls this: it waits until the child serves `mountpoint`, or, when
 * the child has failed or died, sees to it that nothing is left mounted.  A
 * child that fails in order has said why, and its exit status is what is
 * returned. */
enum rsh_exit rsh_daemon_wait(struct rsh_daemon *d, const char *mountpoint);

/* The child calls this before it sets signal handlers: it leaves the terminal's
 * session.  From here on it outlives its parent. */
void rsh_daemon_detach(void);
/* The child calls this from any thread: it leaves directory and standard
 * streams, and tells the parent. */
void rsh_daemon_ready(struct rsh_daemon *d);

/* ---- telling a service manager, as sd_notify(3) does ---- */

/* Sends one message, such as "READY=1", to the socket that NOTIFY_SOCKET names;
 * does nothing where there is no such socket.  Any thread may call it; what
 * goes wrong is logged. */
void rsh_notify(const char *message);

/* ---- signals: SIGUSR1 asks for statistics in the log, SIGUSR2 for all
 * requests there and again for none.  A thread waits for them, so that what
 * they ask for may take locks and memory ---- */

struct rsh_signals;

/* Has to be called before there is any other thread: from here on the signals
 * wait until they are taken. */
void rsh_signals_block(void);
/* Takes the signals until rsh_signals_stop(); tell(ctx) writes the statistics.
 * Returns 0 or -errno. */
int rsh_signals_start(void (*tell)(void *ctx), void *ctx,
		      struct rsh_signals **out);
void rsh_signals_stop(struct rsh_signals *s);

/* Takes the mount down, by SIGTERM to the calling thread, when all have closed
 * the other end of the pipe `fd`; 0 is none.  Returns 0 or -errno. */
int rsh_holder_watch(unsigned fd);

#endif
