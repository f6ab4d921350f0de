/* SPDX-License-Identifier: Apache-2.0 */
/* objects/loop.c has the thread that carries requests out: which of them are
 * under way, when one has taken too long, and who is told of its end.  What an
 * attempt asks and what its answer means is request.c's. */
#include "config.h"

#include "objects_i.h"

#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>

#include "rsh/util/clock.h"
#include "rsh/util/mem.h"

#define MS UINT64_C(1000000)
/* The thread looks around at least so often. */
#define LOOP_IDLE_MS 60000

struct request_list {
	struct object_request *first, **end;
};

struct object_loop {
	struct rsh_objects *o;
	pthread_t thread;
	CURLM *multi;

	pthread_mutex_t lock; /* guards these two, and which are done */
	struct request_list arrived;
	bool stop;

	/* The rest is the thread's. */
	struct request_list waiting, running;
	unsigned n_running;
	CURL **idle;
	unsigned n_idle;
	/* Until an answer has come one request goes alone, so that a name is
	 * not looked up once for each of them. */
	bool reached;
};

static void list_clear(struct request_list *l)
{
	l->first = NULL;
	l->end = &l->first;
}

static void list_add(struct request_list *l, struct object_request *q)
{
	q->next = NULL;
	*l->end = q;
	l->end = &q->next;
}

/* Takes out the request that *at points to. */
static void list_take(struct request_list *l, struct object_request **at)
{
	struct object_request *q = *at;

	*at = q->next;
	if (l->end == &q->next)
		l->end = at;
}

static void list_remove(struct request_list *l, struct object_request *q)
{
	struct object_request **at = &l->first;

	while (*at != q)
		at = &(*at)->next;
	list_take(l, at);
}

/* ---- the end of a request ---- */

/* After this the request is its caller's, who may be gone with it at once. */
static void loop_finish(struct object_loop *l, struct object_request *q)
{
	rsh_object_attempt_clear(q);
	pthread_mutex_lock(&l->lock);
	q->is_done = true;
	pthread_cond_signal(&q->done);
	pthread_mutex_unlock(&l->lock);
}

static void loop_give_handle(struct object_loop *l, struct object_request *q)
{
	if (!q->easy)
		return;
	rsh_curl.multi_remove_handle(l->multi, q->easy);
	rsh_curl.easy_reset(q->easy);
	l->idle[l->n_idle++] = steal_pointer(&q->easy);
}

/* Ends an attempt, and the request with it or not. */
static void loop_attempt_over(struct object_loop *l, struct object_request *q,
			      CURLcode code)
{
	bool done;

	list_remove(&l->running, q);
	l->n_running--;
	l->reached |= q->answer.status != 0;
	done = rsh_object_attempt_end(l->o, q, code);
	loop_give_handle(l, q);
	rsh_object_attempt_clear(q);
	if (done)
		loop_finish(l, q);
	else
		list_add(&l->waiting, q);
}

/* ---- its begin ---- */

static CURL *loop_take_handle(struct object_loop *l)
{
	return l->n_idle ? l->idle[--l->n_idle] : rsh_curl.easy_init();
}

static void loop_start(struct object_loop *l, struct object_request *q)
{
	q->easy = loop_take_handle(l);
	q->heard = rsh_clock_ns();
	list_add(&l->running, q);
	l->n_running++;
	if (!q->easy || rsh_object_attempt_begin(l->o, q) ||
	    rsh_curl.multi_add_handle(l->multi, q->easy) != CURLM_OK)
		loop_attempt_over(l, q, CURLE_OUT_OF_MEMORY);
}

static unsigned loop_limit(const struct object_loop *l)
{
	return l->reached ? l->o->requests : 1;
}

/* Begins what is due, in the order in which it came. */
static void loop_start_due(struct object_loop *l, uint64_t now)
{
	struct object_request **at = &l->waiting.first;

	while (*at && l->n_running < loop_limit(l)) {
		struct object_request *q = *at;

		if (q->due > now) {
			at = &q->next;
			continue;
		}
		list_take(&l->waiting, at);
		loop_start(l, q);
	}
}

/* ---- time ---- */

static void loop_expire_waiting(struct object_loop *l, uint64_t now)
{
	struct object_request **at = &l->waiting.first;

	while (*at) {
		struct object_request *q = *at;

		if (q->deadline > now) {
			at = &q->next;
			continue;
		}
		list_take(&l->waiting, at);
		rsh_object_expire(q);
		loop_finish(l, q);
	}
}

static uint64_t loop_stall_at(const struct object_loop *l,
			      const struct object_request *q)
{
	return q->heard + l->o->stall_ms * MS;
}

static void loop_expire_running(struct object_loop *l, uint64_t now)
{
	struct object_request *q = l->running.first, *next;

	for (; q; q = next) {
		next = q->next;
		if (q->deadline <= now) {
			list_remove(&l->running, q);
			l->n_running--;
			loop_give_handle(l, q);
			rsh_object_expire(q);
			loop_finish(l, q);
		} else if (loop_stall_at(l, q) <= now) {
			loop_attempt_over(l, q, CURLE_OPERATION_TIMEDOUT);
		}
	}
}

