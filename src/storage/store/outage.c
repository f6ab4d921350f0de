/* SPDX-License-Identifier: Apache-2.0 */
/* storage/store/outage.c decides what a failed read means, keeps the state of
 * failed files, and runs the thread that tries them again.  Reads wait here for
 * files. */
#include "config.h"

#include "store_i.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "rsh/util/checked.h"
#include "rsh/util/clock.h"
#include "rsh/util/log.h"
#include "rsh/util/thread.h"

/* The pauses of the thread. */
#define FIRST_PAUSE_NS UINT64_C(50000000)
#define LONGEST_PAUSE_NS UINT64_C(10000000000)

/* A read that succeeds on a failed file wakes the thread, at most this
 * often. */
#define LOOK_AGAIN_NS UINT64_C(1000000000)

/* Network file systems that come back may report for a moment that a file is
 * missing or is another one.  So during an outage, and for this time after it,
 * a file must look changed for this time to count as changed. */
#define SETTLE_NS UINT64_C(3000000000)

/* One read makes no more attempts than this. */
#define MOST_ATTEMPTS 8

/* Each waiting read occupies a thread; others must remain for other
 * requests. */
#define MOST_WAITING 32

/* The thread stops a look after this many files that still fail. */
#define MOST_IN_VAIN 4

/* This many outages in a row are logged, and after these one in this time. */
#define MOST_SPARE 20
#define SPARE_NS UINT64_C(60000000000)

#define STOP_SECONDS 2

/* ---- what a failure means ---- */

static bool code_is_change(int code)
{
	switch (code) {
	case RSH_CHANGED:
	case ENOENT:
	case ENOTDIR:
	case ELOOP:
	case EXDEV:
		return true;
	default:
		return false;
	}
}

static const char *code_words(int code)
{
	switch (code) {
	case RSH_CHANGED:
		return "changed since it was mounted: its inode, size, mtime "
		       "or ctime is another one";
	case EXDEV:
		return "it leads out of SOURCE now";
	default:
		return strerror(code);
	}
}

int rsh_reader_errno(const struct rsh_store_file *f, int code)
{
	if (code_is_change(code) &&
	    atomic_load(&f->state) == RSH_FILE_CHANGED)
		return -ESTALE;
	if (code == EBADMSG && f->medium->ops->is_made)
		return -EBADMSG;
	return code == ENOMEM ? -ENOMEM : -EIO;
}

static void file_log_change(struct rsh_store_file *f, int code)
{
	if (!atomic_flag_test_and_set(&f->reported))
		rsh_log_error("%s: %s", f->path, code_words(code));
}

/* ---- states; lock held ---- */

static void file_set_state(struct rsh_store *s, struct rsh_store_file *f,
			   enum rsh_file_state state)
{
	const int old = atomic_exchange(&f->state, (int)state);
	unsigned *n_bad = &s->n_bad[f->owner];

	s->outage.n_failing += state == RSH_FILE_FAILING;
	s->outage.n_failing -= old == RSH_FILE_FAILING;
	atomic_fetch_add(&s->outage.n_returns, old == RSH_FILE_FAILING);
	atomic_fetch_add(&s->n_failed, state != RSH_FILE_GOOD);
	atomic_fetch_sub(&s->n_failed, old != RSH_FILE_GOOD);
	*n_bad += state != RSH_FILE_GOOD;
	*n_bad -= old != RSH_FILE_GOOD;
	atomic_store(&s->failed[f->owner], *n_bad > 0);
	if (state != RSH_FILE_FAILING)
		pthread_cond_broadcast(&s->outage.news);
	if (state != RSH_FILE_GOOD)
		atomic_fetch_add(&s->n_marks, 1);
}

/* Returns whether the result of an attempt shows that the file has changed.
 * The lock is held. */
