/* SPDX-License-Identifier: Apache-2.0 */
/* storage/io.h - how source files are read: directly or through a cache of
 * blocks, and with injected faults; and counts of reads.
 *
 * One object serves all sources of a mount and outlives them; any thread may
 * use it.  Without an object, files are read directly and nothing is counted.
 *
 * If the kernel caches the pages of a source, the source is read directly,
 * since the page cache is shared, uses free memory and needs one copy less.
 * The first range that is read is read again: if that takes as long as a
 * network (SLOW_NS), the kernel does not cache it, and the cache of blocks is
 * used.  This happens in the first reads, not while mounting, because the
 * source may hang.  A directory or servers for blocks are used for network file
 * systems in any case: they outlive the page cache and reduce the reads of
 * other nodes.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "rsh/storage/cache.h"
#include "rsh/util/error.h"
#include "rsh/util/option.h"

struct rsh_store_io;

enum rsh_caching { RSH_CACHING_AUTO, RSH_CACHING_ON, RSH_CACHING_OFF };

struct rsh_store_io_options {
	enum rsh_caching caching;
	struct rsh_cache_options cache;
	/* Faults, separated by ';', each
	 *
	 *   KIND[@FILE[:FROM-TO]][,p=PROBABILITY][,after=NUMBER][,times=NUMBER]
	 *
	 * with FILE a part of the file's name below SOURCE and FROM-TO a range
	 * of its bytes.  The first `after` matching reads have no fault; the
	 * next `times` reads have it, or all later reads.  KIND is
	 *
	 *   eio          a read that touches the range fails
	 *   short        reads return less than was requested, at least a byte
	 *   truncate     the file ends where the range begins
	 *   flip         a bit of each byte of the range is flipped, the same
	 *                in each read; PROBABILITY is that of a byte, and
	 *                seed=NUMBER chooses other bytes and bits
	 *   delay=TIME   each read takes so much longer (us, ms, s), and with
	 *                rate=SIZE all together no more than SIZE bytes a
	 *                second; with crowd=FACTOR each takes FACTOR times as
	 *                long for every other read that is in progress when it
	 *                begins
	 *
	 * They apply to reads of content of a mounted tree; flips also to scans
	 * before, where they may be detected.  NULL: none.
	 */
	const char *faults;
};

struct rsh_store_io_stats {
	uint64_t reads, bytes; /* reads of the medium of the source */
	uint64_t failed;       /* number of these reads that failed */
	uint64_t ns;           /* time of these reads, of all threads */
	uint64_t dropped;      /* bytes dropped from the page cache */
	uint64_t tiles_loaded; /* see rsh_store_count_tiles() */
	uint64_t tile_bytes, tile_bytes_peak;
	bool cached;           /* sources are read through the cache; false
				* until this is decided */
	bool has_servers;      /* the cache shares blocks by servers */
	struct rsh_cache_stats cache;
};

/* The options of the command line. */
extern const struct rsh_option rsh_store_io_rows[];

/* Checks a text of faults.  Returns 0, -EINVAL with a sentence, or -ENOMEM. */
int rsh_faults_check(const char *faults, struct rsh_error *err);

/* Makes the object, which the caller frees.  Returns 0, or -errno with a
 * sentence that names the option. */
int rsh_store_io_new(const struct rsh_store_io_options *o,
		      struct rsh_store_io **out, struct rsh_error *err);
/* All sources must have been closed. */
void rsh_store_io_free(struct rsh_store_io *io);

/* MindSpore's load_checkpoint refuses files larger than free memory, which does
 * not include the page cache.  While less than `bytes` are free, pages of which
 * only a few bytes were needed are dropped at once.  With `all` the pages of
 * all reads are dropped, because the kernel caches the files of the mount.  Any
 * thread may call this. */
void rsh_store_io_keep_free(struct rsh_store_io *io, uint64_t bytes, bool all);
/* Sets `all` later.  Any thread may call this. */
void rsh_store_io_drop_all(struct rsh_store_io *io);

void rsh_store_io_stats_get(const struct rsh_store_io *io,
			     struct rsh_store_io_stats *out);
