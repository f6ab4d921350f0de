/* SPDX-License-Identifier: Apache-2.0 */
/* util/clock.h - time that only goes forward. */
#ifndef RSH_UTIL_CLOCK_H
#define RSH_UTIL_CLOCK_H

#include <stdint.h>
#include <time.h>

/* Since some moment in the past: of CLOCK_MONOTONIC. */
static inline uint64_t rsh_clock_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000000000 + (uint64_t)t.tv_nsec;
}

/* Seconds from a moment, as rsh_clock_ns() gave it, until now. */
static inline double rsh_clock_since(uint64_t ns)
{
	return (double)(rsh_clock_ns() - ns) / 1e9;
}

#endif
