/* SPDX-License-Identifier: Apache-2.0 */
/* read/loads.c keeps loads waiting for their room. */
#include "config.h"

#include "loads_i.h"

#include "rsh/util/checked.h"
#include "rsh/util/clock.h"

int rsh_loads_init(struct rsh_loads *l, pthread_mutex_t *lock, unsigned most,
		   uint64_t (*now)(void))
{
	*l = (struct rsh_loads){ .lock = lock, .now = now };
	rsh_depth_init(&l->depth, most);
	return rsh_clock_cond_init(&l->room);
}

void rsh_loads_destroy(struct rsh_loads *l)
{
	pthread_cond_destroy(&l->room);
}

void rsh_loads_await(struct rsh_loads *l, bool (*wants)(const void *ctx),
		     const void *ctx)
{
	l->n_waiting++;
	while (rsh_depth_room(&l->depth) == 0 && wants(ctx))
		if (rsh_clock_wait(&l->room, l->lock,
				   rsh_depth_patience(&l->depth)))
			rsh_depth_look(&l->depth, l->now());
	l->n_waiting--;
}

void rsh_loads_rouse(struct rsh_loads *l)
{
	if (l->n_waiting)
		pthread_cond_broadcast(&l->room);
}

void rsh_loads_begin(struct rsh_loads *l, struct rsh_load_room *r, bool sleeps,
		     unsigned queued)
{
	*r = (struct rsh_load_room){ .counted = sleeps };
	if (sleeps)
		r->number = rsh_depth_begin(&l->depth, queued + l->n_waiting,
					    l->now());
}

void rsh_loads_end(struct rsh_loads *l, struct rsh_load_room *r, uint64_t bytes,
		   unsigned queued)
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
