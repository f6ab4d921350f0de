/* SPDX-License-Identifier: Apache-2.0 */
/* source/save_dir.h lists the steps of a directory into which a job saves,
 * while it saves, and says which of them are complete.
 *
 * There are two kinds of directory.  If its format lists steps itself
 * (directories of ranks), a step is a candidate.  Otherwise each directory in
 * it, and each file whose name has a number, is a step that a mount could have
 * as SOURCE; a directory below a step may have its weights (`below`,
 * source/format.h).
 *
 * The format decides whether a step is complete (`judge`, source/format.h), by
 * the order in which its framework writes files.  A step is checked once, and
 * again when the name, the size or a time of one of its files has changed.
 * It is not complete if its files change during the check, or if a file was
 * removed and none was written: then it is being deleted.
 *
 * A step of rank files is also complete if some ranks have no file of it, but
 * the others have all that is asked for (`covers` below).  If the format lists
 * steps, these files are the step, and it does not change when other ranks save
 * theirs.
 *
 * Threads: one thread at a time uses a directory; the result of a look does not
 * change.
 */
#pragma once

#include "rsh/source/source.h"
#include "rsh/source/step.h"

/* This is the state of the files of a step. */
struct rsh_files_state {
	uint64_t hash; /* of names, sizes, mtimes and ctimes; 0: unknown */
	uint64_t n; /* how many there are, without temporary ones */
	struct timespec newest; /* mtime */
	bool unreadable; /* a directory could not be read, and is left out */
};

struct rsh_saved_step {
	char *name; /* the directory's name, or EPOCH_STEP of files of ranks */
	/* The SOURCE of the step: its directory or file or, if `selected`, the
	 * directory of all steps, in which `step` selects it. */
	char *path;
	size_t place; /* in `path`: the part below the directory of all steps */
	bool selected;
	struct rsh_step step; /* n is 0: the name has no number */
	/* The ranks whose files are the step, ascending, if some ranks have
	 * none.  NULL: all. */
	uint32_t *ranks;
	size_t n_ranks;
	bool newest; /* no rank has a file of a later step */
	/* The files of all ranks, by which it is opened without listing the
	 * directory of all steps again (rsh_source_options).  NULL: that has to
	 * be listed. */
	struct rsh_step_files *files;
	struct rsh_files_state state;
	char *why; /* a sentence: why it is not complete; NULL: it is */
	bool unread; /* with why: it cannot be read now, so it may be
		      * complete (rsh_errno_is_unread) */
};

/* Makes a copy.  Returns 0 or -ENOMEM. */
int rsh_saved_step_copy(const struct rsh_saved_step *from,
			struct rsh_saved_step *to);
void rsh_saved_step_clear(struct rsh_saved_step *step);

/* These are all steps, the oldest first. */
struct rsh_saved_steps {
	struct rsh_saved_step *v;
	size_t n, cap;
	uint64_t state; /* hash of the whole directory; 0: unknown */
	/* Hashes of the names, sizes and times of files that are no step
	 * although their names have a number, in ascending order. */
	uint64_t *foreign;
	size_t n_foreign, cap_foreign;
};
void rsh_saved_steps_clear(struct rsh_saved_steps *l);
/* Finds the step with the name of `like`; NULL: there is none. */
const struct rsh_saved_step *
rsh_saved_steps_find(const struct rsh_saved_steps *l,
		     const struct rsh_saved_step *like);

struct rsh_save_dir_options {
	const char *path; /* absolute, or an address */
	/* How sources are listed and opened; the choice of a step is not
	 * used. */
	const struct rsh_source_options *files;
	/* The ranks that each step of files of ranks must have; n_ranks is
	 * UINT32_MAX: those that any step has. */
	uint32_t first_rank, n_ranks;
	/* Checks whether a step of rank files can be shown although ranks have
	 * no file of it; `partly`: although slices are lost.  Returns 0 or
	 * -errno with a sentence.  NULL: no such step is complete. */
	int (*covers)(void *ctx, const struct rsh_saved_step *step,
		      bool partly, struct rsh_error *err);
	void *ctx;
	/* Show also steps of which slices are lost, except the newest one,
	 * which ranks may be writing. */
	bool partly;
};

/* Opens the directory as a source without files, which has its attributes.
 * Returns 0 or -errno with a sentence. */
int rsh_save_dir_open(const struct rsh_save_dir_options *o,
		      struct rsh_source **out, struct rsh_error *err);
/* Lists the steps.  `before` is the result of the last look, or empty: what was
 * found about a step with the same state is used again.  Returns 0, or -errno
 * with a sentence if the directory cannot be listed.  With -ENOENT it does not
 * exist, and there are no steps. */
int rsh_save_dir_look(const struct rsh_save_dir_options *o,
		      const struct rsh_saved_steps *before,
		      struct rsh_saved_steps *out, struct rsh_error *err);
/* Checks that the files of the step still have the state of the look.  Returns
 * 0, -ESTALE if they have changed, or another -errno with a sentence. */
int rsh_saved_step_check(const struct rsh_save_dir_options *o,
			 const struct rsh_saved_step *step,
			 struct rsh_error *err);

/* ---- waiting for changes ---- */

struct rsh_save_watch;
/* Makes a watch of a directory on a local file system; *o must outlive it.
 * Returns 0 or -errno.  What the kernel's limits do not let it watch is logged
 * once. */
int rsh_save_watch_open(const struct rsh_save_dir_options *o,
			struct rsh_save_watch **out);
void rsh_save_watch_free(struct rsh_save_watch *w); /* w may be NULL */
/* Watches the directories that there are now. */
void rsh_save_watch_update(struct rsh_save_watch *w);
/* Waits for this time at most.  Returns whether something has changed.  One
 * thread at a time may wait or update. */
bool rsh_save_watch_wait(struct rsh_save_watch *w, uint64_t ns);
/* Ends the wait of another thread. */
void rsh_save_watch_wake(struct rsh_save_watch *w);
