/* SPDX-License-Identifier: Apache-2.0 */
/* app/digest.h tells one conversion of a source from another, for
 * manifests. */
#ifndef RSH_APP_DIGEST_H
#define RSH_APP_DIGEST_H

#include "rsh/app/options.h"

/* Hashes all options that decide about the bytes, but for the strategies and
 * for which files of SOURCE are taken: those are told by what they hold.  The
 * options have to be settled; `store` is SOURCE's.  Returns 0, or -errno with a
 * sentence about a file that cannot be read. */
int rsh_options_digest(const struct rsh_vfs_config *cfg,
		       const struct rsh_store *store, uint64_t *digest,
		       struct rsh_error *err);

#endif
