/* vfs/stream.c - windows of open files, prepared ahead of their readers. */
#include "config.h"

#include "rsh/vfs/stream.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdlib.h>
#include <sys/queue.h>
#include <time.h>
#include <unistd.h>

#include "rsh/util/areas.h"
#include "rsh/util/checked.h"
#include "rsh/util/waits.h"

/* Room for the place in a page where a window's bytes begin. */
#define AREA_BYTES (RSH_STREAM_MAX + RSH_PLACE_MAX)

#define DEFAULT_WINDOWS 24
#define DEFAULT_THREADS 16
#define STREAM_WINDOWS 16 /* of one stream, the one being read aside */

/* A reader is sequential once it has read so much without a gap. */
#define SEQUENTIAL_BYTES ((uint64_t)128 * 1024)

/* Threads without work leave after so long. */
#define IDLE_SECONDS 10

/* How long a thread may take to come back from its source at the end. */
#define STOP_SECONDS 2

/* Windows of a stream that has not been read for so long go first when others
 * need them. */
#define STALE_NS (UINT64_C(1000000000))

/* A stream that was read within this time competes for processors. */
#define ACTIVE_NS (UINT64_C(10000000))

/* A stream's source sleeps if one load in eight does. */
#define BLOCKED_ONE 1024
#define BLOCKED_MIN (BLOCKED_ONE / 8)

enum window_state { QUEUED, LOADING, READY, FAILED };

struct rsh_window {
	uint8_t *area;
	uint8_t *data; /* in area: the first byte */

	/* Of the window's use for one stream. */
	struct rsh_stream *stream;
	uint64_t offset;
	size_t len;
	enum window_state state;
	int error;      /* of FAILED: -errno */
	bool listed;    /* stands in the stream's list */
	unsigned users; /* loans, and the thread that prepares it */
	size_t served;  /* bytes lent */
	TAILQ_ENTRY(rsh_window) next; /* in the stream's list */
	TAILQ_ENTRY(rsh_window) next_queued;
};
TAILQ_HEAD(window_list, rsh_window);

struct rsh_stream {
	struct rsh_streams *all;
	uint64_t node;
	uint64_t size;

	/* Under the lock of `all`. */
	pthread_cond_t loaded; /* one of its windows is READY or FAILED */
	unsigned refs;         /* itself while open, and each load */
	struct window_list windows; /* ascending, without gaps */
	unsigned n_windows;
	uint64_t next;      /* where the last read ended */
	uint64_t run_bytes; /* read up to there without a gap */
	uint64_t last_ns;   /* when that was */
	uint64_t load_ns;   /* mean time to prepare a window */
	unsigned blocked;   /* of BLOCKED_ONE: how often that means to sleep */
	uint64_t pace_ns;   /* mean time the reader takes for one */
	TAILQ_ENTRY(rsh_stream) next_open;
};

struct rsh_streams {
	const struct rsh_vfs *vfs;
	unsigned max_windows, max_threads, n_cpus;
	bool lenders_prepare;

	/* Guards everything below and the streams' and windows' state; held
	 * neither while a window is prepared nor while it is lent. */
	pthread_mutex_t lock;
	pthread_cond_t work; /* something is queued, or it is time to stop */
	pthread_cond_t gone; /* a thread has left */
	TAILQ_HEAD(, rsh_stream) open; /* the one read last is first */
	TAILQ_HEAD(, rsh_window) queue;
	struct rsh_areas areas; /* of windows */
	unsigned n_listed;
	unsigned n_threads, n_idle, n_queued;
	unsigned n_woken; /* no longer idle, but not yet running */
	bool left;        /* a window is queued for who returns a loan */
	bool stopping;
	atomic_uint blocked; /* as of the stream that loaded last */
	struct rsh_stream_stats stats;
};

static uint64_t now_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000000000 + (uint64_t)t.tv_nsec;
}

/* ---- windows; lock held ---- */

static struct rsh_window *window_new(struct rsh_stream *st)
{
	struct rsh_window *w = calloc(1, sizeof(*w));

	if (!w)
		return NULL;
	w->stream = st;
	w->area = rsh_area_take(&st->all->areas);
	if (w->area)
		return w;
	free(w);
	return NULL;
}

static struct rsh_window *take_window(struct rsh_stream *st, uint64_t offset,
				      size_t len)
{
	struct rsh_window *w = window_new(st);

	if (!w)
		return NULL;
	w->offset = offset;
	w->len = (size_t)rsh_min_u64(len, st->size - offset);
	w->state = QUEUED;
	return w;
}

