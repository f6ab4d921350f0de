/* SPDX-License-Identifier: Apache-2.0 */
/* source/messages.c has the messages about candidates: their names, which one
 * was chosen, and what was left out. */
#include "config.h"

#include "step_i.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "rsh/util/log.h"
#include "rsh/util/mem.h"

void rsh_source_candidate_text(const struct rsh_source *s, uint32_t i,
			       char *text, size_t size)
{
	const struct rsh_checkpoint *c;
	size_t first, end;
	const char *name = *s->step_name ? s->step_name : NULL;
	int at = 0;

	rsh_source_candidate_range(s, i, &first, &end);
	if (!name && !s->resumed && s->listing.n > 0)
		name = s->listing.files[first].label;
	if (name) {
		snprintf(text, size, "%s", name);
		return;
	}
	if (i >= s->n_candidates) {
		snprintf(text, size, "%s", s->select == RSH_SELECT_MINDSPORE ?
			 "the last name of each rank" :
			 "the file of each rank");
		return;
	}
	c = &s->listing.files[s->candidates[i].first];
	if (c->step.n == 0) {
		snprintf(text, size, "%s", c->series);
		return;
	}
	if (c->n_dir)
		at = snprintf(text, size, "%.*s ", (int)c->n_dir, c->name);
	if (c->step.n == 1) {
		snprintf(text + at, size - (size_t)at, "step %llu",
			 (unsigned long long)c->step.numbers[0]);
		return;
	}
	snprintf(text + at, size - (size_t)at, "epoch %llu step %llu%s",
		 (unsigned long long)c->step.numbers[0],
		 (unsigned long long)c->step.numbers[1],
		 c->step.breakpoint ? " (breakpoint)" : "");
	if (c->step.run) {
		at = (int)strlen(text);
		snprintf(text + at, size - (size_t)at, " of run %llu",
			 (unsigned long long)c->step.run);
	}
}

/* Logs the ranks that have checkpoints, but none of the chosen candidate. */
static void say_absent(const struct rsh_source *s, const char *choice)
{
	const struct rsh_listing *l = &s->listing;
	char ranks[160];
	size_t at = 0;
	uint32_t n = 0;

	for (size_t i = 0; i < l->n; i++) {
		uint32_t n_chosen;
		size_t k = 0;

		rsh_source_rank_first(s, l->files[i].rank, &n_chosen);
		if (n_chosen > 0)
			continue;
		while (l->files[k].rank != l->files[i].rank)
			k++;
		if (k < i)
			continue;
		if (n++ < RSH_LISTED_MAX)
			at += (size_t)snprintf(ranks + at, sizeof(ranks) - at,
					       " %u", l->files[i].rank);
	}
	if (n > 0)
		rsh_log_notice("%s: %u ranks with checkpoints have none of "
			       "%s:%s%s", s->path, n, choice, ranks,
			       n > RSH_LISTED_MAX ? " ..." : "");
}

void rsh_source_log_left_out(const struct rsh_source *s)
{
	if (s->n_bad == 1)
		rsh_log_warning("%s: the file is left out", s->first_bad.text);
	else if (s->n_bad > 1)
		rsh_log_warning(
			"%s: the file is left out, and so are %u others "
			"of %u, which --log-level info lists",
			s->first_bad.text, s->n_bad - 1, s->n_files);
}

void rsh_candidates_beside(const struct rsh_source *s, char *text, size_t size)
{
	*text = '\0';
	if (s->n_tried < s->n_candidates)
		snprintf(text, size, "; %s has no step in its name and is "
				     "ignored: use --select name=GLOB to "
				     "select it",
			 rsh_checkpoint_label(&s->listing.files[s->listing.n -
								1]));
}

/* Logs what the file says that describes the step. */
static void say_described(const struct rsh_source *s, const char *choice)
{
	const struct rsh_step_facts *f = s->facts;
	const char *notes = f && f->notes ? f->notes : "";

	if (f && s->n_candidates > 1)
		rsh_log_notice("%s: several steps, taking %s%s", f->path,
			       choice, notes);
	else if (*notes)
		rsh_log_notice("%s: %s", f->path, notes + strlen("; "));
}

void rsh_source_log_choice(const struct rsh_source *s)
{
	char choice[256], beside[NAME_MAX + 128];

	rsh_source_log_left_out(s);
	for (uint32_t i = 0; i < s->n_files; i++)
		rsh_log_debug("taken: %s", rsh_store_path(s->store, i));
	rsh_source_candidate_text(s, s->chosen, choice, sizeof(choice));
	if (s->format->layout == RSH_LAYOUT_OWN) {
		say_described(s, choice);
		return;
	}
	if (s->listing.n <= s->n_files || s->n_files == 0)
		return;
	rsh_candidates_beside(s, beside, sizeof(beside));
	rsh_log_notice("%s: several checkpoints per rank, taking %s (%s)%s",
		       s->path, choice, rsh_store_name(s->store, 0), beside);
	say_absent(s, choice);
}
