/* SPDX-License-Identifier: Apache-2.0 */
/* read/stream.c opens virtual files and reads them by windows. */
#include "config.h"

#include "stream_i.h"

#include <errno.h>
#include <stdlib.h>
#include <unistd.h>

#include "rsh/util/checked.h"
#include "rsh/util/clock.h"
#include "rsh/util/thread.h"

/* The most loads at a time from a source that sleeps. */
#define DEFAULT_LOADS 16

/* The time that a thread may take to return from its source at the end. */
#define STOP_SECONDS 2

/* ---- views; lock held ---- */

/* Waits for the bytes of a window that the caller uses.  Returns 0, or -errno
 * after it has removed the caller from the users. */
static int window_await(struct rsh_streams *s, struct rsh_window *w,
			bool *waited)
{
	int rc;

	while (w->state == RSH_WINDOW_LOADING && !w->stream->closed) {
		*waited = true;
		pthread_cond_wait(&w->stream->loaded, &s->lock);
	}
	if (w->state == RSH_WINDOW_READY)
		return 0;
	rc = w->state == RSH_WINDOW_FAILED ? w->error : -EINTR;
	w->users--;
	if (w->listed)
		rsh_window_unlist(w);
	else
		rsh_window_settle(s, w);
	return rc;
}

/* Adds bytes of a window to the view, which takes over the caller's use of
 * it. */
static size_t window_view(struct rsh_window *w, uint64_t offset, size_t len,
			  struct rsh_view *view)
{
	const size_t skip = (size_t)(offset - w->offset);
	const size_t n = (size_t)rsh_min_u64(len, w->len - skip);

	view->part[view->n_parts] = (struct iovec){ w->data + skip, n };
	view->window[view->n_parts++] = w;
	w->served += n;
	if (w->served >= w->len && w->listed)
		rsh_window_unlist(w);
	return n;
}

static void view_release_parts(struct rsh_streams *s, struct rsh_view *view)
{
	for (int i = 0; i < view->n_parts; i++) {
		view->window[i]->users--;
		rsh_window_settle(s, view->window[i]);
	}
	view->n_parts = 0;
}

/* Reads exactly these bytes, into a separate window.
 *
 * A read of the same bytes that is in progress is mostly a read of the same
 * reader, which was interrupted and reads again: a reader that is interrupted
 * more often than the source answers would otherwise never get the bytes. */
static ssize_t stream_read_once(struct rsh_stream *st, uint64_t offset,
				size_t len, struct rsh_view *view)
{
	struct rsh_window *w;
	bool waited;
	int rc;

	TAILQ_FOREACH(w, &st->once, next)
		if (w->offset == offset && w->len == len)
			break;
	if (w) {
		w->users++;
	} else {
		w = rsh_window_take(st, offset, len);
		if (!w) {
			rsh_streams_save(st->all);
			w = rsh_window_take(st, offset, len);
		}
		if (!w) {
			rsh_streams_out_of_memory(st->all);
			return -ENOMEM;
		}
		w->users++;
		TAILQ_INSERT_TAIL(&st->once, w, next);
		rsh_window_load(w, true);
		TAILQ_REMOVE(&st->once, w, next);
	}
	rc = window_await(st->all, w, &waited);
	return rc ?: (ssize_t)window_view(w, offset, len, view);
}

/* Returns the window that holds the byte at `offset`, and makes it if there is
 * none; returns NULL if no window is available. */
static struct rsh_window *stream_need_window(struct rsh_stream *st,
					     uint64_t offset)
{
	const uint64_t now = st->all->loads.now();
	struct rsh_window *w = rsh_stream_window_at(st, offset);

	if (!w)
		rsh_windows_unlist(st);
	rsh_stream_look_ahead(st, offset, now);
	return w ? w : rsh_stream_window_at(st, offset);
}

