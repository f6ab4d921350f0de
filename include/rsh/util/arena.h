/* SPDX-License-Identifier: Apache-2.0 */
/* util/arena.h - many small pieces of memory that are freed together.
 *
 * A piece never moves and lives as long as the arena.  An arena has no lock:
 * its owner serialises the calls. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <string.h>

struct rsh_arena_block;

/* An arena whose bytes are all zero is an empty one. */
struct rsh_arena {
	struct rsh_arena_block *blocks; /* the one in use first */
	size_t left;                    /* unused bytes of the first block */
	bool failed;                    /* memory was out for a piece, so that
					 * who takes several asks once */
};

/* Returns `size` zeroed bytes, aligned to `align` (a power of two, at most that
 * of max_align_t); NULL means out of memory.  A size of 0 gives a valid
 * address. */
void *rsh_arena_alloc(struct rsh_arena *a, size_t size, size_t align);
/* Returns a NUL-terminated copy of the `len` bytes at `s`, which lives as long
 * as the arena; NULL means out of memory. */
char *rsh_arena_strndup(struct rsh_arena *a, const char *s, size_t len);
static inline char *rsh_arena_strdup(struct rsh_arena *a, const char *s)
{
	return rsh_arena_strndup(a, s, strlen(s));
}
/* Does the same with a text as of printf(). */
char *rsh_arena_format(struct rsh_arena *a, const char *fmt, ...)
	__attribute__((format(printf, 2, 3)));
/* Frees all pieces; the arena is empty then. */
void rsh_arena_clear(struct rsh_arena *a);
#define cleanup_arena __attribute__((cleanup(rsh_arena_clear)))

/* Returns a zeroed array of n elements of a type; NULL means out of memory or
 * that its size does not fit a size_t. */
#define rsh_arena_array(a, type, n) \
	((type *)rsh_arena_alloc_array_(a, n, sizeof(type), _Alignof(type)))
void *rsh_arena_alloc_array_(struct rsh_arena *a, size_t n, size_t elem,
			     size_t align);
/* Returns a copy of n elements of an array, which may be NULL if n is 0; NULL
 * means out of memory. */
#define rsh_arena_copy(a, v, n) \
	rsh_arena_copy_(a, v, n, sizeof(*(v)), _Alignof(__typeof__(*(v))))
void *rsh_arena_copy_(struct rsh_arena *a, const void *v, size_t n, size_t elem,
		      size_t align);
