/* SPDX-License-Identifier: Apache-2.0 */
/* source/steps.c makes the candidates of a listing, and says which one is tried
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
 *
 * There is one kind of candidate and one order for all sources.  With --resume
 * (s->resumed is set) the rules are stricter: all ranks must have the step, so
 * runs and series are always distinguished, and a file without a step is never
 * used together with files that have one.
 */
#include "config.h"

#include "source_i.h"

#include <errno.h>
#include <fnmatch.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "rsh/source/step.h"
#include "rsh/util/clock.h"
#include "rsh/util/log.h"
#include "rsh/util/mem.h"
#include "rsh/util/text.h"

/* A tracker without the name of a step. */
#define NO_STEP "%s/%s: it does not name a step; the newest complete step is " \
		"taken"

/* ---- steps in names that ModelCheckpoint did not write ---- */

struct numbered {
	struct rsh_checkpoint *file;
	struct rsh_step_name says;
};

RSH_ORDER(numbered_order, struct numbered,
	  strcmp(x->says.series, y->says.series) ?:
	  rsh_compare_u64(x->file->rank, y->file->rank))

/* Finds the only series of which ranks have several names, and the set of the
 * numbers in which these differ. */
static bool numbered_find(const struct numbered *v, size_t n, size_t *first,
			  size_t *end, unsigned *differ)
{
	const char *series = NULL;

	*differ = 0;
	for (size_t i = 1; i < n; i++) {
		const struct rsh_step *x = &v[i - 1].says.step;

		if (numbered_order(&v[i - 1], &v[i]) != 0)
			continue;
		if (series && strcmp(series, v[i].says.series) != 0)
			return false;
		series = v[i].says.series;
		for (unsigned k = 0; k < x->n; k++)
			if (x->numbers[k] != v[i].says.step.numbers[k])
				*differ |= 1u << k;
	}
	for (*first = 0; series && strcmp(v[*first].says.series, series) != 0;)
		++*first;
	for (*end = *first; series && *end < n &&
			    strcmp(v[*end].says.series, series) == 0;)
		++*end;
	return series && *differ && (*differ & (*differ - 1)) == 0;
}

/* Sets the steps of files whose names have none as ModelCheckpoint writes it,
 * but one number in which the names of a rank differ: e9.ckpt and e10.ckpt,
 * LeNet5_9_step.ckpt and LeNet5_10_step.ckpt.
 *
 * Of the names of one rank that differ in nothing but numbers, one number must
 * differ, the same one for all ranks: it is the step.  A number that differs
 * between ranks alone is the rank's: rank_3/checkpoint_3.ckpt. */
static int step_numbers_take(struct rsh_listing *l)
{
	cleanup_free struct numbered *v = calloc(l->n + 1, sizeof(*v));
	size_t first, end;
	unsigned differ, at = 0;

	if (!v)
		return -ENOMEM;
	for (size_t i = 0; i < l->n; i++) {
		/* Names with a step leave no doubt. */
		if (l->files[i].step.n > 0)
			return 0;
		v[i].file = &l->files[i];
		rsh_step_name_read(l->files[i].base, strlen(l->files[i].base),
				   &v[i].says);
	}
	rsh_sort(v, l->n, numbered_order);
	if (!numbered_find(v, l->n, &first, &end, &differ))
		return 0;
	while (!(differ >> at & 1))
		at++;
	for (size_t i = first; i < end; i++) {
		v[i].file->step.n = 1;
		v[i].file->step.numbers[1] = 0;
		v[i].file->step.numbers[0] = v[i].says.step.numbers[at];
	}
	return 0;
}

/* ---- which of two checkpoints is newer ---- */

int rsh_step_cmp(const struct rsh_step *x, const struct rsh_step *y)
{
	int d = rsh_compare_u64(y->dir_epoch, x->dir_epoch) ?:
		rsh_compare_u64(y->dir_step, x->dir_step);

	for (unsigned i = 0; d == 0 && i < x->n && i < y->n; i++)
		d = rsh_compare_u64(y->numbers[i], x->numbers[i]);
	return d ? d : rsh_compare_u64(y->n, x->n);
}

