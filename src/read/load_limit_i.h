/* SPDX-License-Identifier: Apache-2.0 */
/* read/load_limit_i.h limits the parallel loads from a source whose reads make
 * threads sleep: a load waits until one more load is an advantage.  Only this
 * directory includes it.
 *
 * Earlier loads show whether reads of a source make threads sleep.  If they do
 * not, loads use processors, and the code that starts the threads decides how
 * many there are.
 *
 * All functions are called with the lock held. */
#pragma once

#include <pthread.h>

#include "depth_i.h"

/* If one load in eight sleeps, the source is treated as one that makes threads
 * sleep. */
#define RSH_BLOCKED_ONE 1024
#define RSH_BLOCKED_MIN (RSH_BLOCKED_ONE / 8)

/* A load from a source with a long latency should not take longer than this:
 * all other readers wait as long, and a read has a deadline. */
#define RSH_LOAD_LONGEST_NS UINT64_C(2000000000)

struct rsh_load_limit {
	pthread_mutex_t *lock; /* guards the members below */
	uint64_t (*now)(void);
	pthread_cond_t room;    /* signals that a waiting load may begin */
	struct rsh_depth depth; /* the loads that may sleep */
	unsigned n_waiting;     /* number of loads that wait to begin */
};

/* This is the state of one load that is counted. */
struct rsh_load_room {
	uint64_t number;
	bool counted;
};

/* See rsh_depth_init() for `most`.  Returns 0 or -errno. */
int rsh_load_limit_init(struct rsh_load_limit *l, pthread_mutex_t *lock,
			unsigned most, uint64_t (*now)(void));
void rsh_load_limit_destroy(struct rsh_load_limit *l);

/* Waits until a load may begin or wants() is false.  Releases the lock while it
 * waits.  Loads that hang do not count. */
void rsh_load_limit_await(struct rsh_load_limit *l,
			  bool (*wants)(const void *ctx), const void *ctx);
/* Wakes all waiting loads, so that they call wants() again. */
void rsh_load_limit_rouse(struct rsh_load_limit *l);

/* Begins a load.  If it may sleep (`sleeps`), there must be room for it.
 * `queued` is the number of other loads that are needed, without those that
 * wait in rsh_load_limit_await(). */
void rsh_load_limit_begin(struct rsh_load_limit *l, struct rsh_load_room *r,
			  bool sleeps, unsigned queued);
/* Ends a load that returned `bytes` bytes, 0 if it failed.  This is also called
 * for a load that pauses, so that it does not count meanwhile. */
void rsh_load_limit_end(struct rsh_load_limit *l, struct rsh_load_room *r,
			uint64_t bytes, unsigned queued);

/* Returns the updated mean of loads that sleep, of RSH_BLOCKED_ONE loads, from
 * the old mean and the last load. */
static inline unsigned rsh_blocked(unsigned old, bool slept)
{
	return (7 * old + (slept ? RSH_BLOCKED_ONE : 0)) / 8;
}
