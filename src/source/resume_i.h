/* SPDX-License-Identifier: Apache-2.0 */
/* source/resume_i.h has the state of --resume (resume*.c). */
#pragma once

#include "rsh/source/resume.h"
#include "rsh/util/arena.h"
#include "step_i.h"

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
int rsh_resume_find(struct rsh_source *s,
		    const struct rsh_resume_format *resume,
		    const struct rsh_source_options *o, struct rsh_error *err);