/* Puts files with a step before files without one. */
static int order_stepped(const struct rsh_checkpoint *x,
			 const struct rsh_checkpoint *y)
{
	return rsh_compare_u64(y->step.n > 0, x->step.n > 0);
}

/* Compares candidates; returns 0 if both files belong to the same one. */
static int order_candidates(const struct rsh_checkpoint *x,
			    const struct rsh_checkpoint *y)
{
	int d = order_stepped(x, y);

	if (d == 0 && x->step.n > 0) {
		/* Of two saves of one step, tft_... is from one version of
		 * MindSpore, and ttp_... from a newer one, which counts as
		 * newer. */
		d = rsh_step_cmp(&x->step, &y->step) ?:
		    rsh_compare_u64(y->n_dir, x->n_dir) ?:
		    memcmp(y->name, x->name, x->n_dir) ?:
		    rsh_compare_u64(y->step.run, x->step.run) ?:
		    rsh_compare_u64(x->step.breakpoint, y->step.breakpoint);
	}
	return d ? d : strcmp(x->series ? x->series : "",
			      y->series ? y->series : "");
}

RSH_ORDER(order_by_rank, struct rsh_checkpoint,
	  rsh_compare_u64(x->rank, y->rank) ?: strcmp(x->name, y->name))

/* Sets the last two numbers of a path. */
static void order_last_numbers(const char *name, uint64_t out[2])
{
	out[0] = out[1] = 0;
	while (*(name += strcspn(name, "0123456789"))) {
		size_t n = rsh_count_digits(name, strlen(name));

		out[0] = out[1];
		if (!rsh_number_read(name, n, &out[1]))
			out[1] = UINT64_MAX;
		name += n;
	}
}

static int order_by_rank_and_numbers(const void *a, const void *b)
{
	const struct rsh_checkpoint *x = a, *y = b;
	uint64_t m[2], n[2];

	order_last_numbers(x->name, m);
	order_last_numbers(y->name, n);
	return rsh_compare_u64(x->rank, y->rank) ?:
	       rsh_compare_u64(m[0], n[0]) ?:
	       rsh_compare_u64(m[1], n[1]) ?:
	       order_by_rank(x, y);
}

RSH_ORDER(order_by_step_and_rank, struct rsh_checkpoint,
	  order_stepped(x, y) ?: rsh_step_cmp(&x->step, &y->step) ?:
	  order_by_rank(x, y))
RSH_ORDER(order_by_candidate, struct rsh_checkpoint,
	  order_candidates(x, y) ?: order_by_rank(x, y))

/* Makes the candidates of a listing that is sorted by candidate, except the
 * files at its end that belong to all candidates.  Returns 0 or -ENOMEM. */
static int candidates_cut(struct rsh_source *s)
{
	const struct rsh_listing *l = &s->listing;
	size_t n = l->n - s->n_always, end;

	for (size_t i = 0; i < n; i = end) {
		end = i + 1;
		while (end < n && order_candidates(&l->files[i],
						   &l->files[end]) == 0)
			end++;
		if (rsh_push(s->candidates, s->n_candidates, s->cap_candidates,
			     (struct rsh_candidate){ i, end }))
			return -ENOMEM;
	}
	return 0;
}

/* ---- by time ---- */

static const struct timespec *order_newest(const struct rsh_listing *l,
					   const struct rsh_candidate *c)
{
	const struct timespec *t = &l->files[c->first].mtime;

	for (size_t i = c->first + 1; i < c->end; i++)
		if (rsh_clock_compare(&l->files[i].mtime, t) > 0)
			t = &l->files[i].mtime;
	return t;
}

