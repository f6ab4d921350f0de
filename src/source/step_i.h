/* SPDX-License-Identifier: Apache-2.0 */
/* source/step_i.h - candidates in the making, for order.c, select.c, step.c,
 * messages.c and resume.c.
 *
 * There is one kind of candidate and one order for all sources.  What is shown
 * with --resume (s->resumed is set) has stricter rules: a step is one of all
 * ranks, so runs and series are always told apart, and a file without a step is
 * never taken beside one that has some. */
#ifndef RSH_SOURCE_STEP_I_H
#define RSH_SOURCE_STEP_I_H

#include "source_i.h"

/* A message lists so many names before it says how many more there are. */
#define RSH_LISTED_MAX 6

/* ---- order.c ---- */

enum rsh_order {
	RSH_BY_RANK,
	RSH_BY_RANK_AND_NUMBERS, /* the last two numbers of its path */
	RSH_BY_STEP_AND_RANK,
	RSH_BY_CANDIDATE, /* and by rank in each candidate */
};
void rsh_listing_sort(struct rsh_listing *l, enum rsh_order order);
/* Makes the candidates of a listing that is sorted by candidate, but for the
 * files at its end that belong to all.  0 or -ENOMEM. */
int rsh_candidates_cut(struct rsh_source *s);
/* Puts the most recently written candidate first. */
void rsh_candidates_by_mtime(struct rsh_source *s);

/* ---- select.c ---- */

/* Gives what people call a checkpoint: its file or, for kinds that write
 * several files under one name, that name. */
static inline const char *rsh_checkpoint_label(const struct rsh_checkpoint *c)
{
	return c->label ? c->label : c->base;
}
/* Does --select name=GLOB, if that is what was said, mean this name? */
bool rsh_name_is_selected(const char *label,
			  const struct rsh_source_options *o);
/* Drops from the listing what was not selected.  0, or -ENOENT with a sentence
 * if there were files and none is left. */
int rsh_listing_select(struct rsh_source *s,
		       const struct rsh_source_options *o,
		       struct rsh_error *err);
/* Says that files of c's rank cannot be told apart: -EINVAL. */
int rsh_candidates_undecidable(const struct rsh_source *s,
			       const struct rsh_checkpoint *c,
			       struct rsh_error *err);

/* ---- messages.c ---- */

/* Tells what does not count beside the candidates that are tried, if anything,
 * as the end of a sentence. */
void rsh_candidates_beside(const struct rsh_source *s, char *text,
			   size_t size);

#endif
