/* SPDX-License-Identifier: Apache-2.0 */
/* read/record_loader.c divides the wants into tasks, which threads take one by
 * one.
 *
 * A task is a part of a long want, or many small wants that one gather reads
 * together.
 */
#include "config.h"

#include "rsh/read/record_loader.h"

#include <errno.h>
#include <pthread.h>
#include <unistd.h>

#include "reader_i.h"
#include "rsh/util/blocking.h"
#include "rsh/util/checked.h"
#include "rsh/util/clock.h"
#include "rsh/util/thread.h"

/* The maximum of bytes and of wants of a task. */
#define TASK_BYTES (UINT64_C(4) * 1024 * 1024)
#define TASK_WANTS 4096

/* Long wants are divided where the destination is a multiple of this, so that
 * two threads do not cause page faults in the same huge page. */
#define HUGE_BYTES (UINT64_C(2) * 1024 * 1024)

#define MOST_THREADS 16
#define TELL_NS UINT64_C(50000000)

/* Wants [first, end): the first one from byte `from`, the last one up to byte
 * `to`. */
struct load_task {
	size_t first, end;
	uint64_t from, to;
	uint64_t bytes;
};

struct load {
	const struct rsh_reader *reader;
	const struct rsh_want *wants;
	size_t n;
	uint64_t all; /* bytes */
	unsigned most_threads;

	/* The lock of all loads guards the following members. */
	struct rsh_loading *common;
	pthread_t threads[MOST_THREADS];
	unsigned n_threads, n_ended;
	pthread_cond_t ended; /* a thread has ended */
	size_t next;          /* the first want that is not completely in a
			       * task */
	uint64_t next_from;   /* its first byte that is not in a task */
	uint64_t taken, done; /* bytes */
	int rc;               /* the first error; no task begins after it */
	struct rsh_records_load_failure failure;
};

/* ---- tasks ---- */

/* Returns how many of the `left` bytes for `to` the task gets. */
static uint64_t task_part(const uint8_t *to, uint64_t left, uint64_t room)
{
	const uint64_t over = ((uintptr_t)to + room) % HUGE_BYTES;

	if (left <= room)
		return left;
	return over < room ? room - over : room;
}

/* Takes the next task; the lock is held.  Returns false if there is none. */
static bool load_take(struct load *l, struct load_task *t)
{
	*t = (struct load_task){ .first = l->next, .from = l->next_from };
	while (l->next < l->n && t->bytes < TASK_BYTES &&
	       l->next - t->first < TASK_WANTS) {
		const struct rsh_want *w = &l->wants[l->next];
		const uint64_t left = w->bytes - l->next_from;
		const uint64_t part = task_part(w->to + l->next_from, left,
						TASK_BYTES - t->bytes);

		t->bytes += part;
		t->end = l->next + 1;
		t->to = l->next_from += part;
		if (part < left)
			break;
		l->next++;
		l->next_from = 0;
	}
	l->taken += t->bytes;
	return t->end > 0;
}

static int want_gather(const struct rsh_reader *r, struct rsh_gather *g,
		       const struct rsh_want *w, const atomic_bool *avoid)
{
	struct rsh_target to = { .data = w->to };
	struct rsh_piece_iter *it = rsh_piece_iter_content(
		r->plan, w->file, w->record, w->offset, w->bytes, avoid);
	int rc;

	if (!it)
		return -ENOMEM;
	rc = rsh_gather_add(g, it, &to, w->bytes);
	rsh_piece_iter_free(it);
	return rc;
}

static int task_try(const struct load *l, const struct load_task *t,
		    const struct rsh_wait *wait,
		    struct rsh_records_load_failure *failure)
{
	const struct rsh_reader *r = l->reader;
	struct rsh_reader_attempts a = { 0 };

