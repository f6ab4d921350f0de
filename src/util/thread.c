/* SPDX-License-Identifier: Apache-2.0 */
/* util/thread.c starts threads with all signals blocked. */
#include "config.h"

#include "rsh/util/thread.h"

#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <unistd.h>

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

/* ---- parallel loops ---- */

#define MAX_THREADS 1024

struct parallel {
	rsh_parallel_work *work;
	void *ctx;
	size_t n;
	_Atomic size_t next; /* the next item to begin */
	atomic_bool failed;

	pthread_mutex_t lock; /* guards the first failure */
	int rc;
	struct rsh_error *err;
};

static void *parallel_run(void *arg)
{
	struct parallel *p = arg;

	while (!atomic_load(&p->failed)) {
		struct rsh_error err = RSH_ERROR_INIT;
		size_t i = atomic_fetch_add(&p->next, 1);
		int rc;

		if (i >= p->n)
			break;
		rc = p->work(p->ctx, i, &err);
		if (rc) {
			pthread_mutex_lock(&p->lock);
			if (p->rc == 0) {
				p->rc = rc;
				*p->err = err;
			}
			pthread_mutex_unlock(&p->lock);
			atomic_store(&p->failed, true);
		}
	}
	return NULL;
}

static size_t parallel_threads(unsigned wanted, size_t n)
{
	long cpus = sysconf(_SC_NPROCESSORS_ONLN);
	size_t most = wanted ? wanted : cpus > 0 ? (size_t)cpus : 1;

	most = most < n ? most : n;
	return most < MAX_THREADS ? most : MAX_THREADS;
}

int rsh_parallel_for(unsigned n_threads, size_t n, rsh_parallel_work *work,
		     void *ctx, struct rsh_error *err)
{
	struct parallel p = { .work = work, .ctx = ctx, .n = n, .err = err };
	size_t wanted = parallel_threads(n_threads, n), started = 0;
	pthread_t threads[MAX_THREADS];

	if (pthread_mutex_init(&p.lock, NULL))
		return rsh_error_nomem(err);
	/* If not all threads can be started, the work only takes longer. */
	while (started + 1 < wanted &&
	       rsh_thread_start(&threads[started], parallel_run, &p) == 0)
		started++;
	parallel_run(&p);
	for (size_t i = 0; i < started; i++)
		pthread_join(threads[i], NULL);
	pthread_mutex_destroy(&p.lock);
	return p.rc;
}
