/* SPDX-License-Identifier: Apache-2.0 */
/* vfs/digest.h - the XXH3 (64 bits, no seed) of virtual files, computed on
 * request.
 *
 * One thread, which runs as long as there are requests, reads one file after
 * the other; requests do not block.  Results are kept, since the files never
 * change.
 *
 * Threads: any thread may ask.  No lock is held while something is read or
 * somebody is answered.
 */
#ifndef RSH_VFS_DIGEST_H
#define RSH_VFS_DIGEST_H

#include <stdbool.h>
#include <stdint.h>

#include "rsh/vfs/vfs.h"

struct rsh_digests;

/* The callbacks of a request. */
struct rsh_digest_calls {
	/* Is called every MiB and returns true if the answer is no longer
	 * wanted.  It is not called again after `answer`. */
	bool (*gave_up)(void *ctx);
	/* Is called once: with 0 and the digest, with -EINTR after giving up or
	 * when all ends, or with what reading has failed with. */
	void (*answer)(void *ctx, int rc, uint64_t xxh3);
};

/* The tree and the streams have to outlive the digests.  Returns 0 or
 * -errno. */
int rsh_digests_new(const struct rsh_vfs *vfs, struct rsh_streams *streams,
		    struct rsh_digests **out);
/* Answers all requests; there may be no new ones.  Returns false if the thread
 * still hangs in a read of the source after a while: the digests and the
 * streams must then not be freed. */
bool rsh_digests_stop(struct rsh_digests *d);
/* Stops the digests, and waits for that as long as it takes. */
void rsh_digests_free(struct rsh_digests *d);

/* Asks for the digest of a file; the answer may come before this returns. */
void rsh_digests_ask(struct rsh_digests *d, uint64_t node,
		     const struct rsh_digest_calls *calls, void *ctx);

#endif
