/* SPDX-License-Identifier: Apache-2.0 */
/* util/arena.c allocates from blocks that are freed together; a large piece
 * gets a block of its own. */
#include "rsh/util/arena.h"

#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define BLOCK_BYTES ((size_t)16 * 1024)

struct rsh_arena_block {
	struct rsh_arena_block *next;
	size_t size;
	_Alignas(max_align_t) unsigned char bytes[];
};

static struct rsh_arena_block *block_new(size_t size)
{
	struct rsh_arena_block *b;

	if (size > SIZE_MAX - sizeof(*b))
		return NULL;
	b = calloc(1, sizeof(*b) + size);
	if (b)
		b->size = size;
	return b;
}

/* Makes a block for one large piece.  It comes after the block in use in the
 * list, so that small pieces still fill the block in use. */
static void *alloc_large(struct rsh_arena *a, size_t size)
{
	struct rsh_arena_block *b = block_new(size);

	if (!b)
		return NULL;
	if (a->blocks) {
		b->next = a->blocks->next;
		a->blocks->next = b;
	} else {
		a->blocks = b;
		a->left = 0;
	}
	return b->bytes;
}

static void *alloc_small(struct rsh_arena *a, size_t size, size_t align)
{
	struct rsh_arena_block *b;
	size_t start = 0;

	if (a->blocks)
		start = (a->blocks->size - a->left + align - 1) & ~(align - 1);
	if (!a->blocks || start > a->blocks->size ||
	    size > a->blocks->size - start) {
		b = block_new(BLOCK_BYTES);
		if (!b)
			return NULL;
		b->next = a->blocks;
		a->blocks = b;
		start = 0;
	}
	a->left = a->blocks->size - start - size;
	return a->blocks->bytes + start;
}

void *rsh_arena_alloc(struct rsh_arena *a, size_t size, size_t align)
{
	void *p = size > BLOCK_BYTES / 4 ? alloc_large(a, size) :
					   alloc_small(a, size, align);

	a->failed |= !p;
	return p;
}

void *rsh_arena_alloc_array_(struct rsh_arena *a, size_t n, size_t elem,
			     size_t align)
{
	size_t size;

	if (__builtin_mul_overflow(n, elem, &size))
		size = SIZE_MAX; /* no block has it */
	return rsh_arena_alloc(a, size, align);
}

char *rsh_arena_strndup(struct rsh_arena *a, const char *s, size_t len)
{
	char *copy;

	if (len == SIZE_MAX)
		return NULL;
	copy = rsh_arena_alloc(a, len + 1, 1);
	if (copy)
		memcpy(copy, s, len); /* the rest is zeroed already */
	return copy;
}

void *rsh_arena_copy_(struct rsh_arena *a, const void *v, size_t n, size_t elem,
		      size_t align)
{
	void *copy = rsh_arena_alloc_array_(a, n, elem, align);

	return copy && n ? memcpy(copy, v, n * elem) : copy;
}

char *rsh_arena_format(struct rsh_arena *a, const char *fmt, ...)
{
	char *text = NULL;
	va_list ap;
	int n;

	va_start(ap, fmt);
	n = vsnprintf(NULL, 0, fmt, ap);
	va_end(ap);
	a->failed |= n < 0;
	if (n >= 0)
		text = rsh_arena_alloc(a, (size_t)n + 1, 1);
	va_start(ap, fmt);
	if (text)
		vsnprintf(text, (size_t)n + 1, fmt, ap);
	va_end(ap);
	return text;
}

void rsh_arena_clear(struct rsh_arena *a)
{
	struct rsh_arena_block *b = a->blocks;

	while (b) {
		struct rsh_arena_block *next = b->next;

		free(b);
		b = next;
	}
	*a = (struct rsh_arena){ 0 };
}
