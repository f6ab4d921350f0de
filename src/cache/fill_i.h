/* SPDX-License-Identifier: Apache-2.0 */
/* cache/fill_i.h - how blocks that are LOADING get their content; only this
 * room includes it. */
#ifndef RSH_CACHE_FILL_I_H
#define RSH_CACHE_FILL_I_H

#include "cache_i.h"

struct rsh_request {
	struct rsh_cache *c;
	rsh_cache_file file;
	uint64_t size; /* of the file */
	rsh_cache_load_fn load;
	void *ctx;
	uint64_t n_behind; /* blocks that it has loaded and not come to yet:
			    * they are counted as missed, and as no hit */
};

/* These are neighbouring blocks, of which the holder is a user. */
struct rsh_block_run {
	struct rsh_cache_block *blocks[RSH_CACHE_LOAD_IOV];
	unsigned n;
};

/* Lets go of all blocks of a run; the lock is held. */
void rsh_run_release(struct rsh_cache *c, struct rsh_block_run *run);

/* Counts the blocks that did not have to be loaded, by where they were. */
struct rsh_found {
	unsigned disk, shared;
};

/* Settles the claimed blocks, and releases them if one of them failed.  Returns
 * 0 or -errno.  The lock is held, and given up meanwhile. */
int rsh_run_fill(struct rsh_request *rq, struct rsh_block_run *run,
		 struct rsh_found *found);

#endif