/* Reads bytes of windows, which are made if needed. */
static ssize_t stream_read_windows(struct rsh_stream *st, uint64_t offset,
				   size_t len, struct rsh_view *view)
{
	struct rsh_streams *s = st->all;
	bool waited = false;
	size_t got = 0;

	rsh_stream_drop_behind(st, offset);
	while (got < len) {
		struct rsh_window *w;
		ssize_t n;

		if (st->closed)
			return -EINTR;
		w = stream_need_window(st, offset + got);
		/* A view has two parts: the second one has to be the last. */
		if (w && (got == 0 || w->offset + w->len >= offset + len)) {
			w->users++;
			if (w->state == RSH_WINDOW_QUEUED) {
				rsh_window_unqueue(w);
				rsh_streams_wake(s); /* for the other windows */
				rsh_window_load(w, true);
				waited = true;
			} else if (s->prepare_at_release && s->n_queued == 1 &&
				   !rsh_stream_sleeps(st) &&
				   rsh_stream_is_slow(st)) {
				/* This thread prepares the only queued window
				 * when it releases its view: it need not be
				 * woken, and has the bytes in its processor's
				 * caches at the next read. */
				s->left = true;
			} else {
				rsh_streams_wake(s);
			}
			n = window_await(s, w, &waited);
			if (n == 0)
				n = (ssize_t)window_view(w, offset + got,
							 len - got, view);
			/* The damage may be elsewhere in the window. */
			else if (n == -EBADMSG && !st->closed)
				n = stream_read_once(st, offset + got,
						     len - got, view);
		} else {
			n = stream_read_once(st, offset + got, len - got, view);
		}
		if (n < 0)
			return n;
		got += (size_t)n;
	}
	if (waited)
		s->stats.waited++;
	else
		s->stats.found++;
	return (ssize_t)got;
}

ssize_t rsh_stream_read(struct rsh_stream *st, uint64_t offset, size_t len,
			struct rsh_view *view)
{
	struct rsh_streams *s = st->all;
	uint64_t now = s->loads.now();
	ssize_t n;

	view->streams = s;
	view->n_parts = 0;
	if (offset >= st->body.size || len == 0)
		return 0;
	len = (size_t)rsh_min_u64(rsh_min_u64(len, RSH_STREAM_MAX),
				  st->body.size - offset);

	rsh_hold_lock(&s->lock);
	if (st->closed)
		n = -EINTR;
	else if (rsh_stream_follow(st, offset, len, now) ||
		 rsh_stream_window_at(st, offset))
		n = stream_read_windows(st, offset, len, view);
	else
		n = stream_read_once(st, offset, len, view);
	st->last_ns = s->loads.now();
	s->stats.reads++;
	if (n > 0)
		s->stats.bytes += (uint64_t)n;
	else
		view_release_parts(s, view);
	return n == -EBADMSG ? -EIO : n;
}

void rsh_view_release(struct rsh_view *view)
{
	struct rsh_streams *s = view->streams;

	if (view->n_parts == 0)
		return;
	rsh_hold_lock(&s->lock);
	view_release_parts(s, view);
	if (s->left && !s->stopping) {
		s->left = false;
		rsh_streams_prepare_one(s);
	}
}

/* ---- opening and closing ---- */

int rsh_stream_open(struct rsh_streams *s, const struct rsh_body *body,
		    struct rsh_stream **out)
{
	struct rsh_stream *st = calloc(1, sizeof(*st));

	if (!st || pthread_cond_init(&st->loaded, NULL)) {
		free(st);
		rsh_streams_out_of_memory(s);
		return -ENOMEM;
	}
	st->all = s;
	st->body = *body;
	st->refs = 1;
	TAILQ_INIT(&st->windows);
	TAILQ_INIT(&st->once);
	pthread_mutex_lock(&s->lock);
	/* Until the first load, the source is assumed to sleep. */
	st->blocked = s->seen ? atomic_load(&s->blocked) : RSH_BLOCKED_MIN;
	TAILQ_INSERT_TAIL(&s->open, st, next_open);
	pthread_mutex_unlock(&s->lock);
	*out = st;
	return 0;
}