static bool file_is_changed(struct rsh_outage *o, struct rsh_store_file *f,
			    int code)
{
	const uint64_t now = o->now();

	if (!code_is_change(code)) {
		f->doubted_ns = 0;
		return false;
	}
	switch (atomic_load(&f->state)) {
	case RSH_FILE_CHANGED:
		return true;
	case RSH_FILE_GOOD:
		f->doubted_ns = now;
		return !atomic_load(&o->on) &&
		       (o->ended_ns == 0 || now - o->ended_ns >= SETTLE_NS);
	default:
		if (f->doubted_ns == 0)
			f->doubted_ns = now;
		return now - f->doubted_ns >= SETTLE_NS;
	}
}

/* ---- begin and end of an outage ---- */

/* Begins an outage unless there is one already, and decides whether it is
 * logged.  Returns true if it began.  The lock is held. */
static bool outage_begin(struct rsh_outage *o)
{
	const uint64_t now = o->now(), n = (now - o->counted_ns) / SPARE_NS;

	if (atomic_exchange(&o->on, true))
		return false;
	o->begun_ns = now;
	if (n > 0)
		o->counted_ns = now;
	o->spare = (unsigned)rsh_min_u64(o->spare + n, MOST_SPARE);
	o->quiet = o->spare == 0;
	o->spare -= !o->quiet;
	o->n_files = 0;
	o->n_reads = 0;
	atomic_fetch_add(&o->n_outages, 1);
	return true;
}

static void outage_end(struct rsh_store *s)
{
	struct rsh_outage *o = &s->outage;
	unsigned files, failing;
	char left[64] = "";
	uint64_t reads;
	double seconds;
	bool was, quiet;

	pthread_mutex_lock(&o->lock);
	seconds = (double)(o->now() - o->begun_ns) / 1e9;
	reads = o->n_reads;
	files = o->n_files;
	failing = o->n_failing;
	quiet = o->quiet;
	was = atomic_exchange(&o->on, false);
	if (was)
		o->ended_ns = o->now();
	atomic_fetch_add(&o->n_returns, 1);
	pthread_mutex_unlock(&o->lock);
	if (!was)
		return;
	if (failing)
		snprintf(left, sizeof(left), "; %u still cannot be read",
			 failing);
	rsh_log(quiet ? RSH_LOG_INFO : RSH_LOG_NOTICE,
		"%s: reachable again after %.*f s; it hit %u file%s and %llu "
		"read%s%s", s->path, seconds < 10, seconds, files,
		files == 1 ? "" : "s", (unsigned long long)reads,
		reads == 1 ? "" : "s", left);
}

/* ---- the thread ---- */

/* Tries a failed file.  Returns true if it answers or has changed. */
static bool file_answers(struct rsh_store *s, struct rsh_store_file *f)
{
	const uint32_t number = rsh_store_number(s, f);
	struct rsh_outage *o = &s->outage;
	struct rsh_handle *h;
	int code = rsh_store_take(s, number, &h);
	bool failing, changed;

	if (code == 0)
		code = rsh_store_finish(s, number, h,
					rsh_file_read_again(s, f, h));
	pthread_mutex_lock(&o->lock);
	changed = file_is_changed(o, f, code);
	failing = !o->stopping && atomic_load(&f->state) == RSH_FILE_FAILING;
	if (failing && (changed || !code))
		file_set_state(s, f, code ? RSH_FILE_CHANGED : RSH_FILE_GOOD);
	pthread_mutex_unlock(&o->lock);
	if (changed)
		file_log_change(f, code);
	else if (code)
		return false;
	if (failing && !code)
		rsh_log_info("%s: reachable again", f->path);
	return true;
}

bool rsh_outage_look(struct rsh_store *s)
{
	const uint32_t first = s->outage.next;
	unsigned in_vain = 0;
	bool any = false;

	for (uint32_t i = 0; i < s->n_files && in_vain < MOST_IN_VAIN; i++) {
		struct rsh_store_file *f = &s->files[(first + i) % s->n_files];

		if (atomic_load(&f->state) != RSH_FILE_FAILING)
			continue;
		s->outage.next = rsh_store_number(s, f) + 1;
		if (file_answers(s, f)) {
			any = true;
			in_vain = 0;
		} else {
			in_vain++;
		}
	}
	if (any)
		outage_end(s);
	return any;
}

