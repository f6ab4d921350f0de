/* vfs/prepare.c - the threads that fill windows. */
#include "config.h"

#include "stream_i.h"

#include <errno.h>
#include <signal.h>
#include <stdlib.h>

#include "rsh/util/clock.h"
#include "rsh/util/log.h"
#include "rsh/util/waits.h"

/* Threads without work leave after so long. */
#define IDLE_SECONDS 10

void rsh_stream_unref(struct rsh_stream *st)
{
	if (--st->refs)
		return;
	pthread_cond_destroy(&st->loaded);
	free(st);
}

/* New streams begin with what the last loads of all others were
 * like. */
static void learn(struct rsh_stream *st, bool whole, uint64_t ns, bool slept)
{
	if (whole)
		st->load_ns = rsh_mean(st->load_ns, ns);
	st->blocked = (7 * st->blocked + (slept ? RSH_BLOCKED_ONE : 0)) / 8;
	atomic_store(&st->all->blocked, st->blocked);
}

/* As long as memory is out each read fails. */
#define COMPLAIN_NS (UINT64_C(60) * 1000000000)

void rsh_streams_out_of_memory(struct rsh_streams *s)
{
	const uint64_t now = rsh_clock_ns();
	uint64_t last = atomic_load(&s->complained_ns);

	if ((!last || now - last > COMPLAIN_NS) &&
	    atomic_compare_exchange_strong(&s->complained_ns, &last, now))
		rsh_log_error("out of memory: readers get ENOMEM until there "
			      "is some");
}

/* Tries once more without what was prepared ahead. */
static ssize_t fill(struct rsh_streams *s, const struct rsh_window *w)
{
	const uint64_t node = w->stream->node;
	ssize_t n = rsh_vfs_read(s->vfs, node, w->data, w->len, w->offset);

	if (n != -ENOMEM)
		return n;
	pthread_mutex_lock(&s->lock);
	rsh_streams_save(s);
	pthread_mutex_unlock(&s->lock);
	n = rsh_vfs_read(s->vfs, node, w->data, w->len, w->offset);
	if (n == -ENOMEM)
		rsh_streams_out_of_memory(s);
	return n;
}

void rsh_window_load(struct rsh_window *w)
{
	struct rsh_stream *st = w->stream;
	struct rsh_streams *s = st->all;
	uint64_t start;
	unsigned long waits;
	ssize_t n;

	w->state = RSH_WINDOW_LOADING;
	w->users++;
	st->refs++;
	pthread_mutex_unlock(&s->lock);

	start = rsh_clock_ns();
	waits = rsh_waits();
	w->data = w->area + rsh_vfs_place(s->vfs, st->node, w->offset, w->len);
	n = fill(s, w);
	waits = rsh_waits() - waits;

	pthread_mutex_lock(&s->lock);
	learn(st, w->len == RSH_STREAM_MAX, rsh_clock_ns() - start, waits > 0);
	w->state = n == (ssize_t)w->len ? RSH_WINDOW_READY : RSH_WINDOW_FAILED;
	w->error = n < 0 ? (int)n : -EIO;
	w->users--;
	pthread_cond_broadcast(&st->loaded);
	rsh_window_settle(s, w);
	rsh_stream_unref(st);
}

/* False if there was none for long. */
static bool await_work(struct rsh_streams *s)
{
	struct timespec until;
	int rc = 0;

	clock_gettime(CLOCK_MONOTONIC, &until);
	until.tv_sec += IDLE_SECONDS;
	s->n_idle++;
	while (rc == 0 && !s->n_woken && !s->stopping)
		rc = pthread_cond_timedwait(&s->work, &s->lock, &until);
	/* Who wakes a thread counts it as busy from then on. */
	if (s->n_woken) {
		s->n_woken--;
		return true;
	}
	s->n_idle--;
	return rc == 0;
}

bool rsh_streams_prepare_one(struct rsh_streams *s)
{
	struct rsh_window *w = TAILQ_FIRST(&s->queue);

	if (!w)
		return false;
	rsh_window_unqueue(w);
	s->stats.windows++;
	rsh_window_load(w);
	return true;
}

static void *prepare(void *arg)
{
	struct rsh_streams *s = arg;

	pthread_mutex_lock(&s->lock);
	while (!s->stopping)
		if (!rsh_streams_prepare_one(s) && !await_work(s))
			break;
	s->n_threads--;
	pthread_cond_signal(&s->gone);
	pthread_mutex_unlock(&s->lock);
	return NULL;
}

void rsh_streams_wake(struct rsh_streams *s)
{
	pthread_attr_t attr;
	sigset_t all, old;
	pthread_t thread;

	/* Those that were woken before are on their way. */
	for (; s->n_idle && s->n_woken < s->n_queued; s->n_idle--, s->n_woken++)
		pthread_cond_signal(&s->work);
	if (s->n_queued <= s->n_woken || s->n_threads == s->max_threads ||
	    pthread_attr_init(&attr))
		return;
	pthread_attr_setdetachstate(&attr, PTHREAD_CREATE_DETACHED);
	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &old);
	if (pthread_create(&thread, &attr, prepare, s) == 0)
		s->n_threads++;
	pthread_sigmask(SIG_SETMASK, &old, NULL);
	pthread_attr_destroy(&attr);
}
