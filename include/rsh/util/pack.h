/* SPDX-License-Identifier: Apache-2.0 */
/* util/pack.h - compresses bytes with LZ4, those at the same place of each
 * element together: the low halves of numbers that were bfloat16 are zeros one
 * behind the other then.
 *
 * What was packed says itself how, and can be unpacked in parts.  No function
 * here allocates, all need up to 80 KiB of stack, and any thread may call them.
 */
#ifndef RSH_UTIL_PACK_H
#define RSH_UTIL_PACK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Bytes are packed so many at a time. */
#define RSH_PACK_PIECE (32 * 1024)

/* Packing pays if it leaves no more than this part. */
#define RSH_PACK_NUMERATOR 3
#define RSH_PACK_DENOMINATOR 4

/* Returns how many bytes rsh_pack() takes at most. */
static inline size_t rsh_pack_bound(size_t len)
{
	return 1 + len + 4 * (len / RSH_PACK_PIECE + 1);
}

/* Packs `len` bytes whose elements have `unit` bytes each: 2, 4 or 8; anything
 * else is taken as 1.  Returns how many of the `max` bytes at `out` that took,
 * or 0 if they are too few. */
size_t rsh_pack(const uint8_t *in, size_t len, unsigned unit, uint8_t *out,
		size_t max);

/* Unpacks `want` bytes from `offset` on of what was `len` bytes and is `n` now,
 * which may be anything.  Returns false if that is not what rsh_pack() makes of
 * `len` bytes, as far as was looked; `out` has undefined content then. */
bool rsh_unpack_part(const uint8_t *in, size_t n, size_t len, size_t offset,
		     uint8_t *out, size_t want);
/* The same of all bytes, and nothing may be left over. */
bool rsh_unpack(const uint8_t *in, size_t n, uint8_t *out, size_t len);

/* Guesses from a sample of the bytes whether packing pays. */
bool rsh_pack_pays(const uint8_t *in, size_t len, unsigned unit);

#endif
