/* SPDX-License-Identifier: Apache-2.0 */
/* read/prepare.c has the threads that fill windows. */
#include "config.h"

#include "stream_i.h"

#include <errno.h>
#include <stdlib.h>

#include "rsh/util/blocking.h"
#include "rsh/util/checked.h"
#include "rsh/util/clock.h"
#include "rsh/util/log.h"
#include "rsh/util/thread.h"

/* Threads without work end after this time. */
#define IDLE_SECONDS 10

void rsh_stream_unref(struct rsh_stream *st)
{
	if (--st->refs)
		return;
	if (st->ended)
		st->ended(st->ended_ctx);
	pthread_cond_destroy(&st->loaded);
	free(st);
}

/* While memory is exhausted each read fails.  The interval limits the log
 * messages. */
#define COMPLAIN_NS (UINT64_C(60) * 1000000000)

void rsh_streams_out_of_memory(struct rsh_streams *s)
{
	const uint64_t now = rsh_clock_ns();
	uint64_t last = atomic_load(&s->complained_ns);

	if ((!last || now - last > COMPLAIN_NS) &&
	    atomic_compare_exchange_strong(&s->complained_ns, &last, now))
		rsh_log_error("out of memory: reads fail with ENOMEM");
}

/* Drops the windows that were prepared ahead, to free memory, and reads again.
 * Returns 0 or -errno. */
static int window_read_anew(struct rsh_streams *s, const struct rsh_window *w,
			    struct rsh_target *to)
{
	const struct rsh_body *body = &w->stream->body;
	int rc;

	pthread_mutex_lock(&s->lock);
	rsh_streams_save(s);
	pthread_mutex_unlock(&s->lock);
	rc = body->read(body, to, w->len, w->offset);
	if (rc == -ENOMEM)
		rsh_streams_out_of_memory(s);
	return rc;
}

/* State of one load of a window. */
struct window_load {
	struct rsh_streams *streams;
	struct rsh_load_room room;
};

/* A load that waits for an unreachable file reads nothing, so others may begin
 * meanwhile. */
static void room_give_early(void *window_load)
{
	struct window_load *l = window_load;
	struct rsh_streams *s = l->streams;

	rsh_hold_lock(&s->lock);
	rsh_load_limit_end(&s->loads, &l->room, 0, s->n_queued);
	rsh_streams_wake(s);
}

/* Returns whether a thread should still wait until it may load.  It need not if
 * the stream was closed: then nothing is loaded. */
static bool stream_wants_room(const void *stream)
{
	const struct rsh_stream *st = stream;

	return rsh_stream_sleeps(st) && !st->closed && !st->all->stopping;
}

void rsh_window_load(struct rsh_window *w, bool demanded)
{
	struct rsh_stream *st = w->stream;
	struct rsh_streams *s = st->all;
	struct window_load l = { .streams = s };
	const struct rsh_wait wait = { room_give_early, &l };
	struct rsh_target to = { .area = w->area, .wait = &wait };
	unsigned long waits;
	uint64_t start;
	int rc = -EINTR;

	w->state = RSH_WINDOW_LOADING;
	w->users++;
	st->refs++;
	if (demanded)
		rsh_load_limit_await(&s->loads, stream_wants_room, st);
	if (!demanded || !st->closed) {
		start = s->loads.now();
		rsh_load_limit_begin(&s->loads, &l.room, rsh_stream_sleeps(st),
				     s->n_queued);
		if (l.room.counted)
			rsh_streams_wake(s);
		pthread_mutex_unlock(&s->lock);

		rsh_work_set_began(rsh_clock_ns());
		waits = rsh_blocking_count();
		rc = st->body.read(&st->body, &to, w->len, w->offset);
		if (rc == -ENOMEM)
			rc = window_read_anew(s, w, &to);
		waits = rsh_blocking_count() - waits;
		rsh_work_set_began(0);

		pthread_mutex_lock(&s->lock);
		if (w->len == RSH_STREAM_MAX)
			st->load_ns = rsh_mean(st->load_ns,
					       s->loads.now() - start);
		st->blocked = rsh_blocked(st->blocked, waits > 0);
		/* New streams start with the last measurement of all. */
		atomic_store(&s->blocked, st->blocked);
		s->seen = true;
		w->data = to.data;
		rsh_load_limit_end(&s->loads, &l.room, rc ? 0 : w->len,
				   s->n_queued);
	}
	w->state = rc ? RSH_WINDOW_FAILED : RSH_WINDOW_READY;
	w->error = rc;
	if (demanded)
		rsh_streams_wake(s);

	w->users--;
	pthread_cond_broadcast(&st->loaded);
	rsh_window_settle(s, w);
	rsh_stream_unref(st);
}

