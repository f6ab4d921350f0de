/* SPDX-License-Identifier: Apache-2.0 */
/* util/place.h - where a buffer has to begin for the kernel's copies to be
 * fast.
 *
 * Kernels copy by `rep movsb` where the processor says that it is fast.  On
 * AMD's processors it is five to eight times slower than usual when the target
 * lies 1 to 63 bytes above the source modulo 4096 (measured on Zen 4: 2.4 GB/s
 * instead of 16).  Headers of records differ by a few bytes from file to file,
 * so that a buffer that begins with a page is in that zone more often than not.
 * This is arithmetic; any thread may call it.
 */
#ifndef RSH_UTIL_PLACE_H
#define RSH_UTIL_PLACE_H

#include <stddef.h>
#include <stdint.h>

/* A buffer needs this many more bytes so that it can be placed. */
#define RSH_PLACE_MAX 4096

/* Returns where in a page to begin a buffer into which the file's bytes from
 * `origin` on are read.  The place is far from the slow zone and between 64 and
 * 4032.  So copies from the buffer to readers' buffers are not slow either:
 * those begin 0 to 48 bytes into a page (a mapping, and what malloc and Python
 * make of one). */
static inline size_t rsh_place(uint64_t origin)
{
	const size_t line = 64;
	size_t place = (size_t)((origin + RSH_PLACE_MAX / 2) % RSH_PLACE_MAX) /
		       line * line;

	return place ? place : line;
}

#endif
