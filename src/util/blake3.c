/* SPDX-License-Identifier: Apache-2.0 */
/* util/blake3.c computes BLAKE3.  Numbers of sections are those of the
 * specification. */
#include "rsh/util/blake3.h"

#include <string.h>

#define BLOCK 64
#define CHUNK_BLOCKS 16
#define ROUNDS 7

enum { CHUNK_START = 1, CHUNK_END = 2, PARENT = 4, ROOT = 8 };

static const uint32_t iv[8] = {
	0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a,
	0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19,
};

/* ---- the compression function, 2.2 ---- */

static uint32_t turned(uint32_t x, unsigned n)
{
	return x >> n | x << (32 - n);
}

static void mix(uint32_t *v, const uint8_t at[4], uint32_t x, uint32_t y)
{
	uint32_t *a = v + at[0], *b = v + at[1], *c = v + at[2], *d = v + at[3];

	*a += *b + x;
	*d = turned(*d ^ *a, 16);
	*c += *d;
	*b = turned(*b ^ *c, 12);
	*a += *b + y;
	*d = turned(*d ^ *a, 8);
	*c += *d;
	*b = turned(*b ^ *c, 7);
}

/* Changes the chaining value by one block.  `n` is its length. */
static void compress(uint32_t cv[8], const uint8_t block[BLOCK], unsigned n,
		     uint64_t counter, uint32_t flags)
{
	static const uint8_t at[8][4] = {
		{ 0, 4, 8, 12 }, { 1, 5, 9, 13 }, { 2, 6, 10, 14 },
		{ 3, 7, 11, 15 }, { 0, 5, 10, 15 }, { 1, 6, 11, 12 },
		{ 2, 7, 8, 13 }, { 3, 4, 9, 14 },
	};
	static const uint8_t order[16] = {
		2, 6, 3, 10, 7, 0, 4, 13, 1, 11, 12, 5, 9, 14, 15, 8,
	};
	uint32_t v[16], m[16], next[16];

	for (unsigned i = 0; i < 16; i++)
		m[i] = block[4 * i] | (uint32_t)block[4 * i + 1] << 8 |
		       (uint32_t)block[4 * i + 2] << 16 |
		       (uint32_t)block[4 * i + 3] << 24;
	memcpy(v, cv, 8 * sizeof(*v));
	memcpy(v + 8, iv, 4 * sizeof(*v));
	v[12] = (uint32_t)counter;
	v[13] = (uint32_t)(counter >> 32);
	v[14] = n;
	v[15] = flags;
	for (unsigned r = 0; r < ROUNDS; r++) {
		for (unsigned i = 0; i < 8; i++)
			mix(v, at[i], m[2 * i], m[2 * i + 1]);
		for (unsigned i = 0; i < 16; i++)
			next[i] = m[order[i]];
		memcpy(m, next, sizeof(m));
	}
	for (unsigned i = 0; i < 8; i++)
		cv[i] = v[i] ^ v[i + 8];
}

/* ---- chunks and the tree, 2.4 and 2.5 ---- */

static void chunk_begin(struct rsh_blake3 *h)
{
	memcpy(h->cv, iv, sizeof(h->cv));
	memset(h->block, 0, sizeof(h->block));
	h->n_block = h->n_blocks = 0;
}

void rsh_blake3_init(struct rsh_blake3 *h)
{
	h->n_chunks = 0;
	chunk_begin(h);
}

static void chunk_compress(struct rsh_blake3 *h, uint32_t flags)
{
	compress(h->cv, h->block, h->n_block, h->n_chunks,
		 flags | (h->n_blocks == 0 ? CHUNK_START : 0));
	h->n_blocks++;
	h->n_block = 0;
	memset(h->block, 0, sizeof(h->block));
}

/* Sets the chaining value to that of the node above both. */
static void join(const uint32_t left[8], uint32_t cv[8], uint32_t flags)
{
	uint8_t block[BLOCK];

	for (unsigned i = 0; i < 16; i++) {
		const uint32_t w = i < 8 ? left[i] : cv[i - 8];

		for (unsigned b = 0; b < 4; b++)
			block[4 * i + b] = (uint8_t)(w >> 8 * b);
	}
	memcpy(cv, iv, sizeof(iv));
	compress(cv, block, BLOCK, 0, PARENT | flags);
}

static unsigned count_bits(uint64_t n)
{
	return (unsigned)__builtin_popcountll(n);
}

/* A subtree is complete when the number of its chunks is a power of two. */
static void chunk_end(struct rsh_blake3 *h)
{
	unsigned depth = count_bits(h->n_chunks);

	chunk_compress(h, CHUNK_END);
	for (uint64_t n = h->n_chunks; n & 1; n >>= 1)
		join(h->stack[--depth], h->cv, 0);
	memcpy(h->stack[depth], h->cv, sizeof(h->cv));
	h->n_chunks++;
	chunk_begin(h);
}

/* The last block is kept, since it may be the last one of all. */
void rsh_blake3_add(struct rsh_blake3 *h, const void *data, size_t n)
{
	const uint8_t *p = data;

	while (n > 0) {
		size_t part = BLOCK - h->n_block;

		if (part == 0) {
			if (h->n_blocks == CHUNK_BLOCKS - 1)
				chunk_end(h);
			else
				chunk_compress(h, 0);
			continue;
		}
		part = part < n ? part : n;
		memcpy(h->block + h->n_block, p, part);
		h->n_block += (unsigned)part;
		p += part;
		n -= part;
	}
}

void rsh_blake3_end(const struct rsh_blake3 *h, uint8_t out[RSH_BLAKE3_BYTES])
{
	unsigned depth = count_bits(h->n_chunks);
	struct rsh_blake3 last = *h;

	chunk_compress(&last, CHUNK_END | (depth == 0 ? ROOT : 0));
	while (depth > 0) {
		depth--;
		join(h->stack[depth], last.cv, depth == 0 ? ROOT : 0);
	}
	for (unsigned i = 0; i < RSH_BLAKE3_BYTES; i++)
		out[i] = (uint8_t)(last.cv[i / 4] >> 8 * (i % 4));
}
