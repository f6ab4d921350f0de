/* SPDX-License-Identifier: Apache-2.0 */
/* util/waits.h - whether the calling thread's reads have put it to sleep.
 *
 * A read that comes from the page cache is computing; one that waits for a disk
 * or a network is not, and many of them can be under way at once.  How long it
 * took does not tell them apart on a busy machine, but that the thread gave up
 * the processor by itself does. */
#ifndef RSH_UTIL_WAITS_H
#define RSH_UTIL_WAITS_H

/* Around a call that may wait: rsh_waits_end(rsh_waits_begin()). */
long rsh_waits_begin(void);
void rsh_waits_end(long begin);

/* How many such calls of this thread are known to have slept so far.  While they
 * do not, only some of them are looked at. */
unsigned long rsh_waits(void);

/* Whom to tell when the calling thread, within a call for which reads are counted,
 * is going to wait without reading; NULL: nobody. */
void rsh_waits_tell(void (*fn)(void *ctx), void *ctx);
/* It is going to. */
void rsh_waits_idle(void);

#endif
