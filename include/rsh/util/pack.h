/* SPDX-License-Identifier: Apache-2.0 */
/* util/pack.h - compresses bytes by LZ4, with bytes of the same place in an
 * element together: the low halves of numbers that were bfloat16 become one run
 * of zeros.
 *
 * Packed bytes contain the size of an element, and can be unpacked in parts.
 * No function here allocates; all need up to 80 KiB of stack.  Any thread may
 * call them.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Pieces of this many bytes are packed separately. */
#define RSH_PACK_PIECE (32 * 1024)

/* Packing pays if the result is at most this fraction. */
#define RSH_PACK_NUMERATOR 3
#define RSH_PACK_DENOMINATOR 4

/* Returns the largest size of what rsh_pack() makes of `len` bytes. */
static inline size_t rsh_pack_bound(size_t len)
{
	return 1 + len + 4 * (len / RSH_PACK_PIECE + 1);
}

/* Packs `len` bytes whose elements have `unit` bytes each: 2, 4 or 8; any other
 * number counts as 1.  Returns the packed size, or 0 if it exceeds `max`. */
size_t rsh_pack(const uint8_t *in, size_t len, unsigned unit, uint8_t *out,
		size_t max);

/* Unpacks `want` bytes from `offset` on.  The n bytes at `in` are untrusted;
 * `len` is their unpacked size.  Returns false if they are found not to be what
 * rsh_pack() makes of `len` bytes; `out` is undefined then. */
bool rsh_unpack_part(const uint8_t *in, size_t n, size_t len, size_t offset,
		     uint8_t *out, size_t want);
/* Unpacks all bytes; returns false also if some of the input is left over. */
bool rsh_unpack(const uint8_t *in, size_t n, uint8_t *out, size_t len);

/* Guesses from a sample of the bytes whether packing pays. */
bool rsh_pack_pays(const uint8_t *in, size_t len, unsigned unit);
