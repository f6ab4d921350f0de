/* SPDX-License-Identifier: Apache-2.0 */
/* app/options/reading.c limits the memory for reading by the options of a
 * command, and logs the statistics of the cache at the end. */
#include "config.h"

#include "rsh/app/reading.h"

#include <inttypes.h>

#include "rsh/util/checked.h"
#include "rsh/util/log.h"

#define MIB (UINT64_C(1) << 20)

/* The process that loads a file needs so much memory beside the file. */
#define LOADER_BYTES (256 * MIB)

void rsh_reading_keep_free(const struct rsh_options *o,
			   const struct rsh_vfs *vfs, struct rsh_store_io *io,
			   bool all)
{
	const bool given = rsh_option_given(o, "keep-free");
	const uint64_t largest = given ? 0 : rsh_vfs_largest(vfs);

	rsh_store_io_keep_free(io, given ? o->keep_free :
			       largest + largest / 4 + LOADER_BYTES, all);
}

void rsh_reading_log(enum rsh_log_level level, struct rsh_store_io *io,
		     const struct rsh_stream_stats *streams)
{
	struct rsh_store_io_stats s;

	if (streams)
		rsh_log(level, "%" PRIu64 " MiB served in %" PRIu64 " reads, "
			"%" PRIu64 " of them from readahead",
			streams->bytes / MIB, streams->reads, streams->found);
	if (!io)
		return;
	rsh_store_io_stats_get(io, &s);
	rsh_log(level, "%" PRIu64 " MiB read in %" PRIu64 " reads, %" PRIu64
		" failed", s.bytes / MIB, s.reads, s.failed);
	if (s.cached) {
		/* A block that was prefetched is in memory when it is read, but
		 * it was read from disk or loaded before.  So it is not counted
		 * as found in memory. */
		const uint64_t memory =
			s.cache.hits_plain -
			rsh_min_u64(s.cache.hits_plain, s.cache.prefetched);

		rsh_log(level,
			"cache: %" PRIu64 " blocks found in memory, %" PRIu64
			" on disk, %" PRIu64 " loads, %" PRIu64
			" blocks waited for; %" PRIu64 " MiB of memory at most",
			memory, s.cache.hits_disk + s.cache.prefetched_disk,
			s.cache.loads, s.cache.waits,
			s.cache.memory_peak / MIB);
		if (s.cache.packed)
			rsh_log(level,
				"cache: %" PRIu64 " MiB compressed to "
				"%" PRIu64 " MiB, %" PRIu64
				" MiB not compressible",
				s.cache.packed_from / MIB,
				s.cache.packed_to / MIB,
				s.cache.left_bytes / MIB);
		if (s.has_servers)
			rsh_log(level,
				"cache servers: %" PRIu64 " blocks found, "
				"%" PRIu64 " MiB stored, %" PRIu64
				" blocks waited "
				"for, %" PRIu64 " waits timed out, %" PRIu64 " "
				"requests failed, %" PRIu64
				" values were rejected",
				s.cache.hits_shared + s.cache.prefetched_shared,
				s.cache.shared_written_bytes / MIB,
				s.cache.shared_waits, s.cache.shared_late,
				s.cache.shared_errors, s.cache.shared_rejected);
	}
}
