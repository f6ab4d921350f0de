/* SPDX-License-Identifier: Apache-2.0 */
/* util/library.h - loads a shared library when it is first needed: loading
 * takes milliseconds and brings more libraries.
 *
 * A library stays loaded until the process ends.  Any thread may call this:
 * threads that fill one table at the same time write the same addresses.
 */
#pragma once

#include <stddef.h>

#include "rsh/util/error.h"

struct rsh_library_symbol {
	const char *name;
	void *to; /* points to the pointer that gets the address */
};

/* Loads `file` (as of dlopen(3), such as "libcurl.so.4") and stores the
 * addresses of n symbols.  Returns 0, or -ENOENT with a sentence if the library
 * or a symbol is missing; `what`, the beginning of the sentence, is the purpose
 * ("s3://bucket"), and `package` what distributions call it ("libcurl4 (RPM:
 * libcurl)"). */
int rsh_library_load(const char *file, const char *package, const char *what,
		     const struct rsh_library_symbol *symbols, size_t n,
		     struct rsh_error *err);

/* The first two arguments for libcurl. */
#define RSH_LIBRARY_CURL "libcurl.so.4", "libcurl4 (RPM: libcurl)"
/* Loads libcrypto of OpenSSL 3, or of 1.1 where that is missing: the symbols
 * are those that have the same meaning in both. */
int rsh_library_load_crypto(const char *what,
			    const struct rsh_library_symbol *symbols, size_t n,
			    struct rsh_error *err);
