/* SPDX-License-Identifier: Apache-2.0 */
/* util/parallel.c starts threads that take the numbers of a list one by one,
 * and keeps the first failure.  The caller's own thread works with them. */
#include "config.h"

#include "rsh/util/parallel.h"
#include "rsh/util/thread.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <unistd.h>

#define MAX_THREADS 1024

struct crew {
	rsh_parallel_work *work;
	void *ctx;
	size_t n;
	_Atomic size_t next;
	atomic_bool failed;

	pthread_mutex_t lock; /* guards the first failure */
	int rc;
	struct rsh_error *err;
};

static void fail(struct crew *c, int rc, const struct rsh_error *err)
{
	pthread_mutex_lock(&c->lock);
	if (c->rc == 0) {
		c->rc = rc;
		*c->err = *err;
	}
	pthread_mutex_unlock(&c->lock);
	atomic_store(&c->failed, true);
}

static void *parallel_run(void *arg)
{
	struct crew *c = arg;

	while (!atomic_load(&c->failed)) {
		struct rsh_error err = RSH_ERROR_INIT;
		size_t i = atomic_fetch_add(&c->next, 1);
		int rc;

		if (i >= c->n)
			break;
		rc = c->work(c->ctx, i, &err);
		if (rc)
			fail(c, rc, &err);
	}
	return NULL;
}

static size_t threads_for(unsigned wanted, size_t n)
{
	long cpus = sysconf(_SC_NPROCESSORS_ONLN);
	size_t most = wanted ? wanted : cpus > 0 ? (size_t)cpus : 1;

	most = most < n ? most : n;
	return most < MAX_THREADS ? most : MAX_THREADS;
}

int rsh_parallel_for(unsigned n_threads, size_t n, rsh_parallel_work *work,
		     void *ctx, struct rsh_error *err)
{
	struct crew c = { .work = work, .ctx = ctx, .n = n, .err = err };
	size_t wanted = threads_for(n_threads, n), started = 0;
	pthread_t threads[MAX_THREADS];

	if (pthread_mutex_init(&c.lock, NULL))
		return rsh_error_nomem(err);
	/* If not all threads can be started, the work only takes longer. */
	while (started + 1 < wanted &&
	       rsh_thread_start(&threads[started], parallel_run, &c) == 0)
		started++;
	parallel_run(&c);
	for (size_t i = 0; i < started; i++)
		pthread_join(threads[i], NULL);
	pthread_mutex_destroy(&c.lock);
	return c.rc;
}
