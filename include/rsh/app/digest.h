/* SPDX-License-Identifier: Apache-2.0 */
/* app/digest.h makes a digest of the options of a conversion, for manifests. */
#ifndef RSH_APP_DIGEST_H
#define RSH_APP_DIGEST_H

#include "rsh/app/options.h"

/* Hashes all options that decide about the bytes, except the strategies and the
 * options that choose files of SOURCE: manifests compare the content of those.
 * The options must be settled; `store` is SOURCE's.  Returns 0, or -errno with
 * a sentence about a file that cannot be read. */
int rsh_options_digest(const struct rsh_vfs_config *cfg,
		       const struct rsh_store *store, uint64_t *digest,
		       struct rsh_error *err);

#endif
