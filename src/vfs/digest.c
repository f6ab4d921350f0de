/* SPDX-License-Identifier: Apache-2.0 */
/* vfs/digest.c keeps a list of requests for hashes.  A thread reads their files
 * one after the other, and the results are kept. */
#include "config.h"

#include "rsh/vfs/digest.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <sys/queue.h>
#include <time.h>

#include "rsh/util/mem.h"
#include "rsh/util/thread.h"
#include "rsh/util/xxh3.h"
#include "rsh/vfs/steps.h"

#define STOP_SECONDS 2

struct waiter {
	TAILQ_ENTRY(waiter) next;
	uint64_t node;
	const struct rsh_digest_calls *calls;
	void *ctx;
};
TAILQ_HEAD(waiters, waiter);

struct known {
	uint64_t node;
	uint64_t xxh3;
};

struct rsh_digests {
	struct rsh_vfs *vfs;
	struct rsh_streams *streams;
	pthread_mutex_t lock; /* guards the fields below */
	pthread_cond_t ended; /* the thread has ended */
	struct waiters fresh; /* requests that the thread has not taken yet */
	struct known *known;
	size_t n_known, cap_known;
	bool running, stopping;
};

static void waiter_answer(struct waiters *list, struct waiter *w, int rc,
			  uint64_t xxh3)
{
	TAILQ_REMOVE(list, w, next);
	w->calls->answer(w->ctx, rc, xxh3);
	free(w);
}

/* Moves the requests since the last call to `mine`.  Returns whether the
 * digests are being stopped. */
static bool digests_take_fresh(struct rsh_digests *d, struct waiters *mine)
{
	bool stopping;

	pthread_mutex_lock(&d->lock);
	TAILQ_CONCAT(mine, &d->fresh, next);
	stopping = d->stopping;
	pthread_mutex_unlock(&d->lock);
	return stopping;
}

/* Answers requests that were given up.  Returns whether a request for the node
 * is left. */
static bool digest_is_wanted(struct rsh_digests *d, struct waiters *mine,
			     uint64_t node)
{
	bool stopping = digests_take_fresh(d, mine), wanted = false;
	struct waiter *w, *next;

	for (w = TAILQ_FIRST(mine); w; w = next) {
		next = TAILQ_NEXT(w, next);
		if (stopping || w->calls->gave_up(w->ctx))
			waiter_answer(mine, w, -EINTR, 0);
		else
			wanted |= w->node == node;
	}
	return wanted;
}

static int digest_stream(struct rsh_digests *d, struct waiters *mine,
			 uint64_t node, struct rsh_stream *stream,
			 XXH3_state_t *state)
{
	struct rsh_view view;
	uint64_t offset = 0;
	ssize_t n;

	while (digest_is_wanted(d, mine, node)) {
		n = rsh_stream_read(stream, offset, RSH_STREAM_MAX, &view);
		if (n <= 0)
			return (int)n;
		for (int i = 0; i < view.n_parts; i++)
			XXH3_64bits_update(state, view.part[i].iov_base,
					   view.part[i].iov_len);
		rsh_view_release(&view);
		offset += (uint64_t)n;
	}
	return -EINTR;
}

static int digest_node(struct rsh_digests *d, struct waiters *mine,
		       uint64_t node, uint64_t *xxh3)
{
	struct rsh_stream *stream;
	struct rsh_vfs_at at;
	XXH3_state_t *state;
	int rc = rsh_vfs_enter(d->vfs, node, false, &at);

	if (rc)
		return rc;
	rc = rsh_vfs_open_stream(at.vfs, at.node, d->streams, &stream);
	if (rc) {
		rsh_vfs_leave(&at);
		return rc;
	}
	state = XXH3_createState();
	rc = -ENOMEM;
	if (state) {
		XXH3_64bits_reset(state);
		rc = digest_stream(d, mine, node, stream, state);
		*xxh3 = rc ? 0 : XXH3_64bits_digest(state);
	}
	XXH3_freeState(state);
	rsh_stream_close(stream);
	rsh_vfs_leave(&at);
	return rc;
}

