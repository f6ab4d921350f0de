/* SPDX-License-Identifier: Apache-2.0 */
/* storage/objects/loop.c has the thread that carries out requests.  It decides
 * which requests run, which ones are joined, and when one has timed out, and it
 * reports their end.  transfer.c has the content of a transfer and the
 * evaluation of its answer. */
#include "config.h"

#include "objects_i.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "rsh/util/checked.h"
#include "rsh/util/clock.h"
#include "rsh/util/log.h"
#include "rsh/util/thread.h"

#define MS UINT64_C(1000000)
/* The longest sleep of the thread. */
#define LOOP_IDLE_MS 60000
/* libcurl before 7.66 may sleep on after it has found the address of a server,
 * so the thread looks again after this time. */
#define LOOP_LOOKUP_MS 50
#define CURL_ENDS_LOOKUPS 0x074200
#define STALL_DOUBLED_MAX 3
/* Consecutive ranges are joined up to about this many bytes. */
#define LOOP_JOIN_MAX (UINT64_C(24) << 20)
/* The time that a request waits for others to join it. */
#define LOOP_JOIN_NS MS

struct request_list {
	struct object_request *first, **end;
};

struct object_loop {
	struct rsh_objects *o;
	pthread_t thread;
	CURLM *multi;
	int wake; /* eventfd that wakes the thread */
	unsigned unanswered_ms; /* longest sleep before an answer begins */

	pthread_mutex_t lock; /* guards the next two members and `is_done` of
			       * requests */
	struct request_list arrived;
	bool stop;

	/* Only the thread uses the rest. */
	struct request_list waiting;
	struct object_transfer *running, *idle;
	unsigned n_running;
	/* Before the first answer only one transfer runs, so that the server's
	 * name is not resolved for each of them. */
	bool reached;
	uint64_t got; /* time of the last correct bytes of transfers that have
		       * ended */
};

static void list_clear(struct request_list *l)
{
	l->first = NULL;
	l->end = &l->first;
}

/* Adds a waiting request in the order of `since`.  A read that consists of
 * several requests would end last if each of its requests were added at the
 * end. */
static void list_add_in_turn(struct request_list *l, struct object_request *q)
{
	struct object_request **at = &l->first;

	while (*at && (*at)->since <= q->since)
		at = &(*at)->next;
	q->next = *at;
	*at = q;
	if (!q->next)
		l->end = &q->next;
}

/* Removes the request that *at points to. */
static void list_take(struct request_list *l, struct object_request **at)
{
	struct object_request *q = *at;

	*at = q->next;
	if (l->end == &q->next)
		l->end = at;
	q->next = NULL;
}

/* ---- deadlines ----
 *
 * On a slow line requests wait for each other, which is not a reason to fail
 * one.  So a deadline is extended a few times while bytes arrive for its
 * request, or for other requests before it has begun.
 */

/* Returns the time of the last correct bytes. */
static uint64_t loop_got(const struct object_loop *l)
{
	const struct object_transfer *t;
	uint64_t got = l->got;

	for (t = l->running; t; t = t->next)
		got = rsh_max_u64(got, t->got);
	return got;
}

/* Returns the deadline of a request whose last progress was at q->got or at
 * `got`, whichever is later. */
static uint64_t request_deadline(const struct object_request *q, uint64_t got)
{
	const uint64_t last = q->deadline + (OBJECT_PATIENCES - 1) * q->patience;

	got = rsh_max_u64(got, q->got);
	if (!q->patience || !got)
		return q->deadline;
	return rsh_min_u64(last, rsh_max_u64(q->deadline, got + q->patience));
}

/* For a request that has been tried, the progress of others does not count. */
static uint64_t waiting_deadline(const struct object_request *q, uint64_t got)
{
	return request_deadline(q, q->tries ? 0 : got);
}

static uint64_t transfer_deadline(const struct object_transfer *t)
{
	uint64_t least = UINT64_MAX;

	for (const struct object_request *q = t->requests; q; q = q->next)
		least = rsh_min_u64(least, request_deadline(q, t->got));
	return least;
}

/* ---- the end of a request ---- */

/* After this the caller of the request owns it and may free it at once. */
static void loop_finish(struct object_loop *l, struct object_request *q)
{
	rsh_hold_lock(&l->lock);
	q->is_done = true;
	pthread_cond_signal(&q->done);
}

/* Removes the first request of a transfer. */
static struct object_request *transfer_pop(struct object_transfer *t)
{
	struct object_request *q = t->requests;

