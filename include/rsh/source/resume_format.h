/* SPDX-License-Identifier: Apache-2.0 */
/* source/resume_format.h is the contract of a format for source/resume.h: what
 * names mean, when a step is complete, and how it is shown.
 *
 * A struct rsh_resume_format is a member of the format (source/format.h).  It
 * parses names and checks files; it does not find, sort or choose checkpoints.
 * Threads: one thread at a time calls its functions.
 */
#pragma once

#include <limits.h>

#include "rsh/source/step.h"
#include "rsh/storage/store.h"
#include "rsh/util/error.h"
#include "rsh/wire/ckpt.h"

/* This is what a name says. */
struct rsh_step_name {
	struct rsh_step step;
	/* This is the name of the checkpoint in messages: "net-5_10.ckpt",
	 * "ckpt-5", "iter_0000123".  Files of one directory with the same label
	 * are one checkpoint. */
	char label[NAME_MAX + 1];
	/* This is the name without its numbers; two series at one step are two
	 * checkpoints. */
	char series[NAME_MAX + 1];
};

/* This is what one unit, a rank or Megatron's mp_rank, saved at one step. */
struct rsh_saved {
	const char *unit; /* directory in the mount that shows it; "": the
			   * root */
	const char *dir;  /* directory of the checkpoint below SOURCE; "":
			   * SOURCE itself */
	const char *label;
	const struct rsh_step *step;
	const char *const *names; /* names of its files, ascending */
	size_t n;
	uint32_t first_file; /* number of its first file in the source */
};

struct rsh_finder;
struct rsh_resume;

struct rsh_resume_format {
	const char *name; /* name of the framework */
	/* Parses the name of a file of a rank; returns false if it is not a
	 * checkpoint or a part of one.  NULL: `find` finds the files. */
	bool (*parse)(const char *file, struct rsh_step_name *out);
	/* Adds the checkpoints of the tree; no checkpoint is not an error.
	 * NULL: they are in the directories of ranks. */
	int (*find)(struct rsh_finder *f, struct rsh_error *err);
	/* Checks whether the checkpoint of one unit is complete: `names` are
	 * its n files; with `full` the checksums must match as well.  Returns
	 * 0, or -errno such as -EBADMSG. */
	int (*check)(const struct rsh_byte_source *files,
		     const char *const *names, size_t n, bool full,
		     struct rsh_error *err);
	/* Checks whether the units' checkpoints of one step, which are all
	 * there, belong together; NULL: they always do.  Returns 0 or
	 * -EBADMSG. */
	int (*agree)(const char *source, const struct rsh_saved *saved,
		     size_t n, struct rsh_error *err);
	/* Adds the entries of the chosen step.  Returns 0 or -ENOMEM. */
	int (*show)(struct rsh_resume *r, const struct rsh_saved *saved,
		    size_t n);
};

/* ---- names ---- */

/* Reads the step from a name: all numbers in its first n bytes except the
 * rank's, from left to right.  In the series they are replaced by '#'.  The
 * label is the whole name. */
void rsh_step_name_read(const char *name, size_t n, struct rsh_step_name *out);

/* ---- for `find` ---- */

/* Calls fn for every entry of a directory below SOURCE that is of that kind and
 * whose name does not begin with a dot, in sorted order. */
typedef int rsh_found_fn(struct rsh_finder *f, void *ctx, const char *name,
			 const struct rsh_stat *st, struct rsh_error *err);
int rsh_finder_each(struct rsh_finder *f, const char *dir,
		    enum rsh_stat_kind kind, rsh_found_fn *fn, void *ctx,
		    struct rsh_error *err);
/* Does the same for files, including those whose names begin with a dot. */
int rsh_finder_each_file(struct rsh_finder *f, const char *dir,
			 rsh_found_fn *fn, void *ctx, struct rsh_error *err);
/* Sets the number of the unit with that name, which is added if it is new.
 * Returns 0 or -ENOMEM. */
int rsh_finder_unit(struct rsh_finder *f, const char *name, uint32_t *unit);
/* Adds a file, unless --select name= excludes it.  Returns 0 or -ENOMEM. */
int rsh_finder_add(struct rsh_finder *f, uint32_t unit, const char *dir,
		   const char *file, const struct rsh_step_name *name,
		   const struct rsh_stat *st);

/* ---- for `show`: all return 0 or -ENOMEM ---- */

/* Makes a text that is valid as long as r; NULL: out of memory. */
char *rsh_resume_printf(struct rsh_resume *r, const char *fmt, ...)
	__attribute__((format(printf, 2, 3)));
/* These show a text or a link as `name` below `dir` of the mount.  Text and
 * target may come from rsh_resume_printf(): NULL then means that memory is out,
 * and so does a NULL name of a link. */
int rsh_resume_show_text(struct rsh_resume *r, const struct rsh_saved *s,
			 const char *dir, const char *name, const char *text);
int rsh_resume_show_link(struct rsh_resume *r, const struct rsh_saved *s,
			 const char *dir, const char *name, const char *target);
/* Shows the files of s below `dir` of the mount. */
int rsh_resume_show_files(struct rsh_resume *r, const struct rsh_saved *s,
			  const char *dir);
/* Shows checkpoints of one file each, and a link "latest<suffix>" beside
 * each. */
int rsh_resume_show_each(struct rsh_resume *r, const struct rsh_saved *saved,
			 size_t n, const char *(*suffix)(const char *name));
