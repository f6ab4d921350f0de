/* SPDX-License-Identifier: Apache-2.0 */
/* app/daemon/daemon.c forks the process that serves a mount.  The parent waits
 * until the mount answers or the child fails. */
#include "config.h"

#include "daemon_i.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "rsh/app/mounted.h"
#include "rsh/util/log.h"
#include "rsh/util/mem.h"

int rsh_daemon_start(struct rsh_daemon *d)
{
	pid_t parent = getpid();
	int ends[2];

	if (pipe2(ends, O_CLOEXEC))
		return -errno;
	d->child = fork();
	if (d->child < 0) {
		int code = errno;

		close(ends[0]);
		close(ends[1]);
		return -code;
	}
	d->pipe = ends[d->child == 0];
	close(ends[d->child != 0]);
	if (d->child == 0) {
		/* If the waiting command is interrupted, the child must not
		 * mount. */
		prctl(PR_SET_PDEATHSIG, SIGTERM);
		if (getppid() != parent)
			_exit(1);
	}
	return 0;
}

static bool child_serves(int pipe)
{
	char c;
	ssize_t n;

	do {
		n = read(pipe, &c, 1);
	} while (n < 0 && errno == EINTR);
	return n == 1;
}

/* stat(2) on a mount whose daemon is gone fails with ENOTCONN. */
static void remove_dead_mount(const char *mountpoint)
{
	struct stat st;

	if (stat(mountpoint, &st) == 0 || errno != ENOTCONN)
		return;
	rsh_unmount(mountpoint, true, NULL);
}

static enum rsh_exit judge_end(int status)
{
	/* A child that exits with a status has already printed the error. */
	if (WIFEXITED(status) && WEXITSTATUS(status) != 0)
		return (enum rsh_exit)WEXITSTATUS(status);
	if (WIFSIGNALED(status))
		rsh_log_error("the daemon was ended by signal %d (%s) before "
			      "the mount was ready", WTERMSIG(status),
			      strsignal(WTERMSIG(status)));
	else
		rsh_log_error("the daemon was stopped before the mount was "
			      "ready");
	return RSH_EXIT_IO;
}

enum rsh_exit rsh_daemon_wait(struct rsh_daemon *d, const char *mountpoint)
{
	bool serves = child_serves(d->pipe);
	struct stat st;
	int status;

	close(d->pipe);
	if (serves && stat(mountpoint, &st) == 0)
		return RSH_EXIT_GOOD;
	if (serves) {
		rsh_log_error("%s does not answer: %s", mountpoint,
			      strerror(errno));
		kill(d->child, SIGTERM);
	}
	while (waitpid(d->child, &status, 0) < 0)
		if (errno != EINTR)
			return RSH_EXIT_IO;
	remove_dead_mount(mountpoint);
	return judge_end(status);
}

void rsh_daemon_detach(void)
{
	prctl(PR_SET_PDEATHSIG, 0);
	setsid();
	/* nohup(1) ignores SIGHUP because of the terminal, which the daemon has
	 * left, so SIGHUP gets its default action again. */
	signal(SIGHUP, SIG_DFL);
}

void rsh_daemon_ready(struct rsh_daemon *d, bool stay)
{
	cleanup_fd int null = open("/dev/null", O_RDWR | O_CLOEXEC);
	ssize_t n;

	if (!stay && chdir("/") != 0)
		rsh_log_warning("/: %s", strerror(errno));
	for (int fd = 0; fd <= 2 && null >= 0; fd++)
		dup2(null, fd);
	do {
		n = write(d->pipe, "", 1);
	} while (n < 0 && errno == EINTR);
	close(d->pipe);
	d->pipe = -1;
}