void rsh_stream_close(struct rsh_stream *st)
{
	struct rsh_streams *s = st->all;

	rsh_hold_lock(&s->lock);
	st->closed = true;
	rsh_windows_unlist(st);
	TAILQ_REMOVE(&s->open, st, next_open);
	/* This wakes readers of the closed stream. */
	pthread_cond_broadcast(&st->loaded);
	rsh_load_limit_rouse(&s->loads);
	rsh_stream_unref(st);
}

void rsh_stream_tell_end(struct rsh_stream *st, void (*ended)(void *ctx),
			 void *ctx)
{
	rsh_hold_lock(&st->all->lock);
	st->ended = ended;
	st->ended_ctx = ctx;
}

void rsh_stream_hold(struct rsh_stream *st)
{
	rsh_hold_lock(&st->all->lock);
	st->refs++;
}

void rsh_stream_drop(struct rsh_stream *st)
{
	rsh_hold_lock(&st->all->lock);
	rsh_stream_unref(st);
}

int rsh_streams_new(const struct rsh_streams_options *o,
		    struct rsh_streams **out)
{
	struct rsh_streams *s = calloc(1, sizeof(*s));
	int rc;

	if (!s)
		return -ENOMEM;
	s->n_cpus = (unsigned)sysconf(_SC_NPROCESSORS_ONLN);
	s->prepare_at_release = o->prepare_at_release;
	s->max_windows = o->max_windows ?: RSH_STREAM_WINDOWS;
	s->max_threads = o->max_threads ?: RSH_STREAM_THREADS;
	TAILQ_INIT(&s->open);
	TAILQ_INIT(&s->queue);
	rsh_areas_init(&s->areas, rsh_window_area());
	rc = -pthread_mutex_init(&s->lock, NULL) ?:
	     rsh_clock_cond_init(&s->gone) ?: rsh_clock_cond_init(&s->work) ?:
	     rsh_load_limit_init(&s->loads, &s->lock,
				 o->max_loads ?: DEFAULT_LOADS,
				 o->now ?: rsh_clock_ns);
	if (rc) {
		free(s);
		return rc;
	}
	if (o->min_loads)
		rsh_depth_far(&s->loads.depth, o->min_loads,
			      o->longest_load_ns);
	*out = s;
	return 0;
}

void rsh_streams_stats(struct rsh_streams *s, struct rsh_stream_stats *out)
{
	rsh_hold_lock(&s->lock);
	*out = s->stats;
	out->threads = s->n_threads;
	out->limit = rsh_depth_limit(&s->loads.depth);
}

bool rsh_streams_sleep(struct rsh_streams *s)
{
	return atomic_load(&s->blocked) >= RSH_BLOCKED_MIN;
}

bool rsh_streams_stop(struct rsh_streams *s)
{
	const uint64_t until = rsh_clock_ns() +
			       STOP_SECONDS * UINT64_C(1000000000);
	int rc = 0;

	rsh_hold_lock(&s->lock);
	s->stopping = true;
	pthread_cond_broadcast(&s->work);
	while (s->n_threads && rc == 0)
		rc = rsh_clock_wait(&s->gone, &s->lock, until);
	return s->n_threads == 0;
}

void rsh_streams_free(struct rsh_streams *s)
{
	struct rsh_stream *st;

	if (!s || !rsh_streams_stop(s))
		return;
	while ((st = TAILQ_FIRST(&s->open)))
		rsh_stream_close(st);
	rsh_areas_destroy(&s->areas);
	pthread_cond_destroy(&s->work);
	rsh_load_limit_destroy(&s->loads);
	pthread_cond_destroy(&s->gone);
	pthread_mutex_destroy(&s->lock);
	free(s);
}
