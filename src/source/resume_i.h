/* SPDX-License-Identifier: Apache-2.0 */
/* source/resume_i.h - what the kinds of checkpoints share, for this layer. */
#ifndef RSH_SOURCE_RESUME_I_H
#define RSH_SOURCE_RESUME_I_H

#include <stdbool.h>
#include <time.h>

#include "rsh/source/resume.h"
#include "rsh/util/arena.h"
#include "rsh/util/files.h"
#include "rsh/wire/ckpt.h"
#include "source_i.h"

#define RSH_STEP_NUMBERS_MAX 8

/* What has one checkpoint a step: a rank, or Megatron's mp_rank. */
struct rsh_unit {
	const char *name; /* the directory that shows it; "": the root */
	size_t n_saved;
};

/* What one unit saved at one step. */
struct rsh_saved {
	uint32_t unit;
	bool breakpoint;
	unsigned n_numbers;
	/* Of the step, the weightiest first. */
	uint64_t numbers[RSH_STEP_NUMBERS_MAX];
	const char *series; /* the name without its numbers */
	const char *name;   /* "net-5_10.ckpt", "ckpt-5", "iter_0000123" */
	const char *dir;    /* below SOURCE; "": SOURCE itself */
	const char **files; /* names in there, ascending */
	size_t n_files, cap_files;
	struct timespec mtime; /* of the newest of them */
	uint32_t first_file;   /* their numbers in the source, once tried */
};

/* All that was found of one kind of checkpoint.  Strings live in the arena. */
struct rsh_job {
	const struct rsh_resume_format *format;
	struct rsh_source *tree; /* for its directory and path */
	const struct rsh_store_options *opening; /* of it and its files */
	const char *glob;        /* what names must match; NULL: all count */
	bool full;               /* compare checksums */
	struct rsh_arena arena;
	struct rsh_unit *units;
	size_t n_units, cap_units;
	struct rsh_saved *saved;
	size_t n_saved, cap_saved;
	const char *stepless; /* the name of one that does not count, because
			       * it has no number; NULL: there is none */
};

struct rsh_resume {
	struct rsh_job job;
	struct rsh_source *source; /* the files of the step that is shown */
	const char *step;          /* its name, of the job's arena */
	struct rsh_resume_entry *entries;
	size_t n_entries, cap_entries;
};

/* A kind of checkpoint. */
struct rsh_resume_format {
	const char *name;
	/* Adds what lies in the tree; nothing there is no error. */
	int (*find)(struct rsh_job *job, struct rsh_error *err);
	/* Whether what one unit saved is whole: its n files, by name; `full`:
	 * and matches its checksums. */
	int (*check)(const struct rsh_byte_source *files,
		     const char *const *names, size_t n, bool full,
		     struct rsh_error *err);
	/* Adds the entries of the step that was chosen.  0 or -ENOMEM. */
	int (*show)(struct rsh_resume *r, const struct rsh_saved *step,
		    size_t n);
	/* Whether the units' checkpoints of one step belong together beyond
	 * being there; NULL: always.  0 or -EBADMSG. */
	int (*agree)(const struct rsh_job *job, const struct rsh_saved *step,
		     size_t n, struct rsh_error *err);
};

extern const struct rsh_resume_format rsh_resume_mindspore;
extern const struct rsh_resume_format rsh_resume_torch;
extern const struct rsh_resume_format rsh_resume_tensorflow;
extern const struct rsh_resume_format rsh_resume_megatron;

/* ---- finding (resume_find.c) ---- */

/* Splits the name of a file in a rank's directory: 1, with name, series and
 * numbers set, if it is (a part of) a checkpoint of this kind; 0 if not;
 * -ENOMEM. */
typedef int rsh_parse_fn(struct rsh_job *job, const char *file,
			 struct rsh_saved *out);

/* Looks into SOURCE/rank_N or ckpt_N, and directories named checkpoint* there,
 * and, if there is no such directory, into SOURCE, where a name may say of which
 * rank a file is ("rank" and a number). */
int rsh_find_in_ranks(struct rsh_job *job, rsh_parse_fn *parse,
		      struct rsh_error *err);

/* Calls fn for every entry of a directory below SOURCE whose name does not
 * begin with a dot and that is of the type S_IFDIR or S_IFREG, sorted. */
typedef int rsh_found_fn(struct rsh_job *job, void *ctx, const char *name,
			 const struct stat *st, struct rsh_error *err);
int rsh_each_in_dir(struct rsh_job *job, const char *dir, mode_t type,
		    rsh_found_fn *fn, void *ctx, struct rsh_error *err);

/* The number of the unit of that name, which is added if it is new. */
int rsh_job_unit(struct rsh_job *job, const char *name, uint32_t *unit);
/* Adds `file` to what the unit saved under s->name, or all of s if that is
 * new.  Drops what --select name= leaves out.  0 or -ENOMEM. */
int rsh_job_add(struct rsh_job *job, const struct rsh_saved *s,
		const char *file, const struct stat *st);
void rsh_job_clear(struct rsh_job *job);

/* ---- names (resume_name.c) ---- */

/* Length of a name without that suffix. */
size_t rsh_stem_length(const char *name, const char *suffix);
/* Finds "rank", perhaps '_' or '-', and a number in a name: where the number
 * begins and ends.  False if there is none. */
bool rsh_rank_in_name(const char *name, size_t n, size_t *begin, size_t *end);
/* All numbers in the first n bytes of a name but the rank's, from left to
 * right, and the series with '#' in their places. */
int rsh_number_name(struct rsh_job *job, const char *name, size_t n,
		    struct rsh_saved *out);
char *rsh_job_printf(struct rsh_job *job, const char *fmt, ...)
	__attribute__((format(printf, 2, 3)));

/* ---- showing (resume_show.c) ---- */

/* All return 0 or -ENOMEM. */
int rsh_show_text(struct rsh_resume *r, const struct rsh_saved *s,
		  const char *dir, const char *name, const char *text);
int rsh_show_link(struct rsh_resume *r, const struct rsh_saved *s,
		  const char *dir, const char *name, const char *target);
/* The files of s below `dir` of the mount. */
int rsh_show_files(struct rsh_resume *r, const struct rsh_saved *s,
		   const char *dir);
/* For kinds whose checkpoint is one file: each with a link "latest<suffix>"
 * beside it. */
int rsh_show_one_file_each(struct rsh_resume *r, const struct rsh_saved *step,
			   size_t n, const char *(*suffix)(const char *name));

#endif
