/* SPDX-License-Identifier: Apache-2.0 */
/* app/cli/write_file.h writes files that are either complete or not there. */
#ifndef RSH_APP_CLI_WRITE_FILE_H
#define RSH_APP_CLI_WRITE_FILE_H

#include <stddef.h>

#include "rsh/util/error.h"

/* Writes a file under another name, syncs and renames it, so that `path` is the
 * complete old file or the complete new file at any time.  A link is kept, and
 * its target replaced.  A path that is not a regular file is written directly.
 * Returns 0 or -errno with a sentence. */
int rsh_write_file(const char *path, const void *data, size_t len,
		   struct rsh_error *err);

#endif
