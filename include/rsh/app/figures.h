/* SPDX-License-Identifier: Apache-2.0 */
/* app/figures.h has the table of everything that a mount counts.  The
 * statistics as JSON and as Prometheus text are made from it, and so is the
 * table that `stats` prints.  The table is constant, and any thread may use
 * it. */
#pragma once

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "rsh/app/printer.h"
#include "rsh/read/stream.h"
#include "rsh/storage/io.h"

/* These are the values of all figures at one moment. */
struct rsh_figures {
	uint64_t uptime_ns;
	uint64_t errors, warnings; /* messages in the log */
	uint64_t failed_files;     /* source files that cannot be read */
	uint64_t outages, unreachable; /* number so far; 1 during an outage */
	struct rsh_stream_stats streams;
	struct rsh_store_io_stats io;
};

/* Prints, in JSON, an object for each group of figures; the cache's object is
 * null if there is no cache. */
void rsh_figures_json(const struct rsh_figures *f, struct rsh_printer *out);
/* Writes the exposition format of Prometheus, version 0.0.4. */
void rsh_figures_metrics(const struct rsh_figures *f, FILE *to);

enum rsh_figure_unit { RSH_FIGURE_NUMBER, RSH_FIGURE_BYTES, RSH_FIGURE_NS };

struct rsh_figure {
	const char *group, *key; /* names in JSON */
	const char *metric;      /* the metric's name after "reshardfs_" */
	const char *help;
	size_t at; /* offset in struct rsh_figures */
	enum rsh_figure_unit unit;
	const char *labels; /* of the metric; NULL: none */
};

/* Returns the figures in the order in which they are printed. */
const struct rsh_figure *rsh_figure_table(size_t *n);
