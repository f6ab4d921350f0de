/* SPDX-License-Identifier: Apache-2.0 */
/* app/daemon/figures.c has the table of all figures of a mount, and prints them
 * as JSON and as Prometheus text. */
#include "config.h"

#include "rsh/app/figures.h"

#include <inttypes.h>
#include <string.h>

#include "rsh/util/files.h"
#include "rsh/util/version.h"

#define NUMBER RSH_FIGURE_NUMBER
#define BYTES RSH_FIGURE_BYTES
#define NANOSECONDS RSH_FIGURE_NS
#define AT(member) offsetof(struct rsh_figures, member)

/* Metrics with the same name must follow each other.  A metric whose name ends
 * in _total only grows. */
static const struct rsh_figure table[] = {
	{ "mount", "uptime_seconds", "uptime_seconds",
	  "Time since the mount was made.", AT(uptime_ns), NANOSECONDS },
	{ "log", "errors", "log_messages_total",
	  "Errors and warnings in the log.", AT(errors), NUMBER,
	  "level=\"error\"" },
	{ "log", "warnings", "log_messages_total",
	  "Errors and warnings in the log.", AT(warnings), NUMBER,
	  "level=\"warning\"" },

	{ "shown", "reads", "reads_total",
	  "Reads of virtual files.", AT(streams.reads) },
	{ "shown", "bytes", "read_bytes_total",
	  "Bytes served by these reads.", AT(streams.bytes), BYTES },
	{ "shown", "found", "reads_found_total",
	  "Reads whose bytes were prepared.", AT(streams.found) },
	{ "shown", "waited", "reads_waited_total",
	  "Reads that waited for their bytes to be prepared.",
	  AT(streams.waited) },
	{ "ahead", "windows", "windows_total",
	  "Windows of 1 MiB prepared by readahead.", AT(streams.windows) },
	{ "ahead", "unread", "windows_unread_total",
	  "Windows dropped before they were read.", AT(streams.unread) },
	{ "ahead", "most_ahead", "file_windows_max",
	  "Maximum of windows ahead of one reader.", AT(streams.most_ahead) },
	{ "ahead", "most_windows", "windows_max",
	  "Maximum of windows of all readers.", AT(streams.most_windows) },
	{ "ahead", "limit", "loads_limit",
	  "MiB read in parallel from a slow source.", AT(streams.limit) },
	{ "ahead", "threads", "prepare_threads",
	  "Threads that prepare windows.", AT(streams.threads) },

	{ "fetched", "reads", "source_reads_total",
	  "Reads of source files.", AT(io.reads) },
	{ "fetched", "bytes", "source_read_bytes_total",
	  "Bytes requested from the source.", AT(io.bytes), BYTES },
	{ "fetched", "failed", "source_read_failures_total",
	  "Reads of source files that failed.", AT(io.failed) },
	{ "fetched", "seconds", "source_read_seconds_total",
	  "Time in these reads, of all threads together.", AT(io.ns),
	  NANOSECONDS },
	{ "fetched", "dropped_bytes", "source_dropped_bytes_total",
	  "Bytes dropped from the page cache.", AT(io.dropped), BYTES },
	{ "fetched", "failed_files", "source_failed_files",
	  "Source files that fail; reads use replicas if there are any.",
	  AT(failed_files) },
	{ "fetched", "unreachable", "source_unreachable",
	  "Whether the source cannot be reached.", AT(unreachable) },
	{ "fetched", "outages", "source_outages_total",
	  "How often it could not be reached.", AT(outages) },

	{ "tiles", "loaded", "tiles_loaded_total",
	  "Tiles of transposed weights that were loaded.",
	  AT(io.tiles_loaded) },
	{ "tiles", "memory_bytes", "tile_memory_bytes",
	  "Memory of tiles.", AT(io.tile_bytes), BYTES },
	{ "tiles", "memory_peak_bytes", "tile_memory_peak_bytes",
	  "Its maximum.", AT(io.tile_bytes_peak), BYTES },

	{ "cache", "hits_plain", "cache_hits_total",
	  "Blocks found in the cache.", AT(io.cache.hits_plain), NUMBER,
	  "store=\"plain\"" },
	{ "cache", "hits_disk", "cache_hits_total",
	  "Blocks found in the cache.", AT(io.cache.hits_disk), NUMBER,
	  "store=\"disk\"" },
	{ "cache", "hits_shared", "cache_hits_total",
	  "Blocks found in the cache.", AT(io.cache.hits_shared), NUMBER,
	  "store=\"servers\"" },
	{ "cache", "misses", "cache_misses_total",
	  "Blocks loaded for a read.", AT(io.cache.misses) },
	{ "cache", "waits", "cache_waits_total",
	  "Blocks that another thread was loading.", AT(io.cache.waits) },
	{ "cache", "loads", "cache_loads_total",
	  "Loads of blocks.", AT(io.cache.loads) },
	{ "cache", "loads_failed", "cache_load_failures_total",
	  "Loads of blocks that failed.", AT(io.cache.loads_failed) },
	{ "cache", "prefetched", "cache_prefetched_total",
	  "Blocks loaded by readahead.", AT(io.cache.prefetched) },
	{ "cache", "bypasses", "cache_bypasses_total",
	  "Reads that bypassed the cache.", AT(io.cache.bypasses) },
	{ "cache", "bytes_served", "cache_served_bytes_total",
	  "Bytes read from the cache.", AT(io.cache.bytes_served), BYTES },
	{ "cache", "bytes_loaded", "cache_loaded_bytes_total",
	  "Bytes read into the cache or bypassing it.",
	  AT(io.cache.bytes_loaded), BYTES },
	{ "cache", "evicted_spent", "cache_evictions_total",
	  "Blocks evicted.", AT(io.cache.evicted_spent), NUMBER,
	  "store=\"spent\"" },
	{ "cache", "evicted_plain", "cache_evictions_total",
	  "Blocks evicted.", AT(io.cache.evicted_plain), NUMBER,
	  "store=\"plain\"" },
	{ "cache", "compressed_blocks", "cache_compressed_blocks_total",
	  "Blocks that were compressed.", AT(io.cache.packed) },
	{ "cache", "compressed_from_bytes", "cache_compressed_from_bytes_total",
	  "Bytes of these blocks before.", AT(io.cache.packed_from), BYTES },
	{ "cache", "compressed_to_bytes", "cache_compressed_to_bytes_total",
	  "Bytes of them after that.", AT(io.cache.packed_to), BYTES },
	{ "cache", "uncompressed_blocks", "cache_uncompressed_blocks_total",
	  "Blocks not compressed: they would shrink by less than a quarter.",
	  AT(io.cache.left) },
	{ "cache", "uncompressed_bytes", "cache_uncompressed_bytes_total",
	  "Bytes of these blocks.", AT(io.cache.left_bytes), BYTES },
	{ "cache", "unpacked_bytes", "cache_unpacked_bytes_total",
	  "Bytes served from compressed blocks.", AT(io.cache.unpacked_bytes),
	  BYTES },
	{ "cache", "held_bytes", "cache_held_bytes",
	  "Bytes of source files in memory.", AT(io.cache.held_bytes), BYTES },
	{ "cache", "memory_bytes", "cache_memory_bytes",
	  "Memory of the cache.", AT(io.cache.memory_bytes), BYTES },
	{ "cache", "memory_peak_bytes", "cache_memory_peak_bytes",
	  "Its maximum.", AT(io.cache.memory_peak), BYTES },
	{ "cache", "disk_bytes", "cache_disk_bytes",
	  "Blocks on disk.", AT(io.cache.disk_bytes), BYTES },
	{ "cache", "disk_written_bytes", "cache_disk_written_bytes_total",
	  "Bytes written there.", AT(io.cache.disk_written_bytes), BYTES },
	{ "cache", "disk_errors", "cache_disk_errors_total",
	  "Reads and writes there that failed.", AT(io.cache.disk_errors) },
	{ "cache", "disk_rejected", "cache_disk_rejected_total",
	  "Files there that were damaged, and removed.",
	  AT(io.cache.disk_rejected) },
	{ "cache", "prefetched_shared", "cache_servers_prefetched_total",
	  "Blocks found on servers by readahead.",
	  AT(io.cache.prefetched_shared) },
	{ "cache", "shared_written_bytes", "cache_servers_written_bytes_total",
	  "Bytes stored on servers.", AT(io.cache.shared_written_bytes),
	  BYTES },
	{ "cache", "shared_dropped", "cache_servers_dropped_total",
	  "Blocks that were not stored there.", AT(io.cache.shared_dropped) },
	{ "cache", "shared_waits", "cache_servers_waits_total",
	  "Blocks that another node was loading.", AT(io.cache.shared_waits) },
	{ "cache", "shared_late", "cache_servers_late_total",
	  "Waits for such blocks that timed out.", AT(io.cache.shared_late) },
	{ "cache", "shared_errors", "cache_servers_errors_total",
	  "Requests to servers that failed.", AT(io.cache.shared_errors) },
	{ "cache", "shared_rejected", "cache_servers_rejected_total",
	  "Values from servers that were rejected.",
	  AT(io.cache.shared_rejected) },
};