static int order_by_mtime(const void *a, const void *b, void *listing)
{
	const struct rsh_candidate *p = a, *q = b;

	return rsh_clock_compare(order_newest(listing, q),
				 order_newest(listing, p)) ?:
	       rsh_compare_u64(p->first, q->first);
}

static void candidates_by_mtime(struct rsh_source *s)
{
	if (s->n_candidates > 0)
		qsort_r(s->candidates, s->n_candidates, sizeof(*s->candidates),
			order_by_mtime, &s->listing);
}

/* ---- what --select and --breakpoint select ---- */

/* Writes the place of the files of c's rank: "rank_3" for
 * "rank_3/net-1_5.ckpt". */
static const char *select_place(const struct rsh_source *s,
				const struct rsh_checkpoint *c, char *buf,
				size_t max)
{
	const char *unit = s->resumed ? s->listing.dirs[c->rank].name : NULL;

	if (unit)
		snprintf(buf, max, "%s", unit);
	else
		snprintf(buf, max, "%.*s", c->base == c->name ? 0 :
			 (int)(c->base - c->name - 1), c->name);
	return buf;
}

/* Lists the rank's names in a sorted listing; each label is listed once. */
static void select_list(const struct rsh_listing *l, uint32_t rank, char *buf,
			size_t max)
{
	const char *last = "";
	size_t at = 0, n = 0;

	buf[0] = '\0';
	for (size_t i = 0; i < l->n; i++) {
		const struct rsh_checkpoint *c = &l->files[i];
		const char *label = rsh_checkpoint_label(c);

		if (c->rank != rank || (strcmp(label, c->base) != 0 &&
					strcmp(label, last) == 0))
			continue;
		last = label;
		if (n++ < RSH_LISTED_MAX && at < max)
			at += (size_t)snprintf(buf + at, max - at, "%s%s",
					       n > 1 ? ", " : "", label);
	}
	if (n > RSH_LISTED_MAX && at < max)
		snprintf(buf + at, max - at, " and %zu more",
			 n - RSH_LISTED_MAX);
}

/* Sets the error that files of c's rank cannot be distinguished; returns
 * -EINVAL. */
static int candidates_undecidable(const struct rsh_source *s,
				  const struct rsh_checkpoint *c,
				  struct rsh_error *err)
{
	char names[512], place[256];

	select_list(&s->listing, c->rank, names, sizeof(names));
	select_place(s, c, place, sizeof(place));
	return rsh_error_set(err, EINVAL, "%s%s%s: several checkpoints match: "
					  "%s: use --select name=GLOB or "
					  "--select mtime", s->path,
			     *place ? "/" : "", place, names);
}

bool rsh_name_is_selected(const char *label, const struct rsh_source_options *o)
{
	return o->select != RSH_SELECT_NAME ||
	       fnmatch(o->glob, label, FNM_PERIOD) == 0;
}

static bool select_asks_for(const struct rsh_checkpoint *c,
			    const struct rsh_source_options *o)
{
	if (o->breakpoints == RSH_BREAKPOINTS_ONLY && !c->step.breakpoint)
		return false;
	if (o->select == RSH_SELECT_STEP)
		return c->step.n >= 2 && c->step.numbers[0] == o->epoch &&
		       c->step.numbers[1] == o->step;
	if (o->select == RSH_SELECT_LONE_STEP)
		return c->step.n == 1 && c->step.numbers[0] == o->step;
	return rsh_name_is_selected(rsh_checkpoint_label(c), o);
}

/* A file that a job saved while it crashed counts only if the options select
 * it, because it may have another step than the files of other ranks. */
static bool select_counts(const struct rsh_checkpoint *c,
			  const struct rsh_source_options *o)
{
	if (c->step.breakpoint && o->breakpoints == RSH_BREAKPOINTS_OUT &&
	    o->select != RSH_SELECT_MINDSPORE && !o->source_map)
		return false;
	return select_asks_for(c, o);
}

