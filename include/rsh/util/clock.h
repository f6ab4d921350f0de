/* SPDX-License-Identifier: Apache-2.0 */
/* util/clock.h - a monotonic clock, and waiting by it.  Any thread may call
 * these functions. */
#pragma once

#include <pthread.h>
#include <stdint.h>
#include <time.h>

/* Returns the time of CLOCK_MONOTONIC in nanoseconds. */
static inline uint64_t rsh_clock_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000000000 + (uint64_t)t.tv_nsec;
}

/* Returns the seconds since a time of rsh_clock_ns(). */
static inline double rsh_clock_since(uint64_t ns)
{
	return (double)(rsh_clock_ns() - ns) / 1e9;
}

/* Compares two times as strcmp() compares strings; an earlier one is less. */
static inline int rsh_clock_compare(const struct timespec *a,
				    const struct timespec *b)
{
	return a->tv_sec != b->tv_sec ?
	       (a->tv_sec > b->tv_sec) - (a->tv_sec < b->tv_sec) :
	       (a->tv_nsec > b->tv_nsec) - (a->tv_nsec < b->tv_nsec);
}

/* Initializes a condition for rsh_clock_wait().  Returns 0 or -errno. */
static inline int rsh_clock_cond_init(pthread_cond_t *cond)
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

/* Waits for such a condition until a time of rsh_clock_ns().  Returns 0 or a
 * positive errno: ETIMEDOUT. */
static inline int rsh_clock_wait(pthread_cond_t *cond, pthread_mutex_t *lock,
				 uint64_t until_ns)
{
	const struct timespec until = {
		(time_t)(until_ns / 1000000000), (long)(until_ns % 1000000000),
	};

	return pthread_cond_timedwait(cond, lock, &until);
}
