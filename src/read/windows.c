/* SPDX-License-Identifier: Apache-2.0 */
/* read/windows.c makes windows, and adds them to lists and removes them. */
#include "config.h"

#include "stream_i.h"

#include <stdlib.h>

#include "rsh/util/checked.h"
#include "rsh/util/place.h"

/* The bytes of a window begin somewhere in a page, so a window needs more
 * memory than its bytes. */
size_t rsh_window_area(void)
{
	return RSH_STREAM_MAX + RSH_PLACE_MAX;
}

uint64_t rsh_stream_maps(unsigned n_windows)
{
	return rsh_areas_maps(rsh_window_area(), n_windows);
}

struct rsh_window *rsh_window_take(struct rsh_stream *st, uint64_t offset,
				   size_t len)
{
	/* Each read takes a window; calloc() does not use the memory that glibc
	 * keeps for each thread. */
	struct rsh_window *w = malloc(sizeof(*w));

	if (!w)
		return NULL;
	*w = (struct rsh_window){
		.stream = st, .area = rsh_area_take(&st->all->areas),
		.offset = offset,
		.len = (size_t)rsh_min_u64(len, st->body.size - offset),
		.state = RSH_WINDOW_QUEUED,
	};
	if (w->area)
		return w;
	free(w);
	return NULL;
}

void rsh_window_settle(struct rsh_streams *s, struct rsh_window *w)
{
	if (w->listed || w->users)
		return;
	rsh_area_return(&s->areas, w->area);
	free(w);
}

void rsh_window_unqueue(struct rsh_window *w)
{
	struct rsh_streams *s = w->stream->all;

	TAILQ_REMOVE(&s->queue, w, next_queued);
	s->n_queued--;
}

void rsh_window_unlist(struct rsh_window *w)
{
	struct rsh_stream *st = w->stream;
	struct rsh_streams *s = st->all;

	if (w->state == RSH_WINDOW_QUEUED)
		rsh_window_unqueue(w);
	else if (w->served == 0)
		s->stats.unread++;
	TAILQ_REMOVE(&st->windows, w, next);
	st->n_windows--;
	s->n_listed--;
	w->listed = false;
	rsh_window_settle(s, w);
}

void rsh_windows_unlist(struct rsh_stream *st)
{
	struct rsh_window *w;

	while ((w = TAILQ_FIRST(&st->windows)))
		rsh_window_unlist(w);
}

void rsh_streams_save(struct rsh_streams *s)
{
	struct rsh_stream *st;

	TAILQ_FOREACH(st, &s->open, next_open)
		rsh_windows_unlist(st);
}

void rsh_window_list(struct rsh_window *w)
{
	struct rsh_stream *st = w->stream;
	struct rsh_streams *s = st->all;

	TAILQ_INSERT_TAIL(&st->windows, w, next);
	st->n_windows++;
	w->listed = true;
	s->n_listed++;
	TAILQ_INSERT_TAIL(&s->queue, w, next_queued);
	s->n_queued++;
}
