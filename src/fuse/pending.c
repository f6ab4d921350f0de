/* SPDX-License-Identifier: Apache-2.0 */
/* fuse/pending.c keeps requests that wait for the source, and answers those
 * that are interrupted.
 *
 * A thread that hangs in a read of the source cannot be interrupted.  So
 * another thread, that of the loop (loop.c), replies EINTR.  A lock decides
 * which of the two threads replies; the other one does not use the request
 * again, because libfuse frees it.
 *
 * Only a process that is being killed gets EINTR.  Every other request goes on:
 * a signal that has a handler, stops the process or comes from a debugger does
 * not end it, and programs do not expect EINTR from a file.  numpy.fromfile()
 * then returns an array of zeros; a page fault would be repeated forever, or
 * end in SIGBUS.  The kernel tells of the first signal alone, so the process of
 * an interrupted request is asked again until the source answers.
 */
#include "config.h"

#include "ops_i.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "rsh/util/checked.h"
#include "rsh/util/clock.h"
#include "rsh/util/thread.h"

/* How long after an interrupt its process is asked again: the longer it waits
 * already, the later.  Users do not notice these delays after Ctrl-C. */
#define SHORTEST_PAUSE_NS UINT64_C(50000000)
#define LONGEST_PAUSE_NS UINT64_C(500000000)

struct rsh_pending {
	struct rsh_server *server;
	fuse_req_t req;
	pid_t reader; /* thread; 0: in another PID namespace */

	/* The lock of the server's interrupts guards all below. */
	enum { WAITS, INTERRUPTED, CLAIMED, ANSWERED } state;
	bool held; /* the thread that answers interrupted requests uses it */
	bool ended;
	/* The time of the interrupt, and the time when the request is checked
	 * next. */
	uint64_t since_ns, due_ns;
	TAILQ_ENTRY(rsh_pending) next;
};

int rsh_interrupts_init(struct rsh_interrupts *i)
{
	TAILQ_INIT(&i->list);
	return -pthread_mutex_init(&i->lock, NULL);
}

/* libfuse calls this, also in fuse_req_interrupt_func(), and holds a lock on
 * the request, so the request must not be answered here. */
static void interrupt(fuse_req_t req, void *data)
{
	struct rsh_pending *p = data;
	struct rsh_interrupts *i = &p->server->interrupts;
	bool anew;

	(void)req;
	pthread_mutex_lock(&i->lock);
	anew = p->state == WAITS;
	if (anew) {
		p->state = INTERRUPTED;
		p->since_ns = p->due_ns = rsh_clock_ns();
		TAILQ_INSERT_HEAD(&i->list, p, next);
	}
	pthread_mutex_unlock(&i->lock);
	if (anew)
		sem_post(i->news);
}

static struct rsh_pending *pending_new(struct rsh_server *s, fuse_req_t req)
{
	struct rsh_pending *p = malloc(sizeof(*p));

	if (!p)
		return NULL;
	*p = (struct rsh_pending){
		.server = s, .req = req, .reader = fuse_req_ctx(req)->pid,
	};
	fuse_req_interrupt_func(req, interrupt, p);
	return p;
}

bool rsh_pending_is_over(struct rsh_pending *p)
{
	if (!p)
		return false;
	rsh_hold_lock(&p->server->interrupts.lock);
	return p->state == ANSWERED;
}

bool rsh_pending_claim(struct rsh_pending *p)
{
	struct rsh_interrupts *i;
	bool first, mine;

	if (!p)
		return true;
	i = &p->server->interrupts;
	pthread_mutex_lock(&i->lock);
	first = p->state == WAITS || p->state == INTERRUPTED;
	if (p->state == INTERRUPTED)
		TAILQ_REMOVE(&i->list, p, next);
	if (first)
		p->state = CLAIMED;
	mine = p->state == CLAIMED;
	pthread_mutex_unlock(&i->lock);
	/* This waits until interrupt() no longer uses the request. */
	if (first)
		fuse_req_interrupt_func(p->req, NULL, NULL);
	return mine;
}

bool rsh_pending_end(struct rsh_pending *p)
{
	const bool mine = rsh_pending_claim(p);
	struct rsh_interrupts *i;
	bool held;

	if (!p)
		return mine;
	i = &p->server->interrupts;
	pthread_mutex_lock(&i->lock);
	held = p->held;
	p->ended = true;
	pthread_mutex_unlock(&i->lock);
	if (!held)
		free(p);
	return mine;
}