/* To be called whenever a window has lost its place or a user. */
static void settle_window(struct rsh_streams *s, struct rsh_window *w)
{
	if (w->listed || w->users)
		return;
	rsh_area_return(&s->areas, w->area);
	free(w);
}

static void unqueue(struct rsh_streams *s, struct rsh_window *w)
{
	TAILQ_REMOVE(&s->queue, w, next_queued);
	s->n_queued--;
}

static void unlist(struct rsh_window *w)
{
	struct rsh_stream *st = w->stream;
	struct rsh_streams *s = st->all;

	if (w->state == QUEUED)
		unqueue(s, w);
	else if (w->served == 0)
		s->stats.unread++;
	TAILQ_REMOVE(&st->windows, w, next);
	st->n_windows--;
	s->n_listed--;
	w->listed = false;
	settle_window(s, w);
}

static void unlist_all(struct rsh_stream *st)
{
	struct rsh_window *w;

	while ((w = TAILQ_FIRST(&st->windows)))
		unlist(w);
}

static void list(struct rsh_stream *st, struct rsh_window *w)
{
	TAILQ_INSERT_TAIL(&st->windows, w, next);
	st->n_windows++;
	w->listed = true;
	st->all->n_listed++;
	TAILQ_INSERT_TAIL(&st->all->queue, w, next_queued);
	st->all->n_queued++;
}

/* ---- preparing ---- */

static void stream_unref(struct rsh_stream *st)
{
	if (--st->refs)
		return;
	pthread_cond_destroy(&st->loaded);
	free(st);
}

static uint64_t mean(uint64_t old, uint64_t new)
{
	return old ? (3 * old + new) / 4 : new;
}

/* Lock held.  New streams begin with what the last loads of all others were
 * like. */
static void learn(struct rsh_stream *st, bool whole, uint64_t ns, bool slept)
{
	if (whole)
		st->load_ns = mean(st->load_ns, ns);
	st->blocked = (7 * st->blocked + (slept ? BLOCKED_ONE : 0)) / 8;
	atomic_store(&st->all->blocked, st->blocked);
}

/* Fills the window.  Called and left with the lock held. */
static void load(struct rsh_streams *s, struct rsh_window *w)
{
	struct rsh_stream *st = w->stream;
	uint64_t start;
	unsigned long waits;
	ssize_t n;

	w->state = LOADING;
	w->users++;
	st->refs++;
	pthread_mutex_unlock(&s->lock);

	start = now_ns();
	waits = rsh_waits();
	w->data = w->area + rsh_vfs_place(s->vfs, st->node, w->offset, w->len);
	n = rsh_vfs_read(s->vfs, st->node, w->data, w->len, w->offset);
	waits = rsh_waits() - waits;

	pthread_mutex_lock(&s->lock);
	learn(st, w->len == RSH_STREAM_MAX, now_ns() - start, waits > 0);
	w->state = n == (ssize_t)w->len ? READY : FAILED;
	w->error = n < 0 ? (int)n : -EIO;
	w->users--;
	pthread_cond_broadcast(&st->loaded);
	settle_window(s, w);
	stream_unref(st);
}

/* Lock held.  False if there was none for long. */
static bool await_work(struct rsh_streams *s)
{
	struct timespec until;
	int rc = 0;

	clock_gettime(CLOCK_MONOTONIC, &until);
	until.tv_sec += IDLE_SECONDS;
	s->n_idle++;
	while (rc == 0 && !s->n_woken && !s->stopping)
		rc = pthread_cond_timedwait(&s->work, &s->lock, &until);
	/* Who wakes a thread counts it as busy from then on. */
	if (s->n_woken) {
		s->n_woken--;
		return true;
	}
	s->n_idle--;
	return rc == 0;
}

/* Called and left with the lock held.  False if nothing was queued. */
static bool prepare_one(struct rsh_streams *s)
{
	struct rsh_window *w = TAILQ_FIRST(&s->queue);

	if (!w)
		return false;
	unqueue(s, w);
	s->stats.windows++;
	load(s, w);
	return true;
}

static void *prepare(void *arg)
{
	struct rsh_streams *s = arg;

	pthread_mutex_lock(&s->lock);
	while (!s->stopping)
		if (!prepare_one(s) && !await_work(s))
			break;
	s->n_threads--;
	pthread_cond_signal(&s->gone);
	pthread_mutex_unlock(&s->lock);
	return NULL;
}

/* Lock held.  Wakes a thread for each queued window, or starts one; without
 * threads readers prepare for themselves. */
