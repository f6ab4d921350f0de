/* SPDX-License-Identifier: Apache-2.0 */
/* storage/cache.h - a cache of blocks of source files: in bounded memory, in a
 * local directory and on servers.
 *
 * A cache holds blocks of files that are immutable as long as their identity
 * stays the same.  The reader names the file (a handle) and the bytes, and
 * passes a function that loads missing blocks.
 *
 *   memory        readers copy from it
 *   a directory   keeps blocks that were loaded once: for this process when its
 *                 memory was needed for other blocks, for later processes, and
 *                 for processes that run at the same time
 *   servers       give other nodes the blocks that one node has loaded
 *
 * Blocks of tensors that a sample shows to be compressible are stored
 * compressed, in all three (struct rsh_cache_kind).
 *
 * Threads: any thread may call all functions except rsh_cache_new() and
 * rsh_cache_free().  No lock is held while bytes are loaded, copied, written or
 * verified.
 *
 * Waiting: a call waits for the load of another thread only while it has no
 * load of its own in progress, and never waits for memory.  So it returns when
 * the loads do.  It waits a bounded time for another node that is loading a
 * block (servers.h).
 *
 * fork(): the cache starts its own thread at the earliest in a call that loads.
 * A process may make a cache, open files in it, fork, and use it in the child
 * only.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/uio.h>

#include "rsh/storage/servers.h"
#include "rsh/util/error.h"

struct rsh_cache;

#define RSH_CACHE_BLOCK_DEFAULT (256 * 1024)

enum rsh_cache_compress { RSH_COMPRESS_AUTO, RSH_COMPRESS_OFF };

/* The tensor that a part of a file belongs to. */
struct rsh_cache_kind {
	uint64_t tensor; /* its number in the file */
	unsigned unit;   /* bytes of an element; 0: unknown */
};

/* Sets the kind of most of these bytes of a file, or of those in the middle.
 * `ctx` is the argument of the loader. */
typedef void (*rsh_cache_kind_fn)(void *ctx, uint64_t offset, uint32_t len,
				  struct rsh_cache_kind *out);

struct rsh_cache_options {
	/* The limit of all memory of the cache: blocks, including those that
	 * are being loaded, and bookkeeping.  It is never exceeded.  If it is 0
	 * or too small for a block, nothing is cached and every read calls its
	 * loader. */
	uint64_t memory_bytes;
	/* The limit of the address space of blocks, of which a short block
	 * takes as much as a full one.  0: as much as `memory_bytes` could
	 * need. */
	uint64_t map_bytes;

	/* A directory on a local disk; NULL: none.  It is created (0700) if it
	 * is missing, but not its parent.  It is refused if it belongs to
	 * another user or if others can write to it.  Files in it that the
	 * cache did not create are not touched. */
	const char *dir;
	/* The limit of the files in `dir`, including those of other processes.
	 * Several processes at once may exceed it by 1/16 each.  The least
	 * recently used files are removed first.  0: read only. */
	uint64_t disk_bytes;
	/* The time until the directory is used again after a failure; 0: one
	 * minute. */
	unsigned disk_retry_seconds;
	/* The clock for this time; NULL: rsh_clock_ns(). */
	uint64_t (*clock_ns)(void);

	/* The servers, if servers.list is not NULL.  They are opened with the
	 * cache, unless `opened` has them opened already; `opened` must outlive
	 * the cache.  Only blocks of shared files are stored there
	 * (rsh_cache_file_share()). */
	struct rsh_cache_servers_options servers;
	struct rsh_cache_servers *opened;

	/* The size of a block: a power of two from one memory page to 4 MiB, or
	 * 0 for RSH_CACHE_BLOCK_DEFAULT.  Processes share blocks of the same
	 * size. */
	uint32_t block_bytes;

	/* Whether blocks of a tensor are compressed follows from samples of its
	 * blocks: of each one while they are compressible, else of few.
	 * Compressed blocks of the directory and of servers can be read in any
	 * case. */
	enum rsh_cache_compress compress;
	rsh_cache_kind_fn kind; /* NULL: each file counts as one tensor */
};

