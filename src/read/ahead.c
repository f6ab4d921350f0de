/* SPDX-License-Identifier: Apache-2.0 */
/* read/ahead.c decides which windows are prepared ahead of a reader. */
#include "config.h"

#include "stream_i.h"

#include "rsh/util/checked.h"

/* The maximum of windows of one stream after the one that is being read, unless
 * more loads are allowed at a time. */
#define STREAM_WINDOWS 16

/* It may cost as much as half a window to wake a thread.  So this many more
 * windows are added at a time if the reader is about as fast as one thread that
 * fills them. */
#define BATCH 4

/* Windows of a source that sleeps are added in groups: a group is the allowed
 * loads divided by this. */
#define STREAM_BUNCHES 8

/* A reader is sequential if it has read this many bytes without a gap. */
#define SEQUENTIAL_BYTES ((uint64_t)128 * 1024)

/* If a stream has not been read for this time, other streams may take its
 * windows. */
#define STALE_NS (UINT64_C(1000000000))

/* A stream that was read within this time is assumed to use a processor. */
#define ACTIVE_NS (UINT64_C(10000000))

bool rsh_stream_keeps_up(const struct rsh_stream *st)
{
	return !rsh_stream_sleeps(st) && !rsh_stream_is_slow(st) &&
	       st->pace_ns >= st->load_ns;
}

unsigned rsh_streams_idle_cpus(const struct rsh_streams *s, uint64_t now)
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

/* Returns how many windows the reader reads while one is prepared. */
static uint64_t stream_n_passed(const struct rsh_stream *st)
{
	return st->pace_ns ? (st->load_ns + st->pace_ns - 1) / st->pace_ns : 0;
}

/* Returns how many windows to prepare after the one being read.
 *
 * If preparing is only computing, these are the windows that the reader reads
 * meanwhile, and one more.  There are at most two for each processor that no
 * reader uses; without a free processor it is fastest if the reader's thread
 * prepares them itself.
 *
 * If preparing waits for the source, there are twice as many, so that they are
 * enough for a trial of more loads, but not more than this trial needs.  A few
 * are enough while the pace of the reader is unknown.
 */
static unsigned stream_n_ahead(const struct rsh_stream *st, uint64_t now)
{
	const struct rsh_streams *s = st->all;
	uint64_t n, most;

	if (rsh_stream_sleeps(st)) {
		most = rsh_min_u64(2 * rsh_depth_limit(&s->loads.depth),
				   RSH_DEPTH_MOST);
		n = 1 + (st->pace_ns ? 2 * stream_n_passed(st) :
				       most / STREAM_BUNCHES);
	} else {
		n = 1 + stream_n_passed(st);
		most = rsh_min_u64(2 * rsh_streams_idle_cpus(s, now),
				   s->loads.depth.most);
	}
	return (unsigned)rsh_min_u64(rsh_min_u64(n, most),
				     rsh_max_u64(s->loads.depth.most,
						 STREAM_WINDOWS));
}

/* Returns whether there may be one more window.  If there are too many, drops
 * those of another stream that is not being read. */
static bool stream_has_room(const struct rsh_stream *for_whom, uint64_t now)
{
	struct rsh_stream *st;

	if (for_whom->all->n_listed < for_whom->all->max_windows)
		return true;
	TAILQ_FOREACH(st, &for_whom->all->open, next_open)
		if (st != for_whom && st->n_windows &&
		    now - st->last_ns > STALE_NS) {
			rsh_windows_unlist(st);
			return true;
		}
	return false;
}

void rsh_stream_look_ahead(struct rsh_stream *st, uint64_t offset, uint64_t now)
{
	struct rsh_streams *s = st->all;
	struct rsh_window *w = TAILQ_LAST(&st->windows, rsh_window_list);
	unsigned most = 1 + stream_n_ahead(st, now);
	uint64_t end = w ? w->offset + w->len : offset;

	if (most > 1 && st->n_windows < most && rsh_stream_keeps_up(st))
		most += BATCH;
	/* Windows of a source with many parallel loads are added in groups,
	 * since the source may read neighbouring ones together. */
	if (st->n_windows && rsh_stream_sleeps(st) &&
	    most < st->n_windows +
		   rsh_depth_limit(&s->loads.depth) / STREAM_BUNCHES)
		return;
	while (st->n_windows < most && end < st->body.size) {
		if (!stream_has_room(st, now))
			break;
		w = rsh_window_take(st, end, RSH_STREAM_MAX);
		if (!w)
			break;
		rsh_window_list(w);
		end += w->len;
	}
	s->stats.most_ahead = rsh_max_u64(s->stats.most_ahead, st->n_windows);
	s->stats.most_windows = rsh_max_u64(s->stats.most_windows, s->n_listed);
}

struct rsh_window *rsh_stream_window_at(struct rsh_stream *st, uint64_t offset)
{
	struct rsh_window *w;

	TAILQ_FOREACH(w, &st->windows, next)
		if (offset >= w->offset && offset - w->offset < w->len)
			return w;
	return NULL;
}

/* Requests may arrive slightly out of order.  Windows further back will not be
 * read. */
void rsh_stream_drop_behind(struct rsh_stream *st, uint64_t offset)
{
	struct rsh_window *w;

	while ((w = TAILQ_FIRST(&st->windows)) &&
	       w->offset + w->len + 2 * RSH_STREAM_MAX <= offset)
		rsh_window_unlist(w);
}

bool rsh_stream_follow(struct rsh_stream *st, uint64_t offset, size_t len,
		       uint64_t now)
{
	if (offset == st->next) {
		st->run_bytes += len;
		if (st->last_ns) {
			st->spent_ns += now - st->last_ns;
			st->spent_on += len;
		}
		/* A request has a cost that does not depend on its length, and
		 * the kernel splits a buffer that begins inside a page into a
		 * long and a short request.  So the pace is measured over at
		 * least half a window. */
		if (st->spent_on >= RSH_STREAM_MAX / 2) {
			st->pace_ns = rsh_mean(st->pace_ns, st->spent_ns *
					       RSH_STREAM_MAX / st->spent_on);
			st->spent_ns = st->spent_on = 0;
		}
	} else if (!rsh_stream_window_at(st, offset)) {
		rsh_windows_unlist(st);
		st->run_bytes = 0;
	}
	st->next = offset + len;
	TAILQ_REMOVE(&st->all->open, st, next_open);
	TAILQ_INSERT_HEAD(&st->all->open, st, next_open);
	st->last_ns = now;
	return st->run_bytes >= SEQUENTIAL_BYTES;
}
