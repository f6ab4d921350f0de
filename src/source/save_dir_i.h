/* SPDX-License-Identifier: Apache-2.0 */
/* source/save_dir_i.h - looking at a directory into which a job saves; for
 * these files only:
 *   saved_steps.c       the list of steps, the state of their files
 *   save_dir_judge.c    whether a step is complete
 *   save_dir_entries.c  steps that are entries of the directory
 *   save_dir_ranks.c    steps of directories of ranks
 *   save_dir.c          a look at all of it
 * Functions return 0 or -errno, with a sentence if they have an `err`. */
#ifndef RSH_SOURCE_SAVE_DIR_I_H
#define RSH_SOURCE_SAVE_DIR_I_H

#include "rsh/source/save_dir.h"

/* A step has its files in SOURCE/STEP/rank_N/checkpoint at most. */
#define RSH_SAVE_DEPTH_MAX 4

/* What one look uses. */
struct rsh_save_look {
	const struct rsh_save_dir_options *o;
	struct rsh_source *root;
	const struct rsh_saved_steps *before;
	struct rsh_saved_steps *out;
	size_t n_kept; /* files of steps that are kept */
	bool unreadable; /* a directory below it could not be read */
};

/* ---- saved_steps.c ---- */

/* Adds a copy of a step; NULL: out of memory. */
struct rsh_saved_step *rsh_saved_steps_add(struct rsh_saved_steps *l,
					   const struct rsh_saved_step *from);
int rsh_saved_steps_add_foreign(struct rsh_saved_steps *l, uint64_t hash);
bool rsh_saved_steps_has_foreign(const struct rsh_saved_steps *l,
				 uint64_t hash);
void rsh_saved_steps_sort(struct rsh_saved_steps *l);

/* Adds a file or a directory to the state. */
void rsh_files_state_add(struct rsh_files_state *state, const char *path,
			 const struct rsh_stat *st);
/* Adds everything below a directory, down to this depth. */
int rsh_files_state_add_dir(const struct rsh_store *store, const char *dir,
			    unsigned depth, struct rsh_files_state *state);
/* Sets the state of one entry of the directory of all steps, or of a directory
 * in it. */
int rsh_files_state_of(const struct rsh_store *store, const char *name,
		       const struct rsh_stat *st,
		       struct rsh_files_state *state);

/* ---- save_dir_judge.c ---- */

/* Sets why a step is not complete. */
int rsh_save_look_explain(struct rsh_saved_step *t,
			  const struct rsh_error *why);
/* Returns 0 if candidate i of a source is complete, and 1 if it can be shown
 * with the files that it has. */
int rsh_save_look_check(struct rsh_save_look *l, struct rsh_source *s,
			uint32_t i, const struct rsh_saved_step *t,
			struct rsh_names *names, struct rsh_error *err);
/* Takes the result of the last look, or -ENOMEM as *rc.  Returns false if there
 * is none. */
bool rsh_save_look_take_before(const struct rsh_save_look *l,
			       struct rsh_saved_step *t, int *rc);
/* Records the result of a check. */
int rsh_save_look_judge(struct rsh_saved_step *t, int rc,
			const struct rsh_error *err);
/* Returns true with a sentence if files were removed since the last look, and
 * none was written.  `now` is the state of the files that it has found. */
bool rsh_save_look_is_removing(const struct rsh_save_look *l,
			       struct rsh_saved_step *t,
			       const struct rsh_files_state *now,
			       struct rsh_error *err);

/* ---- the two kinds of directories ---- */

int rsh_save_look_at_entries(struct rsh_save_look *l);
int rsh_save_look_at_ranks(struct rsh_save_look *l, struct rsh_error *err);

/* These return -ESTALE if the files of a step have changed since the look: of
 * an entry; of ranks whose files are kept (it asks for each of them); of ranks
 * whose files are not (it lists the directory). */
int rsh_save_entry_check_same(const struct rsh_store *store,
			      const struct rsh_saved_step *t,
			      struct rsh_error *err);
int rsh_save_files_check_same(const struct rsh_store *store,
			      const struct rsh_saved_step *t,
			      struct rsh_error *err);
int rsh_save_ranks_check_same(const struct rsh_save_dir_options *o,
			      const struct rsh_saved_step *t,
			      struct rsh_error *err);

#endif
