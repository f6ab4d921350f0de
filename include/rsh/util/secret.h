/* SPDX-License-Identifier: Apache-2.0 */
/* util/secret.h - memory for secrets: core files do not contain it, and it is
 * wiped when it is freed.  Libraries that copy secrets allocate all of their
 * memory here.  Any thread may call these functions, except the last one.
 */
#pragma once

#include <stddef.h>

/* These are like malloc(), calloc(), realloc(), free() and strdup(). */
void *rsh_secret_alloc(size_t size);
void *rsh_secret_calloc(size_t n, size_t elem);
void *rsh_secret_realloc(void *p, size_t size);
void rsh_secret_free(void *p);
char *rsh_secret_dup(const char *s); /* NULL gives NULL */
char *rsh_secret_format(const char *fmt, ...)
	__attribute__((format(printf, 1, 2)));

/* Overwrites n bytes with zeros, though nothing reads them afterwards. */
void rsh_secret_wipe(void *p, size_t n);

/* Wipes and removes the environment variables that hold secrets.  Call it when
 * they have been read, and only in a process of the program itself, not in a
 * library. */
void rsh_secret_wipe_environment(void);

/* A scope guard, as those of util/mem.h: `cleanup_secret char *s = NULL;`. */
static inline void rsh_cleanup_secret_(void *p)
{
	rsh_secret_free(*(void **)p);
}
#define cleanup_secret __attribute__((cleanup(rsh_cleanup_secret_)))