/* Makes a cache.  Returns 0 and *out, which the caller frees, or -EINVAL,
 * -ENOMEM or the -errno of the directory, with a sentence. */
int rsh_cache_new(const struct rsh_cache_options *opts, struct rsh_cache **out,
		  struct rsh_error *err);
/* Writes the blocks that wait for the directory or for servers, and frees the
 * cache; NULL is allowed.  No other call may be in progress. */
void rsh_cache_free(struct rsh_cache *c);

/* ---- files ---- */

/* Files with equal identities have the same content, in this process and in all
 * that share the directory.  With `memory_only` this is so in this process
 * alone, and blocks are not stored in the directory. */
struct rsh_cache_file_id {
	/* All words before memory_only are compared and hashed as bytes. */
	uint64_t dev, ino;
	uint64_t size;
	int64_t mtime_sec;
	uint64_t mtime_nsec;
	uint64_t epoch, step; /* of the checkpoint that it belongs to */
	uint64_t state; /* a hash of everything else that tells it from others:
			 * ctime, file system */
	bool memory_only;
};

/* A handle is valid as long as the cache. */
typedef uint32_t rsh_cache_file;

/* Reads with this handle call their loader; nothing is cached. */
#define RSH_CACHE_FILE_NONE UINT32_MAX

/* Returns the handle of the file with this identity.  The cache uses up to 128
 * bytes for each file until it is freed.  RSH_CACHE_FILE_NONE: the limit does
 * not allow them, or out of memory. */
rsh_cache_file rsh_cache_file_open(struct rsh_cache *c,
				   const struct rsh_cache_file_id *id);

/* Shares blocks of the file by servers from now on.  `name` identifies its
 * content, together with size, epoch and step, on all nodes; it must not be
 * zeros. */
void rsh_cache_file_share(struct rsh_cache *c, rsh_cache_file file,
			  const uint64_t name[2]);

/* ---- reading ---- */

/* A loader fills the `n_iov` (1 to RSH_CACHE_LOAD_IOV) buffers with the bytes
 * of a file from `offset` on.  It returns 0 or a positive errno.  It is called
 * in the reading thread, without a lock.  It must not call the cache, and it
 * must return at some time, because other threads may wait for it.  The range
 * is within the file and consists of complete blocks, of which the last one of
 * a file may be short.  Only a read that bypasses the cache has one buffer and
 * any range. */
typedef int (*rsh_cache_load_fn)(void *ctx, uint64_t offset,
				 const struct iovec *iov, int n_iov);
struct rsh_cache_loader {
	rsh_cache_load_fn load;
	void *ctx;
	/* Loading a block costs more than to wait until the directory takes
	 * it. */
	bool costly;
};

#define RSH_CACHE_LOAD_IOV 17
/* One load has at most the blocks that a range of this many bytes overlaps. */
#define RSH_CACHE_LOAD_MAX (1024 * 1024)

/* Copies `len` bytes at `offset` to `buf`.  Missing blocks are read from the
 * directory or from servers, or loaded, neighbours together; the call waits for
 * a block that another thread is loading.  If all memory is in use, the read
 * bypasses the cache.
 *
 * Returns 0; -EINVAL if the range is not within the file (not checked for
 * RSH_CACHE_FILE_NONE); or the negative result of the loader, which all calls
 * get that waited for this load.  Later calls load again.  After a failure
 * `buf` is undefined.
 */
int rsh_cache_read(struct rsh_cache *c, rsh_cache_file file, uint64_t offset,
		   void *buf, size_t len,
		   const struct rsh_cache_loader *loader);

/* Loads the missing blocks of a range ahead of a read, and does not wait for
 * those that other threads load.  It stops without an error if no memory is
 * left, and at the end of the file.  Returns 0 or the negative result of the
 * loader. */
int rsh_cache_prefetch(struct rsh_cache *c, rsh_cache_file file,
		       uint64_t offset, uint64_t len,
		       const struct rsh_cache_loader *loader);

