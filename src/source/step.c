/* SPDX-License-Identifier: Apache-2.0 */
/* source/step.c finds the files of each candidate, and which candidate is tried
 * first.
 *
 * ModelCheckpoint writes <prefix>-<epoch>_<step>.ckpt (or .safetensors).  If a
 * run finds files with the same prefix, it writes <prefix>_<K>-..., where K is
 * the number of the run.  Prefixes often contain the rank as well
 * (net_rank_3-5_10.ckpt).  A candidate is everything that all ranks saved at
 * one step of one run.
 *
 * The listing is sorted so that a candidate is a range of it, the newest step
 * first.  An example with two ranks, whose job was started again once:
 *
 *   files[]                        epoch  step  run   candidates[]
 *   0  rank_0/net_1-2_25.ckpt        2     25    -    [0,1)  rank 1 has none
 *   1  rank_0/net_1-2_20.ckpt        2     20    -  \
 *   2  rank_1/net_1-2_20.ckpt        2     20    -  / [1,3)
 *   3  rank_0/net_1-1_10.ckpt        1     10    1  \
 *   4  rank_1/net_1-1_10.ckpt        1     10    1  / [3,5)
 *   5  rank_0/net-1_10.ckpt          1     10    0  \
 *   6  rank_1/net-1_10.ckpt          1     10    0  / [5,7)
 *
 * The run is used only at step 10, where a rank has files of two runs.  A mount
 * tries [0,1) first and, if slices are missing, uses [1,3); files of two
 * candidates are never mixed.
 *
 * The effect of names without a step, with two ranks:
 *
 *   rank_0          rank_1      a conversion uses          --resume uses
 *   net-2_5  best   net-2_5     2_5; best is only listed   the same
 *   last            last        last of both               the same
 *   last  best      last        nothing: ambiguous         the one written last
 *                                                          that both have
 *   net-2_5         last        2_5 with last, none older  nothing: ambiguous
 *   net-2_5  last   last        nothing: ambiguous         nothing: ambiguous
 *
 * With --select mtime this does not apply: names without a step are grouped by
 * the name without the rank, and the newest file decides.
 */
#include "config.h"

#include "step_i.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "rsh/util/log.h"
#include "rsh/util/mem.h"
#include "rsh/util/text.h"

#define RANK_MARK "{rank}"

/* ---- one candidate of all files ---- */

static bool step_all_safetensors(const struct rsh_listing *l)
{
	for (size_t i = 0; i < l->n; i++)
		if (rsh_file_type_of(l->files[i].base) != RSH_FILE_SAFETENSORS)
			return false;
	return true;
}

/* Keeps the file of each rank that the converter uses: the lexicographically
 * last one; of safetensors the one with the greatest numbers at the end of its
 * path. */
static void step_keep_last_names(struct rsh_source *s)
{
	struct rsh_listing *l = &s->listing;
	size_t kept = 0;

	rsh_listing_sort(l, step_all_safetensors(l) ? RSH_BY_RANK_AND_NUMBERS :
						 RSH_BY_RANK);
	for (size_t i = 0; i < l->n; i++) {
		if (i + 1 < l->n && l->files[i + 1].rank == l->files[i].rank)
			rsh_checkpoint_clear(&l->files[i]);
		else
			l->files[kept++] = l->files[i];
	}
	l->n = kept;
	s->n_always = kept;
}

/* Takes all files of a map, but refuses files of different steps. */
static int step_take_all(struct rsh_source *s, const char *map,
		    struct rsh_error *err)
{
	struct rsh_listing *l = &s->listing;
	const struct rsh_checkpoint *first = NULL;

	rsh_listing_sort(l, RSH_BY_RANK);
	s->n_always = l->n;
	for (size_t i = 0; i < l->n; i++) {
		const struct rsh_checkpoint *c = &l->files[i];

		if (c->step.n == 0)
			continue;
		if (!first)
			first = c;
		if (rsh_step_cmp(&c->step, &first->step))
			return rsh_error_set(err, EINVAL, "%s: the files are "
					     "of two steps: %s and %s", map,
					     first->name, c->name);
	}
	return 0;
}

