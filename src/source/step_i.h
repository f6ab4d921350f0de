/* SPDX-License-Identifier: Apache-2.0 */
/* source/step_i.h has what order.c, select.c, step.c, messages.c and resume.c
 * share to make candidates.
 *
 * There is one kind of candidate and one order for all sources.  With --resume
 * (s->resumed is set) the rules are stricter: all ranks must have the step, so
 * runs and series are always distinguished, and a file without a step is never
 * used together with files that have one.
 */
#pragma once

#include "source_i.h"

/* A message lists so many names, and then how many more there are. */
#define RSH_LISTED_MAX 6

/* ---- order.c ---- */

enum rsh_order {
	RSH_BY_RANK,
	RSH_BY_RANK_AND_NUMBERS, /* by the last two numbers of the path */
	RSH_BY_STEP_AND_RANK,
	RSH_BY_CANDIDATE, /* and by rank inside each candidate */
};
void rsh_listing_sort(struct rsh_listing *l, enum rsh_order order);
/* Makes the candidates of a listing that is sorted by candidate, except the
 * files at its end that belong to all candidates.  Returns 0 or -ENOMEM. */
int rsh_candidates_cut(struct rsh_source *s);
/* Moves the candidate that was written last to the front. */
void rsh_candidates_by_mtime(struct rsh_source *s);

/* ---- select.c ---- */

/* Returns the name of a checkpoint for messages: its file or, if the format
 * writes several files under one name, that name. */
static inline const char *rsh_checkpoint_label(const struct rsh_checkpoint *c)
{
	return c->label ? c->label : c->base;
}
/* Returns whether --select name=GLOB, if it is given, matches this name. */
bool rsh_name_is_selected(const char *label,
			  const struct rsh_source_options *o);
/* Removes files that are not selected from the listing.  Returns 0, or -ENOENT
 * with a sentence if there were files and none is left. */
int rsh_listing_select(struct rsh_source *s, const struct rsh_source_options *o,
		       struct rsh_error *err);
/* Sets the error that files of c's rank cannot be distinguished; returns
 * -EINVAL. */
int rsh_candidates_undecidable(const struct rsh_source *s,
			       const struct rsh_checkpoint *c,
			       struct rsh_error *err);

/* ---- messages.c ---- */

/* Writes the end of a sentence about candidates that are not tried, or "". */
void rsh_candidates_beside(const struct rsh_source *s, char *text, size_t size);

/* Sets the steps of files whose names have none as ModelCheckpoint writes it,
 * but one number in which the names of a rank differ (step_number.c).  Returns
 * 0 or -ENOMEM. */
int rsh_step_numbers_take(struct rsh_listing *l);
