/* SPDX-License-Identifier: Apache-2.0 */
/* util/secret.c allocates pieces of a few sizes from areas that are left out of
 * core files. */
#include "config.h"

#include "rsh/util/secret.h"
#include "rsh/util/thread.h"

#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#define SECRET_AREA ((size_t)1 << 20)
#define SECRET_LEAST 6    /* log2 of the smallest piece with its head */
#define SECRET_CLASSES 14 /* the largest piece in an area has 512 KiB */

/* The header before each piece. */
union secret_head {
	struct {
		size_t size; /* with the head */
		unsigned class; /* SECRET_CLASSES: a mapping of its own */
	};
	max_align_t align;
};

struct secret_free {
	union secret_head head;
	struct secret_free *next;
};

static struct {
	pthread_mutex_t lock; /* guards the rest */
	struct secret_free *free[SECRET_CLASSES];
	char *area; /* the unused part of the newest area */
	size_t left;
} secret = { .lock = PTHREAD_MUTEX_INITIALIZER };

static void *secret_map(size_t size)
{
	void *p = mmap(NULL, size, PROT_READ | PROT_WRITE,
		       MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	if (p == MAP_FAILED)
		return NULL;
	/* This fails harmlessly if the kernel was built without core files. */
	madvise(p, size, MADV_DONTDUMP);
	return p;
}

/* Takes a free piece, or cuts one from the area.  The rest of an area that is
 * too small is not used. */
static union secret_head *secret_piece(unsigned class)
{
	const size_t size = (size_t)1 << (class + SECRET_LEAST);
	union secret_head *h;

	pthread_mutex_lock(&secret.lock);
	h = (union secret_head *)secret.free[class];
	if (h) {
		secret.free[class] = secret.free[class]->next;
	} else {
		if (secret.left < size) {
			secret.area = secret_map(SECRET_AREA);
			secret.left = secret.area ? SECRET_AREA : 0;
		}
		if (secret.left >= size) {
			h = (union secret_head *)(void *)secret.area;
			secret.area += size;
			secret.left -= size;
		}
	}
	pthread_mutex_unlock(&secret.lock);
	if (h)
		h->size = size;
	return h;
}

void *rsh_secret_alloc(size_t size)
{
	union secret_head *h;
	unsigned class = 0;

	if (__builtin_add_overflow(size, sizeof(*h), &size))
		return NULL;
	while (class < SECRET_CLASSES &&
	       size > (size_t)1 << (class + SECRET_LEAST))
		class++;
	if (class < SECRET_CLASSES) {
		h = secret_piece(class);
	} else {
		h = secret_map(size);
		if (h)
			h->size = size;
	}
	if (!h)
		return NULL;
	h->class = class;
	return h + 1;
}

void rsh_secret_wipe(void *p, size_t n)
{
	memset(p, 0, n);
	/* The compiler must expect that the zeros are read here. */
	__asm__ volatile("" : : "r"(p) : "memory");
}

void rsh_secret_free(void *p)
{
	union secret_head *h;
	struct secret_free *f;
	unsigned class;

	if (!p)
		return;
	h = (union secret_head *)p - 1;
	f = (struct secret_free *)(void *)h;
	class = h->class;
	rsh_secret_wipe(p, h->size - sizeof(*h));
	if (class == SECRET_CLASSES) {
		munmap(h, h->size);
		return;
	}
	rsh_hold_lock(&secret.lock);
	f->next = secret.free[class];
	secret.free[class] = f;
}

char *rsh_secret_dup(const char *s)
{
	size_t n = s ? strlen(s) + 1 : 0;
	char *copy = s ? rsh_secret_alloc(n) : NULL;

	return copy ? memcpy(copy, s, n) : NULL;
}

/* vsnprintf() writes what does not fit to memory that is not secret, so there
 * is room for all texts that have a secret. */
#define FORMAT_BYTES (8192 - sizeof(union secret_head))

char *rsh_secret_format(const char *fmt, ...)
{
	size_t size = FORMAT_BYTES;

	for (;;) {
		char *text = rsh_secret_alloc(size);
		va_list ap;
		int n;

		if (!text)
			return NULL;
		va_start(ap, fmt);
		n = vsnprintf(text, size, fmt, ap);
		va_end(ap);
		if (n >= 0 && (size_t)n < size)
			return text;
		rsh_secret_free(text);
		if (n < 0)
			return NULL;
		size = (size_t)n + 1;
	}
}

void *rsh_secret_calloc(size_t n, size_t elem)
{
	size_t size;
	void *p;

	if (__builtin_mul_overflow(n, elem, &size))
		return NULL;
	p = rsh_secret_alloc(size);
	return p ? memset(p, 0, size) : NULL;
}

void *rsh_secret_realloc(void *p, size_t size)
{
	size_t room = p ? ((union secret_head *)p - 1)->size -
			  sizeof(union secret_head) : 0;
	void *grown;

	if (p && size <= room)
		return p;
	grown = rsh_secret_alloc(size);
	if (grown && p) {
		memcpy(grown, p, room);
		rsh_secret_free(p);
	}
	return grown;
}

void rsh_secret_wipe_environment(void)
{
	static const char *const names[] = {
		"AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN",
		"AWS_CONTAINER_AUTHORIZATION_TOKEN",
	};

	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
		char *value = getenv(names[i]);

		if (value)
			rsh_secret_wipe(value, strlen(value));
		unsetenv(names[i]);
	}
}
