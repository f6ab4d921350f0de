/* SPDX-License-Identifier: Apache-2.0 */
/* app/cli/supervise.c runs a command in a separate process, and checks whether
 * the command makes progress.
 *
 * If a daemon has taken a request and does not answer, the thread that waits
 * for it cannot be killed, and its process does not end before the answer.  So
 * the process that must end in time, or at Ctrl-C, cannot be the process that
 * reads.
 */
#include "config.h"

#include "commands.h"

#include <errno.h>
#include <inttypes.h>
#include <poll.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <sys/prctl.h>
#include <sys/statvfs.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "rsh/app/mounted.h"
#include "rsh/app/options.h"
#include "rsh/util/log.h"

/* A command is killed if it makes no progress in LOOKS_MAX looks, one after the
 * other, which together take PATIENCE_SECONDS.  The time during which it is
 * stopped, for example by Ctrl-Z, does not count, because this process is
 * stopped as well. */
#define PATIENCE_SECONDS 8
#define LOOK_MS 250
#define LOOKS_MAX (PATIENCE_SECONDS * 1000 / LOOK_MS)
/* The daemon must answer within this time. */
#define ANSWER_MS 500

/* A command that only waits uses less processor time than this, including the
 * time for its progress bar. */
#define BUSY_NS ((uint64_t)PATIENCE_SECONDS * 10 * 1000 * 1000)

/* This is the progress of a process. */
struct state {
	uint64_t cpu_ns;
	uint64_t bytes, calls; /* bytes and calls that it has read */
	bool known;
};

/* ---- observing ---- */

static struct state state_of(pid_t pid)
{
	struct state s = { 0 };
	struct timespec t;
	clockid_t clock;
	char path[64];
	FILE *f;

	if (!clock_getcpuclockid(pid, &clock) && !clock_gettime(clock, &t))
		s.cpu_ns = (uint64_t)t.tv_sec * 1000000000 +
			   (uint64_t)t.tv_nsec;

	snprintf(path, sizeof(path), "/proc/%d/io", (int)pid);
	f = fopen(path, "re");
	if (!f)
		return s;
	s.known = fscanf(f, "rchar: %" SCNu64 " wchar: %*u syscr: %" SCNu64,
			 &s.bytes, &s.calls) == 2;
	fclose(f);
	return s;
}

/* Waits until the other end of the pipe is closed. */
static bool is_closed(int pipe, int ms)
{
	struct pollfd p = { .fd = pipe, .events = POLLIN };

	return poll(&p, 1, ms) == 1;
}

/* Waits until the process ends.  Returns false if it makes no progress. */
static bool ends(pid_t pid, int pipe)
{
	struct state before = state_of(pid);
	unsigned looks = 0;

	while (!is_closed(pipe, LOOK_MS)) {
		const struct state now = state_of(pid);

		/* If the kernel does not count what a process reads, the
		 * command is never killed. */
		if (!now.known || now.bytes != before.bytes ||
		    now.calls != before.calls ||
		    now.cpu_ns > before.cpu_ns + BUSY_NS) {
			before = now;
			looks = 0;
		} else if (++looks == LOOKS_MAX) {
			return false;
		}
	}
	return true;
}

/* Forks.  The pipe is closed when the child ends, and the child is killed when
 * this process ends.  Returns -errno if that fails. */
static pid_t fork_bound(int *pipe)
{
	const pid_t parent = getpid();
	const pid_t pid = rsh_fork_with_pipe(pipe);

	if (pid == 0 && (prctl(PR_SET_PDEATHSIG, SIGKILL) ||
			 getppid() != parent))
		_exit(RSH_EXIT_IO);
	return pid;
}

/* The daemon answers statvfs(2) by itself, even if its source hangs. */
static bool mount_answers(const char *path)
{
	struct statvfs st;
	int pipe;
	bool answers;
	pid_t pid = fork_bound(&pipe);

	if (pid == 0)
		_exit(statvfs(path, &st) != 0);
	if (pid < 0)
		return false;
	answers = is_closed(pipe, ANSWER_MS);
	close(pipe);
	rsh_mounted_kill_child(pid);
	return answers;
}

/* ---- the command ---- */

int rsh_supervise(int argc, char **argv, int (*run)(int argc, char **argv))
{
	struct rsh_mounted m;
	int pipe, status, i = 2;
	pid_t pid;

	/* An operand or the value of an option may be a file in a mount. */
	while (i < argc && (*argv[i] == '-' || !rsh_mounted_holds(argv[i], &m)))
		i++;
	pid = i < argc ? fork_bound(&pipe) : 0;
	if (pid <= 0)
		return run(argc, argv);
	if (ends(pid, pipe)) {
		while (waitpid(pid, &status, 0) < 0)
			if (errno != EINTR)
				return RSH_EXIT_IO;
		if (!WIFSIGNALED(status))
			return WEXITSTATUS(status);
		/* This process ends in the same way. */
		signal(WTERMSIG(status), SIG_DFL);
		raise(WTERMSIG(status));
		return RSH_EXIT_IO;
	}
	rsh_mounted_kill_child(pid);
	if (mount_answers(m.path))
		rsh_log_error("%s: no data from this mount for %d seconds: "
			      "its daemon answers, but its source does not",
			      m.path, PATIENCE_SECONDS);
	else
		rsh_log_error("%s: the daemon of this mount does not answer: "
			      "it is stopped or hangs (reshardfs umount "
			      "--force unmounts it)", m.path);
	return RSH_EXIT_IO;
}
