/* SPDX-License-Identifier: Apache-2.0 */
/* app/cli/progress.h shows how far a long command has come: by a bar that is drawn
 * over and over on a terminal, or a plain line now and then in a log. */
#ifndef RSH_APP_CLI_PROGRESS_H
#define RSH_APP_CLI_PROGRESS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

struct rsh_progress;

/* Shows on `out`, from a thread of its own, how much of `total` bytes was done;
 * `what`, which stays the caller's, is the word before it.  Returns NULL for
 * quiet and when there is no memory or thread for it: the functions below take
 * that. */
struct rsh_progress *rsh_progress_start(FILE *out, const char *what,
					uint64_t total, bool quiet);
/* Any thread may call it. */
void rsh_progress_add(struct rsh_progress *p, uint64_t bytes);
/* Removes the bar until it is drawn again, so that something else can be
 * printed. */
void rsh_progress_clear(struct rsh_progress *p);
/* Takes the bar away for good; a log keeps its lines. */
void rsh_progress_end(struct rsh_progress *p);

/* Writes a moment of it, `seconds` after the start: as text that fits a
 * terminal of `width` columns, with a bar if there is room, or, with 0, as a
 * plain line.  The text has no line end and is cut if it does not fit
 * `size`. */
void rsh_progress_text(char *text, size_t size, const char *what, uint64_t done,
		       uint64_t total, double seconds, unsigned width);

#endif
