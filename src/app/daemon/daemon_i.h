/* SPDX-License-Identifier: Apache-2.0 */
/* app/daemon/daemon_i.h has the child process that serves a mount, and the
 * parent that waits until the child serves.
 *
 * The child keeps the standard streams until it serves, so that the user of the
 * command sees all errors before that.  Then the child writes to a pipe, and
 * the parent checks the mount itself.
 */
#ifndef RSH_APP_DAEMON_I_H
#define RSH_APP_DAEMON_I_H

#include <stdbool.h>
#include <sys/types.h>

#include "rsh/app/exit.h"

struct rsh_daemon {
	pid_t child; /* 0 in the child */
	int pipe;    /* this process's end of the pipe */
};

/* Forks; both processes return.  Returns 0 or -errno. */
int rsh_daemon_start(struct rsh_daemon *d);

/* The parent must call this.  It waits until the child serves `mountpoint`.  If
 * the child fails or dies, it removes a mount that is left.  It returns the
 * child's exit status if the child exited, because the child has then already
 * printed the error. */
enum rsh_exit rsh_daemon_wait(struct rsh_daemon *d, const char *mountpoint);

/* The child must call this before it sets signal handlers.  It leaves the
 * terminal's session; from then on the child outlives its parent. */
void rsh_daemon_detach(void);
/* The child must call this, from any thread.  It leaves the standard streams
 * and, unless it has to `stay`, the working directory, and notifies the
 * parent. */
void rsh_daemon_ready(struct rsh_daemon *d, bool stay);

/* ---- messages to a service manager, as with sd_notify(3) ---- */

/* Sends one message, such as "READY=1", to the socket that NOTIFY_SOCKET names;
 * does nothing if there is no such socket.  Any thread may call it; errors are
 * logged. */
void rsh_notify(const char *message);

/* ---- signals ----
 *
 * SIGUSR1 writes statistics to the log.  SIGUSR2 switches the logging of all
 * requests on and off.  A thread waits for the signals, so that their work may
 * take locks and allocate memory.
 */

struct rsh_signals;

/* This must be called before there is any other thread.  From then on the
 * signals are pending until the thread takes them. */
void rsh_signals_block(void);
/* Takes the signals until rsh_signals_stop(); tell(ctx) writes the statistics.
 * Returns 0 or -errno. */
int rsh_signals_start(void (*tell)(void *ctx), void *ctx,
		      struct rsh_signals **out);
void rsh_signals_stop(struct rsh_signals *s);

/* Unmounts, by SIGTERM to the calling thread, when all processes have closed
 * the other end of the pipe `fd`; 0 means no pipe.  Returns 0 or -errno. */
int rsh_holder_watch(unsigned fd);

#endif