#define N (sizeof(table) / sizeof(table[0]))

static uint64_t figure_value(const struct rsh_figures *f,
			     const struct rsh_figure *def)
{
	return *(const uint64_t *)((const char *)f + def->at);
}

static bool is_absent(const struct rsh_figures *f, const struct rsh_figure *def)
{
	return !f->io.cached && strcmp(def->group, "cache") == 0;
}

/* ---- JSON ---- */

/* The figures of a group follow each other. */
void rsh_figures_json(const struct rsh_figures *f, struct rsh_printer *out)
{
	for (size_t i = 0; i < N; i++) {
		const struct rsh_figure *def = &table[i];
		const uint64_t value = figure_value(f, def);
		const bool first = i == 0 ||
			strcmp(def->group, table[i - 1].group) != 0;

		if (first)
			rsh_json(out, is_absent(f, def) ? "%:%" : "%:{",
				 def->group, RSH_V_NULL);
		if (!is_absent(f, def))
			rsh_json(out, "%:%", def->key,
				 def->unit == NANOSECONDS ?
				 rsh_v_real((double)value / 1e9) :
				 rsh_v_count(value));
		if (!is_absent(f, def) &&
		    (i + 1 == N ||
		     strcmp(def->group, table[i + 1].group) != 0))
			rsh_json(out, "}");
	}
}

