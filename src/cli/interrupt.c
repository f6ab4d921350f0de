/* SPDX-License-Identifier: Apache-2.0 */
/* cli/interrupt.c sets a flag when a signal asks the command to end; the
 * second such signal ends the program. */
#include "config.h"

#include "interrupt.h"

#include <signal.h>
#include <stddef.h>

static atomic_bool interrupted;

static void on_signal(int sig)
{
	(void)sig;
	atomic_store(&interrupted, true);
}

const atomic_bool *rsh_interrupt_catch(void)
{
	static const int signals[] = { SIGINT, SIGTERM, SIGHUP };
	struct sigaction action = {
		.sa_handler = on_signal,
		.sa_flags = SA_RESTART | (int)SA_RESETHAND,
	}, old;

	sigemptyset(&action.sa_mask);
	for (size_t i = 0; i < sizeof(signals) / sizeof(signals[0]); i++)
		/* Whoever has a signal ignored, as nohup(1) and some shells do,
		 * means it. */
		if (sigaction(signals[i], NULL, &old) == 0 &&
		    old.sa_handler != SIG_IGN)
			sigaction(signals[i], &action, NULL);
	return &interrupted;
}
