/* SPDX-License-Identifier: Apache-2.0 */
/* app/cli/work.h has what commands that read all bytes of a tree share: they
 * open the tree, and show their progress. */
#pragma once

#include "progress.h"
#include "rsh/app/options.h"
#include "rsh/copy/copy.h"
#include "rsh/vfs/vfs.h"

/* This is the state of one run of a command. */
struct rsh_work {
	const struct rsh_options *options;
	const char *what; /* word before the progress bar */
	struct rsh_progress *progress;
	struct rsh_store_io *io;
	struct rsh_vfs *vfs; /* NULL: the command needs none */
	struct rsh_vfs_config cfg;
	uint64_t start; /* by rsh_clock_ns() */
};

void rsh_work_begin(struct rsh_work *w, const struct rsh_options *o,
		    const char *what);
/* Opens the tree that the options describe; with `contents_later` the caller
 * compares replicas later.  Returns 0 or -errno with a sentence. */
int rsh_work_open(struct rsh_work *w, bool contents_later,
		  struct rsh_error *err);
/* Removes the progress bar, so that something can be printed. */
void rsh_work_end_progress(struct rsh_work *w);
/* Ends the work and frees everything. */
void rsh_work_end(struct rsh_work *w);

/* The result points to `w`. */
struct rsh_copy_control rsh_work_control(struct rsh_work *w);
/* Returns the seconds since rsh_work_begin(). */
double rsh_work_seconds(const struct rsh_work *w);
/* Returns how many bytes of SOURCE were read. */
uint64_t rsh_work_source_bytes(const struct rsh_work *w);
