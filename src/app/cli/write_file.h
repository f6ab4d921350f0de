/* SPDX-License-Identifier: Apache-2.0 */
/* app/cli/write_file.h writes files that are there whole or not at all. */
#ifndef RSH_APP_CLI_WRITE_FILE_H
#define RSH_APP_CLI_WRITE_FILE_H

#include <stddef.h>

#include "rsh/util/error.h"

/* Writes a file under another name, syncs it and renames it, so that `path` is
 * the old file or the new one whatever happens.  A link stays one; what is no
 * regular file gets the bytes as they come.  Returns 0 or -errno with a
 * sentence. */
int rsh_write_file(const char *path, const void *data, size_t len,
		   struct rsh_error *err);

#endif
