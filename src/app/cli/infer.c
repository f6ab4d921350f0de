/* SPDX-License-Identifier: Apache-2.0 */
/* app/cli/infer.c runs `strategy infer`: it chooses the step, groups the
 * tensors that the same ranks hold into sets, and finds a mesh for each set. */
#include "config.h"

#include "infer.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "rsh/source/format.h"
#include "rsh/source/inspect.h"
#include "rsh/util/log.h"
#include "rsh/util/mem.h"
#include "rsh/vfs/choice.h"

/* ---- which step ---- */

/* Chooses and indexes step i; *n is how many ranks have a valid file of it. */
static int look_at_subject(struct rsh_infer *x, uint32_t i, size_t *n,
			   struct rsh_error *err)
{
	int rc;

	/* Names of another step must not remain in the table. */
	rsh_names_free(x->names);
	x->names = rsh_names_new();
	if (!x->names)
		return rsh_error_nomem(err);
	*n = 0;
	rc = rsh_source_choose(x->source, i, err) ?:
	     rsh_source_index(x->source, x->names, err);
	rsh_source_view(x->source, x->names, &x->view);
	for (size_t k = 0; rc == 0 && k < x->n_there; k++)
		*n += rsh_infer_has_file(x, x->there[k]);
	rsh_source_candidate_text(x->source, i, x->step, sizeof(x->step));
	return rc;
}

/* Takes the newest step of which all ranks of the tree have a valid file, or
 * else the step of which most ranks have one.  It logs a line for each
 * incomplete step, with the first damaged file. */
static int take_inferred_step(struct rsh_infer *x, struct rsh_error *err)
{
	const uint32_t n = rsh_source_n_candidates(x->source);
	uint32_t best = 0;
	size_t most = 0;

	for (uint32_t i = 0; i < n; i++) {
		const char *bad;
		size_t have;
		int rc = look_at_subject(x, i, &have, err);

		if (rc == -ENOMEM || (rc && n == 1))
			return rc;
		if (rc == 0 && have == x->n_there && have > 0)
			return 0;
		if (rsh_source_n_bad(x->source, &bad) == 0)
			bad = NULL;
		if (have > 0 || bad)
			rsh_log_warning("%s: %s is incomplete: %zu of %zu "
					"ranks have a valid file%s%s",
					x->options->vfs.source, x->step, have,
					x->n_there, bad ? "; " : "",
					bad ? bad : "");
		if (have > most) {
			most = have;
			best = i;
		}
	}
	if (most == 0)
		return rsh_error_set(err, ENOENT, "%s: no rank has a valid "
				     "checkpoint file", x->options->vfs.source);
	return n == 1 ? 0 : look_at_subject(x, best, &most, err);
}

/* ---- its tensors ---- */

static bool is_subject(void *ctx, const char *name)
{
	const struct rsh_infer *x = ctx;

	return !x->choice || rsh_choice_wants(x->choice, name);
}

static uint32_t *copy_numbers(struct rsh_infer *x, const uint32_t *from,
			      uint32_t n)
{
	uint32_t *to = rsh_arena_array(&x->arena, uint32_t, n);

	return to && n ? memcpy(to, from, n * sizeof(*to)) : to;
}

static int infer_add_tensor(void *ctx, const struct rsh_inferred *t)
{
	struct rsh_infer *x = ctx;
	struct rsh_infer_tensor *to;
	struct rsh_infer_set s = { .n = t->n_holders, .follows = true };

	if (rsh_room(x->tensors, x->cap_tensors, x->n_tensors + 1))
		return -ENOMEM;
	to = &x->tensors[x->n_tensors++];
	*to = (struct rsh_infer_tensor){ .of = *t };
	to->of.ranks = copy_numbers(x, t->ranks, t->n);
	to->of.group = copy_numbers(x, t->group, t->n);
	if (!to->of.ranks || !to->of.group)
		return -ENOMEM;
	/* Mostly it is the set of the previous tensor. */
	for (size_t i = x->n_sets; i-- > 0;)
		if (x->sets[i].n == s.n &&
		    memcmp(x->sets[i].ranks, t->holders,
			   s.n * sizeof(*s.ranks)) == 0) {
			to->set = (uint32_t)i;
			return 0;
		}
	s.ranks = copy_numbers(x, t->holders, s.n);
	if (!s.ranks || rsh_room(x->sets, x->cap_sets, x->n_sets + 1))
		return -ENOMEM;
	s.first = s.ranks[0];
	s.span = s.ranks[s.n - 1] - s.ranks[0] + 1;
	for (uint32_t i = 1; i < s.n; i++)
		for (uint32_t r = s.ranks[i - 1] + 1; r < s.ranks[i]; r++)
			s.follows &= !rsh_infer_has_file(x, r);
	to->set = (uint32_t)x->n_sets;
	x->sets[x->n_sets++] = s;
	return 0;
}

/* ---- all ---- */

static int infer_layouts(struct rsh_infer *x, struct rsh_error *err)
{
	const struct rsh_options *o = x->options;
	struct rsh_printer out;
	int rc = rsh_choice_new(o->vfs.only, o->vfs.drop, &x->choice, err) ?:
		 rsh_source_open(o->vfs.source, 0, UINT32_MAX,
				 &o->vfs.files, &x->source, err);

	if (rc)
		return rc;
	if (!rsh_source_format(x->source)->by_name &&
	    rsh_source_format(x->source)->layout == RSH_LAYOUT_WHOLE)
		return rsh_error_set(err, EINVAL, "%s: a %s has no rank "
				     "files to infer a strategy from",
				     o->vfs.source,
				     rsh_source_format(x->source)->says);
	if (rsh_source_ranks(x->source, &x->there, &x->n_there))
		return rsh_error_nomem(err);
	rc = take_inferred_step(x, err);
	if (rc)
		return rc;
	rsh_source_log_choice(x->source);
	rc = rsh_contents_infer(x->source, x->names, is_subject, infer_add_tensor,
				x) ?:
	     rsh_infer_explain(x);
	if (rc)
		return rsh_error_nomem(err);
	rsh_printer_init(&out, o);
	rsh_infer_print(&out, x);
	return rsh_printer_end(&out, 0, err);
}

enum rsh_exit rsh_infer_command(const struct rsh_options *o)
{
	struct rsh_error err = RSH_ERROR_INIT;
	struct rsh_infer x = { .options = o };
	int rc = infer_layouts(&x, &err);

	rsh_arena_clear(&x.arena);
	free(x.tensors);
	free(x.sets);
	free(x.there);
	rsh_choice_free(x.choice);
	rsh_source_free(x.source);
	rsh_names_free(x.names);
	return rc ? rsh_exit_failed(o, rc, &err) : RSH_EXIT_GOOD;
}
