/* SPDX-License-Identifier: Apache-2.0 */
/* read/load.c cuts what is wanted into tasks, which threads take one by one.
 *
 * A task is a part of a long want, or many small wants, which one gather reads
 * together.
 */
#include "config.h"

#include "rsh/read/load.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <time.h>
#include <unistd.h>

#include "reader_i.h"
#include "rsh/util/checked.h"
#include "rsh/util/clock.h"

/* A task has so many bytes at most, and so many wants. */
#define TASK_BYTES (UINT64_C(4) * 1024 * 1024)
#define TASK_WANTS 4096

/* Long wants are cut where the destination is a multiple of this, so that no
 * two threads fault in the same huge page. */
#define HUGE_BYTES (UINT64_C(2) * 1024 * 1024)

#define MOST_THREADS 16
#define TELL_NS UINT64_C(50000000)

/* Wants [first, end): the first one from byte `from` on, and the last up to its
 * byte `to`. */
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
	unsigned n_threads; /* only the calling thread looks at these two */
	pthread_t threads[MOST_THREADS];

	pthread_mutex_t lock; /* guards what follows; not held while reading */
	pthread_cond_t ended; /* a thread has */
	unsigned n_ended;
	size_t next;          /* the first want that is not all in a task, */
	uint64_t next_from;   /* from this byte on */
	uint64_t done;        /* bytes */
	int rc;               /* the first failure: no task is begun after it */
	struct rsh_load_failure failure;
};

/* ---- tasks ---- */

/* Returns how many of `left` bytes, which go to `to`, make a part. */
static uint64_t task_part(const uint8_t *to, uint64_t left, uint64_t room)
{
	const uint64_t over = ((uintptr_t)to + room) % HUGE_BYTES;

	if (left <= room)
		return left;
	return over < room ? room - over : room;
}

/* Takes the next task, with the lock held.  False: there is none left. */
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
	return t->end > 0;
}

/* Gives the part of want i that is of the task. */
static struct rsh_want task_want(const struct load *l,
				 const struct load_task *t, size_t i)
{
	struct rsh_want w = l->wants[i];

	if (i + 1 == t->end)
		w.bytes = t->to;
	if (i == t->first) {
		w.offset += t->from;
		w.bytes -= t->from;
		w.to += t->from;
	}
	return w;
}

struct load_walk {
	const struct load *load;
	const struct load_task *task;
};

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

static int task_walk(const struct rsh_reader *r, void *ctx,
		     const atomic_bool *avoid)
{
	const struct load_walk *walk = ctx;
	const struct load_task *t = walk->task;
	struct rsh_gather *g = rsh_reader_gather(r, avoid);
	int rc = 0;

	if (!g)
		return -ENOMEM;
	for (size_t i = t->first; rc == 0 && i < t->end; i++) {
		const struct rsh_want w = task_want(walk->load, t, i);

		rc = want_gather(r, g, &w, avoid);
	}
	return rsh_gather_end(r->gathers, g, rc);
}

static int task_try(const struct load *l, const struct load_task *t,
		    struct rsh_load_failure *failure)
{
	struct load_walk walk = { l, t };

	*failure = (struct rsh_load_failure){
		&l->wants[t->first], l->wants[t->first].offset + t->from,
	};
	return rsh_reader_walk(l->reader, task_walk, &walk);
}

/* Many wants that failed are read one by one, to find out which it was. */
static int task_run(const struct load *l, const struct load_task *t,
		    struct rsh_load_failure *failure)
{
	int rc = task_try(l, t, failure);

	if (rc == 0 || t->end - t->first == 1)
		return rc;
	rc = 0;
	for (size_t i = t->first; rc == 0 && i < t->end; i++) {
		const struct load_task one = {
			.first = i, .end = i + 1,
			.from = i == t->first ? t->from : 0,
			.to = i + 1 == t->end ? t->to : l->wants[i].bytes,
		};

		rc = task_try(l, &one, failure);
	}
	return rc;
}

/* ---- threads ---- */

/* Does one task, and leaves the lock meanwhile.  False: there is none left. */
static bool load_work_one(struct load *l)
{
	struct rsh_load_failure failure = { 0 };
	struct load_task t;
	int rc;

	if (l->rc || !load_take(l, &t))
		return false;
	pthread_mutex_unlock(&l->lock);
	rc = task_run(l, &t, &failure);
	pthread_mutex_lock(&l->lock);
	if (rc && l->rc == 0) {
		l->rc = rc;
		l->failure = failure;
	}
	l->done += rc ? 0 : t.bytes;
	return true;
}

