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

int rsh_library_load_crypto(const char *what,
			    const struct rsh_library_symbol *symbols, size_t n,
			    struct rsh_error *err)
{
	static const char *const files[] = {
		"libcrypto.so.3", "libcrypto.so.1.1",
	};
	static const char package[] = "libssl3 (RPM: openssl-libs)";
	struct rsh_error ignored = RSH_ERROR_INIT;

	for (size_t i = 0; i < sizeof(files) / sizeof(files[0]); i++)
		if (rsh_library_load(files[i], package, what, symbols, n,
				     &ignored) == 0)
			return 0;
	return rsh_library_load(files[0], package, what, symbols, n, err);
}
