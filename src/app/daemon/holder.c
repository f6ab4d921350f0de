/* SPDX-License-Identifier: Apache-2.0 */
/* app/daemon/holder.c ends a mount when all processes that hold it have ended.
 * These processes have the other end of a pipe open.  The kernel closes that
 * end however a process ends, whichever thread has mounted. */
#include "config.h"

#include "daemon_i.h"

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdint.h>

#include "rsh/util/log.h"
#include "rsh/util/thread.h"

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
