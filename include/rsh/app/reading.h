/* SPDX-License-Identifier: Apache-2.0 */
/* app/reading.h says how the content of SOURCE is read, for all commands
 * that read it. */
#ifndef RSH_APP_READING_H
#define RSH_APP_READING_H

#include "rsh/app/options.h"
#include "rsh/read/stream.h"

/* Makes what SOURCE is read with, which is the caller's.  Returns 0, or -errno
 * with a sentence. */
int rsh_reading_new(const struct rsh_options *o, struct rsh_store_io **out,
		    struct rsh_error *err);

/* Is called once the tree is known: so much memory is kept free that its
 * largest file can be loaded next, unless the options say how much.  `all` is
 * true if the page cache of the mount holds what was read as well. */
void rsh_reading_keep_free(const struct rsh_options *o,
			   const struct rsh_vfs *vfs, struct rsh_store_io *io,
			   bool all);

/* Writes a few lines of that level to the log, on what was read; either of `io`
 * and `streams` may be NULL. */
void rsh_reading_log(enum rsh_log_level level, struct rsh_store_io *io,
		     const struct rsh_stream_stats *streams);

#endif
