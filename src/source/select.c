/* SPDX-License-Identifier: Apache-2.0 */
/* source/select.c keeps the files that --select and --breakpoint select. */
#include "config.h"

#include "step_i.h"

#include <errno.h>
#include <fnmatch.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

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

int rsh_candidates_undecidable(const struct rsh_source *s,
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
	rsh_listing_sort(&s->listing, RSH_BY_RANK);
	select_list(&s->listing, c->rank, names, sizeof(names));
	if (s->format->owner == RSH_OWNER_RANKS && !s->resumed)
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

int rsh_listing_select(struct rsh_source *s, const struct rsh_source_options *o,
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
	for (size_t i = 0; i < l->n; i++) {
		if (select_counts(&l->files[i], &found))
			l->files[kept++] = l->files[i];
		else
			rsh_checkpoint_clear(&l->files[i]);
	}
	l->n = kept;
	return 0;
}
