/* SPDX-License-Identifier: Apache-2.0 */
/* source/save_dir_ranks.c lists steps of directories of ranks, which the format
 * finds. */
#include "config.h"

#include "save_dir_i.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "rsh/util/mem.h"
#include "source_i.h"

/* The files of this many ranks and steps are kept, with some 100 bytes each. */
#define KEPT_FILES_MAX 65536

/* Returns whether a file belongs to the step.  The files and the ranks of the
 * step ascend; *at is the first of them that was not asked for. */
static bool step_has_rank(const struct rsh_saved_step *t, uint32_t rank,
			  size_t *at)
{
	if (!t->ranks)
		return true;
	while (*at < t->n_ranks && t->ranks[*at] < rank)
		++*at;
	return *at < t->n_ranks && t->ranks[*at] == rank;
}

/* Computes the state of the candidate's files that belong to the step. */
static struct rsh_files_state
state_of_candidate(const struct rsh_source *s, const struct rsh_candidate *of,
		   const struct rsh_saved_step *t)
{
	struct rsh_files_state state = { .hash = 0 };
	size_t at = 0;

	for (size_t i = of->first; i < of->end; i++) {
		const struct rsh_checkpoint *c = &s->listing.files[i];
		const struct rsh_stat st = { .kind = RSH_IS_FILE,
					     .attr.mtime = c->mtime };

		if (step_has_rank(t, c->rank, &at))
			rsh_files_state_add(&state, c->name, &st);
	}
	return state;
}

static int step_keep_ranks(const struct rsh_source *s,
			   const struct rsh_candidate *of,
			   struct rsh_saved_step *t)
{
	t->ranks = rsh_alloc_array(of->end - of->first, sizeof(*t->ranks));
	if (!t->ranks)
		return -ENOMEM;
	for (size_t i = of->first; i < of->end; i++)
		t->ranks[t->n_ranks++] = s->listing.files[i].rank;
	return 0;
}

#define CANDIDATE_NAME_BYTES 48

static void candidate_name(const struct rsh_step *step,
			   char name[CANDIDATE_NAME_BYTES])
{
	if (step->n >= 2)
		snprintf(name, CANDIDATE_NAME_BYTES, "%" PRIu64 "_%" PRIu64,
			 step->numbers[0], step->numbers[1]);
	else
		snprintf(name, CANDIDATE_NAME_BYTES, "%" PRIu64,
			 step->numbers[0]);
}

static int check_candidate(struct rsh_save_look *l, struct rsh_source *s,
			   uint32_t i, struct rsh_saved_step *t,
			   struct rsh_names *names, struct rsh_error *err)
{
	const int rc = rsh_save_look_check(l, s, i, t, names, err);

	return rc > 0 ? step_keep_ranks(s, &s->candidates[i], t) : rc;
}

/* Keeps the files of a step of all ranks. */
static int step_keep_files(struct rsh_save_look *l, struct rsh_source *s,
			   const struct rsh_candidate *of,
			   struct rsh_saved_step *t)
{
	const size_t n = of->end - of->first;

	if (t->why || t->ranks || l->n_kept + n > KEPT_FILES_MAX)
		return 0;
	l->n_kept += n;
	return rsh_step_files_new(s, of, &t->files);
}

/* The files of ranks that the last look has not found do not change a step that
 * is complete without them. */
static int judge_candidate(struct rsh_save_look *l, struct rsh_source *s,
			   uint32_t i, struct rsh_saved_step *t,
			   struct rsh_names *names)
{
	const struct rsh_candidate *of = &s->candidates[i];
	const struct rsh_saved_step *old = rsh_saved_steps_find(l->before, t);
	const struct rsh_saved_step *known = old && !old->why ? old : t;
	struct rsh_files_state found = state_of_candidate(s, of, known);
	struct rsh_error err = RSH_ERROR_INIT;
	int rc;