static bool select_is_step_of_epoch(const struct rsh_checkpoint *c,
				    uint64_t step)
{
	return c->step.n >= 2 && c->step.numbers[1] == step;
}

static const char *select_hint(const struct rsh_listing *l,
			       const struct rsh_source_options *o)
{
	for (size_t i = 0; i < l->n; i++)
		if (select_asks_for(&l->files[i], o) ||
		    (o->select == RSH_SELECT_LONE_STEP &&
		     select_is_step_of_epoch(&l->files[i], o->step)))
			return " (breakpoints count with --breakpoint)";
	for (size_t i = 0; i < l->n; i++)
		if (o->select == RSH_SELECT_STEP && l->files[i].step.n == 1)
			return " (a step alone is selected with --select "
			       "step=N)";
	return "";
}

/* Refuses a selection that no file matches, and names the lowest rank's files
 * as examples. */
static int select_nothing(struct rsh_source *s,
			  const struct rsh_source_options *o,
			  struct rsh_error *err)
{
	const struct rsh_checkpoint *c = &s->listing.files[0];
	char names[512], place[256], what[160];

	snprintf(what, sizeof(what), "no checkpoint matches the selection");
	if (o->select == RSH_SELECT_STEP)
		snprintf(what, sizeof(what), "no checkpoint of epoch %llu step "
			 "%llu", (unsigned long long)o->epoch,
			 (unsigned long long)o->step);
	else if (o->select == RSH_SELECT_LONE_STEP)
		snprintf(what, sizeof(what), "no checkpoint of step %llu",
			 (unsigned long long)o->step);
	else if (o->select == RSH_SELECT_NAME)
		snprintf(what, sizeof(what), "no checkpoint named %s", o->glob);
	else if (o->breakpoints == RSH_BREAKPOINTS_ONLY)
		snprintf(what, sizeof(what), "no breakpoint checkpoint");
	rsh_sort(s->listing.files, s->listing.n, order_by_rank);
	select_list(&s->listing, c->rank, names, sizeof(names));
	if ((s->format->owner == RSH_OWNER_RANKS ||
	     s->format->layout == RSH_LAYOUT_WHOLE) && !s->resumed)
		*place = '\0';
	else
		select_place(s, c, place, sizeof(place));
	return rsh_error_set(err, ENOENT, "%s: %s%s; %s contains %s", s->path,
			     what, select_hint(&s->listing, o),
			     *place ? place : "it", names);
}

/* Finds the least epoch after `after` that has the step. */
static bool select_next_epoch(const struct rsh_listing *l,
			      const struct rsh_source_options *o,
			      const uint64_t *after, uint64_t *epoch)
{
	bool found = false;

	for (size_t i = 0; i < l->n; i++) {
		const struct rsh_checkpoint *c = &l->files[i];

		if (!select_is_step_of_epoch(c, o->step) ||
		    (after && c->step.numbers[0] <= *after) ||
		    o->breakpoints == (c->step.breakpoint ?
				       RSH_BREAKPOINTS_OUT :
				       RSH_BREAKPOINTS_ONLY) ||
		    (found && c->step.numbers[0] >= *epoch))
			continue;
		*epoch = c->step.numbers[0];
		found = true;
	}
	return found;
}

static int select_several(const struct rsh_source *s,
			  const struct rsh_source_options *o, uint64_t epoch,
			  struct rsh_error *err)
{
	char epochs[256] = "";
	size_t at = 0, n = 0;

	do {
		at += (size_t)snprintf(epochs + at, sizeof(epochs) - at,
				       "%s%" PRIu64 "_%" PRIu64,
				       n ? ", " : "", epoch, o->step);
	} while (select_next_epoch(&s->listing, o, &epoch, &epoch) &&
		 ++n < RSH_LISTED_MAX && at < sizeof(epochs));
	return rsh_error_set(err, EINVAL, "%s: several epochs have a step %"
			     PRIu64 ": use --select EPOCH_STEP with "
			     "one of %s%s", s->path, o->step,
			     epochs, n == RSH_LISTED_MAX ? " and more" : "");
}

