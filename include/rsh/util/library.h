/* SPDX-License-Identifier: Apache-2.0 */
/* util/library.h - loads a shared library when it is first needed: loading
 * takes milliseconds and brings more libraries.
 *
 * A library stays loaded until the process ends.  Any thread may call this:
 * threads that fill one table at the same time write the same addresses.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

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

/* ---- SHA-256 of libcrypto, of OpenSSL 3 or else 1.1 ---- */

#define RSH_SHA256_BYTES 32

/* Loads libcrypto, which the functions below need, and lets it open its own
 * files now and not when it is too late.  Returns 0, or -errno with a sentence
 * that begins with `what`. */
int rsh_crypto_load(const char *what, struct rsh_error *err);
/* Return false if memory is out. */
bool rsh_sha256(const void *data, size_t n, uint8_t out[RSH_SHA256_BYTES]);
/* `out` may be the key. */
bool rsh_hmac_sha256(const void *key, size_t n_key, const void *data, size_t n,
		     uint8_t out[RSH_SHA256_BYTES]);
