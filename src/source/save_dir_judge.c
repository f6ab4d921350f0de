/* SPDX-License-Identifier: Apache-2.0 */
/* source/save_dir_judge.c decides whether a step is complete, with what the
 * last look has found. */
#include "config.h"

#include "save_dir_i.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "rsh/util/clock.h"
#include "source_i.h"

int rsh_save_look_explain(struct rsh_saved_step *t, const struct rsh_error *why)
{
	t->why = strdup(why->text);
	return t->why ? 0 : -ENOMEM;
}

/* Returns whether the next look may have another result, although no file
 * changes. */
static bool is_passing(int code)
{
	static const int passing[] = { EIO,    ESTALE, ETIMEDOUT, EMFILE,
				       ENFILE, EACCES, EAGAIN };

	for (size_t i = 0; i < sizeof(passing) / sizeof(passing[0]); i++)
		if (code == passing[i])
			return true;
	return false;
}

/* The first sentence stays: it names what is missing.  A step in a directory of
 * its own may be the newest one. */
int rsh_save_look_check(struct rsh_save_look *l, struct rsh_source *s,
			uint32_t i, const struct rsh_saved_step *t,
			struct rsh_names *names, struct rsh_error *err)
{
	const struct rsh_save_dir_options *o = l->o;
	struct rsh_error unused = RSH_ERROR_INIT;
	int rc = rsh_source_check_whole(s, i, names, err), covers;

	if (rc == 0 || rc == -ENOMEM || !o->covers ||
	    s->format->owner != RSH_OWNER_RANK)
		return rc;
	covers = o->covers(o->ctx, t, o->partly && t->selected && !t->newest,
			   &unused);
	if (covers == 0)
		return 1;
	return covers == -ENOMEM || is_passing(-covers) ? covers : rc;
}

bool rsh_save_look_take_before(const struct rsh_save_look *l,
			       struct rsh_saved_step *t, int *rc)
{
	const struct rsh_saved_step *old = rsh_saved_steps_find(l->before, t);
	struct rsh_saved_step copy;

	*rc = 0;
	if (!old || old->state.hash != t->state.hash ||
	    (old->why && old->newest && !t->newest))
		return false;
	*rc = rsh_saved_step_copy(old, &copy);
	if (*rc == 0) {
		copy.newest = t->newest;
		rsh_saved_step_clear(t);
		*t = copy;
	}
	return true;
}

int rsh_save_look_judge(struct rsh_saved_step *t, int rc,
			const struct rsh_error *err)
{
	if (rc == 0)
		return 0;
	if (is_passing(-rc))
		t->state.hash = 0;
	return rc == -ENOMEM ? rc : rsh_save_look_explain(t, err);
}

/* Frameworks remove the files of a step in any order, so what is left of it may
 * look complete.  The number of its files is kept until a file is written. */
bool rsh_save_look_is_removing(const struct rsh_save_look *l,
			       struct rsh_saved_step *t,
			       const struct rsh_files_state *now,
			       struct rsh_error *err)
{
	const struct rsh_saved_step *old = rsh_saved_steps_find(l->before, t);

	if (!old || now->n >= old->state.n ||
	    rsh_clock_compare(&now->newest, &old->state.newest) > 0)
		return false;
	if (t->state.n < old->state.n)
		t->state.n = old->state.n;
	if (rsh_clock_compare(&old->state.newest, &t->state.newest) > 0)
		t->state.newest = old->state.newest;
	if (now->unreadable)
		rsh_error_set(err, EACCES, "%s: a directory with files of "
			      "step %s cannot be read", l->o->path, t->name);
	else
		rsh_error_set(err, ENOENT, "%s: files were removed of step %s",
			      l->o->path, t->name);
	return true;
}
