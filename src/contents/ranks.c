/* SPDX-License-Identifier: Apache-2.0 */
/* contents/ranks.c looks for checkpoints of ranks that the strategy does not
 * have. */
#include "config.h"

#include "rsh/contents/contents.h"

#include <errno.h>
#include <stdio.h>

#include "rsh/source/inspect.h"
#include "rsh/source/sample.h"
#include "rsh/util/log.h"

/* Guesses what the strategy may be instead, if anything is plain. */
static void ranks_guess(const struct rsh_strategy *src,
			const struct rsh_strategy *dst, uint32_t n, char *text,
			size_t size)
{
	const uint32_t stages = n / src->stage_ranks;
	char missing[48];

	text[0] = '\0';
	if (src->lone_stage) {
		snprintf(text, size, "; it is the strategy file of stage %u: "
			 "give those of all stages, in a directory or merged by "
			 "reshardfs strategy merge", src->lone_stage);
	} else if (dst && dst->n_stages * dst->stage_ranks == n) {
		snprintf(text, size, "; %s is of %u: are source and "
			 "destination swapped?", dst->path, n);
	} else if (n % src->stage_ranks == 0 && stages > src->n_stages) {
		snprintf(missing, sizeof(missing), stages - src->n_stages > 1 ?
			 "files of stages %u to %u are" : "file of stage %u is",
			 src->n_stages, stages - 1);
		snprintf(text, size, "; if the job is a pipeline of %u stages, "
			 "the strategy %s missing: give those of all %u, in a "
			 "directory or merged by reshardfs strategy merge",
			 stages, missing, stages);
	}
}

int rsh_contents_check_ranks(const struct rsh_source *s,
			     const struct rsh_strategy *src,
			     const struct rsh_strategy *dst,
			     struct rsh_error *err)
{
	const uint32_t n_ranks = src->n_stages * src->stage_ranks;
	struct rsh_error e = RSH_ERROR_INIT;
	char step[256], guess[320] = "";
	const char *name;
	uint32_t chosen = rsh_source_chosen(s), n;
	bool one = rsh_source_has_step(s);

	/* How many stages there are nobody knows where the file of one is taken for
	 * just that one.  Else it is taken for the only one, and its ranks would
	 * show what they hold of others as if it were not cut. */
	if (rsh_source_first_rank(s) > 0)
		return 0;
	n = rsh_source_count_ranks(s, n_ranks, &name);
	if (!name)
		return 0;
	rsh_source_candidate_text(s, chosen, step, sizeof(step));
	rsh_error_set(&e, EINVAL, "%s: %u ranks have a checkpoint%s%s, but %s "
		      "is of %u ranks and knows none of %s", rsh_source_path(s),
		      n, one ? " of " : "", one ? step : "", src->path, n_ranks,
		      name);
	if (rsh_source_check(s) == RSH_CHECK_STRUCTURE) {
		rsh_log_warning("%s; they are left out", e.text);
		return 0;
	}
	ranks_guess(src, dst, n, guess, sizeof(guess));
	return rsh_error_set(err, EINVAL, "%s%s; --check structure leaves "
			     "these ranks out", e.text, guess);
}
