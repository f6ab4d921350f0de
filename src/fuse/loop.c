/* SPDX-License-Identifier: Apache-2.0 */
/* fuse/loop.c has the threads that take requests from the kernel.
 *
 * The kernel gives requests to waiting threads in rotation.  With many threads
 * each one therefore serves its request with cold caches, and with few threads
 * libfuse's own loop starts and ends threads all the time.  Here one thread for
 * each processor takes requests while reads compute, and more threads do while
 * reads wait for a disk or a network.  One thread never reads the source
 * (request_queue.c).  The thread that called rsh_loop_run() adds one thread
 * after another while requests are queued and no read ends.  It also answers
 * interrupted readers (pending.c).
 */
#include "config.h"

#include "ops_i.h"

#include <errno.h>
#include <malloc.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <semaphore.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#include "rsh/util/checked.h"
#include "rsh/util/clock.h"
#include "rsh/util/log.h"
#include "rsh/util/thread.h"

#define LINGER_NS UINT64_C(100000)
#define STUCK_NS 100000000L
#define SHORT_NS 100000000L
#define IDLE_NS 500000000L
#define END_SECONDS 2

/* The number of additional threads that take requests while the source makes
 * threads sleep.  Such sources have queues of about this length. */
#define EXTRA_THREADS 12

struct worker {
	struct rsh_loop *loop;
	bool extra; /* takes requests only while reads sleep */
	/* This grows by 1 when a request begins and when it ends. */
	atomic_uint_fast64_t moves;
	uint64_t seen; /* `moves` when rsh_loop_run() last looked */
	pthread_t thread;
	struct fuse_buf buf;
};

struct rsh_loop {
	struct rsh_server *server;
	struct fuse_session *session;
	unsigned n_workers, max_workers; /* only rsh_loop_run() uses these
					  * two */
	struct worker *workers;
	sem_t news; /* posted if all are busy or the session has ended */
	atomic_uint n_busy, n_always, n_extra;
	atomic_bool watched; /* rsh_loop_run() checks whether they stay busy */
	atomic_size_t
		buffer; /* bytes of a request's buffer; 0: not known yet */
	atomic_int error;
	atomic_flag lingering; /* a thread polls for the next request */

	/* The extra workers use these. */
	atomic_bool open, forced;
	pthread_mutex_t lock; /* guards the wait for `open` */
	pthread_cond_t opened;
};

static void worker_free_buffer(void *arg)
{
	struct worker *w = arg;

	free(w->buf.mem);
	w->buf.mem = NULL;
}

static bool loop_all_busy(struct rsh_loop *l)
{
	unsigned n = atomic_load(&l->n_always);

	if (atomic_load(&l->open))
		n += atomic_load(&l->n_extra);
	return atomic_load(&l->n_busy) >= n;
}

static void loop_unlock(void *arg)
{
	pthread_mutex_unlock(arg);
}

static void loop_open_or_close(struct rsh_loop *l)
{
	bool open = atomic_load(&l->forced) ||
		    rsh_streams_sleep(l->server->streams);

	if (open == atomic_load(&l->open))
		return;
	rsh_hold_lock(&l->lock);
	atomic_store(&l->open, open);
	if (open)
		pthread_cond_broadcast(&l->opened);
}

static void worker_begin(struct worker *w)
{
	struct rsh_loop *l = w->loop;

	atomic_fetch_add(&w->moves, 1);
	atomic_fetch_add(&l->n_busy, 1);
	if (loop_all_busy(l) && !atomic_exchange(&l->watched, true))
		sem_post(&l->news);
}

static void worker_end(struct worker *w)
{
	loop_open_or_close(w->loop);
	atomic_fetch_sub(&w->loop->n_busy, 1);
	atomic_fetch_add(&w->moves, 1);
}

/* A sequential reader sends its next request in less time than it takes to wake
 * a thread.  So one thread polls for it. */