	*failure = (struct rsh_records_load_failure){
		&l->wants[t->first], l->wants[t->first].offset + t->from,
	};
	while (rsh_reader_attempt(r, &a)) {
		struct rsh_gather *g = rsh_reader_gather(r, &a, wait);

		a.rc = g ? 0 : -ENOMEM;
		if (!g)
			continue;
		for (size_t i = t->first; a.rc == 0 && i < t->end; i++) {
			struct rsh_want w = l->wants[i];

			if (i + 1 == t->end)
				w.bytes = t->to;
			if (i == t->first) {
				w.offset += t->from;
				w.bytes -= t->from;
				w.to += t->from;
			}
			a.rc = want_gather(r, g, &w, a.avoid);
		}
		a.rc = rsh_gather_end(r->gathers, g, a.rc);
	}
	return a.rc;
}

/* If a task of many wants fails they are read one by one, to find the one that
 * failed. */
static int task_run(const struct load *l, const struct load_task *t,
		    const struct rsh_wait *wait,
		    struct rsh_records_load_failure *failure)
{
	int rc = task_try(l, t, wait, failure);

	if (rc == 0 || t->end - t->first == 1)
		return rc;
	rc = 0;
	for (size_t i = t->first; rc == 0 && i < t->end; i++) {
		const struct load_task one = {
			.first = i, .end = i + 1,
			.from = i == t->first ? t->from : 0,
			.to = i + 1 == t->end ? t->to : l->wants[i].bytes,
		};

		rc = task_try(l, &one, wait, failure);
	}
	return rc;
}

/* ---- threads ----
 *
 * If the source does not make threads sleep there is one thread for each
 * processor.  If it does, the loads of all readers measure how many reads at a
 * time are useful, and a load has one thread for each read that is allowed. */

static void *load_work(void *load);

static bool load_sleeps(const struct load *l)
{
	return l->common->blocked >= RSH_BLOCKED_MIN;
}

/* Returns about how many tasks are left. */
static unsigned load_queued(const struct load *l)
{
	return (unsigned)rsh_min_u64((l->all - l->taken) / TASK_BYTES,
				     MOST_THREADS);
}

static bool load_wants_room(const void *load)
{
	const struct load *l = load;

	return load_sleeps(l) && l->rc == 0 && l->next < l->n;
}

/* Starts up to n threads. */
static void load_start(struct load *l, unsigned n)
{
	while (n-- &&
	       rsh_thread_start(&l->threads[l->n_threads], load_work, l) == 0)
		l->n_threads++;
}

/* State of one task. */
struct task_load {
	struct load *load;
	struct rsh_load_room room;
};

/* A task that waits for an unreachable file reads nothing, so others may
 * begin. */
static void task_give_room(void *task_load)
{
	struct task_load *tl = task_load;
	struct load *l = tl->load;

	rsh_hold_lock(&l->common->lock);
	rsh_load_limit_end(&l->common->loads, &tl->room, 0, load_queued(l));
}

/* Releases the lock during the read. */
static int task_load(struct load *l, const struct load_task *t,
		     struct rsh_records_load_failure *failure)
{
	struct rsh_loading *common = l->common;
	struct task_load tl = { .load = l };
	const struct rsh_wait wait = { task_give_room, &tl };
	unsigned long waits;
	int rc;

	rsh_load_limit_begin(&common->loads, &tl.room, load_sleeps(l),
			     load_queued(l));
	if (tl.room.counted && l->n_threads < l->most_threads &&
	    rsh_depth_room(&common->loads.depth) > common->loads.n_waiting)
		load_start(l, 1);
	pthread_mutex_unlock(&common->lock);
	rsh_work_set_began(rsh_clock_ns());
	waits = rsh_blocking_count();
	rc = task_run(l, t, &wait, failure);
	waits = rsh_blocking_count() - waits;
	rsh_work_set_began(0);
	pthread_mutex_lock(&common->lock);
	common->blocked = rsh_blocked(common->blocked, waits > 0);
	rsh_load_limit_end(&common->loads, &tl.room, rc ? 0 : t->bytes,
			   load_queued(l));
	return rc;
}