/* How many milliseconds from now on nothing is due. */
static int loop_pause_ms(const struct object_loop *l, uint64_t now)
{
	uint64_t until = now + LOOP_IDLE_MS * MS;
	const struct object_request *q;

	for (q = l->running.first; q; q = q->next) {
		until = q->deadline < until ? q->deadline : until;
		until = loop_stall_at(l, q) < until ? loop_stall_at(l, q) :
						      until;
	}
	for (q = l->waiting.first; q; q = q->next) {
		until = q->deadline < until ? q->deadline : until;
		if (l->n_running < loop_limit(l) && q->due < until)
			until = q->due;
	}
	return until <= now ? 0 : (int)((until - now + MS - 1) / MS);
}

/* ---- the thread ---- */

/* Takes over what has arrived; false is the end. */
static bool loop_take_arrived(struct object_loop *l)
{
	struct object_request *q, *next;
	bool stop;

	pthread_mutex_lock(&l->lock);
	q = l->arrived.first;
	list_clear(&l->arrived);
	stop = l->stop;
	pthread_mutex_unlock(&l->lock);
	for (; q; q = next) {
		next = q->next;
		list_add(&l->waiting, q);
	}
	return !stop;
}

static void loop_look_at_ends(struct object_loop *l)
{
	const CURLMsg *m;
	int left;

	while ((m = rsh_curl.multi_info_read(l->multi, &left))) {
		struct object_request *q = NULL;

		if (m->msg != CURLMSG_DONE)
			continue;
		rsh_curl.easy_getinfo(m->easy_handle, CURLINFO_PRIVATE, &q);
		loop_attempt_over(l, q, m->data.result);
	}
}

static void *loop_run(void *ctx)
{
	struct object_loop *l = ctx;
	int running;

	while (loop_take_arrived(l)) {
		uint64_t now = rsh_clock_ns();

		loop_expire_waiting(l, now);
		loop_expire_running(l, now);
		loop_start_due(l, now);
		rsh_curl.multi_perform(l->multi, &running);
		loop_look_at_ends(l);
		now = rsh_clock_ns();
		rsh_curl.multi_poll(l->multi, NULL, 0, loop_pause_ms(l, now),
				    NULL);
	}
	return NULL;
}

/* ---- from outside ---- */

/* Starts the thread with all signals blocked. */
static int loop_start_thread(struct object_loop *l)
{
	sigset_t all, old;
	int rc;

	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &old);
	rc = pthread_create(&l->thread, NULL, loop_run, l);
	pthread_sigmask(SIG_SETMASK, &old, NULL);
	return -rc;
}

static struct object_loop *object_loop_new(struct rsh_objects *o)
{
	struct object_loop *l = calloc(1, sizeof(*l));

	if (!l)
		return NULL;
	l->o = o;
	pthread_mutex_init(&l->lock, NULL);
	list_clear(&l->arrived);
	list_clear(&l->waiting);
	list_clear(&l->running);
	l->multi = rsh_curl.multi_init();
	l->idle = calloc(o->requests, sizeof(*l->idle));
	if (l->multi && l->idle) {
		rsh_curl.multi_setopt(l->multi, CURLMOPT_MAXCONNECTS,
				      (long)o->requests);
		if (loop_start_thread(l) == 0)
			return l;
	}
	if (l->multi)
		rsh_curl.multi_cleanup(l->multi);
	free(l->idle);
	pthread_mutex_destroy(&l->lock);
	free(l);
	return NULL;
}

static struct object_loop *loop_of(struct rsh_objects *o)
{
	struct object_loop *l;

	pthread_mutex_lock(&o->lock);
	if (!o->loop)
		o->loop = object_loop_new(o);
	l = o->loop;
	pthread_mutex_unlock(&o->lock);
	return l;
}

int rsh_object_submit(struct rsh_objects *o, struct object_request *q)
{
	struct object_loop *l = loop_of(o);

	if (!l)
		return -ENOMEM;
	q->loop = l;
	q->is_done = false;
	pthread_cond_init(&q->done, NULL);
	pthread_mutex_lock(&l->lock);
	list_add(&l->arrived, q);
	pthread_mutex_unlock(&l->lock);
	rsh_curl.multi_wakeup(l->multi);
	return 0;
}

int rsh_object_wait(struct object_request *q)
{
	struct object_loop *l = q->loop;

	pthread_mutex_lock(&l->lock);
	while (!q->is_done)
		pthread_cond_wait(&q->done, &l->lock);
	pthread_mutex_unlock(&l->lock);
	pthread_cond_destroy(&q->done);
	return q->rc;
}

void rsh_object_loop_free(struct object_loop *l)
{
	if (!l)
		return;
	pthread_mutex_lock(&l->lock);
	l->stop = true;
	pthread_mutex_unlock(&l->lock);
	rsh_curl.multi_wakeup(l->multi);
	pthread_join(l->thread, NULL);
	while (l->n_idle)
		rsh_curl.easy_cleanup(l->idle[--l->n_idle]);
	rsh_curl.multi_cleanup(l->multi);
	free(l->idle);
	pthread_mutex_destroy(&l->lock);
	free(l);
}