static void wake_threads(struct rsh_streams *s)
{
	pthread_attr_t attr;
	sigset_t all, old;
	pthread_t thread;

	/* Those that were woken before are on their way. */
	for (; s->n_idle && s->n_woken < s->n_queued; s->n_idle--, s->n_woken++)
		pthread_cond_signal(&s->work);
	if (s->n_queued <= s->n_woken || s->n_threads == s->max_threads ||
	    pthread_attr_init(&attr))
		return;
	pthread_attr_setdetachstate(&attr, PTHREAD_CREATE_DETACHED);
	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &old);
	if (pthread_create(&thread, &attr, prepare, s) == 0)
		s->n_threads++;
	pthread_sigmask(SIG_SETMASK, &old, NULL);
	pthread_attr_destroy(&attr);
}

/* ---- reading ahead; lock held ---- */

/* Processors that no reader keeps busy. */
static unsigned idle_cpus(const struct rsh_streams *s, uint64_t now)
{
	const struct rsh_stream *st;
	unsigned n = s->n_cpus;

	TAILQ_FOREACH(st, &s->open, next_open) {
		if (n == 0 || now - st->last_ns > ACTIVE_NS)
			break;
		n--;
	}
	return n;
}

/* How many windows after the one being read: as many as the reader gets
 * through while one is prepared, and one more.  Where preparing is all
 * computing it takes a processor for each; with none to spare the reader is
 * served fastest by doing it himself. */
static unsigned depth(const struct rsh_stream *st, uint64_t now)
{
	uint64_t n = 1, most = STREAM_WINDOWS;

	if (st->pace_ns)
		n += (st->load_ns + st->pace_ns - 1) / st->pace_ns;
	if (st->blocked < BLOCKED_MIN)
		most = 2 * idle_cpus(st->all, now);
	return (unsigned)rsh_min_u64(rsh_min_u64(n, most), STREAM_WINDOWS);
}

/* Takes the windows of a stream that nobody reads at the moment. */
static bool reclaim(const struct rsh_stream *for_whom, uint64_t now)
{
	struct rsh_stream *st;

	TAILQ_FOREACH(st, &for_whom->all->open, next_open)
		if (st != for_whom && st->n_windows &&
		    now - st->last_ns > STALE_NS) {
			unlist_all(st);
			return true;
		}
	return false;
}

static bool has_room(const struct rsh_stream *st, uint64_t now)
{
	return st->all->n_listed < st->all->max_windows || reclaim(st, now);
}

static void append_windows(struct rsh_stream *st, uint64_t end, uint64_t now)
{
	struct rsh_streams *s = st->all;
	struct rsh_window *w = TAILQ_LAST(&st->windows, window_list);
	const unsigned most = 1 + depth(st, now);

	if (w)
		end = w->offset + w->len;
	while (st->n_windows < most && end < st->size) {
		if (!has_room(st, now))
			break;
		w = take_window(st, end, RSH_STREAM_MAX);
		if (!w)
			break;
		list(st, w);
		end += w->len;
	}
	s->stats.most_ahead = rsh_max_u64(s->stats.most_ahead, st->n_windows);
	s->stats.most_windows = rsh_max_u64(s->stats.most_windows,
					    s->n_listed);
}

static struct rsh_window *window_at(struct rsh_stream *st, uint64_t offset)
{
	struct rsh_window *w;

	TAILQ_FOREACH(w, &st->windows, next)
		if (offset >= w->offset && offset - w->offset < w->len)
			return w;
	return NULL;
}

/* Requests may overtake each other a little; what lies further back will not
 * be asked for. */
static void drop_behind(struct rsh_stream *st, uint64_t offset)
{
	struct rsh_window *w;

	while ((w = TAILQ_FIRST(&st->windows)) &&
	       w->offset + w->len + 2 * RSH_STREAM_MAX <= offset)
		unlist(w);
}

/* Keeps account of where the reader is and how fast.  True if it goes from
 * front to back. */
static bool follow(struct rsh_stream *st, uint64_t offset, size_t len,
		   uint64_t now)
{
	if (offset == st->next) {
		st->run_bytes += len;
		if (st->last_ns)
			st->pace_ns = mean(st->pace_ns, (now - st->last_ns) *
					   RSH_STREAM_MAX / len);
	} else if (!window_at(st, offset)) {
		unlist_all(st);
		st->run_bytes = 0;
	}
	st->next = offset + len;
	TAILQ_REMOVE(&st->all->open, st, next_open);
	TAILQ_INSERT_HEAD(&st->all->open, st, next_open);
	st->last_ns = now;
	return st->run_bytes >= SEQUENTIAL_BYTES;
}

/* ---- lending; lock held ---- */