/* If a step is given without an epoch, the only epoch with that step is used,
 * unless there are names without epochs. */
static int select_find_epoch(const struct rsh_source *s,
			     struct rsh_source_options *o,
			     struct rsh_error *err)
{
	const struct rsh_listing *l = &s->listing;
	uint64_t epoch = 0, other;

	for (size_t i = 0; i < l->n; i++)
		if (select_asks_for(&l->files[i], o))
			return 0;
	if (!select_next_epoch(l, o, NULL, &epoch))
		return 0;
	if (select_next_epoch(l, o, &epoch, &other))
		return select_several(s, o, epoch, err);
	o->select = RSH_SELECT_STEP;
	o->epoch = epoch;
	return 0;
}

static int listing_select(struct rsh_source *s,
			  const struct rsh_source_options *o,
			  struct rsh_error *err)
{
	struct rsh_source_options found = *o;
	int rc = o->select == RSH_SELECT_LONE_STEP ?
		 select_find_epoch(s, &found, err) : 0;
	struct rsh_listing *l;
	size_t kept = 0;

	if (rc)
		return rc;
	l = &s->listing;
	for (size_t i = 0; i < l->n; i++)
		kept += select_counts(&l->files[i], &found);
	if (kept == 0 && l->n > 0)
		return select_nothing(s, &found, err);
	kept = 0;
	for (size_t i = 0; i < l->n; i++)
		if (select_counts(&l->files[i], &found))
			l->files[kept++] = l->files[i];
	l->n = kept;
	return 0;
}

/* ---- one candidate of all files ---- */

/* Keeps the file of each rank that the converter uses: the lexicographically
 * last one; of safetensors the one with the greatest numbers at the end of its
 * path. */
static void step_keep_last_names(struct rsh_source *s)
{
	struct rsh_listing *l = &s->listing;
	size_t kept = 0, n = 0;

	while (n < l->n && rsh_file_type_of(l->files[n].base) ==
			   RSH_FILE_SAFETENSORS)
		n++;
	rsh_sort(l->files, l->n, n == l->n ? order_by_rank_and_numbers :
					     order_by_rank);
	for (size_t i = 0; i < l->n; i++)
		if (i + 1 == l->n || l->files[i + 1].rank != l->files[i].rank)
			l->files[kept++] = l->files[i];
	l->n = kept;
	s->n_always = kept;
}

/* Takes all files of a map, but refuses files of different steps. */
static int step_take_all(struct rsh_source *s, const char *map,
		    struct rsh_error *err)
{
	struct rsh_listing *l = &s->listing;
	const struct rsh_checkpoint *first = NULL;

	rsh_sort(l->files, l->n, order_by_rank);
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

	rsh_sort(l->files, l->n, order_by_step_and_rank);
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

	rsh_sort(l->files, l->n, order_by_rank);
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
		       candidates_undecidable(s, &l->files[first], err);
	s->n_always = l->n - first;
	for (size_t i = first; i < l->n; i++)
		for (size_t k = 0; k < i; k++)
			if (l->files[k].rank == l->files[i].rank)
				return candidates_undecidable(
					s, &l->files[i], err);
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
	size_t n_ranks;

	if (!ranks)
		return -ENOMEM;
	for (size_t i = 0; i < n; i++)
		ranks[i] = s->listing.files[i].rank;
	n_ranks = rsh_sort_distinct(ranks, n);
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
static char *step_make_series(struct rsh_arena *arena,
			      const struct rsh_checkpoint *c)
{
	char *series = rsh_arena_array(arena, char, strlen(c->base) *
					       strlen(RANK_MARK) + 1);
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
	return series;
}

static int step_make_candidates(struct rsh_source *s, bool by_time,
			   struct rsh_error *err)
{
	const struct rsh_listing *l = &s->listing;
	bool beside;
	int rc;