/* Copies `len` bytes at `offset` to `buf` if all of them are in memory or in
 * the directory; else returns false, and `buf` is undefined.  It loads nothing,
 * waits for no other thread and takes no memory of the cache, so a loader may
 * call it. */
bool rsh_cache_peek(struct rsh_cache *c, rsh_cache_file file, uint64_t offset,
		    void *buf, size_t len);

/* ---- eviction ----
 *
 * The cache counts how many bytes of a block were read, not which.  When they
 * are as many as the block has, it is spent: a checkpoint is read from front to
 * back, and the block is unlikely to be read again.  So a block stays until the
 * readers of all its parts have read them.  Another read of a spent block makes
 * it a normal block again, counted from zero.
 *
 * If memory is needed, uncompressed copies of compressed blocks are evicted
 * first, then spent blocks, then the least recently used ones.  A block that a
 * thread is using is not evicted.
 */

/* Reduces the limit of the cache by `bytes`, for other memory of the caller.
 * Returns false if the cache cannot free so much. */
bool rsh_cache_cede(struct rsh_cache *c, uint64_t bytes);

/* Evicts all blocks that are not in use and returns their memory to the
 * system. */
void rsh_cache_drop(struct rsh_cache *c);

/* Waits until all blocks were written to the directory and to servers. */
void rsh_cache_settle(struct rsh_cache *c);

/* ---- statistics ---- */

struct rsh_cache_stats {
	/* These five count blocks that reads needed, by where they were found.
	 * A block counts for each read.  Prefetching does not count. */
	uint64_t hits_plain, hits_disk, hits_shared;
	uint64_t misses; /* the caller loaded it */
	uint64_t waits;  /* another thread was loading it */

	uint64_t bytes_served; /* bytes copied to readers */
	uint64_t bytes_loaded; /* bytes read by loaders, bypasses included */
	uint64_t loads, loads_failed;
	uint64_t bypasses, bytes_bypassed;
	uint64_t prefetched; /* blocks, found or loaded */
	uint64_t prefetched_disk; /* prefetched blocks from the directory */
	uint64_t prefetched_shared; /* prefetched blocks from servers */

	uint64_t evicted_spent, evicted_plain;

	/* Blocks that were compressed, and their bytes before and after; reads
	 * of parts of compressed blocks, and their bytes; blocks that were left
	 * uncompressed because they would not shrink enough, and their
	 * bytes. */
	uint64_t packed, packed_from, packed_to;
	uint64_t unpacked, unpacked_bytes;
	uint64_t left, left_bytes;

	uint64_t disk_written, disk_written_bytes; /* bytes: as stored */
	uint64_t disk_dropped;  /* blocks not written: too many waited */
	uint64_t disk_errors;   /* reads and writes that failed */
	uint64_t disk_rejected; /* damaged files that were removed */
	uint64_t disk_trimmed;  /* files removed because of disk_bytes */

	uint64_t shared_written, shared_written_bytes;
	uint64_t shared_dropped;  /* not stored: the server is full, failed, or
				   * is not used after a failure */
	uint64_t shared_waits;    /* blocks that another node was loading */
	uint64_t shared_late;     /* blocks that it did not store in time */
	uint64_t shared_errors;   /* requests that failed */
	uint64_t shared_rejected; /* values that were damaged or forged */

	/* The rest is the present state. */
	uint64_t memory_bytes; /* the sum of the next three; at most the
				* limit */
	uint64_t plain_bytes; /* memory of blocks */
	uint64_t spare_bytes; /* unused memory */
	uint64_t bookkeeping_bytes;
	uint64_t disk_bytes; /* at the last scan of the directory */
	uint64_t held_bytes; /* content of blocks, uncompressed */
	uint32_t n_plain, n_spent, n_in_use, n_files;
	uint32_t n_packed; /* compressed blocks */
	uint64_t memory_peak; /* of memory_bytes */
};

void rsh_cache_stats_get(struct rsh_cache *c, struct rsh_cache_stats *out);
