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
	{ "mount", "uptime_seconds", "uptime_seconds", NULL,
	  "Time since the mount was made.", AT(uptime_ns), NANOSECONDS },
	{ "log", "errors", "log_messages_total", "level=\"error\"",
	  "Errors and warnings in the log.", AT(errors), NUMBER },
	{ "log", "warnings", "log_messages_total", "level=\"warning\"",
	  "Errors and warnings in the log.", AT(warnings), NUMBER },

	{ "shown", "reads", "reads_total", NULL,
	  "Reads of virtual files.", AT(streams.reads), NUMBER },
	{ "shown", "bytes", "read_bytes_total", NULL,
	  "Bytes served by these reads.", AT(streams.bytes), BYTES },
	{ "shown", "found", "reads_found_total", NULL,
	  "Reads whose bytes were prepared.", AT(streams.found), NUMBER },
	{ "shown", "waited", "reads_waited_total", NULL,
	  "Reads that waited for their bytes to be prepared.",
	  AT(streams.waited), NUMBER },
	{ "ahead", "windows", "windows_total", NULL,
	  "Windows of 1 MiB prepared by readahead.", AT(streams.windows),
	  NUMBER },
	{ "ahead", "unread", "windows_unread_total", NULL,
	  "Windows dropped before they were read.", AT(streams.unread),
	  NUMBER },
	{ "ahead", "most_ahead", "file_windows_max", NULL,
	  "Maximum of windows ahead of one reader.", AT(streams.most_ahead),
	  NUMBER },
	{ "ahead", "most_windows", "windows_max", NULL,
	  "Maximum of windows of all readers.", AT(streams.most_windows),
	  NUMBER },
	{ "ahead", "limit", "loads_limit", NULL,
	  "MiB read in parallel from a slow source.",
	  AT(streams.limit), NUMBER },
	{ "ahead", "threads", "prepare_threads", NULL,
	  "Threads that prepare windows.", AT(streams.threads), NUMBER },

	{ "fetched", "reads", "source_reads_total", NULL,
	  "Reads of source files.", AT(io.reads), NUMBER },
	{ "fetched", "bytes", "source_read_bytes_total", NULL,
	  "Bytes requested from the source.", AT(io.bytes), BYTES },
	{ "fetched", "failed", "source_read_failures_total", NULL,
	  "Reads of source files that failed.", AT(io.failed), NUMBER },
	{ "fetched", "seconds", "source_read_seconds_total", NULL,
	  "Time in these reads, of all threads together.", AT(io.ns),
	  NANOSECONDS },
	{ "fetched", "dropped_bytes", "source_dropped_bytes_total", NULL,
	  "Bytes dropped from the page cache.", AT(io.dropped), BYTES },
	{ "fetched", "failed_files", "source_failed_files", NULL,
	  "Source files that fail; reads use replicas if there are any.",
	  AT(failed_files), NUMBER },
	{ "fetched", "unreachable", "source_unreachable", NULL,
	  "Whether the source cannot be reached.", AT(unreachable), NUMBER },
	{ "fetched", "outages", "source_outages_total", NULL,
	  "How often it could not be reached.", AT(outages), NUMBER },

	{ "tiles", "loaded", "tiles_loaded_total", NULL,
	  "Tiles of transposed weights that were loaded.",
	  AT(io.tiles_loaded), NUMBER },
	{ "tiles", "memory_bytes", "tile_memory_bytes", NULL,
	  "Memory of tiles.", AT(io.tile_bytes), BYTES },
	{ "tiles", "memory_peak_bytes", "tile_memory_peak_bytes", NULL,
	  "Its maximum.", AT(io.tile_bytes_peak), BYTES },

	{ "cache", "hits_plain", "cache_hits_total", "store=\"plain\"",
	  "Blocks found in the cache.", AT(io.cache.hits_plain), NUMBER },
	{ "cache", "hits_disk", "cache_hits_total", "store=\"disk\"",
	  "Blocks found in the cache.", AT(io.cache.hits_disk), NUMBER },
	{ "cache", "hits_shared", "cache_hits_total", "store=\"servers\"",
	  "Blocks found in the cache.", AT(io.cache.hits_shared), NUMBER },
	{ "cache", "misses", "cache_misses_total", NULL,
	  "Blocks loaded for a read.", AT(io.cache.misses),
	  NUMBER },
	{ "cache", "waits", "cache_waits_total", NULL,
	  "Blocks that another thread was loading.", AT(io.cache.waits),
	  NUMBER },
	{ "cache", "loads", "cache_loads_total", NULL,
	  "Loads of blocks.", AT(io.cache.loads), NUMBER },
	{ "cache", "loads_failed", "cache_load_failures_total", NULL,
	  "Loads of blocks that failed.", AT(io.cache.loads_failed), NUMBER },
	{ "cache", "prefetched", "cache_prefetched_total", NULL,
	  "Blocks loaded by readahead.", AT(io.cache.prefetched),
	  NUMBER },
	{ "cache", "bypasses", "cache_bypasses_total", NULL,
	  "Reads that bypassed the cache.", AT(io.cache.bypasses), NUMBER },
	{ "cache", "bytes_served", "cache_served_bytes_total", NULL,
	  "Bytes read from the cache.", AT(io.cache.bytes_served), BYTES },
	{ "cache", "bytes_loaded", "cache_loaded_bytes_total", NULL,
	  "Bytes read into the cache or bypassing it.",
	  AT(io.cache.bytes_loaded),
	  BYTES },
	{ "cache", "evicted_spent", "cache_evictions_total",
	  "store=\"spent\"", "Blocks evicted.",
	  AT(io.cache.evicted_spent), NUMBER },
	{ "cache", "evicted_plain", "cache_evictions_total",
	  "store=\"plain\"", "Blocks evicted.",
	  AT(io.cache.evicted_plain), NUMBER },
	{ "cache", "compressed_blocks", "cache_compressed_blocks_total", NULL,
	  "Blocks that were compressed.", AT(io.cache.packed), NUMBER },
	{ "cache", "compressed_from_bytes", "cache_compressed_from_bytes_total",
	  NULL, "Bytes of these blocks before.", AT(io.cache.packed_from),
	  BYTES },
	{ "cache", "compressed_to_bytes", "cache_compressed_to_bytes_total",
	  NULL, "Bytes of them after that.", AT(io.cache.packed_to), BYTES },
	{ "cache", "uncompressed_blocks", "cache_uncompressed_blocks_total",
	  NULL, "Blocks not compressed: they would shrink by less than a "
		"quarter.",
	  AT(io.cache.left), NUMBER },
	{ "cache", "uncompressed_bytes", "cache_uncompressed_bytes_total", NULL,
	  "Bytes of these blocks.", AT(io.cache.left_bytes), BYTES },
	{ "cache", "unpacked_bytes", "cache_unpacked_bytes_total", NULL,
	  "Bytes served from compressed blocks.",
	  AT(io.cache.unpacked_bytes), BYTES },
	{ "cache", "held_bytes", "cache_held_bytes", NULL,
	  "Bytes of source files in memory.",
	  AT(io.cache.held_bytes), BYTES },
	{ "cache", "memory_bytes", "cache_memory_bytes", NULL,
	  "Memory of the cache.", AT(io.cache.memory_bytes), BYTES },
	{ "cache", "memory_peak_bytes", "cache_memory_peak_bytes", NULL,
	  "Its maximum.", AT(io.cache.memory_peak), BYTES },
	{ "cache", "disk_bytes", "cache_disk_bytes", NULL,
	  "Blocks on disk.", AT(io.cache.disk_bytes), BYTES },
	{ "cache", "disk_written_bytes", "cache_disk_written_bytes_total",
	  NULL, "Bytes written there.", AT(io.cache.disk_written_bytes),
	  BYTES },
	{ "cache", "disk_errors", "cache_disk_errors_total", NULL,
	  "Reads and writes there that failed.", AT(io.cache.disk_errors),
	  NUMBER },
	{ "cache", "disk_rejected", "cache_disk_rejected_total", NULL,
	  "Files there that were damaged, and removed.",
	  AT(io.cache.disk_rejected), NUMBER },
	{ "cache", "prefetched_shared", "cache_servers_prefetched_total", NULL,
	  "Blocks found on servers by readahead.",
	  AT(io.cache.prefetched_shared), NUMBER },
	{ "cache", "shared_written_bytes", "cache_servers_written_bytes_total",
	  NULL, "Bytes stored on servers.", AT(io.cache.shared_written_bytes),
	  BYTES },
	{ "cache", "shared_dropped", "cache_servers_dropped_total", NULL,
	  "Blocks that were not stored there.", AT(io.cache.shared_dropped),
	  NUMBER },
	{ "cache", "shared_waits", "cache_servers_waits_total", NULL,
	  "Blocks that another node was loading.", AT(io.cache.shared_waits),
	  NUMBER },
	{ "cache", "shared_late", "cache_servers_late_total", NULL,
	  "Waits for such blocks that timed out.", AT(io.cache.shared_late),
	  NUMBER },
	{ "cache", "shared_errors", "cache_servers_errors_total", NULL,
	  "Requests to servers that failed.", AT(io.cache.shared_errors),
	  NUMBER },
	{ "cache", "shared_rejected", "cache_servers_rejected_total", NULL,
	  "Values from servers that were rejected.",
	  AT(io.cache.shared_rejected), NUMBER },
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
