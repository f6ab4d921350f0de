/* SPDX-License-Identifier: Apache-2.0 */
/* options/reading.h - how the content of SOURCE is read, for all commands that
 * do. */
#ifndef RSH_OPTIONS_READING_H
#define RSH_OPTIONS_READING_H

#include "rsh/options/options.h"
#include "rsh/read/stream.h"

/* 0, or -errno with a sentence. */
int rsh_reading_new(const struct rsh_options *o, struct rsh_store_io **out,
		    struct rsh_error *err);

/* Once the tree is known: so much memory is kept free that its largest file can
 * be loaded next, unless the options say how much. */
void rsh_reading_keep_free(const struct rsh_options *o,
			   const struct rsh_vfs *vfs, struct rsh_store_io *io,
			   bool all);

/* A few lines in the log, of that level, on what was read; either may be
 * NULL. */
void rsh_reading_log(enum rsh_log_level level, struct rsh_store_io *io,
		     const struct rsh_stream_stats *streams);

#endif
