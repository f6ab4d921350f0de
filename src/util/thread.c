/* SPDX-License-Identifier: Apache-2.0 */
/* util/thread.c starts threads with all signals blocked. */
#include "rsh/util/thread.h"

#include <signal.h>

int rsh_thread_start(pthread_t *thread, void *(*run)(void *), void *arg)
{
	sigset_t all, old;
	int rc;

	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &old);
	rc = pthread_create(thread, NULL, run, arg);
	pthread_sigmask(SIG_SETMASK, &old, NULL);
	return -rc;
}

int rsh_thread_start_alone(void *(*run)(void *), void *arg)
{
	pthread_t thread;
	const int rc = rsh_thread_start(&thread, run, arg);

	if (rc == 0)
		pthread_detach(thread);
	return rc;
}
