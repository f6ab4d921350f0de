/* SPDX-License-Identifier: Apache-2.0 */
/* fuse/request_queue.c queues requests that may wait for the source.
 *
 * All threads except one may serve such requests.  More requests wait here
 * without a thread, in their order of arrival.  So one thread always answers
 * requests that do not need the source, however many reads hang.
 */
#include "config.h"

#include "ops_i.h"

#include <errno.h>
#include <stdlib.h>

#include "rsh/util/thread.h"

/* Each entry is a waiting request; this many use 10 MB. */
#define MOST_WAITING 65536

int rsh_queue_init(struct rsh_request_queue *t)
{
	t->most = 1;
	STAILQ_INIT(&t->waiting);
	return -pthread_mutex_init(&t->lock, NULL);
}

/* Returns the next request that may be served, or NULL.  The lock is held. */
static struct rsh_request *queue_next(struct rsh_request_queue *t)
{
	struct rsh_request *r = STAILQ_FIRST(&t->waiting);

	if (!r || t->n_served >= t->most)
		return NULL;
	STAILQ_REMOVE_HEAD(&t->waiting, next);
	atomic_fetch_sub(&t->n_waiting, 1);
	t->n_served++;
	return r;
}

static void queue_end_one(struct rsh_request_queue *t)
{
	t->n_served--;
	atomic_fetch_add(&t->n_done, 1);
}

void rsh_queue_help(struct rsh_request_queue *t)
{
	struct rsh_request *r;

	if (!atomic_load(&t->n_waiting))
		return;
	pthread_mutex_lock(&t->lock);
	while ((r = queue_next(t))) {
		pthread_mutex_unlock(&t->lock);
		r->serve(r, 0);
		free(r);
		pthread_mutex_lock(&t->lock);
		queue_end_one(t);
	}
	pthread_mutex_unlock(&t->lock);
}

int rsh_queue_begin(struct rsh_request_queue *t, const struct rsh_request *r)
{
	struct rsh_request *copy;

	rsh_hold_lock(&t->lock);
	if (t->n_served < t->most) {
		t->n_served++;
		return 0;
	}
	if (t->closed)
		return -ECONNABORTED;
	if (atomic_load(&t->n_waiting) >= MOST_WAITING ||
	    !(copy = malloc(sizeof(*copy))))
		return -ENOMEM;
	*copy = *r;
	STAILQ_INSERT_TAIL(&t->waiting, copy, next);
	atomic_fetch_add(&t->n_waiting, 1);
	return RSH_QUEUE_LATER;
}

void rsh_queue_end(struct rsh_request_queue *t)
{
	pthread_mutex_lock(&t->lock);
	queue_end_one(t);
	pthread_mutex_unlock(&t->lock);
	rsh_queue_help(t);
}

void rsh_queue_forget(struct rsh_request_queue *t, const struct rsh_pending *p)
{
	struct rsh_request *r;

	pthread_mutex_lock(&t->lock);
	STAILQ_FOREACH(r, &t->waiting, next)
		if (r->pending == p)
			break;
	if (r) {
		STAILQ_REMOVE(&t->waiting, r, rsh_request, next);
		atomic_fetch_sub(&t->n_waiting, 1);
	}
	pthread_mutex_unlock(&t->lock);
	if (r)
		r->serve(r, -EINTR);
	free(r);
}

void rsh_queue_allow(struct rsh_request_queue *t, unsigned most)
{
	rsh_hold_lock(&t->lock);
	t->most = most;
}

void rsh_queue_close(struct rsh_request_queue *t)
{
	struct rsh_request_list left = STAILQ_HEAD_INITIALIZER(left);
	struct rsh_request *r;

	pthread_mutex_lock(&t->lock);
	t->closed = true;
	STAILQ_CONCAT(&left, &t->waiting);
	atomic_store(&t->n_waiting, 0);
	pthread_mutex_unlock(&t->lock);
	while ((r = STAILQ_FIRST(&left))) {
		STAILQ_REMOVE_HEAD(&left, next);
		r->serve(r, -ECONNABORTED);
		free(r);
	}
}