static uint64_t pending_pause(const struct rsh_pending *p, uint64_t now)
{
	const uint64_t pause = (now - p->since_ns) / 4;

	if (pause < SHORTEST_PAUSE_NS)
		return SHORTEST_PAUSE_NS;
	return pause < LONGEST_PAUSE_NS ? pause : LONGEST_PAUSE_NS;
}

/* Returns a request that is due, with `held` set and the time of its next
 * check.  If there is none, returns NULL, and *wait is the time until one will
 * be due. */
static struct rsh_pending *take_due(struct rsh_interrupts *i, uint64_t *wait)
{
	const uint64_t now = rsh_clock_ns();
	struct rsh_pending *p;

	*wait = UINT64_MAX;
	rsh_hold_lock(&i->lock);
	TAILQ_FOREACH(p, &i->list, next) {
		if (p->due_ns <= now)
			break;
		*wait = rsh_min_u64(*wait, p->due_ns - now);
	}
	if (p) {
		p->due_ns = now + pending_pause(p, now);
		p->held = true;
	}
	return p;
}

/* This may take a while, because another process reads /proc.  If it is not
 * known whether the reader is being killed (it is in a PID namespace that this
 * process does not see, or /proc hides it) its request goes on. */
static bool has_to_go(const struct rsh_server *s, const struct rsh_pending *p)
{
	const int dies = s->mounter
		? rsh_mounter_ask_fatal_signals(s->mounter, p->reader)
		: rsh_thread_dies(p->reader);

	return dies > 0;
}

uint64_t rsh_interrupts_answer(struct rsh_server *s)
{
	struct rsh_interrupts *i = &s->interrupts;
	struct rsh_pending *p;
	uint64_t wait;

	while ((p = take_due(i, &wait))) {
		bool ended, mine = false;

		if (has_to_go(s, p)) {
			pthread_mutex_lock(&i->lock);
			mine = p->state == INTERRUPTED;
			if (mine) {
				TAILQ_REMOVE(&i->list, p, next);
				p->state = ANSWERED;
			}
			pthread_mutex_unlock(&i->lock);
		}
		/* Otherwise another thread replies to the request. */
		if (mine) {
			fuse_req_interrupt_func(p->req, NULL, NULL);
			fuse_reply_err(p->req, EINTR);
			rsh_queue_forget(&s->queue, p);
		}
		pthread_mutex_lock(&i->lock);
		ended = p->ended;
		p->held = false;
		pthread_mutex_unlock(&i->lock);
		if (ended)
			free(p);
	}
	return wait;
}

/* ---- requests that may wait for the source ---- */

void rsh_op_queue(struct rsh_request *r)
{
	int rc;

	/* The request can be interrupted from now on. */
	r->server = fuse_req_userdata(r->req);
	r->pending = pending_new(r->server, r->req);
	rc = r->pending ? rsh_queue_begin(&r->server->queue, r) : -ENOMEM;
	if (rc != RSH_QUEUE_LATER)
		r->serve(r, rc);
	if (rc == 0)
		rsh_queue_end(&r->server->queue);
}

void rsh_op_dispatch(struct rsh_request *r)
{
	r->server = fuse_req_userdata(r->req);
	if (rsh_vfs_has_steps(r->server->vfs))
		rsh_op_queue(r);
	else
		r->serve(r, 0);
}

void rsh_op_dispatch_name(struct rsh_request *r, const char *name)
{
	const struct rsh_server *s = fuse_req_userdata(r->req);

	r->name = rsh_vfs_has_steps(s->vfs) ? strdup(name) : name;
	if (r->name)
		rsh_op_dispatch(r);
	else
		fuse_reply_err(r->req, ENOMEM);
}

bool rsh_op_end(const struct rsh_request *r, int rc)
{
	const bool mine = rsh_pending_end(r->pending);

	if (mine && rc)
		fuse_reply_err(r->req, -rc);
	return mine && rc == 0;
}

void rsh_op_free_name(const struct rsh_request *r)
{
	if (rsh_vfs_has_steps(r->server->vfs))
		free((char *)(uintptr_t)r->name);
}