/* Pauses the thread.  Returns false if the thread has to end.  The lock is
 * held. */
static bool outage_pause_for(struct rsh_outage *o, uint64_t ns)
{
	const uint64_t until = rsh_clock_ns() + ns;

	while (!o->stopping && o->n_failing && !o->look_now &&
	       rsh_clock_ns() < until)
		rsh_clock_wait(&o->news, &o->lock, until);
	o->look_now = false;
	return !o->stopping && o->n_failing;
}

static void *outage_watch(void *arg)
{
	struct rsh_store *s = arg;
	struct rsh_outage *o = &s->outage;
	uint64_t pause = FIRST_PAUSE_NS;

	pthread_mutex_lock(&o->lock);
	while (outage_pause_for(o, pause)) {
		bool any;

		pthread_mutex_unlock(&o->lock);
		any = rsh_outage_look(s);
		pthread_mutex_lock(&o->lock);
		pause = any ? FIRST_PAUSE_NS :
			      rsh_min_u64(2 * pause, LONGEST_PAUSE_NS);
	}
	o->watched = false;
	pthread_cond_broadcast(&o->news);
	pthread_mutex_unlock(&o->lock);
	return NULL;
}

bool rsh_outage_stop(struct rsh_store *s)
{
	struct rsh_outage *o = &s->outage;
	const uint64_t until = rsh_clock_ns() +
			       STOP_SECONDS * UINT64_C(1000000000);

	rsh_hold_lock(&o->lock);
	o->stopping = true;
	pthread_cond_broadcast(&o->news);
	while (o->watched && rsh_clock_ns() < until)
		rsh_clock_wait(&o->news, &o->lock, until);
	return !o->watched;
}

/* ---- readers ---- */

/* Marks the file as changed if `code` shows that.  Returns whether it did. */
static bool file_mark_changed(struct rsh_store *s, struct rsh_store_file *f,
			      int code)
{
	struct rsh_outage *o = &s->outage;
	bool failed, changed;

	pthread_mutex_lock(&o->lock);
	changed = file_is_changed(o, f, code);
	failed = atomic_load(&f->state) == RSH_FILE_FAILING;
	if (changed && atomic_load(&f->state) != RSH_FILE_CHANGED)
		file_set_state(s, f, RSH_FILE_CHANGED);
	pthread_mutex_unlock(&o->lock);
	if (!changed)
		return false;
	file_log_change(f, code);
	/* The file was reached, which ends an outage. */
	if (failed)
		outage_end(s);
	return true;
}

/* Marks a file as failing that failed with a new handle as well. */
static void file_mark_failing(struct rsh_store *s, struct rsh_store_file *f,
			      int code, struct rsh_attempts *a)
{
	struct rsh_outage *o = &s->outage;
	bool first, begun = false, quiet, last;
	uint64_t number;

	pthread_mutex_lock(&o->lock);
	first = atomic_load(&f->state) != RSH_FILE_FAILING;
	if (first) {
		file_set_state(s, f, RSH_FILE_FAILING);
		begun = outage_begin(o);
		/* Start the thread unless it runs. */
		if (!o->watched && !o->unwatched && !o->stopping)
			o->watched =
				rsh_thread_start_alone(outage_watch, s) == 0;
	}
	number = atomic_load(&o->n_outages);
	o->n_files += first && f->hit != number;
	o->n_reads += a->hit != number;
	f->hit = a->hit = number;
	quiet = o->quiet;
	last = o->spare == 0;
	pthread_mutex_unlock(&o->lock);
	if (begun)
		rsh_log(quiet ? RSH_LOG_INFO : RSH_LOG_ERROR,
			"%s: cannot be reached (%s)%s", f->path,
			code_words(code), last ? "; this happens often: most "
			"later outages are not logged" : "");
	else if (first)
		rsh_log_info("%s: cannot be reached either (%s)", f->path,
			     code_words(code));
}

