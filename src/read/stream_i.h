/* SPDX-License-Identifier: Apache-2.0 */
/* read/stream_i.h - the inside of streams, for this room only.
 *
 * windows.c has the windows and where they stand, prepare.c fills them, ahead.c
 * decides which, depth.c how many at a time, and stream.c lends them.  But for
 * the setting up all is called with the lock of the streams held. */
#ifndef RSH_READ_STREAM_I_H
#define RSH_READ_STREAM_I_H

#include <pthread.h>
#include <stdatomic.h>
#include <sys/queue.h>

#include "depth_i.h"
#include "rsh/util/areas.h"
#include "rsh/read/stream.h"

/* A stream's source sleeps if one load in eight does. */
#define RSH_BLOCKED_ONE 1024
#define RSH_BLOCKED_MIN (RSH_BLOCKED_ONE / 8)

enum rsh_window_state {
	RSH_WINDOW_QUEUED, RSH_WINDOW_LOADING, RSH_WINDOW_READY,
	RSH_WINDOW_FAILED,
};

struct rsh_window {
	uint8_t *area;
	uint8_t *data; /* in area: the first byte */

	struct rsh_stream *stream;
	uint64_t offset;
	size_t len;
	enum rsh_window_state state;
	int error;      /* of RSH_WINDOW_FAILED: -errno */
	bool listed;    /* stands in the stream's list */
	unsigned users; /* loans, and the thread that prepares it */
	size_t served;  /* bytes lent */
	TAILQ_ENTRY(rsh_window) next; /* in a list of the stream */
	TAILQ_ENTRY(rsh_window) next_queued;
};
TAILQ_HEAD(rsh_window_list, rsh_window);

struct rsh_stream {
	struct rsh_streams *all;
	struct rsh_body body;

	/* Under the lock of `all`. */
	pthread_cond_t loaded; /* one of its windows is ready or has failed */
	unsigned refs; /* itself while open, each load, and who holds it */
	bool closed;   /* nobody reads it any more */
	struct rsh_window_list windows; /* ascending, without gaps */
	unsigned n_windows;
	struct rsh_window_list once; /* being read, in no other list */
	uint64_t next;      /* where the last read ended */
	uint64_t run_bytes; /* read up to there without a gap */
	uint64_t last_ns;   /* when that was */
	uint64_t load_ns;   /* mean time to prepare a window */
	unsigned blocked;   /* of RSH_BLOCKED_ONE: how often that is to sleep */
	uint64_t pace_ns;   /* mean time the reader takes for one */
	TAILQ_ENTRY(rsh_stream) next_open;
};

struct rsh_streams {
	unsigned max_windows, max_threads, n_cpus;
	bool lenders_prepare;
	uint64_t (*now)(void);

	/* Guards everything below and the streams' and windows' state; held
	 * neither while a window is prepared nor while it is lent. */
	pthread_mutex_t lock;
	pthread_cond_t work; /* something is queued, or it is time to stop */
	pthread_cond_t gone; /* a thread has left */
	pthread_cond_t room; /* of `depth`, for readers who wait for it */
	TAILQ_HEAD(, rsh_stream) open; /* the one read last is first */
	TAILQ_HEAD(, rsh_window) queue;
	struct rsh_areas areas; /* of windows */
	unsigned n_listed;
	unsigned n_threads, n_idle, n_queued;
	unsigned n_woken; /* no longer idle, but not yet running */
	bool left;        /* a window is queued for who returns a loan */
	/* Of loads that may sleep, and how many readers wait to begin one. */
	struct rsh_depth depth;
	unsigned n_waiting;
	bool seen; /* a load has shown whether the source sleeps */
	bool stopping;
	atomic_uint blocked; /* as of the stream that loaded last */
	_Atomic uint64_t complained_ns; /* that memory is out; 0: never */
	struct rsh_stream_stats stats;
};

/* A mean that follows: of an old one, or 0, and what came last. */
static inline uint64_t rsh_mean(uint64_t old, uint64_t last)
{
	return old ? (3 * old + last) / 4 : last;
}

/* True if to prepare its windows is to wait. */
static inline bool rsh_stream_sleeps(const struct rsh_stream *st)
{
	return st->blocked >= RSH_BLOCKED_MIN;
}

/* ---- windows.c ---- */

/* What a window's memory takes. */
size_t rsh_window_area(void);
/* One for `len` bytes, or what the file has of them, in no list yet; NULL: out
 * of memory. */
struct rsh_window *rsh_window_take(struct rsh_stream *st, uint64_t offset,
				   size_t len);
/* To be called whenever a window has lost its place or a user: without either
 * it goes. */
void rsh_window_settle(struct rsh_streams *s, struct rsh_window *w);
/* Puts it behind the others of its stream, and into the queue. */
void rsh_window_list(struct rsh_window *w);
void rsh_window_unlist(struct rsh_window *w);
void rsh_windows_unlist(struct rsh_stream *st);
/* Gives up what is prepared and not read, for whoever gets no memory. */
void rsh_streams_save(struct rsh_streams *s);
/* Takes it out of the queue, to be filled. */
void rsh_window_unqueue(struct rsh_window *w);

/* ---- prepare.c ---- */

/* Fills the window; leaves the lock meanwhile. */
void rsh_window_load(struct rsh_window *w);
/* The same for a reader, who waits until it may begin. */
void rsh_window_demand(struct rsh_window *w);
/* The first of the queue; leaves the lock meanwhile.  False if it is empty, or
 * if that one may not be filled now. */
bool rsh_streams_prepare_one(struct rsh_streams *s);
/* Wakes a thread for each queued window that may be filled now, or starts one;
 * without threads readers prepare for themselves. */
void rsh_streams_wake(struct rsh_streams *s);
/* Gives one of the stream's references up. */
void rsh_stream_unref(struct rsh_stream *st);

/* Says in the log, once a minute at most, that a read or an open fails because
 * memory is out; with the lock or without. */
void rsh_streams_out_of_memory(struct rsh_streams *s);

/* ---- ahead.c ---- */

/* Keeps account of where the reader is and how fast.  True if it goes from
 * front to back. */
bool rsh_stream_follow(struct rsh_stream *st, uint64_t offset, size_t len,
		       uint64_t now);
/* Puts windows behind those there are, or from `offset` on. */
void rsh_stream_look_ahead(struct rsh_stream *st, uint64_t offset,
			   uint64_t now);
/* The one that holds that byte, or NULL. */
struct rsh_window *rsh_stream_window_at(struct rsh_stream *st, uint64_t offset);
/* Gives windows up that lie so far back that nobody will ask for them. */
void rsh_stream_drop_behind(struct rsh_stream *st, uint64_t offset);

#endif
