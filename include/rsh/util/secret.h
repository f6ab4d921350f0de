/* SPDX-License-Identifier: Apache-2.0 */
/* util/secret.h has memory for secrets: no core file has it, and it is wiped
 * when it is freed.  Libraries that copy secrets get all of their memory here.
 * Any thread may call this, but for the last function.
 */
#ifndef RSH_UTIL_SECRET_H
#define RSH_UTIL_SECRET_H

#include <stddef.h>

/* These are as malloc() and the like; NULL means that memory is out. */
void *rsh_secret_alloc(size_t size);
void *rsh_secret_calloc(size_t n, size_t elem);
void *rsh_secret_realloc(void *p, size_t size);
void rsh_secret_free(void *p);
char *rsh_secret_dup(const char *s); /* NULL gives NULL */

/* Wipes the variables of the environment that hold secrets, for a process that
 * is the program's own, when all that reads them has done so. */
void rsh_secret_wipe_environment(void);

#endif
