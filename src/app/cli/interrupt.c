/* SPDX-License-Identifier: Apache-2.0 */
/* app/cli/interrupt.c sets a flag when a signal asks the command to end.  A
 * second signal ends the program.  It also ends after a time limit, because it
 * may wait for a source that does not answer. */
#include "config.h"

#include "interrupt.h"

#include <signal.h>
#include <stddef.h>
#include <unistd.h>

/* A command has so much time to remove its unfinished files. */
#define GRACE_SECONDS 2

static atomic_bool interrupted;
static volatile sig_atomic_t by;

static void on_signal(int sig)
{
	by = sig;
	atomic_store(&interrupted, true);
	alarm(GRACE_SECONDS);
}

/* SA_RESETHAND has restored the default action of the signal `by`. */
static void on_alarm(int sig)
{
	(void)sig;
	raise(by);
}

const atomic_bool *rsh_interrupt_catch(void)
{
	static const int signals[] = { SIGINT, SIGTERM, SIGHUP };
	struct sigaction action = {
		.sa_handler = on_signal,
		.sa_flags = SA_RESTART | (int)SA_RESETHAND,
	}, old;

	sigemptyset(&action.sa_mask);
	signal(SIGALRM, on_alarm);
	for (size_t i = 0; i < sizeof(signals) / sizeof(signals[0]); i++)
		/* A signal that nohup(1) or a shell has set to be ignored stays
		 * ignored. */
		if (sigaction(signals[i], NULL, &old) == 0 &&
		    old.sa_handler != SIG_IGN)
			sigaction(signals[i], &action, NULL);
	return &interrupted;
}