	found.unreadable = l->unreadable;
	t->state = found;
	if (rsh_save_look_take_before(l, t, &rc)) {
		l->n_kept += t->files ? t->files->n : 0;
		return rc;
	}
	t->state = state_of_candidate(s, of, t);
	if (rsh_save_look_is_removing(l, t, &found, &err))
		return rsh_save_look_judge(t, -err.code, &err);
	rc = check_candidate(l, s, i, t, names, &err);
	rc = rsh_save_look_judge(t, rc, &err);
	return rc ? rc : step_keep_files(l, s, of, t);
}

static int take_candidate(struct rsh_save_look *l, struct rsh_source *s,
			  uint32_t i, struct rsh_names *names)
{
	const struct rsh_candidate *of = &s->candidates[i];
	const struct rsh_step *step = &s->listing.files[of->first].step;
	const size_t n = l->out->n;
	char name[CANDIDATE_NAME_BYTES];
	struct rsh_saved_step *t;

	candidate_name(step, name);
	/* Candidates descend by step, and of several runs of a step the newest
	 * is the first one. */
	if (step->n == 0 || (n && strcmp(l->out->v[n - 1].name, name) == 0))
		return 0;
	t = rsh_saved_steps_add(l->out, &(struct rsh_saved_step){
			.name = name, .path = (char *)(uintptr_t)l->o->path,
			.selected = true, .step = *step, .newest = n == 0,
		});
	return t ? judge_candidate(l, s, i, t, names) : -ENOMEM;
}

static int candidates_open(const struct rsh_save_dir_options *o,
			   struct rsh_source **out, struct rsh_error *err)
{
	struct rsh_source_options files = *o->files;

	files.select = RSH_SELECT_NEWEST;
	return rsh_source_open(o->path, o->first_rank, o->n_ranks, &files, out,
			       err);
}

/* Files that other ranks have saved since the look belong to the next one. */
int rsh_save_files_check_same(const struct rsh_store *store,
			      const struct rsh_saved_step *t,
			      struct rsh_error *err)
{
	struct rsh_files_state state = { .hash = 0 };
	int rc = 0;

	for (size_t i = 0; i < t->files->n && rc == 0; i++) {
		const char *name = t->files->v[i].name;
		struct rsh_stat st;

		rc = rsh_store_look(store, name, &st);
		st.size = 0;
		if (rc == 0)
			rsh_files_state_add(&state, name, &st);
		else if (rc != -ENOENT && rc != -ENOTDIR)
			return rsh_store_open_error(store, name, rc, err);
	}
	return rc || state.hash != t->state.hash ? -ESTALE : 0;
}

int rsh_save_ranks_check_same(const struct rsh_save_dir_options *o,
			      const struct rsh_saved_step *t,
			      struct rsh_error *err)
{
	char name[CANDIDATE_NAME_BYTES];
	struct rsh_source *s;
	int rc = candidates_open(o, &s, err);
	bool same = false;

	if (rc)
		return rc == -ENOENT ? -ESTALE : rc;
	for (uint32_t i = 0; i < s->n_candidates; i++) {
		const struct rsh_candidate *of = &s->candidates[i];

		candidate_name(&s->listing.files[of->first].step, name);
		if (strcmp(name, t->name) != 0)
			continue;
		same = state_of_candidate(s, of, t).hash == t->state.hash;
		break;
	}
	rsh_source_free(s);
	return same ? 0 : -ESTALE;
}

int rsh_save_look_at_ranks(struct rsh_save_look *l, struct rsh_error *err)
{
	struct rsh_names *names;
	struct rsh_source *s;
	int rc = candidates_open(l->o, &s, err);

	/* No rank has saved anything yet. */
	if (rc == -ENOENT)
		return 0;
	if (rc)
		return rc;
	names = rsh_names_new();
	rc = names ? 0 : -ENOMEM;
	for (uint32_t i = 0; i < s->n_candidates && rc == 0; i++)
		rc = take_candidate(l, s, i, names);
	rsh_source_free(s);
	rsh_names_free(names);
	return rc ? rsh_error_nomem(err) : 0;
}
