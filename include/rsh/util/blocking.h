/* SPDX-License-Identifier: Apache-2.0 */
/* util/blocking.h - whether the calling thread's reads have put it to sleep.
 *
 * A read that comes from the page cache is computing; one that waits for a disk
 * or a network is not, and many of them can be under way at once.  On a busy
 * machine its time does not tell the two apart, but whether the thread gave up
 * the processor by itself does.
 *
 * Threads: every thread has counts of its own, and each function speaks of the
 * thread that calls it.  None fails. */
#ifndef RSH_UTIL_BLOCKING_H
#define RSH_UTIL_BLOCKING_H

#include <stdint.h>

/* These two stand around a call that may wait; rsh_blocking_end() is given what
 * rsh_blocking_begin() returned before it. */
long rsh_blocking_begin(void);
void rsh_blocking_end(long begin);

/* Returns how many of these calls of this thread are known to have slept so
 * far.  While none sleeps, only some of them are looked at. */
unsigned long rsh_blocking_count(void);

/* Sets when, by rsh_clock_ns(), the work began of which this thread does some;
 * 0 means none.  Of reads that wait for each other those go first whose work
 * began first. */
void rsh_work_set_began(uint64_t ns);
uint64_t rsh_work_began(void);

#endif
