/* SPDX-License-Identifier: Apache-2.0 */
/* source/resume_format.h - what source/resume.h asks of a format: which names
 * mean what, what makes a step whole, and how one is shown.
 *
 * A struct rsh_resume_format is a member of the format (source/format.h); it
 * parses names and looks into files, and finds, orders and chooses nothing by
 * itself.  Its functions are called by one thread at a time.
 */
#ifndef RSH_SOURCE_RESUME_FORMAT_H
#define RSH_SOURCE_RESUME_FORMAT_H

#include <limits.h>

#include "rsh/source/step.h"
#include "rsh/storage/store.h"
#include "rsh/util/error.h"
#include "rsh/wire/ckpt.h"

/* This is what a name says. */
struct rsh_step_name {
	struct rsh_step step;
	/* What people call the checkpoint: "net-5_10.ckpt", "ckpt-5",
	 * "iter_0000123".  Files of one directory with one label are one. */
	char label[NAME_MAX + 1];
	/* The series is the name without its numbers; two of them at one step
	 * are two checkpoints. */
	char series[NAME_MAX + 1];
};

/* This is what one unit, a rank or Megatron's mp_rank, saved at one step. */
struct rsh_saved {
	const char *unit; /* the directory that shows it; "": the root */
	const char *dir;  /* where the checkpoint lies below SOURCE; "": SOURCE
			   * itself */
	const char *label;
	const struct rsh_step *step;
	const char *const *names; /* names of its files, ascending */
	size_t n;
	uint32_t first_file; /* the number of the first in the source */
};

struct rsh_finder;
struct rsh_resume;

struct rsh_resume_format {
	const char *name; /* name of the framework */
	/* Reads the name of a file of a rank; false if it is no (part of a)
	 * checkpoint.  NULL: `find` says where they are. */
	bool (*parse)(const char *file, struct rsh_step_name *out);
	/* Adds the checkpoints of the tree; that there are none is no error.
	 * NULL: they are in the directories of ranks. */
	int (*find)(struct rsh_finder *f, struct rsh_error *err);
	/* Says whether what one unit saved is whole: its n files, by name; with
	 * `full` it also has to match its checksums.  0, or -EBADMSG and the
	 * like. */
	int (*check)(const struct rsh_byte_source *files,
		     const char *const *names, size_t n, bool full,
		     struct rsh_error *err);
	/* Says whether the units' checkpoints of one step, all of which are
	 * there, belong together beyond that; NULL: they always do.  0 or
	 * -EBADMSG. */
	int (*agree)(const char *source, const struct rsh_saved *saved,
		     size_t n, struct rsh_error *err);
	/* Adds the entries of the step that was chosen.  0 or -ENOMEM. */
	int (*show)(struct rsh_resume *r, const struct rsh_saved *saved,
		    size_t n);
};

/* ---- names ---- */

/* Takes all numbers of the first n bytes of a name but the rank's, from left to
 * right, for its step, and puts '#' in their places in the series.  The label
 * is the whole name. */
void rsh_step_name_read(const char *name, size_t n, struct rsh_step_name *out);

/* ---- for `find` ---- */

/* Calls fn for every entry of a directory below SOURCE whose name does not
 * begin with a dot and that is of that kind, sorted. */
typedef int rsh_found_fn(struct rsh_finder *f, void *ctx, const char *name,
			 const struct rsh_stat *st, struct rsh_error *err);
int rsh_finder_each(struct rsh_finder *f, const char *dir,
		    enum rsh_stat_kind kind, rsh_found_fn *fn, void *ctx,
		    struct rsh_error *err);
/* Does so for files, also those whose names begin with a dot. */
int rsh_finder_each_file(struct rsh_finder *f, const char *dir,
			 rsh_found_fn *fn, void *ctx, struct rsh_error *err);
/* Gives the number of the unit of that name, which is added if it is new.  0 or
 * -ENOMEM. */
int rsh_finder_unit(struct rsh_finder *f, const char *name, uint32_t *unit);
/* Adds a file, unless --select name= leaves it out.  0 or -ENOMEM. */
int rsh_finder_add(struct rsh_finder *f, uint32_t unit, const char *dir,
		   const char *file, const struct rsh_step_name *name,
		   const struct rsh_stat *st);

/* ---- for `show`: all return 0 or -ENOMEM ---- */

/* Makes a text that lives as long as r; NULL: out of memory. */
char *rsh_resume_printf(struct rsh_resume *r, const char *fmt, ...)
	__attribute__((format(printf, 2, 3)));
/* These show a text or a link as `name` below `dir` of the mount.  Text and
 * target may come from rsh_resume_printf(): NULL then means that memory is out,
 * and so does a NULL name of a link. */
int rsh_resume_show_text(struct rsh_resume *r, const struct rsh_saved *s,
			 const char *dir, const char *name, const char *text);
int rsh_resume_show_link(struct rsh_resume *r, const struct rsh_saved *s,
			 const char *dir, const char *name,
			 const char *target);
/* Shows the files of s below `dir` of the mount. */
int rsh_resume_show_files(struct rsh_resume *r, const struct rsh_saved *s,
			  const char *dir);
/* Shows checkpoints of one file each, and beside each a link
 * "latest<suffix>". */
int rsh_resume_show_each(struct rsh_resume *r, const struct rsh_saved *saved,
			 size_t n, const char *(*suffix)(const char *name));

#endif