/* True if the one window that is queued had better be prepared by the thread
 * that lends this one, when it has been returned: it needs not be woken, and
 * has the bytes in its processor's caches when it lends them.  The reader has to
 * be so slow that it does not notice. */
static bool lender_prepares(const struct rsh_stream *st)
{
	return st->all->lenders_prepare && st->all->n_queued == 1 &&
	       st->blocked < BLOCKED_MIN && st->pace_ns > 3 * st->load_ns;
}

/* Waits for the bytes of a window and holds them: 0, or -errno; the window is
 * dropped then. */
static int hold_window(struct rsh_streams *s, struct rsh_window *w, bool *waited)
{
	int rc;

	w->users++;
	if (w->state == QUEUED) {
		unqueue(s, w);
		wake_threads(s); /* for the others */
		load(s, w);
		*waited = true;
	} else if (lender_prepares(w->stream)) {
		s->left = true;
	} else {
		wake_threads(s);
	}
	while (w->state == LOADING) {
		*waited = true;
		pthread_cond_wait(&w->stream->loaded, &s->lock);
	}
	if (w->state == READY)
		return 0;
	rc = w->error;
	w->users--;
	if (w->listed)
		unlist(w);
	else
		settle_window(s, w);
	return rc;
}

/* The loan takes over the caller's hold. */
static size_t lend_part(struct rsh_window *w, uint64_t offset, size_t len,
			struct rsh_loan *loan)
{
	const size_t skip = (size_t)(offset - w->offset);
	const size_t n = (size_t)rsh_min_u64(len, w->len - skip);

	loan->part[loan->n_parts] = (struct iovec){ w->data + skip, n };
	loan->window[loan->n_parts++] = w;
	w->served += n;
	if (w->served >= w->len && w->listed)
		unlist(w);
	return n;
}

static void return_parts(struct rsh_streams *s, struct rsh_loan *loan)
{
	for (int i = 0; i < loan->n_parts; i++) {
		loan->window[i]->users--;
		settle_window(s, loan->window[i]);
	}
	loan->n_parts = 0;
}

/* Just these bytes, once. */
static ssize_t lend_once(struct rsh_stream *st, uint64_t offset, size_t len,
			 struct rsh_loan *loan)
{
	struct rsh_window *w = take_window(st, offset, len);
	int rc;

	if (!w)
		return -ENOMEM;
	w->users++;
	load(st->all, w);
	if (w->state == FAILED) {
		rc = w->error;
		w->users--;
		settle_window(st->all, w);
		return rc;
	}
	return (ssize_t)lend_part(w, offset, len, loan);
}

/* The window that holds the byte at `offset`, made if there is none; NULL if
 * there is no room for one. */
static struct rsh_window *need_window(struct rsh_stream *st, uint64_t offset)
{
	const uint64_t now = now_ns();
	struct rsh_window *w = window_at(st, offset);

	if (!w)
		unlist_all(st);
	append_windows(st, offset, now);
	return w ? w : window_at(st, offset);
}

static bool reaches(const struct rsh_window *w, uint64_t end)
{
	return w->offset + w->len >= end;
}

/* From windows, which are made as needed. */
static ssize_t lend_windows(struct rsh_stream *st, uint64_t offset, size_t len,
			    struct rsh_loan *loan)
{
	struct rsh_streams *s = st->all;
	bool waited = false;
	size_t got = 0;

