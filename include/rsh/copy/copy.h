/* SPDX-License-Identifier: Apache-2.0 */
/* copy/copy.h - what export and verify have in common: stopping the work and
 * reporting its progress. */
#ifndef RSH_COPY_COPY_H
#define RSH_COPY_COPY_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

struct rsh_copy_control {
	/* Once this flag is set all work ends soon, with -EINTR; NULL: it never
	 * is. */
	const atomic_bool *stop;
	/* `begin` is called with the number of bytes that will be processed,
	 * then `progress` for bytes that were, from any thread; both may be
	 * NULL. */
	void (*begin)(void *ctx, uint64_t total);
	void (*progress)(void *ctx, uint64_t bytes);
	void *ctx;
	unsigned n_jobs; /* files at a time; 0: the number of processors */
	unsigned readahead; /* as rsh_streams_options.max_loads */
};

/* This is one part of the files when several divide them among them. */
struct rsh_copy_share {
	unsigned number; /* 0 and up */
	unsigned of;     /* 0: they are not divided */
};

#endif
