/* SPDX-License-Identifier: Apache-2.0 */
/* storage/cache/worker.c has a thread that sleeps until there may be work. */
#include "config.h"

#include "cache_i.h"

#include <string.h>

#include "rsh/util/log.h"
#include "rsh/util/thread.h"

int rsh_worker_init(struct rsh_worker *w, struct rsh_cache *c,
		    bool (*step)(struct rsh_cache *c))
{
	int rc = pthread_cond_init(&w->wake, NULL);

	w->cache = c;
	w->step = step;
	return rc ? -rc : -pthread_cond_init(&w->idle, NULL);
}

static void *worker_main(void *arg)
{
	struct rsh_worker *w = arg;
	struct rsh_cache *c = w->cache;

	rsh_hold_lock(&c->lock);
	for (;;) {
		while (w->step(c))
			;
		w->pending = false;
		pthread_cond_broadcast(&w->idle);
		if (w->stop)
			break;
		while (!w->pending && !w->stop)
			pthread_cond_wait(&w->wake, &c->lock);
	}
	return NULL;
}

bool rsh_worker_kick(struct rsh_worker *w)
{
	/* To a thread that takes no signals a file size limit is only an error
	 * of write(2). */
	if (!w->started && !w->failed) {
		const int rc = rsh_thread_start(&w->thread, worker_main, w);

		w->started = rc == 0;
		w->failed = rc != 0;
		if (rc)
			rsh_log_warning("cannot start a thread for the cache: %s",
					strerror(-rc));
	}
	if (w->failed)
		return false;
	if (!w->pending)
		pthread_cond_signal(&w->wake);
	w->pending = true;
	return true;
}

void rsh_worker_settle(struct rsh_worker *w)
{
	while (w->started && w->pending)
		pthread_cond_wait(&w->idle, &w->cache->lock);
}

void rsh_worker_destroy(struct rsh_worker *w)
{
	struct rsh_cache *c = w->cache;

	pthread_mutex_lock(&c->lock);
	w->stop = true;
	pthread_cond_signal(&w->wake);
	pthread_mutex_unlock(&c->lock);
	if (w->started)
		pthread_join(w->thread, NULL);
	pthread_cond_destroy(&w->wake);
	pthread_cond_destroy(&w->idle);
}
