/* SPDX-License-Identifier: Apache-2.0 */
/* copy/copy.h - what exporting and verifying have in common: who is asked to
 * stop and told how far things are. */
#ifndef RSH_COPY_COPY_H
#define RSH_COPY_COPY_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

struct rsh_copy_control {
	/* Once it is set all work ends soon, with -EINTR; NULL: never. */
	const atomic_bool *stop;
	/* Called once it is known how many bytes will be gone through, and then
	 * as they are, from any thread; both may be NULL. */
	void (*begin)(void *ctx, uint64_t total);
	void (*progress)(void *ctx, uint64_t bytes);
	void *ctx;
	unsigned n_jobs; /* files at a time; 0: the number of processors */
	unsigned readahead; /* as rsh_streams_options.max_loads */
};

/* What a manifest is called that has no other name. */
#define RSH_MANIFEST_NAME "reshardfs-manifest.jsonl"

#endif