	t->requests = q->next;
	q->next = NULL;
	q->got = rsh_max_u64(q->got, t->got);
	return q;
}

static void transfer_first_done(struct object_transfer *t)
{
	loop_finish(t->loop, transfer_pop(t));
}

/* ---- transfers ---- */

static struct object_transfer *loop_take_transfer(struct object_loop *l)
{
	struct object_transfer *t = l->idle;

	if (t) {
		l->idle = t->next;
		return t;
	}
	t = calloc(1, sizeof(*t));
	if (!t)
		return NULL;
	t->easy = rsh_curl.easy_init();
	t->objects = l->o;
	t->loop = l;
	t->first_done = transfer_first_done;
	if (t->easy)
		return t;
	free(t);
	return NULL;
}

/* Removes a transfer from the running ones and from libcurl. */
static void loop_end_transfer(struct object_loop *l, struct object_transfer *t)
{
	struct object_transfer **at = &l->running;

	while (*at != t)
		at = &(*at)->next;
	*at = t->next;
	l->n_running--;
	l->got = rsh_max_u64(l->got, t->got);
	rsh_curl.multi_remove_handle(l->multi, t->easy);
}

/* Keeps a transfer without requests for later use. */
static void loop_keep_transfer(struct object_loop *l, struct object_transfer *t)
{
	rsh_curl.easy_reset(t->easy);
	rsh_object_transfer_clear(t);
	t->next = l->idle;
	l->idle = t;
}

/* Ends a transfer.  Each of its requests is then done or waits for a retry. */
static void loop_transfer_over(struct object_loop *l, struct object_transfer *t,
			       CURLcode code)
{
	l->reached |= t->answer.status != 0;
	rsh_object_transfer_end(t, code);
	loop_end_transfer(l, t);
	while (t->requests) {
		struct object_request *q = transfer_pop(t);

		if (rsh_object_transfer_ends(t, q, code))
			loop_finish(l, q);
		else
			list_add_in_turn(&l->waiting, q);
	}
	loop_keep_transfer(l, t);
}

/* Ends a transfer in which the deadline of a request has passed.  The other
 * requests wait again. */
static void loop_expire_transfer(struct object_loop *l,
				 struct object_transfer *t, uint64_t now)
{
	loop_end_transfer(l, t);
	while (t->requests) {
		struct object_request *q = transfer_pop(t);

		if (request_deadline(q, t->got) > now) {
			list_add_in_turn(&l->waiting, q);
			continue;
		}
		rsh_object_expire(q);
		loop_finish(l, q);
	}
	loop_keep_transfer(l, t);
}

static void loop_start(struct object_loop *l, struct object_request *requests)
{
	struct object_transfer *t = loop_take_transfer(l);
	const uint64_t got = loop_got(l);
	struct object_request *q, *next;
	int rc;

	if (!t) {
		for (q = requests; q; q = next) {
			next = q->next;
			q->rc = rsh_error_nomem(&q->err);
			loop_finish(l, q);
		}
		return;
	}
	/* Before its first attempt a request has waited for others, so their
	 * progress counts for it. */
	for (q = requests; q; q = q->next)
		if (!q->tries)
			q->got = got;
	t->requests = requests;
	t->heard = rsh_clock_ns();
	t->next = l->running;
	l->running = t;
	l->n_running++;
	rc = rsh_object_transfer_begin(t);
	if (rc || rsh_curl.multi_add_handle(l->multi, t->easy) != CURLM_OK)
		loop_transfer_over(l, t, CURLE_OUT_OF_MEMORY);
}

static unsigned loop_limit(const struct object_loop *l)
{
	return l->reached ? l->o->requests : 1;
}

/* ---- joining ----
 *
 * A request waits for its first byte, whatever its length.  So if more requests
 * are due than transfers may begin, consecutive ranges are joined.  All
 * transfers get about the same number of bytes.
 */

/* A request that failed is not joined, since its length may be the reason. */
static bool request_may_join(const struct object_request *q, uint64_t now)
{
	return q->object && q->tries == 0 && q->due <= now;
}

/* Returns the maximum number of bytes for a transfer. */
static uint64_t loop_share(const struct object_loop *l, uint64_t now)
{
	const unsigned n = loop_limit(l) - l->n_running;
	const struct object_request *q;
	uint64_t sum = 0;

	for (q = l->waiting.first; q; q = q->next)
		if (request_may_join(q, now))
			sum += q->len;
	return rsh_min_u64((sum + n - 1) / n, LOOP_JOIN_MAX);
}