static void load_fail(struct load *l, int rc,
		      const struct rsh_records_load_failure *failure)
{
	if (l->rc)
		return;
	l->rc = rc;
	l->failure = *failure;
	rsh_load_limit_rouse(&l->common->loads);
}

/* Does one task; the lock is held, except during reads.  Returns false if there
 * is none. */
static bool load_work_one(struct load *l)
{
	struct rsh_records_load_failure failure = { 0 };
	struct load_task t;
	int rc;

	if (load_sleeps(l))
		rsh_load_limit_await(&l->common->loads, load_wants_room, l);
	if (l->rc || !load_take(l, &t)) {
		rsh_load_limit_rouse(&l->common->loads);
		return false;
	}
	rc = task_load(l, &t, &failure);
	if (rc)
		load_fail(l, rc, &failure);
	else
		l->done += t.bytes;
	return true;
}

static void *load_work(void *load)
{
	struct load *l = load;
	struct rsh_loading *common = l->common;

	rsh_hold_lock(&common->lock);
	while (load_work_one(l))
		;
	l->n_ended++;
	pthread_cond_signal(&l->ended);
	return NULL;
}

static void load_tell(struct load *l, const struct rsh_records_load_options *o)
{
	const struct rsh_records_load_failure nobodys = { 0 };
	const uint64_t done = l->done;
	int rc;

	pthread_mutex_unlock(&l->common->lock);
	rc = o->progress(o->ctx, done, l->all);
	pthread_mutex_lock(&l->common->lock);
	if (rc)
		load_fail(l, -ECANCELED, &nobodys);
}

static void load_all(struct load *l, const struct rsh_records_load_options *o)
{
	const uint64_t tasks = l->all / TASK_BYTES + l->n / TASK_WANTS + 1;
	const uint64_t most = o->threads ? o->threads : MOST_THREADS;
	const long cpus = sysconf(_SC_NPROCESSORS_ONLN);
	const unsigned helped = !o->progress;

	l->most_threads = (unsigned)rsh_min_u64(rsh_min_u64(most, tasks),
						MOST_THREADS) - helped;
	pthread_mutex_lock(&l->common->lock);
	load_start(l, (unsigned)rsh_min_u64(cpus > 0 ? cpus - helped : 1,
					    l->most_threads));
	/* The calling thread does tasks, too.  If it has to report the progress
	 * it only waits, because a source may hang, unless there is no other
	 * thread. */
	while ((!o->progress || l->n_threads == 0) && load_work_one(l))
		if (o->progress)
			load_tell(l, o);
	while (l->n_ended < l->n_threads)
		if (rsh_clock_wait(&l->ended, &l->common->lock,
				   rsh_clock_ns() + TELL_NS) && o->progress)
			load_tell(l, o);
	if (o->progress)
		load_tell(l, o);
	pthread_mutex_unlock(&l->common->lock);
	for (unsigned i = 0; i < l->n_threads; i++)
		pthread_join(l->threads[i], NULL);
}

int rsh_records_load(const struct rsh_reader *r, const struct rsh_want *wants,
		     size_t n, const struct rsh_records_load_options *o,
		     struct rsh_records_load_failure *failure)
{
	struct load l = {
		.reader = r, .wants = wants, .n = n, .common = r->loading,
	};
	uint32_t good = UINT32_MAX;
	int rc;

	/* If slices of a file are known to be lost nothing is loaded. */
	for (size_t i = 0; i < n; i++) {
		const struct rsh_want *w = &wants[i];

		l.all += w->bytes;
		if (w->file != good && rsh_reader_is_lost(r, w->file)) {
			*failure = (struct rsh_records_load_failure){
				w, w->offset,
			};
			return -EIO;
		}
		good = w->file;
	}
	rc = rsh_clock_cond_init(&l.ended);
	if (rc == 0) {
		load_all(&l, o);
		rc = l.rc;
		pthread_cond_destroy(&l.ended);
	}
	*failure = l.failure;
	return rc;
}