/* Returns false if there was no work for IDLE_SECONDS. */
static bool streams_await_work(struct rsh_streams *s)
{
	const uint64_t until = rsh_clock_ns() +
			       IDLE_SECONDS * UINT64_C(1000000000);
	int rc = 0;

	s->n_idle++;
	while (rc == 0 && !s->n_woken && !s->stopping)
		rc = rsh_clock_wait(&s->work, &s->lock, until);
	/* The thread that woke this one has counted it as busy. */
	if (s->n_woken) {
		s->n_woken--;
		return true;
	}
	s->n_idle--;
	return rc == 0;
}

/* Returns how many windows of the queue may be filled now.  Windows that
 * readers wait for come first. */
static unsigned streams_n_ready(const struct rsh_streams *s)
{
	const struct rsh_window *w = TAILQ_FIRST(&s->queue);
	unsigned room;

	if (!w || !rsh_stream_sleeps(w->stream))
		return s->n_queued;
	room = rsh_depth_room(&s->loads.depth);
	if (room <= s->loads.n_waiting)
		return 0;
	return (unsigned)rsh_min_u64(room - s->loads.n_waiting, s->n_queued);
}

bool rsh_streams_prepare_one(struct rsh_streams *s)
{
	struct rsh_window *w = TAILQ_FIRST(&s->queue);

	if (streams_n_ready(s) == 0)
		return false;
	rsh_window_unqueue(w);
	s->stats.windows++;
	rsh_window_load(w, false);
	return true;
}

static void *prepare_windows(void *arg)
{
	struct rsh_streams *s = arg;

	rsh_hold_lock(&s->lock);
	while (!s->stopping)
		if (!rsh_streams_prepare_one(s) && !streams_await_work(s))
			break;
	s->n_threads--;
	pthread_cond_signal(&s->gone);
	return NULL;
}

/* Returns how many threads should be awake for queued windows.  If the reader
 * keeps up, no more of them run than there are processors without a reader,
 * because they would compete with the readers. */
static unsigned streams_n_to_wake(const struct rsh_streams *s)
{
	const unsigned n = streams_n_ready(s);
	const unsigned at_work = s->n_threads - s->n_idle - s->n_woken;
	unsigned cpus;

	if (n == 0 || !rsh_stream_keeps_up(TAILQ_FIRST(&s->queue)->stream))
		return n;
	cpus = rsh_streams_idle_cpus(s, s->loads.now());
	return at_work < cpus ? (unsigned)rsh_min_u64(n, cpus - at_work) : 0;
}

void rsh_streams_wake(struct rsh_streams *s)
{
	const unsigned n = streams_n_to_wake(s);

	/* Threads that were woken before will take windows of the queue. */
	for (; s->n_idle && s->n_woken < n; s->n_idle--, s->n_woken++)
		pthread_cond_signal(&s->work);
	if (n <= s->n_woken || s->n_threads == s->max_threads || s->stopping)
		return;
	if (rsh_thread_start_alone(prepare_windows, s) == 0)
		s->n_threads++;
}
