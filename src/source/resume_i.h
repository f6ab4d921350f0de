/* SPDX-License-Identifier: Apache-2.0 */
/* source/resume_i.h has the state of --resume (resume*.c). */
#pragma once

#include "rsh/source/resume.h"
#include "rsh/util/arena.h"
#include "step_i.h"

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

struct rsh_resume {
	struct rsh_source *source;
	/* These are the units' files of the step that is tried, ascending by
	 * unit. */
	struct rsh_saved *saved;
	size_t n_saved;
	const char **names; /* names of its files */
	struct rsh_arena arena;
	struct rsh_resume_entry *entries;
	size_t n_entries, cap_entries;
};

/* Lists the checkpoints of one format in s->listing.  The directories of the
 * listing are the units, ascending by name. */
int rsh_resume_find(struct rsh_source *s, const struct rsh_format *format,
		    const struct rsh_source_options *o, struct rsh_error *err);
/* Adds the entries of the step.  Returns 0 or -ENOMEM. */
int rsh_resume_show(struct rsh_resume *r);
