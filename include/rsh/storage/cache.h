/* SPDX-License-Identifier: Apache-2.0 */
/* storage/cache.h keeps blocks of source files, in bounded memory, on a disk and
 * on servers.
 *
 * A cache holds blocks of files that never change while their identity stays
 * the same.  It knows nothing of what the files are: whoever reads says which
 * file (a handle), which bytes, and how to load what is not there.
 *
 *   memory        what readers copy from
 *   a directory   what was loaded once, for this process after its memory was
 *                 needed otherwise, for the next process and for others at the
 *                 same time
 *   servers       what one node has loaded, for all others
 *
 * Blocks of tensors that a sample shows to shrink are compressed, in all three;
 * those of others are left as they are (struct rsh_cache_kind).
 *
 * Threads: all calls but rsh_cache_new() and rsh_cache_free() may be made from
 * any thread at any time.  No lock is held while bytes are loaded, copied,
 * written or verified.
 *
 * Waiting: a call waits for the load of another thread only while it has no
 * load of its own under way, and never for memory, so that it comes back when
 * the loads do.  For another node that is loading a block it waits a bounded
 * time (servers.h).  Callers may hold pins while they call.
 *
 * fork(): the cache's own thread starts when there is first something to do for
 * it, at the earliest in a call that loads.  A process may make a cache,
 * open files in it, fork, and use it in the child only.
 */
#ifndef RSH_STORAGE_CACHE_H
#define RSH_STORAGE_CACHE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/uio.h>

#include "rsh/storage/servers.h"
#include "rsh/util/error.h"

struct rsh_cache;

#define RSH_CACHE_BLOCK_DEFAULT (256 * 1024)

enum rsh_cache_compress { RSH_COMPRESS_AUTO, RSH_COMPRESS_OFF };

/* A kind says what a part of a file is. */
struct rsh_cache_kind {
	uint64_t tensor; /* tells tensors of the file apart */
	unsigned unit;   /* bytes of an element of it; 0: not known */
};

/* Says what most of these bytes of a file are, or what those in the middle are.
 * `ctx` is that of the loader. */
typedef void (*rsh_cache_kind_fn)(void *ctx, uint64_t offset, uint32_t len,
				  struct rsh_cache_kind *out);

struct rsh_cache_options {
	/* This bounds everything that the cache holds in memory: blocks, with
	 * those that are being loaded, and what is needed to find them.  It is
	 * never exceeded.  Where it is too small to hold a block, or 0, nothing
	 * is cached and every read goes to its loader. */
	uint64_t memory_bytes;
	/* This bounds the address space that blocks may take, since a short
	 * block takes as much of it as a whole one.  0 means as much as the
	 * bound of memory could need. */
	uint64_t map_bytes;

	/* This is a directory of a local disk, NULL for none.  It is made
	 * (0700) if it is missing, but its parent is not.  A directory is
	 * refused if it belongs to another user or others can write to it.
	 * Files in it that the cache did not make are left alone. */
	const char *dir;
	/* This bounds what the files of the cache in `dir` may take, with those
	 * of all processes that share it.  One process alone keeps to it;
	 * several at once may exceed it by 1/16 each.  The least recently used
	 * files go first.  0 means that what is there is read and nothing is
	 * written. */
	uint64_t disk_bytes;
	/* This is how long the directory is left alone after it failed; 0 means
	 * a minute. */
	unsigned disk_retry_seconds;
	/* This is the clock that measures that time; NULL means
	 * rsh_clock_ns(). */
	uint64_t (*clock_ns)(void);

	/* These are the servers, if a list is named.  They are opened with the
	 * cache, unless `opened` are they, which outlive it.  Only blocks of
	 * files that are shared go there (rsh_cache_file_share()). */
	struct rsh_cache_servers_options servers;
	struct rsh_cache_servers *opened;

	/* This is the size of a block: a power of two of at least one memory
	 * page and at most 4 MiB, or 0 for RSH_CACHE_BLOCK_DEFAULT.  Processes
	 * that share a directory find each other's blocks if their sizes are
	 * equal. */
	uint32_t block_bytes;

	/* Whether a tensor shrinks is asked of a sample of each block of it
	 * that is loaded, or of every sixteenth one while it does not.  Blocks
	 * that lie compressed in the directory or on servers are read in any
	 * case. */
	enum rsh_cache_compress compress;
	/* Without it each file is taken for one tensor. */
	rsh_cache_kind_fn kind;
};

