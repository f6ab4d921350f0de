/* SPDX-License-Identifier: Apache-2.0 */
/* util/library.h loads a shared library when it is first needed, so that those
 * who never need it pay nothing for it: its start takes milliseconds, and it
 * brings others along.
 *
 * A library stays loaded until the process ends.  Any thread may call this; of
 * several that fill one table at the same time each writes the same.
 */
#ifndef RSH_UTIL_LIBRARY_H
#define RSH_UTIL_LIBRARY_H

#include <stddef.h>

#include "rsh/util/error.h"

struct rsh_library_symbol {
	const char *name;
	void *to; /* points to the pointer that gets the address */
};

/* Loads `file` (a name for the loader of programs, such as "libcurl.so.4") and
 * puts the addresses of n symbols to where they belong.  Returns 0, or -ENOENT
 * with a sentence that begins with `what`, the purpose ("s3://bucket"), if the
 * library or one of the symbols is not there. */
int rsh_library_load(const char *file, const char *what,
		     const struct rsh_library_symbol *symbols, size_t n,
		     struct rsh_error *err);

#endif
