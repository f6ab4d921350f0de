/* SPDX-License-Identifier: Apache-2.0 */
/* app/cli/plan.h has the parts of the command `plan`. */
#ifndef RSH_APP_CLI_PLAN_H
#define RSH_APP_CLI_PLAN_H

#include "printer.h"
#include "rsh/vfs/inspect.h"

/* Prints the lists of --rank-list; *refused is true if MindSpore has none for
 * some rank.  Returns 0 or -errno with a sentence. */
int rsh_plan_rank_lists(const struct rsh_options *o, bool *refused,
			struct rsh_error *err);

/* ---- what is planned (plan_measure.c) ---- */

/* Has the bytes that one virtual file takes from one source file. */
struct rsh_plan_source {
	uint32_t rank;
	uint64_t bytes;
};

/* This is one virtual file: that of a destination rank, or a part. */
struct rsh_plan_file {
	uint32_t file;       /* its number in the plan */
	uint32_t rank;
	const char *kind;    /* of the rank's files; NULL: it has one */
	uint64_t bytes;      /* of the virtual file */
	bool lost;           /* it needs slices that cannot be had */
	uint64_t read_bytes; /* from all sources */
	/* Runs are contiguous in source file and virtual file. */
	uint64_t n_runs;
	uint64_t min_run, median_run, max_run; /* bytes; 0 without runs */
	size_t n_sources;
	struct rsh_plan_source *sources; /* ascending by rank */
};

/* Fills *out, to be cleared, for a file of the plan.  Returns 0 or -ENOMEM. */
int rsh_plan_measure(const struct rsh_plan *c, uint32_t file,
		     struct rsh_plan_file *out);
void rsh_plan_file_clear(struct rsh_plan_file *f);

/* ---- where all bytes are (plan_reads.c) ---- */

/* Makes an array of what each record of a file takes from where: its offset,
 * its bytes, and a text such as "1:1361+1728 3:4096+512*72/2048", which is 1728
 * bytes at 1361 of source rank 1, and of rank 3 72 runs of 512 bytes, the first
 * at 4096 and then one every 2048.  Returns 0 or -ENOMEM. */
int rsh_plan_slices_json(const struct rsh_plan *p, uint32_t file,
			 json_t **out);

/* ---- how tensors are cut (plan_tensors.c) ---- */

/* Makes an array of the tensors that are shown, those in one entry that are cut
 * and held alike; man/reshardfs-plan.1 says what an entry has.  Returns 0 or
 * -ENOMEM. */
int rsh_plan_tensors_json(const struct rsh_vfs_view *view, json_t **out);

/* ---- and printed (plan_print.c) ---- */

struct rsh_plan_report {
	const struct rsh_options *options;
	const struct rsh_vfs_view *view;
	size_t n;
	const struct rsh_plan_file *files;
	bool slices; /* JSON also has the places of the bytes of all records */
	bool tensors; /* and how both sides cut each tensor */
};

/* Makes what `plan --json` prints.  Returns 0 or -ENOMEM. */
int rsh_plan_json(const struct rsh_plan_report *report, json_t **out);
/* Makes that for the files of one rank, with slices.  Returns 0 or -ENOMEM. */
int rsh_plan_rank_json(const struct rsh_options *o,
		       const struct rsh_vfs_view *view, uint32_t rank,
		       json_t **out);
/* Returns 0 or -ENOMEM. */
int rsh_plan_print(const struct rsh_printer *out,
		   const struct rsh_plan_report *report);

#endif