/* ---- Prometheus ---- */

void rsh_figures_metrics(const struct rsh_figures *f, FILE *to)
{
	fprintf(to, "# HELP reshardfs_info The version of the program.\n"
		"# TYPE reshardfs_info gauge\n"
		"reshardfs_info{version=\"%s\",commit=\"%s\"} 1\n",
		PACKAGE_VERSION, rsh_version_commit());
	for (size_t i = 0; i < N; i++) {
		const struct rsh_figure *def = &table[i];
		const uint64_t value = figure_value(f, def);

		if (is_absent(f, def))
			continue;
		if (i == 0 || strcmp(def->metric, table[i - 1].metric) != 0)
			fprintf(to, "# HELP reshardfs_%s %s\n"
				"# TYPE reshardfs_%s %s\n", def->metric,
				def->help, def->metric,
				rsh_has_suffix(def->metric, "_total") ?
				"counter" : "gauge");
		fprintf(to, "reshardfs_%s", def->metric);
		if (def->labels)
			fprintf(to, "{%s}", def->labels);
		if (def->unit == NANOSECONDS)
			fprintf(to, " %.9f\n", (double)value / 1e9);
		else
			fprintf(to, " %" PRIu64 "\n", value);
	}
}

const struct rsh_figure *rsh_figure_table(size_t *n)
{
	*n = N;
	return table;
}
