/* SPDX-License-Identifier: Apache-2.0 */
/* source/beyond.c - checkpoints of ranks that the strategy does not have. */
#include "config.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#include "rsh/source/contents.h"
#include "rsh/util/log.h"
#include "rsh/util/mem.h"
#include "source_i.h"

static bool is_of_step(const struct rsh_checkpoint *a,
		       const struct rsh_checkpoint *b)
{
	if (a->stepped != b->stepped)
		return false;
	return !a->stepped ||
	       (a->epoch == b->epoch && a->step == b->step &&
		a->dir_epoch == b->dir_epoch && a->dir_step == b->dir_step);
}

/* A file of the chosen candidate; NULL: it has none. */
static const struct rsh_checkpoint *chosen_file(const struct rsh_source *s)
{
	const struct rsh_listing *l = &s->listing;
	size_t i = s->chosen < s->n_candidates ?
		s->candidates[s->chosen].first : l->n - s->n_always;

	return i < l->n ? &l->files[i] : NULL;
}

/* A rank may have several files of a step, of which the first is counted. */
static bool is_first_of_rank(const struct rsh_source *s, size_t i,
			     const struct rsh_checkpoint *chosen)
{
	const struct rsh_checkpoint *all = s->listing.beyond;

	while (i-- > 0 && all[i].rank == all[i + 1].rank)
		if (is_of_step(&all[i], chosen))
			return false;
	return true;
}

/* How many ranks have a file of the chosen step, and the file of the lowest
 * that is not below `n_ranks`; NULL: there is none. */
static uint32_t count_ranks(const struct rsh_source *s, uint32_t n_ranks,
			    const char **name)
{
	const struct rsh_checkpoint *chosen = chosen_file(s), *one = NULL;
	uint32_t n = s->n_files;

	*name = NULL;
	/* Whoever lists a tree has all ranks, and they ascend. */
	if (n > 0 && s->files[n - 1].rank >= n_ranks)
		for (uint32_t i = n; i-- > 0 && s->files[i].rank >= n_ranks;)
			*name = rsh_store_name(s->store, i);
	for (size_t i = 0; chosen && i < s->listing.n_beyond; i++) {
		const struct rsh_checkpoint *c = &s->listing.beyond[i];

		if (!is_of_step(c, chosen))
			continue;
		n += is_first_of_rank(s, i, chosen);
		if (!one || c->rank < one->rank)
			one = c;
	}
	if (one)
		*name = one->name;
	return n;
}

int rsh_source_check_ranks(const struct rsh_source *s,
			   const struct rsh_strategy *src,
			   const struct rsh_strategy *dst,
			   struct rsh_error *err)
{
	const uint32_t n_ranks = src->n_stages * src->stage_ranks;
	struct rsh_error e = RSH_ERROR_INIT;
	char step[256], guess[320] = "";
	const char *name;
	uint32_t n;

	/* Of a stage by itself nobody knows how many there are. */
	if (src->lone_stage)
		return 0;
	n = count_ranks(s, n_ranks, &name);
	if (!name)
		return 0;
	rsh_source_candidate_text(s, s->chosen, step, sizeof(step));
	rsh_error_set(&e, EINVAL, "%s: %u ranks have a checkpoint%s%s, but %s "
		      "is of %u ranks and knows none of %s", s->path, n,
		      s->chosen < s->n_candidates ? " of " : "",
		      s->chosen < s->n_candidates ? step : "", src->path,
		      n_ranks, name);
	if (s->check == RSH_CHECK_STRUCTURE) {
		rsh_log_warning("%s; they are left out", e.text);
		return 0;
	}
	if (dst && dst->n_stages * dst->stage_ranks == n)
		snprintf(guess, sizeof(guess), "; %s is of %u: are source and "
			 "destination swapped?", dst->path, n);
	else if (src->n_stages == 1 && n % n_ranks == 0)
		snprintf(guess, sizeof(guess), "; a pipeline's strategy is the "
			 "files of all its stages, in a directory or merged");
	return rsh_error_set(err, EINVAL, "%s; --check structure leaves them "
			     "out%s", e.text, guess);
}
