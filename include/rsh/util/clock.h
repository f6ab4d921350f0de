/* SPDX-License-Identifier: Apache-2.0 */
/* util/clock.h - a clock that only goes forward; any thread may ask. */
#ifndef RSH_UTIL_CLOCK_H
#define RSH_UTIL_CLOCK_H

#include <stdint.h>
#include <time.h>

/* Returns the nanoseconds since some moment in the past, by CLOCK_MONOTONIC. */
static inline uint64_t rsh_clock_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000000000 + (uint64_t)t.tv_nsec;
}

/* Returns the seconds from a moment that rsh_clock_ns() gave until now. */
static inline double rsh_clock_since(uint64_t ns)
{
	return (double)(rsh_clock_ns() - ns) / 1e9;
}

#endif