static void *load_work(void *load)
{
	struct load *l = load;

	pthread_mutex_lock(&l->lock);
	while (load_work_one(l))
		;
	l->n_ended++;
	pthread_cond_signal(&l->ended);
	pthread_mutex_unlock(&l->lock);
	return NULL;
}

/* Starts up to n threads, with the lock held.  Signals are for those of the
 * program. */
static void load_start(struct load *l, unsigned n)
{
	sigset_t all, old;

	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &old);
	while (n-- && pthread_create(&l->threads[l->n_threads], NULL, load_work,
				     l) == 0)
		l->n_threads++;
	pthread_sigmask(SIG_SETMASK, &old, NULL);
}

static void load_tell(struct load *l, const struct rsh_load_options *o)
{
	const uint64_t done = l->done;
	int rc;

	pthread_mutex_unlock(&l->lock);
	rc = o->progress(o->ctx, done, l->all);
	pthread_mutex_lock(&l->lock);
	if (rc && l->rc == 0)
		l->rc = -ECANCELED;
}

/* The calling thread only looks on, since a source may hang; without others it
 * does the work as well. */
static void load_watch(struct load *l, const struct rsh_load_options *o)
{
	while (l->n_threads == 0 && load_work_one(l))
		load_tell(l, o);
	while (l->n_ended < l->n_threads) {
		const uint64_t ns = rsh_clock_ns() + TELL_NS;
		const struct timespec until = {
			(time_t)(ns / 1000000000), (long)(ns % 1000000000),
		};

		if (pthread_cond_timedwait(&l->ended, &l->lock, &until))
			load_tell(l, o);
	}
	load_tell(l, o);
}

static void load_all(struct load *l, const struct rsh_load_options *o)
{
	const uint64_t tasks = l->all / TASK_BYTES + l->n / TASK_WANTS + 1;
	const long cpus = sysconf(_SC_NPROCESSORS_ONLN);
	uint64_t n = o->threads ? o->threads : cpus > 0 ? (uint64_t)cpus : 1;

	n = rsh_min_u64(rsh_min_u64(n, tasks), MOST_THREADS);
	pthread_mutex_lock(&l->lock);
	load_start(l, (unsigned)n - !o->progress);
	if (o->progress)
		load_watch(l, o);
	while (load_work_one(l))
		;
	pthread_mutex_unlock(&l->lock);
	while (l->n_threads)
		pthread_join(l->threads[--l->n_threads], NULL);
}

/* ---- a load ---- */

static int load_init(struct load *l)
{
	pthread_condattr_t attr;
	int rc = pthread_condattr_init(&attr);

	if (rc)
		return -rc;
	pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
	rc = pthread_cond_init(&l->ended, &attr);
	pthread_condattr_destroy(&attr);
	if (rc)
		return -rc;
	rc = pthread_mutex_init(&l->lock, NULL);
	if (rc)
		pthread_cond_destroy(&l->ended);
	return -rc;
}

/* Nothing is loaded where something is known to be lost. */
static int load_look(struct load *l)
{
	uint32_t good = UINT32_MAX;

	for (size_t i = 0; i < l->n; i++) {
		const struct rsh_want *w = &l->wants[i];

		l->all += w->bytes;
		if (w->file == good)
			continue;
		good = w->file;
		if (rsh_reader_is_lost(l->reader, w->file)) {
			l->failure = (struct rsh_load_failure){ w, w->offset };
			return -EIO;
		}
	}
	return 0;
}

int rsh_load(const struct rsh_reader *r, const struct rsh_want *wants, size_t n,
	     const struct rsh_load_options *o, struct rsh_load_failure *failure)
{
	struct load l = { .reader = r, .wants = wants, .n = n };
	int rc = load_init(&l);

	if (rc == 0) {
		l.rc = load_look(&l);
		if (l.rc == 0)
			load_all(&l, o);
		pthread_mutex_destroy(&l.lock);
		pthread_cond_destroy(&l.ended);
		rc = l.rc;
	}
	*failure = l.failure;
	return rc;
}
