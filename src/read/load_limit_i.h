/* SPDX-License-Identifier: Apache-2.0 */
/* read/load_limit_i.h makes those who load from a source that puts threads to
 * sleep wait until one more load pays; for this room only.
 *
 * Whether a source does so its loads have shown.  Where it does not, loads take
 * processors, and whoever starts threads decides how many.
 *
 * All functions are called with the lock held.
 */
#ifndef RSH_READ_LOAD_LIMIT_I_H
#define RSH_READ_LOAD_LIMIT_I_H

#include <pthread.h>

#include "depth_i.h"

/* A source is taken to sleep if one load in eight does. */
#define RSH_BLOCKED_ONE 1024
#define RSH_BLOCKED_MIN (RSH_BLOCKED_ONE / 8)

/* From far away a load is to take no longer than this: everybody else who reads
 * waits as long, and a read has a deadline. */
#define RSH_LOAD_LONGEST_NS UINT64_C(2000000000)

struct rsh_load_limit {
	pthread_mutex_t *lock; /* guards what follows */
	uint64_t (*now)(void);
	pthread_cond_t room;    /* there is, for those who wait for it */
	struct rsh_depth depth; /* counts the loads that may sleep */
	unsigned n_waiting;     /* to begin one */
};

/* A load takes its room among the others here. */
struct rsh_load_room {
	uint64_t number;
	bool counted;
};

/* `most` is as of rsh_depth_init().  0 or -errno. */
int rsh_load_limit_init(struct rsh_load_limit *l, pthread_mutex_t *lock,
			unsigned most, uint64_t (*now)(void));
void rsh_load_limit_destroy(struct rsh_load_limit *l);

/* Waits until there is room or wants() is false, and leaves the lock
 * meanwhile; loads that hang are not waited for. */
void rsh_load_limit_await(struct rsh_load_limit *l,
			  bool (*wants)(const void *ctx), const void *ctx);
/* Has all who wait look again whether they want to. */
void rsh_load_limit_rouse(struct rsh_load_limit *l);

/* A load begins, for which there is room if it may sleep; `queued` others are
 * wanted besides those for which somebody waits. */
void rsh_load_limit_begin(struct rsh_load_limit *l, struct rsh_load_room *r,
			  bool sleeps, unsigned queued);
/* The load has ended and given so many bytes, 0 if it failed; or it reads
 * nothing for a while, and is no longer counted. */
void rsh_load_limit_end(struct rsh_load_limit *l, struct rsh_load_room *r,
			uint64_t bytes, unsigned queued);

/* Returns how many of RSH_BLOCKED_ONE loads sleep, made of what it was and the
 * last one. */
static inline unsigned rsh_blocked(unsigned old, bool slept)
{
	return (7 * old + (slept ? RSH_BLOCKED_ONE : 0)) / 8;
}

#endif
