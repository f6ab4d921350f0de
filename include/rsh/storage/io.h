/* SPDX-License-Identifier: Apache-2.0 */
/* storage/io.h - how source files are read: straight from the kernel or through a
 * cache of blocks, and with faults for drills; and how much was read.
 *
 * One object serves all sources of a mount and outlives them; any thread may
 * use it.  Without one files are read straight and nothing is counted.
 *
 * A source whose pages the kernel keeps is read straight, since the kernel's
 * cache is shared, as large as memory and costs one copy less.  A stretch of
 * the file that is read first is read twice; if the second time is no faster
 * than a network (SLOW_NS) nobody keeps the pages, and the cache does.
 * Mounting does not wait for that: the source may hang.  A directory or servers
 * for blocks are of use besides for file systems of a network, whose pages they
 * outlive and spare other nodes.
 */
#ifndef RSH_STORAGE_IO_H
#define RSH_STORAGE_IO_H

#include <stdbool.h>
#include <stdint.h>

#include "rsh/storage/cache.h"
#include "rsh/util/error.h"

struct rsh_store_io;

enum rsh_caching { RSH_CACHING_AUTO, RSH_CACHING_ON, RSH_CACHING_OFF };

struct rsh_store_io_options {
	enum rsh_caching caching;
	struct rsh_cache_options cache;
	/* These are faults, separated by ';', each
	 *
	 *   KIND[@FILE[:FROM-TO]][,p=PROBABILITY][,after=NUMBER][,times=NUMBER]
	 *
	 * with FILE a part of the file's name below SOURCE and FROM-TO a range
	 * of its bytes.  So many reads that it could befall pass first, and it
	 * befalls so many after them, or any number.  KIND is
	 *
	 *   eio          a read that touches the range fails
	 *   short        reads give less than was asked for, at least a byte
	 *   truncate     the file ends where the range begins
	 *   flip         a bit of each byte of the range is turned over, the
	 *                same one at each read; PROBABILITY is that of a byte,
	 *                and with seed=NUMBER it is other bytes and bits
	 *   delay=TIME   each read takes so much longer (us, ms, s), and with
	 *                rate=SIZE all together no more than SIZE bytes a
	 *                second; with crowd=FACTOR each takes FACTOR times as
	 *                long for every other read that is under way when it
	 *                begins
	 *
	 * They befall the reads of content of a mounted tree; flips also what
	 * is scanned before, so that they may be found by then.  NULL: none. */
	const char *faults;
};

struct rsh_store_io_stats {
	uint64_t reads, bytes; /* asked of the source's file system */
	uint64_t failed;       /* how many of these reads failed */
	uint64_t ns;           /* spent in them, by all threads */
	uint64_t dropped;      /* bytes of the page cache that were given
				* back */
	uint64_t tiles_loaded; /* see rsh_store_count_tiles() */
	uint64_t tile_bytes, tile_bytes_peak;
	bool cached;           /* the sources are read through the cache; false
				* until that is decided */
	bool has_servers;      /* which the cache shares blocks through */
	struct rsh_cache_stats cache;
};

/* Checks the text of faults: 0, -EINVAL with a sentence if these are none, or
 * -ENOMEM. */
int rsh_faults_check(const char *faults, struct rsh_error *err);

/* Makes the object, which is the caller's.  0, or -errno with a sentence that
 * names the option. */
int rsh_store_io_new(const struct rsh_store_io_options *o,
		      struct rsh_store_io **out, struct rsh_error *err);
/* All sources must be closed by then. */
void rsh_store_io_free(struct rsh_store_io *io);

/* MindSpore's load_checkpoint refuses files larger than free memory, and pages
 * of files do not count as free.  While less than `bytes` are free, pages that
 * were read for the sake of a few of their bytes are given back at once, and
 * with `all` set those of all reads, because the kernel keeps what the mount
 * shows.  Any thread may call this. */
void rsh_store_io_keep_free(struct rsh_store_io *io, uint64_t bytes,
			     bool all);

void rsh_store_io_stats_get(const struct rsh_store_io *io,
			     struct rsh_store_io_stats *out);

#endif