static void digests_serve_first(struct rsh_digests *d, struct waiters *mine)
{
	const uint64_t node = TAILQ_FIRST(mine)->node;
	struct waiter *w, *next;
	uint64_t xxh3 = 0;
	int rc = digest_node(d, mine, node, &xxh3);

	/* If memory is out the digest is not kept, and is computed again when
	 * it is requested again. */
	pthread_mutex_lock(&d->lock);
	if (rc == 0 && rsh_grow(&d->known, &d->cap_known, d->n_known + 1,
				sizeof(*d->known)) == 0)
		d->known[d->n_known++] = (struct known){ node, xxh3 };
	pthread_mutex_unlock(&d->lock);
	/* Requests that were made while the last bytes were read get this
	 * answer as well. */
	digests_take_fresh(d, mine);
	for (w = TAILQ_FIRST(mine); w; w = next) {
		next = TAILQ_NEXT(w, next);
		if (w->node == node)
			waiter_answer(mine, w, rc, xxh3);
	}
}

static bool digests_is_idle(struct rsh_digests *d)
{
	bool idle;

	pthread_mutex_lock(&d->lock);
	idle = TAILQ_EMPTY(&d->fresh);
	if (idle) {
		d->running = false;
		pthread_cond_signal(&d->ended);
	}
	pthread_mutex_unlock(&d->lock);
	return idle;
}

static void *digests_work(void *arg)
{
	struct rsh_digests *d = arg;
	struct waiters mine = TAILQ_HEAD_INITIALIZER(mine);

	do {
		digests_take_fresh(d, &mine);
		while (!TAILQ_EMPTY(&mine))
			digests_serve_first(d, &mine);
	} while (!digests_is_idle(d));
	return NULL;
}

void rsh_digests_ask(struct rsh_digests *d, uint64_t node,
		     const struct rsh_digest_calls *calls, void *ctx)
{
	struct waiter *w = malloc(sizeof(*w));
	uint64_t xxh3 = 0;
	bool known = false;
	int rc = w ? 0 : -ENOMEM;

	pthread_mutex_lock(&d->lock);
	for (size_t i = 0; i < d->n_known && !known; i++) {
		known = d->known[i].node == node;
		xxh3 = known ? d->known[i].xxh3 : 0;
	}
	if (rc == 0 && !known && !d->running) {
		rc = rsh_thread_start_alone(digests_work, d);
		d->running = rc == 0;
	}
	if (rc == 0 && !known) {
		*w = (struct waiter){ .node = node, .calls = calls,
				      .ctx = ctx };
		TAILQ_INSERT_TAIL(&d->fresh, w, next);
	}
	pthread_mutex_unlock(&d->lock);
	if (!known && rc == 0)
		return;
	free(w);
	calls->answer(ctx, known ? 0 : rc, xxh3);
}

int rsh_digests_new(struct rsh_vfs *vfs, struct rsh_streams *streams,
		    struct rsh_digests **out)
{
	struct rsh_digests *d = calloc(1, sizeof(*d));
	int rc;

	if (!d)
		return -ENOMEM;
	d->vfs = vfs;
	d->streams = streams;
	TAILQ_INIT(&d->fresh);
	rc = -pthread_mutex_init(&d->lock, NULL) ?:
	     -pthread_cond_init(&d->ended, NULL);
	if (rc) {
		free(d);
		return rc;
	}
	*out = d;
	return 0;
}

bool rsh_digests_stop(struct rsh_digests *d)
{
	struct timespec until;
	bool ended;

	clock_gettime(CLOCK_REALTIME, &until);
	until.tv_sec += STOP_SECONDS;
	pthread_mutex_lock(&d->lock);
	d->stopping = true;
	while (d->running &&
	       pthread_cond_timedwait(&d->ended, &d->lock, &until) == 0)
		;
	ended = !d->running;
	pthread_mutex_unlock(&d->lock);
	return ended;
}

void rsh_digests_free(struct rsh_digests *d)
{
	if (!d)
		return;
	pthread_mutex_lock(&d->lock);
	d->stopping = true;
	while (d->running)
		pthread_cond_wait(&d->ended, &d->lock);
	pthread_mutex_unlock(&d->lock);
	pthread_cond_destroy(&d->ended);
	pthread_mutex_destroy(&d->lock);
	free(d->known);
	free(d);
}
