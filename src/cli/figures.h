/* SPDX-License-Identifier: Apache-2.0 */
/* cli/figures.h - what a mount counts: one table from which its statistics as
 * JSON, as Prometheus text and as a table for people are made. */
#ifndef RSH_CLI_FIGURES_H
#define RSH_CLI_FIGURES_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include <jansson.h>

#include "output.h"
#include "rsh/source/io.h"
#include "rsh/read/stream.h"

/* Everything at one moment. */
struct rsh_figures {
	uint64_t uptime_ns;
	uint64_t errors, warnings; /* of the log */
	uint64_t failed_files;     /* source files that cannot be read */
	uint64_t outages, unreachable; /* so far, and whether there is one */
	struct rsh_stream_stats streams;
	struct rsh_source_io_stats io;
};

/* Adds an object for each group of figures; that of the cache is null where
 * there is none.  0 or -ENOMEM. */
int rsh_figures_json(const struct rsh_figures *f, json_t *to);
/* The exposition format of Prometheus, version 0.0.4. */
void rsh_figures_metrics(const struct rsh_figures *f, FILE *to);
/* Prints a table of what rsh_figures_json() has made.  0, -ENOMEM, or -EINVAL
 * if a figure is missing. */
int rsh_figures_print(const json_t *from, const struct rsh_output *out);

#endif
