/* SPDX-License-Identifier: Apache-2.0 */
/* fuse/fatal_signals.c tells whether a thread ends once it comes out of the
 * kernel. */
#include "config.h"

#include "ops_i.h"

#include <errno.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>

/* These are signals that have come, to the thread or to all of its process, and
 * what is done with them.  `tracer` is its debugger, 0 if it has none. */
struct signals {
	uint64_t own, shared, blocked, ignored, caught, tracer;
};

static bool read_signals(FILE *f, struct signals *s)
{
	const struct {
		const char *name;
		uint64_t *to;
	} wanted[] = {
		{ "SigPnd:", &s->own }, { "ShdPnd:", &s->shared },
		{ "SigBlk:", &s->blocked }, { "SigIgn:", &s->ignored },
		{ "SigCgt:", &s->caught }, { "TracerPid:", &s->tracer },
	};
	const size_t n = sizeof(wanted) / sizeof(wanted[0]);
	size_t found = 0;
	char line[512], name[16];
	uint64_t set;

	while (found < n && fgets(line, sizeof(line), f)) {
		if (sscanf(line, "%15s %" SCNx64, name, &set) != 2)
			continue;
		for (size_t i = 0; i < n; i++)
			if (strcmp(name, wanted[i].name) == 0) {
				*wanted[i].to = set;
				found++;
			}
	}
	return found == n;
}

int rsh_thread_dies(pid_t thread)
{
	static const int harmless[] = { SIGCHLD, SIGCONT, SIGURG, SIGWINCH,
					SIGSTOP, SIGTSTP, SIGTTIN, SIGTTOU };
	struct signals s;
	char path[32];
	uint64_t fatal;
	FILE *f;

	if (thread <= 0)
		return -ESRCH;
	snprintf(path, sizeof(path), "/proc/%d/status", (int)thread);
	f = fopen(path, "re");
	if (!f)
		return -errno;
	if (!read_signals(f, &s)) {
		fclose(f);
		return -EIO;
	}
	fclose(f);
	/* The kernel sends SIGKILL to all threads of a process that ends, which
	 * nobody can block. */
	fatal = (s.own | s.shared) & ~(s.blocked | s.ignored | s.caught);
	if (s.tracer)
		fatal &= UINT64_C(1) << (SIGKILL - 1);
	for (size_t i = 0; i < sizeof(harmless) / sizeof(harmless[0]); i++)
		fatal &= ~(UINT64_C(1) << (harmless[i] - 1));
	return fatal != 0;
}