/* Makes a cache.  Returns 0 and *out, which the caller frees, or -EINVAL,
 * -ENOMEM or what the directory gave, with a sentence. */
int rsh_cache_new(const struct rsh_cache_options *opts, struct rsh_cache **out,
		  struct rsh_error *err);
/* Frees the cache; NULL is allowed.  No other call may be under way and nothing
 * may be pinned.  Blocks that wait to be written to the directory or to servers
 * are written first. */
void rsh_cache_free(struct rsh_cache *c);

/* ---- files ---- */

/* An identity tells one content from another, in this process and in all that
 * share the directory.  Files that differ in any member have nothing in
 * common. */
struct rsh_cache_file_id {
	uint64_t dev, ino;
	uint64_t size;
	int64_t mtime_sec;
	uint32_t mtime_nsec;
	uint64_t epoch, step; /* of the checkpoint that it belongs to */
};

/* A handle is valid as long as the cache. */
typedef uint32_t rsh_cache_file;

/* Reads with this handle go to their loader; nothing is cached. */
#define RSH_CACHE_FILE_NONE UINT32_MAX

/* Returns the handle of a file, which is the same for the same identity.  Up to
 * 128 bytes for each file are held for the life of the cache.  It is
 * RSH_CACHE_FILE_NONE if the bound does not allow them or memory is out. */
rsh_cache_file rsh_cache_file_open(struct rsh_cache *c,
				   const struct rsh_cache_file_id *id);

/* Says what all nodes call the content of the file, which has to differ where
 * contents do and to be no zeros; blocks of the file are shared from then on.
 * The size, epoch and step are added to it. */
void rsh_cache_file_share(struct rsh_cache *c, rsh_cache_file file,
			  const uint64_t name[2]);

/* ---- reading ---- */

/* A loader reads the bytes of a file from `offset` on into the `n_iov` (1 to
 * RSH_CACHE_LOAD_IOV) buffers and fills all of them.  It returns 0, or a
 * positive errno.  It is called in the thread that reads, without a lock.  It
 * must not call the cache, and it has to come back in the end, because others
 * may wait for what it loads.  The range lies within the file's size and is
 * made of whole blocks, of which the last one of a file is short.  Only a read
 * that bypasses the cache has one buffer and any range, the bytes that the
 * reader asked for. */
typedef int (*rsh_cache_load_fn)(void *ctx, uint64_t offset,
				 const struct iovec *iov, int n_iov);

#define RSH_CACHE_LOAD_IOV 17
/* A load has at most the blocks that a range of this many bytes touches. */
#define RSH_CACHE_LOAD_MAX (1024 * 1024)

/* Copies `len` bytes at `offset` to `buf`.  Blocks that are missing are taken
 * from the directory or servers, or loaded, neighbours together; a block that
 * another thread is loading is waited for.  When memory cannot be had because
 * all of it is pinned or being loaded into, the read bypasses the cache.
 *
 * Returns 0; -EINVAL if the range is not within the file's size, which is not
 * known of RSH_CACHE_FILE_NONE; or what the loader returned, negative, also to
 * everybody who waited for that load.  A failed load leaves nothing behind:
 * whoever comes later loads again.  After a failure `buf` has undefined
 * content. */
int rsh_cache_read(struct rsh_cache *c, rsh_cache_file file, uint64_t offset,
		   void *buf, size_t len, rsh_cache_load_fn load, void *ctx);

/* Loads what is missing of the blocks that the range touches, to read ahead,
 * and does not wait for those that others load.  Their bytes count as handed
 * out only when they are read.  It stops quietly where memory cannot be had,
 * and at the end of the file.  Returns 0, or what the loader returned,
 * negative. */
int rsh_cache_prefetch(struct rsh_cache *c, rsh_cache_file file,
		       uint64_t offset, uint64_t len, rsh_cache_load_fn load,
		       void *ctx);

/* The content of a pinned block stays where it is until it is unpinned, also if
 * the block is compressed meanwhile.  This is for gathers
 * of many short runs. */
struct rsh_cache_pin {
	const uint8_t *data; /* the whole block */
	uint32_t len;
	uint64_t offset;     /* of data[0] in the file */
	struct rsh_cache_block *block; /* private */
};