/* Requests with consecutive ranges. */
struct request_row {
	struct object_request *first, *last;
	uint64_t len;
};

/* Allows an eighth more bytes, so that a short rest does not need its own
 * transfer. */
static bool row_fits(const struct request_row *r,
		     const struct object_request *q, uint64_t most)
{
	const uint64_t room = most + most / 8 - r->len;

	return q->object == r->first->object && q->len <= room &&
	       (q->first == r->last->first + r->last->len ||
		q->first + q->len == r->first->first);
}

/* Moves a waiting request that is due and adjacent to the row into the row.
 * Returns false if there is none. */
static bool row_grow(struct request_row *r, struct object_loop *l,
		     uint64_t most, uint64_t now)
{
	struct object_request **at = &l->waiting.first, *q;

	if (r->len >= most)
		return false;
	for (; (q = *at); at = &q->next)
		if (request_may_join(q, now) && row_fits(r, q, most)) {
			list_take(&l->waiting, at);
			if (q->first < r->first->first) {
				q->next = r->first;
				r->first = q;
			} else {
				r->last->next = q;
				r->last = q;
			}
			r->len += q->len;
			return true;
		}
	return false;
}

/* Takes the first request that is due, with those that join it.  Returns NULL
 * if none is due. */
static struct object_request *loop_take_due(struct object_loop *l,
					    uint64_t most, uint64_t now)
{
	struct object_request **at = &l->waiting.first, *q;
	struct request_row row;

	while (*at && (*at)->due > now)
		at = &(*at)->next;
	q = *at;
	if (!q)
		return NULL;
	row = (struct request_row){ q, q, q->len };
	if (!request_may_join(q, now))
		most = 0;
	list_take(&l->waiting, at);
	while (row_grow(&row, l, most, now))
		;
	return row.first;
}

/* ---- time ---- */

static void loop_expire_waiting(struct object_loop *l, uint64_t now)
{
	struct object_request **at = &l->waiting.first;
	const uint64_t got = loop_got(l);

	while (*at) {
		struct object_request *q = *at;

		if (waiting_deadline(q, got) > now) {
			at = &q->next;
			continue;
		}
		list_take(&l->waiting, at);
		rsh_object_expire(q);
		loop_finish(l, q);
	}
}

/* A server may need longer than that for each answer, so a request that waited
 * in vain gets twice the time. */
static uint64_t transfer_stall_at(const struct object_transfer *t)
{
	return t->heard + (t->objects->stall_ms * MS <<
			   rsh_min_u64(t->requests->silent, STALL_DOUBLED_MAX));
}

static void loop_expire_running(struct object_loop *l, uint64_t now)
{
	struct object_transfer *t = l->running, *next;

	for (; t; t = next) {
		next = t->next;
		if (transfer_deadline(t) <= now)
			loop_expire_transfer(l, t, now);
		else if (transfer_stall_at(t) <= now)
			loop_transfer_over(l, t, CURLE_OPERATION_TIMEDOUT);
	}
}

/* Returns the number of milliseconds until something is due. */
static int loop_pause_ms(const struct object_loop *l, uint64_t now)
{
	uint64_t until = now + LOOP_IDLE_MS * MS;
	const uint64_t got = loop_got(l);
	const struct object_transfer *t;
	const struct object_request *q;

	for (t = l->running; t; t = t->next) {
		until = rsh_min_u64(until, transfer_deadline(t));
		until = rsh_min_u64(until, transfer_stall_at(t));
		if (!t->answer.status)
			until = rsh_min_u64(until, now + l->unanswered_ms * MS);
	}
	for (q = l->waiting.first; q; q = q->next) {
		until = rsh_min_u64(until, waiting_deadline(q, got));
		if (l->n_running < loop_limit(l))
			until = rsh_min_u64(until, q->due);
	}
	return until <= now ? 0 : (int)((until - now + MS - 1) / MS);
}

/* ---- the thread ---- */

/* Takes the submitted requests.  Returns false at the end.  If transfers are
 * running the requests wait a little, so that later ones can join them. */
static bool loop_take_arrived(struct object_loop *l)
{
	const uint64_t due = l->n_running ? rsh_clock_ns() + LOOP_JOIN_NS : 0;
	struct object_request *q, *next;
	bool stop;

	pthread_mutex_lock(&l->lock);
	q = l->arrived.first;
	list_clear(&l->arrived);
	stop = l->stop;
	pthread_mutex_unlock(&l->lock);
	for (; q; q = next) {
		next = q->next;
		q->due = q->object ? due : 0;
		list_add_in_turn(&l->waiting, q);
	}
	return !stop;
}

