/* SPDX-License-Identifier: Apache-2.0 */
/* source/save_dir_i.h - looking at a directory into which a job saves; for
 * save_dir.c and saved_steps.c, which has the list of steps and the state of
 * their files.  Functions return 0 or -errno, with a sentence if they have an
 * `err`. */
#pragma once

#include "rsh/source/save_dir.h"

/* A step has its files in SOURCE/STEP/rank_N/checkpoint at most. */
#define RSH_SAVE_DEPTH_MAX 4

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