static void loop_linger(struct rsh_loop *l)
{
	struct pollfd device = { fuse_session_fd(l->session), POLLIN, 0 };
	uint64_t until;

	if (atomic_flag_test_and_set(&l->lingering))
		return;
	until = rsh_clock_ns() + LINGER_NS;
	while (poll(&device, 1, 0) == 0 && rsh_clock_ns() < until)
		sched_yield();
	atomic_flag_clear(&l->lingering);
}

/* Takes a request from the kernel with fuse_session_receive_buf(), which ends
 * the session if there is no memory for a buffer.  Workers that have a buffer
 * can continue, so the others retry the allocation from time to time.  libfuse
 * does not report the size of a buffer; it is taken from the first one.
 * Returns -EAGAIN after a pause if there is no memory. */
static int worker_receive(struct worker *w)
{
	static const struct timespec pause = { 0, SHORT_NS };
	struct rsh_loop *l = w->loop;
	const size_t known = atomic_load(&l->buffer);
	int rc = -ENOMEM;

	if (!w->buf.mem && known)
		w->buf.mem = malloc(known);
	if (w->buf.mem || !known)
		rc = fuse_session_receive_buf(l->session, &w->buf);
	if (rc > 0 && !known)
		atomic_store(&l->buffer, malloc_usable_size(w->buf.mem));
	if (rc != -ENOMEM || !atomic_load(&l->buffer))
		return rc;
	nanosleep(&pause, NULL);
	return -EAGAIN;
}

/* A worker can be cancelled while it waits for a request, but not while it
 * serves one. */
static void *worker_run(void *arg)
{
	struct worker *w = arg;
	struct rsh_loop *l = w->loop;

	pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, NULL);
	pthread_cleanup_push(worker_free_buffer, w);
	/* A new thread first serves requests from the queue. */
	worker_begin(w);
	rsh_queue_help(&w->loop->server->queue);
	worker_end(w);
	while (!fuse_session_exited(l->session)) {
		int rc;

		pthread_setcancelstate(PTHREAD_CANCEL_ENABLE, NULL);
		if (w->extra) {
			/* The thread can be cancelled while it waits. */
			pthread_mutex_lock(&l->lock);
			pthread_cleanup_push(loop_unlock, &l->lock);
			while (!atomic_load(&l->open) &&
			       !fuse_session_exited(l->session))
				pthread_cond_wait(&l->opened, &l->lock);
			pthread_cleanup_pop(1);
		} else if (atomic_load(&w->moves))
			loop_linger(l);
		rc = worker_receive(w);
		pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, NULL);
		/* The tree was unmounted while the kernel delivered a request.
		 * libfuse handles an unmount only between two requests. */
		if (rc == -ECONNABORTED)
			rc = 0;
		if (rc == -EINTR || rc == -EAGAIN)
			continue;
		if (rc <= 0) {
			if (rc < 0)
				atomic_store(&l->error, rc);
			fuse_session_exit(l->session);
			break;
		}
		worker_begin(w);
		fuse_session_process_buf(w->loop->session, &w->buf);
		worker_end(w);
	}
	sem_post(&l->news);
	pthread_cleanup_pop(1);
	return NULL;
}

static int loop_add_worker(struct rsh_loop *l, bool extra)
{
	atomic_uint *count = extra ? &l->n_extra : &l->n_always;
	struct worker *w = &l->workers[l->n_workers];
	int rc;

	w->loop = l;
	w->extra = extra;
	atomic_fetch_add(count, 1);
	rc = rsh_thread_start(&w->thread, worker_run, w);
	if (rc) {
		atomic_fetch_sub(count, 1);
		return rc;
	}
	l->n_workers++;
	if (l->n_workers > 1)
		rsh_queue_allow(&l->server->queue, l->n_workers - 1);
	return 0;
}

/* What has happened since the last call of loop_look(). */
struct look {
	bool moved;  /* a request began or ended */
	bool stuck;  /* a worker that is not extra still serves the same
		      * request */
	bool turned; /* a request that may wait for the source has ended */
};

static struct look loop_look(struct rsh_loop *l, uint64_t *turns)
{
	const uint64_t done = atomic_load(&l->server->queue.n_done);
	struct look look = { .turned = done != *turns };