static void loop_look_at_ends(struct object_loop *l)
{
	const CURLMsg *m;
	int left;

	while ((m = rsh_curl.multi_info_read(l->multi, &left))) {
		struct object_transfer *t = NULL;

		if (m->msg != CURLMSG_DONE)
			continue;
		rsh_curl.easy_getinfo(m->easy_handle, CURLINFO_PRIVATE, &t);
		loop_transfer_over(l, t, m->data.result ==
				   RSH_CURLE_UNVERIFIED_OLD ?
				   RSH_CURLE_UNVERIFIED :
				   m->data.result);
	}
}

/* An eventfd is used because curl_multi_wakeup() needs libcurl 7.68. */
static void loop_wake(struct object_loop *l)
{
	const uint64_t one = 1;

	if (write(l->wake, &one, sizeof(one)) < 0 && errno != EAGAIN)
		rsh_log_debug("eventfd: %s", strerror(errno));
}

static void *loop_run(void *ctx)
{
	struct object_loop *l = ctx;
	struct curl_waitfd wake = { .fd = l->wake, .events = CURL_WAIT_POLLIN };
	int running;

	while (loop_take_arrived(l)) {
		const uint64_t now = rsh_clock_ns();
		struct object_request *q;
		uint64_t share, count;

		loop_expire_waiting(l, now);
		loop_expire_running(l, now);
		/* Start the requests that are due, in their order. */
		share = l->n_running < loop_limit(l) ? loop_share(l, now) : 0;
		while (l->n_running < loop_limit(l) &&
		       (q = loop_take_due(l, share, now)))
			loop_start(l, q);
		rsh_curl.multi_perform(l->multi, &running);
		loop_look_at_ends(l);
		rsh_curl.multi_wait(l->multi, &wake, 1,
				    loop_pause_ms(l, rsh_clock_ns()), NULL);
		if (read(l->wake, &count, sizeof(count)) < 0 && errno != EAGAIN)
			rsh_log_debug("eventfd: %s", strerror(errno));
	}
	return NULL;
}

/* ---- called by other threads ---- */

static struct object_loop *object_loop_new(struct rsh_objects *o)
{
	struct object_loop *l = calloc(1, sizeof(*l));
	const unsigned curl =
		rsh_curl.version_info(CURLVERSION_NOW)->version_num;

	if (!l)
		return NULL;
	l->o = o;
	l->unanswered_ms = curl < CURL_ENDS_LOOKUPS ? LOOP_LOOKUP_MS :
						      LOOP_IDLE_MS;
	pthread_mutex_init(&l->lock, NULL);
	list_clear(&l->arrived);
	list_clear(&l->waiting);
	l->multi = rsh_curl.multi_init();
	l->wake = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	if (l->multi && l->wake >= 0) {
		rsh_curl.multi_setopt(l->multi, CURLMOPT_MAXCONNECTS,
				      (long)o->requests);
		if (rsh_thread_start(&l->thread, loop_run, l) == 0)
			return l;
	}
	if (l->multi)
		rsh_curl.multi_cleanup(l->multi);
	if (l->wake >= 0)
		close(l->wake);
	pthread_mutex_destroy(&l->lock);
	free(l);
	return NULL;
}

int rsh_object_submit(struct rsh_objects *o, struct object_request *q)
{
	struct object_loop *l;

	q->proxy = q->direct ? NULL : o->proxy;
	pthread_mutex_lock(&o->lock);
	if (!o->loop)
		o->loop = object_loop_new(o);
	l = o->loop;
	pthread_mutex_unlock(&o->lock);
	if (!l)
		return -ENOMEM;
	q->loop = l;
	q->is_done = false;
	pthread_cond_init(&q->done, NULL);
	pthread_mutex_lock(&l->lock);
	q->next = NULL;
	*l->arrived.end = q;
	l->arrived.end = &q->next;
	pthread_mutex_unlock(&l->lock);
	loop_wake(l);
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
	struct object_transfer *t;

	if (!l)
		return;
	pthread_mutex_lock(&l->lock);
	l->stop = true;
	pthread_mutex_unlock(&l->lock);
	loop_wake(l);
	pthread_join(l->thread, NULL);
	while ((t = l->idle)) {
		l->idle = t->next;
		rsh_curl.easy_cleanup(t->easy);
		free(t);
	}
	rsh_curl.multi_cleanup(l->multi);
	close(l->wake);
	pthread_mutex_destroy(&l->lock);
	free(l);
}