/* ---- candidates ---- */

/* Runs and breakpoints are distinguished only at steps where a rank has more
 * than one file, because a restarted job may count runs per rank. */
static void step_forget_lone_runs(struct rsh_source *s)
{
	struct rsh_listing *l = &s->listing;
	size_t end;

	rsh_listing_sort(l, RSH_BY_STEP_AND_RANK);
	for (size_t i = 0; i < l->n && l->files[i].step.n > 0; i = end) {
		bool several = false;

		for (end = i + 1; end < l->n && l->files[end].step.n > 0 &&
				  rsh_step_cmp(&l->files[i].step,
					       &l->files[end].step) == 0;
		     end++)
			several |= l->files[end].rank ==
				   l->files[end - 1].rank;
		for (size_t k = i; k < end && !several; k++) {
			if (!s->resumed)
				l->files[k].step.run = 0;
			l->files[k].step.breakpoint = false;
		}
	}
}

/* Returns whether there are names without a step although every rank has names
 * with a step, such as best.ckpt beside net-2_5.ckpt. */
static bool step_wins(struct rsh_listing *l)
{
	bool any_stepless = false, all_stepped = true;
	size_t end;

	rsh_listing_sort(l, RSH_BY_RANK);
	for (size_t i = 0; i < l->n; i = end) {
		bool stepped = false;

		for (end = i; end < l->n && l->files[end].rank ==
					    l->files[i].rank; end++) {
			stepped |= l->files[end].step.n > 0;
			any_stepless |= l->files[end].step.n == 0;
		}
		all_stepped &= stepped;
	}
	return any_stepless && all_stepped;
}

/* Returns the length of "rank_3" in "rank_3/net-1_5.ckpt". */
static int step_dir_length(const struct rsh_checkpoint *c)
{
	return c->base == c->name ? 0 : (int)(c->base - c->name - 1);
}

/* If a rank has only one file, and it has no step, the file is used.  If a rank
 * has several files and one has no step, it is ambiguous. */
static int step_take_stepless(struct rsh_source *s, struct rsh_error *err)
{
	const struct rsh_listing *l = &s->listing;
	size_t first = l->n;

	while (first > 0 && l->files[first - 1].step.n == 0)
		first--;
	if (s->resumed)
		return first == l->n ? 0 :
		       rsh_candidates_undecidable(s, &l->files[first], err);
	s->n_always = l->n - first;
	for (size_t i = first; i < l->n; i++)
		for (size_t k = 0; k < i; k++)
			if (l->files[k].rank == l->files[i].rank)
				return rsh_candidates_undecidable(s,
							&l->files[i], err);
	if (first > 0 && first < l->n)
		rsh_log_warning("%s: the file of %.*s has no step in its name, "
				"that of %.*s has one: whether they belong "
				"together cannot be checked", s->path,
				step_dir_length(&l->files[first]),
				l->files[first].name, step_dir_length(l->files),
				l->files[0].name);
	return 0;
}

/* If the step of some files is unknown, no older step may be tried together
 * with them.  So only one candidate is kept: the newest one that all other
 * ranks have, or else the newest. */
static int step_keep_one(struct rsh_source *s)
{
	const size_t n = s->listing.n - s->n_always;
	cleanup_free uint32_t *ranks = rsh_alloc_array(n, sizeof(*ranks));
	uint32_t n_ranks = 0;

	if (!ranks)
		return -ENOMEM;
	for (size_t i = 0; i < n; i++)
		ranks[i] = s->listing.files[i].rank;
	qsort(ranks, n, sizeof(*ranks), rsh_by_u32);
	for (size_t i = 0; i < n; i++)
		n_ranks += i == 0 || ranks[i] != ranks[i - 1];
	for (uint32_t i = 0; i < s->n_candidates; i++) {
		if (s->candidates[i].end - s->candidates[i].first < n_ranks)
			continue;
		s->candidates[0] = s->candidates[i];
		break;
	}
	s->n_candidates = 1;
	return 0;
}

/* ---- by time ---- */