	*turns = done;
	for (unsigned i = 0; i < l->n_workers; i++) {
		struct worker *w = &l->workers[i];
		const uint64_t moves = atomic_load(&w->moves);

		if (moves != w->seen)
			look.moved = true;
		else if (moves % 2 && !w->extra)
			look.stuck = true;
		w->seen = moves;
	}
	return look;
}

/* Adds help if all workers are busy and no request begins or ends, or if
 * requests are queued and none ends.  The extra workers are started first, then
 * threads are added one by one.  This stops when no worker is stuck and the
 * queue is empty. */
static void loop_watch(struct rsh_loop *l, uint64_t *turns)
{
	const struct look look = loop_look(l, turns);
	const bool waiting = atomic_load(&l->server->queue.n_waiting);

	if ((loop_all_busy(l) && !look.moved) || (waiting && !look.turned)) {
		if (!atomic_load(&l->open)) {
			atomic_store(&l->forced, true);
			loop_open_or_close(l);
		} else if (l->n_workers < l->max_workers) {
			rsh_log_debug("%u threads are stuck", l->n_workers);
			loop_add_worker(l, false);
		}
	} else if (!look.stuck && !waiting) {
		atomic_store(&l->forced, false);
		atomic_store(&l->watched, false);
		/* All may have become busy at this moment. */
		if (loop_all_busy(l))
			atomic_store(&l->watched, true);
	}
}

/* Returns false if a worker is still in a read of its source. */
static bool loop_join_workers(struct rsh_loop *l)
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

static struct rsh_loop *loop_new(struct rsh_server *server)
{
	struct rsh_loop *l = calloc(1, sizeof(*l));

	if (!l)
		return NULL;
	l->server = server;
	l->session = server->session;
	/* The added thread never reads the source. */
	l->max_workers = server->max_threads + 1;
	l->workers = calloc(l->max_workers, sizeof(*l->workers));
	if (!l->workers || sem_init(&l->news, 0, 0)) {
		free(l->workers);
		free(l);
		return NULL;
	}
	pthread_mutex_init(&l->lock, NULL);
	pthread_cond_init(&l->opened, NULL);
	return l;
}

int rsh_loop_run(struct rsh_server *server)
{
	struct rsh_loop *l = loop_new(server);
	uint64_t turns = 0;
	int rc;

	if (!l)
		return -ENOMEM;
	server->interrupts.news = &l->news;
	/* The loop also works with fewer threads, only slower. */
	rc = 0;
	while (rc == 0 && l->n_workers < l->max_workers &&
	       l->n_workers < l->server->n_threads + EXTRA_THREADS)
		rc = loop_add_worker(l, l->n_workers >= l->server->n_threads);
	rc = l->n_workers ? 0 : rc;
	while (rc == 0 && !fuse_session_exited(l->session)) {
		const uint64_t most = rsh_interrupts_answer(server);
		const uint64_t ns = atomic_load(&l->watched) ? STUCK_NS :
							       IDLE_NS;
		struct timespec until;

		/* A signal wakes the wait, but not if it arrives just before
		 * it.  So no wait is long, nor longer than `most` ns. */
		clock_gettime(CLOCK_REALTIME, &until);
		until.tv_nsec += (long)rsh_min_u64(ns, most);
		if (until.tv_nsec >= 1000000000) {
			until.tv_sec++;
			until.tv_nsec -= 1000000000;
		}
		sem_timedwait(&l->news, &until);
		if (atomic_load(&l->watched))
			loop_watch(l, &turns);
	}
	rsh_queue_close(&server->queue);
	server->stuck = !loop_join_workers(l);
	rc = rc ?: atomic_load(&l->error);
	/* A stuck worker still uses these. */
	if (!server->stuck) {
		pthread_cond_destroy(&l->opened);
		pthread_mutex_destroy(&l->lock);
		sem_destroy(&l->news);
		free(l->workers);
		free(l);
	}
	return rc;
}