	if (!by_time && step_numbers_take(&s->listing))
		return rsh_error_nomem(err);
	beside = !by_time && step_wins(&s->listing);
	step_forget_lone_runs(s);
	for (size_t i = 0; !s->resumed && (by_time || beside) && i < l->n;
	     i++) {
		if (l->files[i].step.n > 0)
			continue;
		l->files[i].series = step_make_series(&s->listing.texts,
						      &l->files[i]);
		if (!l->files[i].series)
			return rsh_error_nomem(err);
	}
	rsh_sort(s->listing.files, s->listing.n, order_by_candidate);
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
	if (candidates_cut(s))
		return rsh_error_nomem(err);
	if (by_time)
		candidates_by_mtime(s);
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
	int rc = listing_select(s, opts, err);

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
	int rc = listing_select(s, opts, err);

	if (rc)
		return rc;
	rsh_sort(s->listing.files, s->listing.n, order_by_candidate);
	if (candidates_cut(s))
		return rsh_error_nomem(err);
	if (opts->select == RSH_SELECT_MTIME)
		candidates_by_mtime(s);
	s->n_tried = s->n_candidates;
	return 0;
}

void rsh_source_candidate_range(const struct rsh_source *s, uint32_t i,
				size_t *first, size_t *end)
{
	*first = i < s->n_candidates ? s->candidates[i].first : 0;
	*end = i < s->n_candidates ? s->candidates[i].end : 0;
}

/* ---- trackers ---- */

int rsh_source_read_tracker(const struct rsh_source *s, const char *tracker,
			    char **word, struct rsh_error *err)
{
	/* Each save writes it again.  The names of the files have the step. */
	static const struct rsh_small_file kind = { "tracker", 4096, true };
	static const char blanks[] = " \t\r\n";
	struct rsh_error why = RSH_ERROR_INIT;
	cleanup_free uint8_t *data = NULL;
	const char *at;
	size_t len, n;

	*word = NULL;
	if (rsh_store_load(s->store, tracker, &kind, &data, &len, &why)) {
		if (rsh_errno_is_unread(why.code))
			return rsh_error_set(err, why.code, "%s: try again, or "
					     "select a step (--select "
					     "name=GLOB)", why.text);
		if (why.code != ENOENT)
			rsh_log_warning("%s; the newest complete step is "
					"taken", why.text);
		return 0;
	}
	data[len] = '\0';
	at = (const char *)data + strspn((const char *)data, blanks);
	n = strcspn(at, blanks);
	if (n == 0 || *at == '.' || memchr(at, '/', n) ||
	    at[n + strspn(at + n, blanks)]) {
		rsh_log_warning(NO_STEP, s->path, tracker);
		return 0;
	}
	*word = strndup(at, n);
	return *word ? 0 : rsh_error_nomem(err);
}

static const struct rsh_checkpoint *first_of(const struct rsh_source *s,
					     uint32_t candidate)
{
	return &s->listing.files[s->candidates[candidate].first];
}

static void tracked_remove(struct rsh_source *s, uint32_t n)
{
	struct rsh_listing *l = &s->listing;
	const size_t gone = n ? s->candidates[n - 1].end : 0;

	l->n -= gone;
	memmove(l->files, l->files + gone, l->n * sizeof(*l->files));
	s->n_tried = s->n_candidates -= n;
	for (uint32_t i = 0; i < s->n_candidates; i++) {
		s->candidates[i].first = s->candidates[i + n].first - gone;
		s->candidates[i].end = s->candidates[i + n].end - gone;
	}
}

/* A tracker, and the steps of which it may name one, the newest first. */
struct tracking {
	const char *tracker, *zero;
	bool is_last;
	const struct rsh_tracked *v;
	uint32_t n;
	const char *instead; /* what is taken if its step is not there */
	/* What was found: its step, if it is there, and how many newer ones
	 * are not taken. */
	uint32_t found, n_newer;
};

/* Returns 1 if the step is there, 0 if not, or -errno with a sentence. */
static int tracked_find(const struct rsh_source *s, struct tracking *t,
			struct rsh_error *err)
{
	const bool by_label = s->format->latest_is_text;
	cleanup_free char *word = NULL;
	const char *number = "step ";
	bool before = false;
	char more[48] = "";
	uint64_t step = 0;
	int rc = rsh_source_read_tracker(s, t->tracker, &word, err);