/* Makes the series: the name with "{rank}" in place of the rank's number. */
static char *step_make_series(const struct rsh_checkpoint *c)
{
	char *series = malloc(strlen(c->base) * strlen(RANK_MARK) + 1);
	char *to = series;
	const char *s = c->base;
	uint64_t v;

	while (series && *s) {
		size_t n = rsh_count_digits(s, strlen(s));

		if (rsh_number_read(s, n, &v) && v == c->rank)
			to = stpcpy(to, RANK_MARK);
		else
			to = mempcpy(to, s, n ? n : 1);
		s += n ? n : 1;
	}
	if (series)
		*to = '\0';
	return series;
}

static int step_name_series(struct rsh_listing *l)
{
	for (size_t i = 0; i < l->n; i++) {
		if (l->files[i].step.n > 0)
			continue;
		l->files[i].series = step_make_series(&l->files[i]);
		if (!l->files[i].series)
			return -ENOMEM;
	}
	return 0;
}

static int step_make_candidates(struct rsh_source *s, bool by_time,
			   struct rsh_error *err)
{
	const struct rsh_listing *l = &s->listing;
	bool beside;
	int rc;

	if (!by_time && rsh_step_numbers_take(&s->listing))
		return rsh_error_nomem(err);
	beside = !by_time && step_wins(&s->listing);
	step_forget_lone_runs(s);
	if (!s->resumed && (by_time || beside) && step_name_series(&s->listing))
		return rsh_error_nomem(err);
	rsh_listing_sort(&s->listing, RSH_BY_CANDIDATE);
	/* With --resume, if all names have no step, the time decides which one
	 * is the newest. */
	if (s->resumed && l->files[0].step.n == 0) {
		by_time = true;
		beside = false;
	}
	if (!by_time && !beside) {
		rc = step_take_stepless(s, err);
		if (rc)
			return rc;
	}
	if (rsh_candidates_cut(s))
		return rsh_error_nomem(err);
	if (by_time)
		rsh_candidates_by_mtime(s);
	else if (!beside && s->n_always > 0 && s->n_candidates > 0 &&
		 step_keep_one(s))
		return rsh_error_nomem(err);
	if (!beside)
		s->n_tried = s->n_candidates;
	/* Candidates without a step beside others, which are last, are only
	 * listed and not tried. */
	while (s->n_tried < s->n_candidates &&
	       l->files[s->candidates[s->n_tried].first].step.n > 0)
		s->n_tried++;
	return 0;
}

int rsh_candidates_make(struct rsh_source *s,
			const struct rsh_source_options *opts,
			struct rsh_error *err)
{
	int rc = rsh_listing_select(s, opts, err);

	if (rc)
		return rc;
	if (opts->select == RSH_SELECT_MINDSPORE) {
		step_keep_last_names(s);
		return 0;
	}
	return opts->source_map ? step_take_all(s, opts->source_map, err) :
	       step_make_candidates(s, opts->select == RSH_SELECT_MTIME, err);
}

/* ---- functions for formats ---- */

int rsh_source_sort_steps(struct rsh_source *s,
			  const struct rsh_source_options *opts,
			  struct rsh_error *err)
{
	int rc = rsh_listing_select(s, opts, err);

	if (rc)
		return rc;
	rsh_listing_sort(&s->listing, RSH_BY_CANDIDATE);
	if (rsh_candidates_cut(s))
		return rsh_error_nomem(err);
	if (opts->select == RSH_SELECT_MTIME)
		rsh_candidates_by_mtime(s);
	s->n_tried = s->n_candidates;
	return 0;
}

void rsh_source_candidate_range(const struct rsh_source *s, uint32_t i,
				size_t *first, size_t *end)
{
	*first = i < s->n_candidates ? s->candidates[i].first : 0;
	*end = i < s->n_candidates ? s->candidates[i].end : 0;
}

void rsh_source_try_first(struct rsh_source *s, uint32_t i)
{
	const struct rsh_candidate first = s->candidates[i];

	memmove(s->candidates + 1, s->candidates, i * sizeof(*s->candidates));
	s->candidates[0] = first;
}
