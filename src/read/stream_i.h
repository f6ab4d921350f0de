/* SPDX-License-Identifier: Apache-2.0 */
/* read/stream_i.h - the parts of streams; only this directory includes it.
 *
 * windows.c has the windows and their lists.  prepare.c fills windows.  ahead.c
 * decides which windows are prepared ahead.  load_limit.c decides how many are
 * filled at a time.  stream.c reads them.  The caller of each function holds
 * the lock of the streams. */
#pragma once

#include <pthread.h>
#include <stdatomic.h>
#include <sys/queue.h>

#include "load_limit_i.h"
#include "rsh/read/stream.h"
#include "rsh/util/areas.h"

enum rsh_window_state {
	RSH_WINDOW_QUEUED, RSH_WINDOW_LOADING, RSH_WINDOW_READY,
	RSH_WINDOW_FAILED,
};

struct rsh_window {
	uint8_t *area;
	uint8_t *data; /* the first byte, within `area` */

	struct rsh_stream *stream;
	uint64_t offset;
	size_t len;
	enum rsh_window_state state;
	int error;      /* RSH_WINDOW_FAILED: the -errno of the failure */
	bool listed;    /* it is in the list `windows` of its stream */
	unsigned users; /* views of it, and the thread that fills it */
	size_t served;  /* bytes that were read */
	TAILQ_ENTRY(rsh_window) next; /* in a list of the stream */
	TAILQ_ENTRY(rsh_window) next_queued;
};
TAILQ_HEAD(rsh_window_list, rsh_window);

struct rsh_stream {
	struct rsh_streams *all;
	struct rsh_body body;

	/* The lock of `all` guards the members below. */
	pthread_cond_t loaded; /* one of its windows is ready or has failed */
	/* one while it is open, one for each load, one for each user */
	unsigned refs;
	void (*ended)(void *ctx); /* NULL: nothing is called */
	void *ended_ctx;
	bool closed;   /* it has no readers any more */
	struct rsh_window_list windows; /* ascending, without gaps */
	unsigned n_windows;
	/* windows of a single read; they are in no other list */
	struct rsh_window_list once;
	uint64_t next;      /* where the last read ended */
	uint64_t run_bytes; /* bytes read up to `next` without a gap */
	uint64_t last_ns;   /* when the last read ended */
	uint64_t load_ns;   /* mean time to prepare a window */
	unsigned blocked;   /* mean of loads that sleep, of RSH_BLOCKED_ONE */
	uint64_t pace_ns;   /* mean time the reader takes for a window */
	/* time and bytes not yet included in pace_ns */
	uint64_t spent_ns, spent_on;
	TAILQ_ENTRY(rsh_stream) next_open;
};

struct rsh_streams {
	unsigned max_windows, max_threads, n_cpus;
	bool prepare_at_release;

	/* Guards everything below and the state of streams and windows.  It is
	 * not held while a window is filled or read. */
	pthread_mutex_t lock;
	pthread_cond_t work; /* a window is queued, or the threads must stop */
	pthread_cond_t gone; /* a thread has ended */
	/* the stream that was read last is first */
	TAILQ_HEAD(, rsh_stream) open;
	TAILQ_HEAD(, rsh_window) queue;
	struct rsh_areas areas; /* memory of windows */
	unsigned n_listed;
	unsigned n_threads, n_idle, n_queued;
	unsigned n_woken; /* threads no longer idle, but not yet running */
	/* a window is queued for the thread that releases a view */
	bool left;
	/* limits loads; readers wait to begin one */
	struct rsh_load_limit loads;
	bool seen; /* a load has shown whether reads of the source sleep */
	bool stopping;
	atomic_uint blocked; /* `blocked` of the stream that loaded last */
	/* when a lack of memory was last logged; 0: never */
	_Atomic uint64_t complained_ns;
	struct rsh_stream_stats stats;
};

/* Returns a moving average, made from the old one (0: none) and the last
 * value. */
static inline uint64_t rsh_mean(uint64_t old, uint64_t last)
{
	return old ? (3 * old + last) / 4 : last;
}

/* Returns whether preparing a window of the stream waits for the source. */
static inline bool rsh_stream_sleeps(const struct rsh_stream *st)
{
	return st->blocked >= RSH_BLOCKED_MIN;
}

/* Returns whether the thread that serves the reader can fill a window between
 * two reads. */
static inline bool rsh_stream_is_slow(const struct rsh_stream *st)
{
	return st->pace_ns > 3 * st->load_ns;
}

/* ---- windows.c ---- */

/* Returns the memory of a window in bytes. */
size_t rsh_window_area(void);
/* Makes a window for `len` bytes, or for the fewer bytes that the file has.
 * The window is in no list yet.  Returns NULL if out of memory. */
struct rsh_window *rsh_window_take(struct rsh_stream *st, uint64_t offset,
				   size_t len);
/* Frees the window if it is in no list and has no users. */
void rsh_window_settle(struct rsh_streams *s, struct rsh_window *w);
/* Adds the window at the end of its stream's list, and to the queue. */
void rsh_window_list(struct rsh_window *w);
void rsh_window_unlist(struct rsh_window *w);
void rsh_windows_unlist(struct rsh_stream *st);
/* Drops windows that were prepared and not read, to free memory. */
void rsh_streams_save(struct rsh_streams *s);
/* Takes a window that is to be filled out of the queue. */
void rsh_window_unqueue(struct rsh_window *w);

/* ---- prepare.c ---- */

/* Fills the window.  Releases the lock meanwhile. `demanded`: a reader waits
 * for the window, so this waits until the load may begin. */
void rsh_window_load(struct rsh_window *w, bool demanded);
/* Fills the first window of the queue.  Releases the lock meanwhile.  Returns
 * false if the queue is empty, or the window may not be filled now. */
bool rsh_streams_prepare_one(struct rsh_streams *s);
/* Wakes or starts a thread for each queued window that may be filled now. */
void rsh_streams_wake(struct rsh_streams *s);
/* Drops a reference of the stream. */
void rsh_stream_unref(struct rsh_stream *st);

/* Logs, at most once a minute, that a read or an open fails because memory is
 * out.  The lock may be held or not. */
void rsh_streams_out_of_memory(struct rsh_streams *s);

/* ---- ahead.c ---- */

/* Updates position and pace of the reader.  Returns whether it reads
 * sequentially. */
bool rsh_stream_follow(struct rsh_stream *st, uint64_t offset, size_t len,
		       uint64_t now);
/* Returns whether filling windows does not sleep and the reader is about as
 * fast as one thread that fills them.  Then one thread fills several windows
 * each time it is woken. */
bool rsh_stream_keeps_up(const struct rsh_stream *st);
/* Returns the number of processors without an active reader. */
unsigned rsh_streams_idle_cpus(const struct rsh_streams *s, uint64_t now);
/* Adds windows after those of the stream, or from `offset` on if it has
 * none. */
void rsh_stream_look_ahead(struct rsh_stream *st, uint64_t offset,
			   uint64_t now);
/* Returns the window with that byte, or NULL. */
struct rsh_window *rsh_stream_window_at(struct rsh_stream *st, uint64_t offset);
/* Drops windows that are so far behind that no reader will read them. */
void rsh_stream_drop_behind(struct rsh_stream *st, uint64_t offset);
