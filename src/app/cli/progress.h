/* SPDX-License-Identifier: Apache-2.0 */
/* app/cli/progress.h shows the progress of a long command: on a terminal as a
 * bar that is drawn repeatedly, or as a line in a log from time to time. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

struct rsh_progress;

/* Starts a thread that shows on `out` how much of `total` bytes is done.
 * `what`, which the caller owns, is the word before it.  Returns NULL for
 * `quiet`, or if there is no memory or thread; the functions below accept
 * NULL. */
struct rsh_progress *rsh_progress_start(FILE *out, const char *what,
					uint64_t total, bool quiet);
/* Any thread may call it. */
void rsh_progress_add(struct rsh_progress *p, uint64_t bytes);
/* Removes the bar until it is drawn again, so that something else can be
 * printed. */
void rsh_progress_clear(struct rsh_progress *p);
/* Removes the bar permanently; a log keeps its lines. */
void rsh_progress_end(struct rsh_progress *p);

struct rsh_progress_state {
	const char *what;
	uint64_t done, total;
	double seconds; /* since the start */
	unsigned width; /* columns of the terminal; 0: it is a log */
};
/* Writes the progress: for a terminal with a bar if there is room, for a log as
 * a plain line.  The text has no line end and is truncated if it does not fit
 * `size`. */
void rsh_progress_text(const struct rsh_progress_state *s, char *text,
		       size_t size);
