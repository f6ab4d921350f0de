/* SPDX-License-Identifier: Apache-2.0 */
/* app/daemon/signals.c blocks the signals of a mount in all threads and takes
 * them in a separate thread. */
#include "config.h"

#include "daemon_i.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdlib.h>

#include "rsh/util/log.h"
#include "rsh/util/thread.h"

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

static void toggle_debug(const struct rsh_signals *s)
{
	bool on = rsh_log_get_level() != RSH_LOG_DEBUG;

	if (on)
		rsh_log_set_level(RSH_LOG_DEBUG);
	rsh_log_notice("log level: %s",
		       rsh_log_level_name(on ? RSH_LOG_DEBUG : s->quieter));
	if (!on)
		rsh_log_set_level(s->quieter);
}

static void *take_signal(void *arg)
{
	struct rsh_signals *s = arg;
	sigset_t set;
	int number;

	fill_signal_set(&set);
	while (sigwait(&set, &number) == 0 && !atomic_load(&s->stopping))
		if (number == SIGUSR1)
			s->tell(s->ctx);
		else
			toggle_debug(s);
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