/* Waits for a failed file.  Returns true if it no longer fails. */
static bool file_wait_for(struct rsh_store *s, struct rsh_store_file *f,
			  const struct rsh_wait *wait)
{
	struct rsh_outage *o = &s->outage;
	uint64_t now, until;

	if (wait->begins)
		wait->begins(wait->ctx);
	rsh_hold_lock(&o->lock);
	now = o->now();
	until = rsh_clock_ns();
	/* In a long outage a read makes one attempt only. */
	if (o->n_waiting < MOST_WAITING &&
	    now - o->begun_ns < RSH_PATIENCE_NS)
		until += RSH_PATIENCE_NS - (now - o->begun_ns);
	o->n_waiting++;
	while (atomic_load(&f->state) == RSH_FILE_FAILING && !o->stopping &&
	       rsh_clock_ns() < until)
		rsh_clock_wait(&o->news, &o->lock, until);
	o->n_waiting--;
	return atomic_load(&f->state) != RSH_FILE_FAILING;
}

bool rsh_outage_again(struct rsh_store *s, struct rsh_store_file *f, int code,
		      struct rsh_attempts *a)
{
	a->n++;
	if (code == ENOMEM || (code == EBADMSG && f->medium->ops->is_made))
		return false;
	if (file_mark_changed(s, f, code))
		return false;
	/* Perhaps only the handle is dead. */
	if (a->n == 1 && !f->medium->ops->tries_again &&
	    atomic_load(&f->state) != RSH_FILE_FAILING)
		return true;
	/* The source came back after this attempt began: try again. */
	if (a->n < MOST_ATTEMPTS && a->began != atomic_load(&s->outage.n_returns))
		return true;
	file_mark_failing(s, f, code, a);
	return a->wait && a->n < MOST_ATTEMPTS &&
	       file_wait_for(s, f, a->wait);
}

void rsh_outage_went_well(struct rsh_store *s, struct rsh_store_file *f)
{
	struct rsh_outage *o = &s->outage;

	rsh_hold_lock(&o->lock);
	f->doubted_ns = 0;
	if (atomic_load(&f->state) == RSH_FILE_CHANGED) {
		file_set_state(s, f, RSH_FILE_GOOD);
	} else if (o->now() - o->looked_ns > LOOK_AGAIN_NS) {
		/* The range that failed may still fail. */
		o->looked_ns = o->now();
		o->look_now = true;
		pthread_cond_broadcast(&o->news);
	}
}

/* ---- setup and queries ---- */

void rsh_outage_reset(struct rsh_store *s)
{
	struct rsh_outage *o = &s->outage;

	rsh_hold_lock(&o->lock);
	atomic_store(&o->on, false);
	o->stopping = false;
	o->ended_ns = 0;
	o->n_failing = 0;
	o->next = 0;
	atomic_store(&s->n_failed, 0);
}

int rsh_outage_init(struct rsh_outage *o)
{
	int rc = pthread_mutex_init(&o->lock, NULL);

	o->now = rsh_clock_ns;
	o->counted_ns = rsh_clock_ns();
	o->spare = MOST_SPARE;
	return rc ? -rc : rsh_clock_cond_init(&o->news);
}

void rsh_outage_destroy(struct rsh_outage *o)
{
	pthread_cond_destroy(&o->news);
	pthread_mutex_destroy(&o->lock);
}

void rsh_store_outages(const struct rsh_store *s, struct rsh_store_outages *out)
{
	*out = (struct rsh_store_outages){
		.n = atomic_load(&s->outage.n_outages),
		.on = atomic_load(&s->outage.on),
	};
}

bool rsh_store_file_failed(const struct rsh_store *s, uint32_t file)
{
	return atomic_load(&s->files[file].state) != RSH_FILE_GOOD;
}

const atomic_bool *rsh_store_failed(const struct rsh_store *s)
{
	return s->failed;
}

unsigned rsh_store_n_failed(const struct rsh_store *s)
{
	return atomic_load(&s->n_failed);
}

unsigned rsh_store_n_marks(const struct rsh_store *s)
{
	return atomic_load(&s->n_marks);
}
