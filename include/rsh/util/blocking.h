/* SPDX-License-Identifier: Apache-2.0 */
/* util/blocking.h - whether reads of the calling thread have slept.
 *
 * A read from the page cache takes a processor.  A read that waits for a disk
 * or a network does not, and many of them can be under way at once.  On a busy
 * machine the time of a read does not tell the two apart; a voluntary context
 * switch of the thread does.
 *
 * Threads: each function is about the thread that calls it.  None fails. */
#pragma once

#include <stdint.h>

/* Call these before and after a call that may sleep; `begin` is what
 * rsh_blocking_begin() returned. */
long rsh_blocking_begin(void);
void rsh_blocking_end(long begin);

/* Returns how many such calls of this thread are known to have slept.  While
 * none sleeps, only a sample of the calls is examined. */
unsigned long rsh_blocking_count(void);

/* Sets when (rsh_clock_ns()) the request began that this thread works for; 0
 * means none.  Waiting reads are served in the order in which their requests
 * began. */
void rsh_work_set_began(uint64_t ns);
uint64_t rsh_work_began(void);
