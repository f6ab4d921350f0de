/* SPDX-License-Identifier: Apache-2.0 */
/* app/daemon/daemon.c forks the process that serves a mount, takes its signals,
 * and tells a service manager about it.  The parent waits until the mount
 * answers or the child fails. */
#include "config.h"

#include "daemon_i.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include "rsh/app/mounted.h"
#include "rsh/util/log.h"
#include "rsh/util/mem.h"
#include "rsh/util/thread.h"

int rsh_daemon_start(struct rsh_daemon *d)
{
	pid_t parent = getpid();

	d->child = rsh_fork_with_pipe(&d->pipe);
	if (d->child < 0)
		return d->child;
	if (d->child == 0) {
		/* If the waiting command is interrupted, the child must not
		 * mount. */
		prctl(PR_SET_PDEATHSIG, SIGTERM);
		if (getppid() != parent)
			_exit(1);
	}
	return 0;
}

enum rsh_exit rsh_daemon_wait(struct rsh_daemon *d, const char *mountpoint)
{
	struct stat st;
	int status;
	ssize_t n;
	char c;

	do {
		n = read(d->pipe, &c, 1);
	} while (n < 0 && errno == EINTR);
	close(d->pipe);
	if (n == 1 && stat(mountpoint, &st) == 0)
		return RSH_EXIT_GOOD;
	if (n == 1) {
		rsh_log_error("%s does not answer: %s", mountpoint,
			      strerror(errno));
		kill(d->child, SIGTERM);
	}
	while (waitpid(d->child, &status, 0) < 0)
		if (errno != EINTR)
			return RSH_EXIT_IO;
	/* stat(2) on a mount whose daemon is gone fails with ENOTCONN. */
	if (stat(mountpoint, &st) != 0 && errno == ENOTCONN)
		rsh_unmount(mountpoint, true, NULL);
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

/* ---- messages to a service manager ---- */

static int send_to(const char *name, const char *message)
{
	struct sockaddr_un to = { .sun_family = AF_UNIX };
	const size_t n = strlen(name), len = strlen(message);
	cleanup_fd int fd = -1;

	if ((*name != '/' && *name != '@') || n >= sizeof(to.sun_path))
		return -EINVAL;
	memcpy(to.sun_path, name, n);
	if (*name == '@')
		to.sun_path[0] = '\0'; /* an abstract name */
	fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	if (fd < 0)
		return -errno;
	if (sendto(fd, message, len, MSG_NOSIGNAL, (struct sockaddr *)&to,
		   (socklen_t)(offsetof(struct sockaddr_un, sun_path) + n)) < 0)
		return -errno;
	return 0;
}

void rsh_notify(const char *message)
{
	const char *name = getenv("NOTIFY_SOCKET");
	int rc;

	if (!name || !*name)
		return;
	rc = send_to(name, message);
	if (rc)
		rsh_log_warning("NOTIFY_SOCKET %s: %s", name, strerror(-rc));
}

/* ---- signals ---- */

struct rsh_signals {
	pthread_t thread;
	atomic_bool stopping;
	enum rsh_log_level quieter; /* the level that SIGUSR2 restores */
	void (*tell)(void *ctx);
	void *ctx;
};

static void fill_signal_set(sigset_t *set)
{
	sigemptyset(set);
	sigaddset(set, SIGUSR1);
	sigaddset(set, SIGUSR2);
}

void rsh_signals_block(void)
{
	sigset_t set;

	fill_signal_set(&set);
	pthread_sigmask(SIG_BLOCK, &set, NULL);
}

static void *take_signal(void *arg)
{
	struct rsh_signals *s = arg;
	sigset_t set;
	int number;

	fill_signal_set(&set);
	while (sigwait(&set, &number) == 0 && !atomic_load(&s->stopping))
		if (number == SIGUSR1) {
			s->tell(s->ctx);
		} else if (rsh_log_get_level() != RSH_LOG_DEBUG) {
			rsh_log_set_level(RSH_LOG_DEBUG);
			rsh_log_notice("log level: %s",
				       rsh_log_level_name(RSH_LOG_DEBUG));
		} else {
			rsh_log_notice("log level: %s",
				       rsh_log_level_name(s->quieter));
			rsh_log_set_level(s->quieter);
		}
	return NULL;
}

int rsh_signals_start(void (*tell)(void *ctx), void *ctx,
		      struct rsh_signals **out)
{
	enum rsh_log_level level = rsh_log_get_level();
	struct rsh_signals *s = calloc(1, sizeof(*s));
	int rc;

	if (!s)
		return -ENOMEM;
	s->tell = tell;
	s->ctx = ctx;
	s->quieter = level == RSH_LOG_DEBUG ? RSH_LOG_NOTICE : level;
	rc = rsh_thread_start(&s->thread, take_signal, s);
	if (rc) {
		free(s);
		return rc;
	}
	*out = s;
	return 0;
}

void rsh_signals_stop(struct rsh_signals *s)
{
	if (!s)
		return;
	atomic_store(&s->stopping, true);
	pthread_kill(s->thread, SIGUSR1);
	pthread_join(s->thread, NULL);
	free(s);
}

/* ---- processes that hold a mount ----
 *
 * These processes have the other end of a pipe open.  The kernel closes that
 * end however a process ends, whichever thread has mounted. */

static pthread_t serving;

static void *wait_for_holders(void *arg)
{
	struct pollfd p = { .fd = (int)(intptr_t)arg };
	int n;

	/* poll() reports an error or the end of the pipe in any case. */
	do {
		n = poll(&p, 1, -1);
	} while (n < 0 && errno == EINTR);
	rsh_log_notice("the process that held this mount has ended: "
		       "unmounting");
	pthread_kill(serving, SIGTERM);
	return NULL;
}

int rsh_holder_watch(unsigned fd)
{
	if (!fd)
		return 0;
	serving = pthread_self();
	return rsh_thread_start_alone(wait_for_holders, (void *)(intptr_t)fd);
}
