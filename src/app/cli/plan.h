/* SPDX-License-Identifier: Apache-2.0 */
/* app/cli/plan.h has the parts of the command `plan`. */
#pragma once

#include "rsh/app/printer.h"
#include "rsh/vfs/inspect.h"

/* ---- what a file reads (plan_measure.c) ---- */

/* This is how many bytes one virtual file takes from one source file. */
struct rsh_plan_source {
	uint32_t rank;
	uint64_t bytes;
};

/* This is one virtual file: the file of a destination rank, or a part. */
struct rsh_plan_file {
	uint32_t file;       /* its number in the plan */
	uint32_t rank;
	const char *kind;    /* kind of file, if the rank has several; NULL: it
			      * has one */
	uint64_t bytes;      /* of the virtual file */
	bool lost;           /* the file needs slices that are not available */
	uint64_t read_bytes; /* from all sources */
	/* A run is contiguous in the source file and in the virtual file. */
	uint64_t n_runs;
	uint64_t min_run, median_run, max_run; /* bytes; 0 without runs */
	size_t n_sources;
	struct rsh_plan_source *sources; /* ascending by rank; from malloc */
};

/* Fills *out, also after a failure, for a file of the plan.  Returns 0 or
 * -ENOMEM. */
int rsh_plan_measure(const struct rsh_plan *c, uint32_t file,
		     struct rsh_plan_file *out);

/* Prints, in JSON, an array of the records of a file: each has its offset, its
 * bytes, and a text about its origin.  "1:1361+1728 3:4096+512*72/2048" means
 * 1728 bytes at offset 1361 of source rank 1, and 72 runs of 512 bytes of
 * source rank 3, the first at offset 4096, each next one 2048 bytes later. */
void rsh_plan_print_slices(struct rsh_printer *out, const struct rsh_plan *p,
			   uint32_t file);

/* ---- how tensors are cut (plan_tensors.c) ---- */

/* Prints, in JSON, an array of the tensors that are shown; tensors that are cut
 * and held in the same way share an entry.  man/reshardfs-plan.1 says what an
 * entry has. */
void rsh_plan_print_tensors(struct rsh_printer *out,
			    const struct rsh_vfs_view *view);

/* ---- printing (plan_print.c) ---- */

/* Prints what the wanted files of the plan read.  With `slices` JSON also has
 * the origin of the bytes of all records, with `tensors` also how both sides
 * cut each tensor.  Returns 0 or -ENOMEM. */
int rsh_plan_print(struct rsh_printer *out, const char *source,
		   const struct rsh_vfs_view *view, const bool *wanted,
		   bool slices, bool tensors);

/* Makes the text of `plan --json --slices` for the files of one rank, without
 * the tensors, on several lines.  Returns 0 or -ENOMEM. */
int rsh_plan_rank_text(const struct rsh_options *o,
		       const struct rsh_vfs_view *view, uint32_t rank,
		       char **text);
