/* cli/daemon.h - a child process that serves the mount, and the parent that
 * waits until it does.
 *
 * The child loads, plans and mounts with the terminal still attached, so that
 * its complaints are seen there, detaches, and says on a pipe that it serves.
 * The parent then looks at the mount itself before it believes that. */
#ifndef RSH_CLI_DAEMON_H
#define RSH_CLI_DAEMON_H

#include <stdbool.h>
#include <sys/types.h>

struct rsh_daemon {
	pid_t child; /* 0 in the child */
	int pipe;    /* the end of this process */
};

/* Forks; both processes return.  0 or -errno. */
int rsh_daemon_start(struct rsh_daemon *d);

/* Parent: waits until the child serves `mountpoint` and returns 0; else, when
 * the child has failed or died, sees to it that nothing is left mounted and
 * returns 1.  What a child that fails in order has to say it says itself. */
int rsh_daemon_wait(struct rsh_daemon *d, const char *mountpoint);

/* Child: leaves terminal, directory and standard streams. */
void rsh_daemon_detach(void);
/* Child, any thread: tells the parent. */
void rsh_daemon_ready(struct rsh_daemon *d);

#endif
