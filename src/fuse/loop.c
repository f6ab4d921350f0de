/* fuse/loop.c - the threads that take requests from the kernel.
 *
 * The kernel hands requests to waiting threads in turn, so that each of many
 * threads comes to its request with cold caches, and libfuse's own loop starts
 * and ends threads all the time when there are few.  Here there are as many as
 * processors; reads that wait for a slow source are left to others (ops.c).
 * Should all of them be stuck all the same, the thread that called
 * rsh_loop_run() adds one, again and again until the mount answers. */
#include "config.h"

#include "ops_i.h"

#include <errno.h>
#include <pthread.h>
#include <semaphore.h>
#include <signal.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#include "rsh/util/log.h"

#define STUCK_NS 100000000L
#define IDLE_NS 500000000L
#define END_SECONDS 2

struct worker {
	struct rsh_loop *loop;
	pthread_t thread;
	struct fuse_buf buf;
};

struct rsh_loop {
	struct fuse_session *session;
	unsigned n_workers, max_workers; /* of the caller of rsh_loop_run() */
	struct worker *workers;
	sem_t news; /* all are busy, or the session has ended */
	atomic_uint n_busy, n_started;
	atomic_bool watched; /* somebody looks whether they stay busy */
	atomic_uint_fast64_t n_served;
	atomic_int error;
};

static void free_buffer(void *arg)
{
	struct worker *w = arg;

	free(w->buf.mem);
	w->buf.mem = NULL;
}

static void serve(struct worker *w)
{
	struct rsh_loop *l = w->loop;

	if (atomic_fetch_add(&l->n_busy, 1) + 1 == atomic_load(&l->n_started) &&
	    !atomic_exchange(&l->watched, true))
		sem_post(&l->news);
	fuse_session_process_buf(l->session, &w->buf);
	atomic_fetch_sub(&l->n_busy, 1);
	atomic_fetch_add(&l->n_served, 1);
}

/* Can be cancelled while it waits for a request, not while it serves one. */
static void *work(void *arg)
{
	struct worker *w = arg;
	struct rsh_loop *l = w->loop;

	pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, NULL);
	pthread_cleanup_push(free_buffer, w);
	while (!fuse_session_exited(l->session)) {
		int rc;

		pthread_setcancelstate(PTHREAD_CANCEL_ENABLE, NULL);
		rc = fuse_session_receive_buf(l->session, &w->buf);
		pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, NULL);
		if (rc == -EINTR)
			continue;
		if (rc <= 0) {
			if (rc < 0)
				atomic_store(&l->error, rc);
			fuse_session_exit(l->session);
			break;
		}
		serve(w);
	}
	sem_post(&l->news);
	pthread_cleanup_pop(1);
	return NULL;
}

static int add_worker(struct rsh_loop *l)
{
	struct worker *w = &l->workers[l->n_workers];
	sigset_t all, old;
	int rc;

	*w = (struct worker){ .loop = l };
	/* Signals are for the thread that waits for the end. */
	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &old);
	atomic_fetch_add(&l->n_started, 1);
	rc = pthread_create(&w->thread, NULL, work, w);
	pthread_sigmask(SIG_SETMASK, &old, NULL);
	if (rc)
		atomic_fetch_sub(&l->n_started, 1);
	else
		l->n_workers++;
	return -rc;
}

static bool all_busy(struct rsh_loop *l)
{
	return atomic_load(&l->n_busy) >= l->n_workers;
}

/* A signal wakes the wait, but not if it comes just before it: hence never for
 * long. */
static void wait_news(struct rsh_loop *l)
{
	struct timespec until;

	clock_gettime(CLOCK_REALTIME, &until);
	until.tv_nsec += atomic_load(&l->watched) ? STUCK_NS : IDLE_NS;
	if (until.tv_nsec >= 1000000000) {
		until.tv_sec++;
		until.tv_nsec -= 1000000000;
	}
	sem_timedwait(&l->news, &until);
}

/* One look at workers who were all busy: if they still are, with the same
 * requests, there is one more. */
static void watch(struct rsh_loop *l, uint64_t *served)
{
	uint64_t now = atomic_load(&l->n_served);

	if (!all_busy(l)) {
		atomic_store(&l->watched, false);
		/* Unless they all became busy in this moment. */
		if (all_busy(l))
			atomic_store(&l->watched, true);
	} else if (now == *served && l->n_workers < l->max_workers) {
		rsh_log_debug("%u threads are stuck", l->n_workers);
		add_worker(l);
	}
	*served = now;
}

/* False if one of them does not come back from its source. */
static bool join_workers(struct rsh_loop *l)
{
	struct timespec until;
	bool all = true;

	for (unsigned i = 0; i < l->n_workers; i++)
		pthread_cancel(l->workers[i].thread);
	clock_gettime(CLOCK_REALTIME, &until);
	until.tv_sec += END_SECONDS;
	for (unsigned i = 0; i < l->n_workers; i++)
		if (pthread_timedjoin_np(l->workers[i].thread, NULL, &until))
			all = false;
	return all;
}

int rsh_loop_run(struct fuse_session *session, unsigned n, unsigned max,
		 bool *stuck)
{
	struct rsh_loop *l = calloc(1, sizeof(*l));
	uint64_t served = 0;
	int rc = 0;

	*stuck = false;
	if (!l)
		return -ENOMEM;
	l->session = session;
	l->max_workers = max > n ? max : n;
	l->workers = calloc(l->max_workers, sizeof(*l->workers));
	if (!l->workers || sem_init(&l->news, 0, 0)) {
		free(l->workers);
		free(l);
		return -ENOMEM;
	}
	while (rc == 0 && l->n_workers < n)
		rc = add_worker(l);
	if (l->n_workers > 0)
		rc = 0;
	while (rc == 0 && !fuse_session_exited(session)) {
		wait_news(l);
		if (atomic_load(&l->watched))
			watch(l, &served);
	}
	*stuck = !join_workers(l);
	if (rc == 0)
		rc = atomic_load(&l->error);
	/* Who is stuck still uses it. */
	if (*stuck)
		return rc;
	sem_destroy(&l->news);
	free(l->workers);
	free(l);
	return rc;
}
