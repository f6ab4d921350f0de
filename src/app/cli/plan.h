/* SPDX-License-Identifier: Apache-2.0 */
/* app/cli/plan.h has the parts of the command `plan`. */
#pragma once

#include "printer.h"
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

/* ---- where each byte comes from (plan_measure.c) ---- */

/* Makes an array of the records of a file: each has its offset, its bytes, and
 * a text about its origin.  The text "1:1361+1728 3:4096+512*72/2048" means
 * 1728 bytes at offset 1361 of source rank 1, and 72 runs of 512 bytes of
 * source rank 3, the first at offset 4096 and each next one 2048 bytes later.
 * Returns 0 or -ENOMEM. */
int rsh_plan_slices_json(const struct rsh_plan *p, uint32_t file, json_t **out);

/* ---- how tensors are cut (plan_tensors.c) ---- */

/* Makes an array of the tensors that are shown; tensors that are cut and held
 * in the same way share an entry.  man/reshardfs-plan.1 says what an entry has.
 * Returns 0 or -ENOMEM. */
int rsh_plan_tensors_json(const struct rsh_vfs_view *view, json_t **out);

/* ---- printing (plan_print.c) ---- */

struct rsh_plan_report {
	const struct rsh_options *options;
	const struct rsh_vfs_view *view;
	size_t n;
	const struct rsh_plan_file *files;
	bool slices; /* JSON also has the origin of the bytes of all records */
	bool tensors; /* JSON also has how both sides cut each tensor */
};

/* Makes the JSON of `plan --json` for the files of one rank, with slices.
 * Returns 0 or -ENOMEM. */
int rsh_plan_rank_json(const struct rsh_options *o,
		       const struct rsh_vfs_view *view, uint32_t rank,
		       json_t **out);
/* Returns 0 or -ENOMEM. */
int rsh_plan_print(const struct rsh_options *o,
		   const struct rsh_plan_report *report);