	if (rc || !word)
		return rc;
	if (by_label || (t->zero && strcmp(word, t->zero) == 0)) {
		number = "";
	} else if (!rsh_number_read(word, strlen(word), &step)) {
		rsh_log_warning(NO_STEP, s->path, t->tracker);
		return 0;
	}
	while (t->found < t->n &&
	       (by_label ? strcmp(t->v[t->found].label, word) != 0 :
			   t->v[t->found].step != step))
		t->found++;
	if (t->found < t->n)
		step = t->v[t->found].step;
	while (t->n_newer < t->n && t->v[t->n_newer].step > step)
		t->n_newer++;
	if (t->n_newer > 1)
		snprintf(more, sizeof(more), " (and %u more)", t->n_newer - 1);
	if (t->is_last && step > 0 && t->n > 0 && t->n_newer == t->n)
		return rsh_error_set(err, ENOENT, "%s/%s: it names %s%s, which "
				     "is not there; %s%s is newer and may not "
				     "be complete: give %s/%s as SOURCE to "
				     "take it", s->path, t->tracker, number,
				     word, t->v[0].label, more, s->path,
				     t->v[0].label);
	if (t->found == t->n) {
		/* What is not there may be step 0. */
		before = t->is_last && step > 0;
		rsh_log_warning("%s/%s: it names %s%s, which is not there; "
				"%s%s is taken", s->path, t->tracker, number,
				word, t->instead, before ? " before it" : "");
		if (!before) {
			t->n_newer = 0;
			return 0;
		}
	}
	if (t->n_newer > 0)
		rsh_log_notice("%s/%s: it names %s%s; %s%s is newer and is not "
			       "taken, since it may not be complete", s->path,
			       t->tracker, number, word, t->v[0].label, more);
	return t->found < t->n;
}

int rsh_source_find_tracked(const struct rsh_source *s, const char *tracker,
			    const struct rsh_tracked *steps, uint32_t n,
			    uint32_t *found, struct rsh_error *err)
{
	struct tracking t = {
		.tracker = tracker, .v = steps, .n = n,
		.instead = n > 0 ? steps[0].label : "nothing",
	};
	int rc = tracked_find(s, &t, err);

	*found = t.found;
	return rc;
}

int rsh_source_try_tracked(struct rsh_source *s, const char *tracker,
			   const char *zero, bool is_last,
			   struct rsh_error *err)
{
	cleanup_free struct rsh_tracked *steps =
		rsh_alloc_array(s->n_candidates, sizeof(*steps));
	struct tracking t = {
		.tracker = tracker, .zero = zero, .is_last = is_last,
		.v = steps, .n = s->n_candidates,
		.instead = "the newest complete step",
	};
	struct rsh_candidate c;
	int rc;

	if (!steps)
		return rsh_error_nomem(err);
	for (uint32_t i = 0; i < s->n_candidates; i++)
		steps[i] = (struct rsh_tracked){
			rsh_checkpoint_label(first_of(s, i)),
			first_of(s, i)->step.numbers[0],
		};
	rc = tracked_find(s, &t, err);
	if (is_last && rc >= 0)
		tracked_remove(s, t.n_newer);
	if (is_last || rc <= 0)
		return rc;
	c = s->candidates[t.found];
	memmove(s->candidates + 1, s->candidates,
		t.found * sizeof(*s->candidates));
	s->candidates[0] = c;
	return rc;
}
