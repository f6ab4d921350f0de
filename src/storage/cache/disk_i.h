/* SPDX-License-Identifier: Apache-2.0 */
/* storage/cache/disk_i.h - the directory of a cache; only this room includes it.
 *
 * A block is a file (block_file_i.h), and all are in the one directory.  Files
 * appear by rename and are never changed but for their mtime, which says when
 * the block was last used.  So processes that share the directory need no lock.
 * One that is killed leaves at most a file with a temporary name behind, which
 * a look at the directory removes when it is ten minutes old.
 *
 * Nothing in it is trusted: a block has its whole key and hashes over all of
 * it, links are not followed, and what does not fit is removed.  So there is no
 * index and no fsync.  What is written is dropped from the page cache, because
 * loaders count free memory without that; blocks that come faster than the disk
 * takes them are not written. */
#ifndef RSH_STORAGE_DISK_I_H
#define RSH_STORAGE_DISK_I_H

#include <stdatomic.h>

#include "block_file_i.h"
#include "cache_i.h"

/* At most this many blocks wait to be written, and at most this part of the
 * memory, because they cannot be thrown out meanwhile. */
#define RSH_DISK_QUEUE 32
#define RSH_DISK_QUEUE_PART 8

struct rsh_disk {
	/* These do not change. */
	char *path;
	int fd; /* the directory, which may be exchanged */
	uint64_t bound;
	uint64_t retry_ns;
	uint64_t (*clock_ns)(void);

	/* The directory is left alone until these times of that clock. */
	_Atomic uint64_t reads_off_until, writes_off_until;
	atomic_bool complained; /* since the directory last worked */

	/* Only the writer touches these. */
	bool was_off;
	bool looked;         /* total is known */
	uint64_t total;      /* bytes of all files, as far as known */
	uint64_t since_look; /* bytes written since it was counted */
	uint64_t n_temp;

	/* The cache's lock guards these. */
	struct rsh_worker writer;
	struct rsh_cache_block *queue[RSH_DISK_QUEUE];
	uint32_t head, n, max;
};

/* Opens or makes the directory of the options.  Returns 0, or -errno with a
 * sentence. */
int rsh_disk_open(struct rsh_cache *c, const struct rsh_cache_options *opts,
		  struct rsh_error *err);
/* Writes what waits, ends the writer and closes the directory. */
void rsh_disk_close(struct rsh_cache *c);

enum rsh_disk_found {
	RSH_DISK_MISS,
	RSH_DISK_HIT,
	RSH_DISK_REJECTED, /* there was a file, but not the right one */
	RSH_DISK_ERROR,
};

/* Reads a block into `content`, which is undefined unless it is a hit.  If it
 * lies there compressed *packed, which the caller frees, has those n bytes. */
enum rsh_disk_found rsh_disk_read(struct rsh_disk *d,
				  const struct rsh_block_key *key,
				  uint8_t *content, uint8_t **packed,
				  uint32_t *n);
/* Has the writer write the block, which has a user, some time; it drops it if
 * too many wait.  The lock is held. */
void rsh_disk_enqueue(struct rsh_cache *c, struct rsh_cache_block *b);

/* ---- keeping to the bound (disk_trim.c) ---- */

/* Returns what a file of that many bytes takes on disk. */
uint64_t rsh_disk_cost(uint64_t bytes);

struct rsh_disk_look {
	uint64_t total;   /* what the files take */
	uint64_t removed; /* how many files were removed */
};

/* Counts the files of the directory.  If they take more than `limit`, it
 * removes those used longest ago until they take `target` or less.  Files that
 * were left behind half-written are removed once they are ten minutes old.
 * Returns 0 or a positive errno. */
int rsh_disk_look(int dirfd, uint64_t limit, uint64_t target,
		  struct rsh_disk_look *out);

#endif
