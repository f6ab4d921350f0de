/* SPDX-License-Identifier: Apache-2.0 */
/* util/thread.h - threads, locks and parallel loops.  All threads block all
 * signals: these are for the main thread of the program, or for the application
 * that uses the library.  Any thread may call these functions. */
#pragma once

#include <pthread.h>
#include <stddef.h>

#include "rsh/util/error.h"

/* Starts a thread, which has to be joined.  Returns 0 or -errno. */
int rsh_thread_start(pthread_t *thread, void *(*run)(void *), void *arg);
/* Starts a detached thread.  Returns 0 or -errno. */
int rsh_thread_start_alone(void *(*run)(void *), void *arg);

/* Does item i of a loop.  Returns 0, or -errno with a sentence.  Several
 * threads call it at once, each with another i. */
typedef int rsh_parallel_work(void *ctx, size_t i, struct rsh_error *err);

/* Calls work(ctx, i) for all i < n, in ascending order, in at most n_threads
 * threads (0: one for each processor), of which the calling thread is one.
 * After a failure no further item begins.  Returns 0, or what the first failure
 * returned, with its sentence in err, which must not be NULL. */
int rsh_parallel_for(unsigned n_threads, size_t n, rsh_parallel_work *work,
		     void *ctx, struct rsh_error *err);

static inline pthread_mutex_t *rsh_lock_(pthread_mutex_t *lock)
{
	pthread_mutex_lock(lock);
	return lock;
}

static inline void rsh_unlock_(pthread_mutex_t **lock)
{
	pthread_mutex_unlock(*lock);
}

/* Holds a lock from here to the end of the scope. */
#define rsh_hold_lock(lock)                                                    \
	__attribute__((cleanup(rsh_unlock_), unused)) pthread_mutex_t *held_ = \
		rsh_lock_(lock)
