/* SPDX-License-Identifier: Apache-2.0 */
/* util/place.h - where a buffer has to begin so that the kernel's copies are
 * fast.
 *
 * The kernel copies by `rep movsb` if the processor says that this is fast.  On
 * AMD it is five to eight times slower than usual if the target is 1 to 63
 * bytes above the source modulo 4096 (measured on Zen 4: 2.4 GB/s instead of
 * 16).  Headers of checkpoint files differ by a few bytes, so that a
 * page-aligned buffer is often in this zone.  This is arithmetic; any thread
 * may call it.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>

/* A buffer must have this many bytes more than are read into it. */
#define RSH_PLACE_MAX 4096

/* Returns the offset in a page at which to begin a buffer for the file's bytes
 * from `origin` on: between 64 and 4032, and far from the slow zone.  Copies
 * from the buffer to readers' buffers are fast as well, because those begin 0
 * to 48 bytes into a page (mappings, and memory of malloc and Python). */
static inline size_t rsh_place(uint64_t origin)
{
	const size_t line = 64;
	size_t place = (size_t)((origin + RSH_PLACE_MAX / 2) % RSH_PLACE_MAX) /
		       line * line;

	return place ? place : line;
}
