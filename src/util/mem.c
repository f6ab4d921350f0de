/* SPDX-License-Identifier: Apache-2.0 */
/* util/mem.c grows arrays and frees what goes out of scope. */
#include "rsh/util/mem.h"

#include <errno.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define FIRST_CAPACITY 16

int rsh_grow(void *ptr, size_t *cap, size_t need, size_t elem)
{
	size_t n = *cap ? *cap : FIRST_CAPACITY;
	size_t bytes;
	void *p;

	if (need <= *cap)
		return 0;
	while (n < need)
		if (__builtin_mul_overflow(n, (size_t)2, &n))
			return -ENOMEM;
	if (__builtin_mul_overflow(n, elem, &bytes))
		return -ENOMEM;
	/* ptr is the address of a pointer of any type.  It is copied, not cast,
	 * because void * may not alias it. */
	memcpy(&p, ptr, sizeof(p));
	p = realloc(p, bytes);
	if (!p)
		return -ENOMEM;
	memcpy(ptr, &p, sizeof(p));
	*cap = n;
	return 0;
}

int rsh_by_u32(const void *a, const void *b)
{
	uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;

	return x < y ? -1 : x > y;
}

size_t rsh_sort_distinct(uint32_t *v, size_t n)
{
	size_t kept = 0;

	rsh_sort(v, n, rsh_by_u32);
	for (size_t i = 0; i < n; i++)
		if (kept == 0 || v[i] != v[kept - 1])
			v[kept++] = v[i];
	return kept;
}

int rsh_by_text(const void *a, const void *b)
{
	return strcmp(*(const char *const *)a, *(const char *const *)b);
}

uint32_t rsh_first_from(const uint32_t *v, uint32_t n, uint32_t x)
{
	return rsh_first(i, n, v[i] < x);
}

void *rsh_alloc_array(size_t n, size_t elem)
{
	size_t bytes;

	if (__builtin_mul_overflow(n, elem, &bytes))
		return NULL;
	return malloc(bytes ? bytes : 1);
}

void rsh_cleanup_free_(void *p)
{
	int saved = errno;
	void *v;

	memcpy(&v, p, sizeof(v));
	free(v);
	errno = saved;
}

void rsh_cleanup_fd_(int *fd)
{
	int saved = errno;

	if (*fd >= 0)
		close(*fd);
	errno = saved;
}

DIR *rsh_dir_of(int fd)
{
	cleanup_fd int mine = fd;
	DIR *dir = fd < 0 ? NULL : fdopendir(fd);

	if (dir)
		steal_fd(&mine);
	return dir;
}
