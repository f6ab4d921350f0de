/* SPDX-License-Identifier: Apache-2.0 */
/* read/load_limit.c says how many loads a source is to have, and keeps them
 * waiting for their room. */
#include "config.h"

#include "load_limit_i.h"

#include "rsh/read/stream.h"
#include "rsh/util/checked.h"
#include "rsh/util/clock.h"

/* From far away so much is loaded at a time, at most and at least, and
 * prepared: to find out how much pays takes long there.  Where fewer requests
 * than that may be under way it is as much as there can be, since what waits
 * for them is asked for together. */
#define FAR_LOADS RSH_DEPTH_MOST
#define FAR_LEAST 64
#define FAR_WINDOWS 144
/* Where each of many nodes reads for all, this is enough at least; what is
 * prepared costs each of them memory that it has to touch first. */
#define SHARED_LEAST 8

struct rsh_streams_options rsh_streams_suited(unsigned far, bool shared,
					      unsigned loads)
{
	struct rsh_streams_options so = {
		.max_windows = RSH_STREAM_WINDOWS,
		.max_threads = RSH_STREAM_THREADS,
		.max_loads = loads,
	};

	if (far && !loads) {
		so.max_loads = shared ? 0 : FAR_LOADS;
		so.min_loads = shared ? SHARED_LEAST :
			       far < FAR_LEAST ? FAR_LOADS : FAR_LEAST;
	}
	/* What others read for this one may well take longer. */
	if (far && !shared) {
		so.longest_load_ns = RSH_LOAD_LONGEST_NS;
		so.max_windows = FAR_WINDOWS;
		so.max_threads = FAR_LOADS;
	}
	return so;
}

int rsh_load_limit_init(struct rsh_load_limit *l, pthread_mutex_t *lock,
			unsigned most, uint64_t (*now)(void))
{
	*l = (struct rsh_load_limit){ .lock = lock, .now = now };
	rsh_depth_init(&l->depth, most);
	return rsh_clock_cond_init(&l->room);
}

void rsh_load_limit_destroy(struct rsh_load_limit *l)
{
	pthread_cond_destroy(&l->room);
}

void rsh_load_limit_await(struct rsh_load_limit *l,
			  bool (*wants)(const void *ctx), const void *ctx)
{
	l->n_waiting++;
	while (rsh_depth_room(&l->depth) == 0 && wants(ctx))
		if (rsh_clock_wait(&l->room, l->lock,
				   rsh_depth_patience(&l->depth)))
			rsh_depth_look(&l->depth, l->now());
	l->n_waiting--;
}

void rsh_load_limit_rouse(struct rsh_load_limit *l)
{
	if (l->n_waiting)
		pthread_cond_broadcast(&l->room);
}

void rsh_load_limit_begin(struct rsh_load_limit *l, struct rsh_load_room *r,
			  bool sleeps, unsigned queued)
{
	*r = (struct rsh_load_room){ .counted = sleeps };
	if (sleeps)
		r->number = rsh_depth_begin(&l->depth, queued + l->n_waiting,
					    l->now());
}

void rsh_load_limit_end(struct rsh_load_limit *l, struct rsh_load_room *r,
			uint64_t bytes, unsigned queued)
{
	uint64_t room;

	if (r->counted)
		rsh_depth_end(&l->depth, r->number, bytes,
			      queued + l->n_waiting, l->now());
	r->counted = false;
	room = rsh_min_u64(rsh_depth_room(&l->depth), l->n_waiting);
	for (uint64_t i = 0; i < room; i++)
		pthread_cond_signal(&l->room);
}
