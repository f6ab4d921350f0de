/* SPDX-License-Identifier: Apache-2.0 */
/* app/reading.h is for all commands that read the content of SOURCE. */
#pragma once

#include "rsh/app/options.h"
#include "rsh/read/stream.h"

/* This must be called when the tree is known.  It keeps so much memory free
 * that the largest file of the tree can be loaded next, unless the options set
 * an amount.  `all` is true if the mount's page cache also holds the bytes that
 * were read. */
void rsh_reading_keep_free(const struct rsh_options *o,
			   const struct rsh_vfs *vfs, struct rsh_store_io *io,
			   bool all);

/* Logs a few lines at that level about what was read; `io` or `streams` may be
 * NULL. */
void rsh_reading_log(enum rsh_log_level level, struct rsh_store_io *io,
		     const struct rsh_stream_stats *streams);
