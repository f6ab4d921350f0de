/* SPDX-License-Identifier: Apache-2.0 */
/* app/cli/commands.h declares the commands for main(), and what their files
 * share. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "rsh/app/commands.h"
#include "rsh/app/options.h"
#include "rsh/app/printer.h"
#include "rsh/copy/copy.h"
#include "rsh/source/inspect.h"
#include "rsh/source/source.h"
#include "rsh/strategy/derive.h"
#include "rsh/vfs/inspect.h"
#include "rsh/vfs/vfs.h"

/* This is the run of a command: main() begins and ends its output, and prints
 * the error. */
struct rsh_run {
	struct rsh_printer out;
	struct rsh_error err;
	enum rsh_exit status; /* if the command returns 0 */
};

/* Each command takes options that were checked for it.  Returns 0, or -errno
 * with a sentence. */
int rsh_umount(const struct rsh_options *o, struct rsh_run *run);
int rsh_ls(const struct rsh_options *o, struct rsh_run *run);
int rsh_plan(const struct rsh_options *o, struct rsh_run *run);
int rsh_export_command(const struct rsh_options *o, struct rsh_run *run);
int rsh_verify(const struct rsh_options *o, struct rsh_run *run);
int rsh_strategy_command(const struct rsh_options *o, struct rsh_run *run);
int rsh_convert_command(const struct rsh_options *o, struct rsh_run *run);
int rsh_infer(const struct rsh_options *o, struct rsh_run *run);
int rsh_warm(const struct rsh_options *o, struct rsh_run *run);
int rsh_stats(const struct rsh_options *o, struct rsh_run *run); /* `steps` */
int rsh_list(const struct rsh_options *o, struct rsh_run *run);
int rsh_completion(const struct rsh_options *o, struct rsh_run *run);
int rsh_doctor(const struct rsh_options *o, struct rsh_run *run);
int rsh_help(const struct rsh_options *o, struct rsh_run *run);

/* Prints the commands and the options that all commands have: those without a
 * value, or all of them. */
void rsh_help_program(FILE *f, bool all);
/* Prints the most important options of a command, or all. */
void rsh_help_command(FILE *f, const struct rsh_command *command, bool all);

/* Runs a command that changes nothing, and returns the exit status.  If one of
 * its words names a file in a mount of reshardfs, it runs in a separate
 * process, which is killed with a message when it has waited for 8 seconds
 * without progress.  The caller must not have started any thread; both
 * processes return. */
int rsh_supervise(int argc, char **argv, int (*run)(int argc, char **argv));

/* ---- progress (progress.c) ----
 *
 * The progress of a long command is shown on a terminal as a bar that is drawn
 * repeatedly, or as a line in a log from time to time. */

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

/* ---- commands that read all bytes of a tree (work.c) ---- */

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

/* ---- the parts of `ls` ---- */

void rsh_ls_strategy(struct rsh_printer *out, const struct rsh_strategy *s,
		     const struct rsh_names *names);

/* Prints the steps of the open tree, and what a mount with these options would
 * show.  The status is RSH_EXIT_NO if a mount would show nothing or, without
 * options of a conversion, if no step is complete.  Returns 0 or -errno with a
 * sentence. */
int rsh_ls_source(struct rsh_run *run, const struct rsh_options *o,
		  struct rsh_source *source);

/* Prints the tensors of an open source whose format lists them; the status is
 * RSH_EXIT_NO if the source is not complete.  Returns 0 or -errno with a
 * sentence. */
int rsh_ls_whole(struct rsh_run *run, const struct rsh_options *o,
		 const struct rsh_source *source);

/* Tells people which directories in SOURCE, a whole model, are checkpoints of
 * other formats: what a job saves beside the weights. */
void rsh_ls_beside(struct rsh_printer *out, const struct rsh_options *o);
/* Prints what else is in SOURCE and, if `known`, the command line that mounts
 * what is listed. */
void rsh_ls_next(struct rsh_printer *out, const struct rsh_options *o,
		 const struct rsh_source *source, bool known);

/* ---- a whole model in parts ---- */

struct rsh_ls_model {
	char *architecture; /* from config.json; NULL: unknown */
	bool is_adapter;
	bool is_other;	    /* no weight is one of the architecture */
	char other[RSH_ERROR_TEXT_MAX]; /* a sentence about that */
	char form[256]; /* which form the names have; "": there is one */
	/* What its map names and no part has; "": nothing. */
	char lacks[RSH_MAP_LACKS];
	uint32_t n_parts, n_tensors;
	uint64_t bytes, file_bytes;
	uint32_t n_of[RSH_DTYPE_COUNT];
	uint64_t bytes_of[RSH_DTYPE_COUNT];
};

/* Fills *m from the chosen and indexed parts; `path` is for messages.  The
 * caller frees the architecture.  Returns 0 or -ENOMEM. */
int rsh_ls_model_take(struct rsh_ls_model *m, const char *path,
		      const struct rsh_source *source,
		      const struct rsh_source_view *view);
void rsh_ls_model_print(struct rsh_printer *out, const void *model);

/* ---- the parts of `plan` ---- */

/* ---- where bytes come from (plan_tensors.c) ---- */

/* Prints, in JSON, an array of the records of a file: each has its offset, its
 * bytes, and a text about its origin.  "1:1361+1728 3:4096+512*72/2048" means
 * 1728 bytes at offset 1361 of source rank 1, and 72 runs of 512 bytes of
 * source rank 3, the first at offset 4096, each next one 2048 bytes later. */
void rsh_plan_print_slices(struct rsh_printer *out, const struct rsh_plan *p,
			   uint32_t file);

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