	drop_behind(st, offset);
	while (got < len) {
		struct rsh_window *w = need_window(st, offset + got);
		ssize_t n;

		/* The second part has to be the last. */
		if (w && (got == 0 || reaches(w, offset + len))) {
			n = hold_window(s, w, &waited);
			if (n == 0)
				n = (ssize_t)lend_part(w, offset + got,
						       len - got, loan);
		} else {
			n = lend_once(st, offset + got, len - got, loan);
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

ssize_t rsh_stream_lend(struct rsh_stream *st, uint64_t offset, size_t len,
			struct rsh_loan *loan)
{
	struct rsh_streams *s = st->all;
	uint64_t now = now_ns();
	ssize_t n;

	loan->streams = s;
	loan->n_parts = 0;
	if (offset >= st->size || len == 0)
		return 0;
	len = (size_t)rsh_min_u64(rsh_min_u64(len, RSH_STREAM_MAX),
				  st->size - offset);

	pthread_mutex_lock(&s->lock);
	if (follow(st, offset, len, now) || window_at(st, offset))
		n = lend_windows(st, offset, len, loan);
	else
		n = lend_once(st, offset, len, loan);
	st->last_ns = now_ns();
	s->stats.reads++;
	if (n > 0)
		s->stats.bytes += (uint64_t)n;
	else
		return_parts(s, loan);
	pthread_mutex_unlock(&s->lock);
	return n;
}

void rsh_loan_return(struct rsh_loan *loan)
{
	struct rsh_streams *s = loan->streams;

	if (loan->n_parts == 0)
		return;
	pthread_mutex_lock(&s->lock);
	return_parts(s, loan);
	if (s->left && !s->stopping) {
		s->left = false;
		prepare_one(s);
	}
	pthread_mutex_unlock(&s->lock);
}

/* ---- opening and closing ---- */

int rsh_stream_open(struct rsh_streams *s, uint64_t node,
		    struct rsh_stream **out)
{
	struct rsh_stream *st;
	struct stat info;
	int rc = rsh_vfs_stat(s->vfs, node, &info);

	if (rc)
		return rc;
	if (!S_ISREG(info.st_mode))
		return S_ISDIR(info.st_mode) ? -EISDIR : -EINVAL;
	st = calloc(1, sizeof(*st));
	if (!st)
		return -ENOMEM;
	rc = pthread_cond_init(&st->loaded, NULL);
	if (rc) {
		free(st);
		return -rc;
	}
	st->all = s;
	st->node = node;
	st->size = (uint64_t)info.st_size;
	st->refs = 1;
	TAILQ_INIT(&st->windows);
	pthread_mutex_lock(&s->lock);
	st->blocked = atomic_load(&s->blocked);
	TAILQ_INSERT_TAIL(&s->open, st, next_open);
	pthread_mutex_unlock(&s->lock);
	*out = st;
	return 0;
}

void rsh_stream_close(struct rsh_stream *st)
{
	struct rsh_streams *s = st->all;

	pthread_mutex_lock(&s->lock);
	unlist_all(st);
	TAILQ_REMOVE(&s->open, st, next_open);
	stream_unref(st);
	pthread_mutex_unlock(&s->lock);
}

/* The threads' waits are timed by the clock that now_ns() reads. */
static int init_timed(pthread_cond_t *cond)
{
	pthread_condattr_t attr;
	int rc = pthread_condattr_init(&attr);

	if (rc)
		return -rc;
	pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
	rc = pthread_cond_init(cond, &attr);
	pthread_condattr_destroy(&attr);
	return -rc;
}

int rsh_streams_new(const struct rsh_vfs *vfs,
		    const struct rsh_streams_options *o,
		    struct rsh_streams **out)
{
	struct rsh_streams *s = calloc(1, sizeof(*s));
	int rc;

	if (!s)
		return -ENOMEM;
	s->vfs = vfs;
	s->n_cpus = (unsigned)sysconf(_SC_NPROCESSORS_ONLN);
	s->lenders_prepare = o->lenders_prepare;
	s->max_windows = o->max_windows ? o->max_windows : DEFAULT_WINDOWS;
	s->max_threads = o->max_threads ? o->max_threads : DEFAULT_THREADS;
	TAILQ_INIT(&s->open);
	TAILQ_INIT(&s->queue);
	rsh_areas_init(&s->areas, AREA_BYTES);
	rc = -pthread_mutex_init(&s->lock, NULL);
	if (rc == 0)
		rc = init_timed(&s->gone);
	if (rc == 0)
		rc = init_timed(&s->work);
	if (rc) {
		free(s);
		return rc;
	}
	*out = s;
	return 0;
}

void rsh_streams_stats(struct rsh_streams *s, struct rsh_stream_stats *out)
{
	pthread_mutex_lock(&s->lock);
	*out = s->stats;
	out->threads = s->n_threads;
	pthread_mutex_unlock(&s->lock);
}

bool rsh_streams_sleep(struct rsh_streams *s)
{
	return atomic_load(&s->blocked) >= BLOCKED_MIN;
}

bool rsh_streams_stop(struct rsh_streams *s)
{
	struct timespec until;
	bool stopped;
	int rc = 0;

	clock_gettime(CLOCK_MONOTONIC, &until);
	until.tv_sec += STOP_SECONDS;
	pthread_mutex_lock(&s->lock);
	s->stopping = true;
	pthread_cond_broadcast(&s->work);
	while (s->n_threads && rc == 0)
		rc = pthread_cond_timedwait(&s->gone, &s->lock, &until);
	stopped = s->n_threads == 0;
	pthread_mutex_unlock(&s->lock);
	return stopped;
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
	pthread_cond_destroy(&s->gone);
	pthread_mutex_destroy(&s->lock);
	free(s);
}
