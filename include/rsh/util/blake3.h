/* SPDX-License-Identifier: Apache-2.0 */
/* util/blake3.h - the hash function BLAKE3, by its specification of 2020
 * (O'Connor, Aumasson, Neves, Wilcox-O'Hearn), without a key.  Debian has the
 * library only from version 13 on. */
#pragma once

#include <stddef.h>
#include <stdint.h>

#define RSH_BLAKE3_BYTES 32

struct rsh_blake3 {
	/* The chunk that is not complete: its chaining value, the bytes of its
	 * last block, how many these are, and how many blocks precede them. */
	uint32_t cv[8];
	uint8_t block[64];
	unsigned n_block, n_blocks;
	uint64_t n_chunks; /* complete ones */
	/* Chaining values of complete subtrees, the largest first: one for each
	 * bit of n_chunks. */
	uint32_t stack[54][8];
};

void rsh_blake3_init(struct rsh_blake3 *h);
void rsh_blake3_add(struct rsh_blake3 *h, const void *data, size_t n);
/* Writes the hash of what was added; *h does not change. */
void rsh_blake3_end(const struct rsh_blake3 *h, uint8_t out[RSH_BLAKE3_BYTES]);
