/* SPDX-License-Identifier: Apache-2.0 */
/* vfs/digest.h - the XXH3 (64 bits, no seed) of virtual files, computed on
 * request.
 *
 * One thread runs as long as there are requests, and reads one file after the
 * other.  A request does not block.  Results are kept, since the files never
 * change.
 *
 * Threads: any thread may call rsh_digests_ask().  No lock is held while a file
 * is read or a callback is called.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "rsh/vfs/vfs.h"

struct rsh_digests;

/* The callbacks of a request. */
struct rsh_digest_calls {
	/* The thread calls this about once for each MiB that it reads.  True:
	 * the result is no longer wanted.  It is not called after `answer`. */
	bool (*gave_up)(void *ctx);
	/* This is called once: with 0 and the digest; with -EINTR after
	 * `gave_up` returned true or when the digests are stopped; or with the
	 * error of the read. */
	void (*answer)(void *ctx, int rc, uint64_t xxh3);
};

/* Makes the digests of a tree.  The tree and the streams must outlive them.
 * Returns 0 or -errno. */
int rsh_digests_new(struct rsh_vfs *vfs, struct rsh_streams *streams,
		    struct rsh_digests **out);
/* Ends all requests.  The caller must not make new ones.  Returns false if the
 * thread still waits for a read of the source after some seconds.  Then the
 * digests and the streams must not be freed. */
bool rsh_digests_stop(struct rsh_digests *d);
/* Stops the digests, waits without a limit until the thread has ended, and
 * frees them. */
void rsh_digests_free(struct rsh_digests *d);

/* Requests the digest of a file.  `answer` may be called before this
 * returns. */
void rsh_digests_ask(struct rsh_digests *d, uint64_t node,
		     const struct rsh_digest_calls *calls, void *ctx);
