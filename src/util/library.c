/* SPDX-License-Identifier: Apache-2.0 */
/* util/library.c calls dlopen(3) and dlsym(3). */
#include "config.h"

#include "rsh/util/library.h"

#include <dlfcn.h>
#include <errno.h>
#include <string.h>

int rsh_library_load(const char *file, const char *package, const char *what,
		     const struct rsh_library_symbol *symbols, size_t n,
		     struct rsh_error *err)
{
	void *library = dlopen(file, RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);

	if (!library)
		return rsh_error_set(err, ENOENT, "%s needs a library: %s; "
				     "install the package %s", what, dlerror(),
				     package);
	for (size_t i = 0; i < n; i++) {
		void *address = dlsym(library, symbols[i].name);

		if (!address)
			return rsh_error_set(err, ENOENT, "%s needs another "
					     "version of %s: %s", what, file, dlerror());
		memcpy(symbols[i].to, &address, sizeof(address));
	}
	return 0;
}

/* These have the same meaning in OpenSSL 3 and 1.1. */
static struct {
	const void *(*sha256)(void);
	int (*digest)(const void *data, size_t n, uint8_t *out, unsigned *n_out,
		      const void *hash, void *engine);
	uint8_t *(*hmac)(const void *hash, const void *key, int n_key,
			 const uint8_t *data, size_t n, uint8_t *out,
			 unsigned *n_out);
} crypto;

bool rsh_sha256(const void *data, size_t n, uint8_t out[RSH_SHA256_BYTES])
{
	unsigned got = 0;

	return crypto.digest(data, n, out, &got, crypto.sha256(), NULL) &&
	       got == RSH_SHA256_BYTES;
}

bool rsh_hmac_sha256(const void *key, size_t n_key, const void *data, size_t n,
		     uint8_t out[RSH_SHA256_BYTES])
{
	unsigned got = 0;

	return crypto.hmac(crypto.sha256(), key, (int)n_key, data, n, out,
			   &got) && got == RSH_SHA256_BYTES;
}

int rsh_crypto_load(const char *what, struct rsh_error *err)
{
	/* The sentence is about the newest one. */
	static const char *const files[] = {
		"libcrypto.so.3", "libcrypto.so.1.1", "libcrypto.so.3",
	};
	const struct rsh_library_symbol symbols[] = {
		{ "EVP_sha256", &crypto.sha256 },
		{ "EVP_Digest", &crypto.digest },
		{ "HMAC", &crypto.hmac },
	};
	uint8_t out[RSH_SHA256_BYTES];
	int rc = -ENOENT;

	for (int i = 0; rc && i < 3; i++)
		rc = rsh_library_load(files[i], "libssl3 (RPM: openssl-libs)",
				      what, symbols,
				      sizeof(symbols) / sizeof(symbols[0]),
				      i < 2 ? NULL : err);
	if (rc == 0 && (!rsh_sha256("", 0, out) ||
			!rsh_hmac_sha256(out, sizeof(out), "", 0, out)))
		rc = rsh_error_set(err, EIO, "%s: libcrypto cannot compute "
				   "SHA-256", what);
	return rc;
}