/* Pins the block with the byte at `offset` and loads it if need be.  Returns 0;
 * -ENOBUFS if memory cannot be had or the file is RSH_CACHE_FILE_NONE
 * (rsh_cache_read() can do without memory); -EINVAL if the byte is not in the
 * file; or what the loader returned, negative. */
int rsh_cache_pin(struct rsh_cache *c, rsh_cache_file file, uint64_t offset,
		  rsh_cache_load_fn load, void *ctx,
		  struct rsh_cache_pin *out);
/* Lets go of a pinned block, of which the caller has taken `used` bytes.  What
 * these are counted for is said below, under "what goes first". */
void rsh_cache_unpin(struct rsh_cache *c, struct rsh_cache_pin *pin,
		     size_t used);

/* ---- what goes first ----
 *
 * The cache counts the bytes of a block that were handed out: `len` of
 * rsh_cache_read(), `used` of rsh_cache_unpin(); how many, not which.  When
 * they are as many as the block has, it is spent: a checkpoint is read from
 * front to back, and no run is likely to need the block again.  Readers of
 * different parts of a block, at whatever times, thus keep it until the last of
 * them came.  A spent block that is read all the same is a block like others
 * again, counted from zero.
 *
 * When memory is needed, copies go first that blocks have besides being
 * compressed.  Then spent blocks do, the longest spent before others; then the
 * least recently used.  A pinned block does not go. */

/* Takes memory out of the cache's bound for something else of the caller's, as
 * long as the cache lives.  False if so much cannot be had. */
bool rsh_cache_cede(struct rsh_cache *c, uint64_t bytes);

/* Forgets all blocks in memory that are not in use and gives their memory back
 * to the system. */
void rsh_cache_drop(struct rsh_cache *c);

/* Waits until no block waits to be written to the directory or to servers. */
void rsh_cache_settle(struct rsh_cache *c);

/* ---- statistics ---- */

struct rsh_cache_stats {
	/* These five count the blocks that calls wanted, by where they were
	 * found.  A block counts each time that a call comes to it.
	 * Prefetching counts in none of them. */
	uint64_t hits_plain, hits_disk, hits_shared;
	uint64_t misses; /* the caller loaded it */
	uint64_t waits;  /* another thread was loading it */

	uint64_t bytes_served; /* handed out */
	uint64_t bytes_loaded; /* by loaders, bypasses included */
	uint64_t loads, loads_failed;
	uint64_t bypasses, bytes_bypassed;
	uint64_t prefetched; /* blocks, found or loaded */
	uint64_t prefetched_disk; /* those from the directory */
	uint64_t prefetched_shared; /* those from servers */

	uint64_t evicted_spent, evicted_plain;

	/* Blocks that were compressed: their bytes before and after.  Those
	 * that were not, because they would not shrink enough. */
	uint64_t packed, packed_from, packed_to;
	uint64_t unpacked, unpacked_bytes; /* of what is held compressed: parts
					    * that were read, and their bytes */
	uint64_t left, left_bytes;

	uint64_t disk_written, disk_written_bytes; /* bytes: as they lie there */
	uint64_t disk_dropped;  /* not written: too many waited */
	uint64_t disk_errors;   /* reads and writes that failed */
	uint64_t disk_rejected; /* files that were damaged, and removed */
	uint64_t disk_trimmed;  /* files removed to keep to disk_bytes */

	uint64_t shared_written, shared_written_bytes;
	uint64_t shared_dropped;  /* not stored: the server was full, failed or
				   * is left alone */
	uint64_t shared_waits;    /* blocks that another node was loading */
	uint64_t shared_late;     /* those that it did not store in time */
	uint64_t shared_errors;   /* requests that failed */
	uint64_t shared_rejected; /* values that were not what was stored */

	/* The rest says how things are at this moment. */
	uint64_t memory_bytes; /* the next three; at most the bound */
	uint64_t plain_bytes; /* memory of blocks */
	uint64_t spare_bytes; /* memory that no block has at present */
	uint64_t bookkeeping_bytes;
	uint64_t disk_bytes; /* as of the last look at the directory */
	uint64_t held_bytes; /* content of blocks, as it is in files */
	uint32_t n_plain, n_spent, n_in_use, n_files;
	uint32_t n_packed; /* compressed blocks */
	uint64_t memory_peak; /* of memory_bytes */
};

void rsh_cache_stats_get(struct rsh_cache *c, struct rsh_cache_stats *out);

#endif
