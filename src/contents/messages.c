/* SPDX-License-Identifier: Apache-2.0 */
/* contents/messages.c makes the sentence that says what is wrong with a
 * strategy, and which one would be right. */
#include "config.h"

#include "contents_i.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "rsh/strategy/partition.h"
#include "rsh/util/mem.h"

/* ---- explanations ---- */

static const struct rsh_strategy_item *
say_item_of_rank(const struct rsh_strategy *st, uint32_t name, uint32_t rank)
{
	const struct rsh_strategy_param *p = rsh_strategy_find(st, name);
	uint32_t stage = rank / st->stage_ranks;

	return p && stage >= st->lone_stage ?
	       rsh_param_item(p, stage - st->lone_stage) : NULL;
}

/* Returns whether the bytes of this tensor fit the destination's strategy. */
static bool say_fits_other(const struct rsh_contents *c,
			   const struct rsh_subject *s)
{
	struct rsh_subject other = *s;
	const uint32_t ranks = c->dst->stage_ranks;
	bool fits = false;

	other.item = say_item_of_rank(c->dst, s->name, s->holders[0].rank);
	other.first = s->holders[0].rank / ranks * ranks;
	other.n_local = ranks;
	other.from = 0;
	other.to = ranks - 1;
	for (uint32_t i = 0; i < s->n_holders; i++)
		if (say_item_of_rank(c->dst, s->name, s->holders[i].rank) !=
		    other.item)
			return false;
	other.holders = rsh_alloc_array(s->n_holders, sizeof(*other.holders));
	if (other.item && other.holders) {
		memcpy(other.holders, s->holders,
		       s->n_holders * sizeof(*other.holders));
		fits = rsh_subject_set_cells(c, &other) == 0 &&
		       rsh_subject_find(&other) == 0 &&
		       !other.finding.finer && !other.finding.coarser;
	}
	free(other.holders);
	return fits;
}

static bool say_is_swapped(const struct rsh_contents *c)
{
	if (!c->src || !c->dst)
		return false;
	for (uint32_t i = 0; i < c->n_subjects; i++) {
		const struct rsh_subject *s = &c->subjects[i];

		if (s->finding.told && s->kind > RSH_TENSOR_OTHER &&
		    s->n_holders > 0 && !say_fits_other(c, s))
			return false;
	}
	return true;
}

/* Returns whether another strategy explains the groups.  Files that are damaged
 * or from another time fit no mesh. */
static bool say_guess(const struct rsh_contents *c, const struct rsh_subject *s,
		      const struct rsh_groups *g, char *text, size_t size)
{
	struct rsh_partition_axis axes[RSH_PARTITION_MAX_AXES];
	char mesh[256];
	unsigned n;
	int rc;

	text[0] = '\0';
	if (say_is_swapped(c)) {
		snprintf(text, size, "; the tree fits %s: are source and "
			 "destination swapped?", c->dst->path);
		return true;
	}
	/* A mesh covers all ranks of a stage. */
	if (g->n != s->n_local)
		return false;
	rc = rsh_partition_mesh(g->group, g->n, axes, &n);
	if (rc == 0)
		snprintf(text, size, "; %s would explain it",
			 rsh_partition_mesh_text(axes, n, mesh, sizeof(mesh)));
	else if (rc == -ENOENT)
		snprintf(text, size, "; no mesh would explain it: a file is "
			 "damaged, or of another save");
	return rc == 0;
}

/* ---- the sentence ---- */

static bool say_same_stage(const struct rsh_subject *s,
			   const uint32_t ranks[2])
{
	for (unsigned i = 0; i < 2; i++)
		if (ranks[i] < s->first || ranks[i] - s->first >= s->n_local)
			return false;
	return true;
}

/* Reads the tensor on every rank if there are not too many, so that the message
 * can list all groups. */
static void say_read_all(struct rsh_contents *c, struct rsh_subject *s)
{
	struct rsh_subject more = *s, *one = &more;

	if (s->expanded || s->n_local > RSH_CONTENTS_EXPLAIN)
		return;
	more.holders = NULL;
	if (rsh_subject_find_holders(c, &more, true) == 0) {
		for (unsigned i = 0; i < s->n_read; i++)
			if ((i + 1) * more.n_holders <= RSH_CONTENTS_EXPLAIN)
				rsh_contents_read(c, &one, 1, false);
		/* Files may have failed since the first read. */
		if (rsh_subject_find(&more) == 0 &&
		    (more.finding.finer || more.finding.coarser)) {
			free(s->holders);
			*s = more;
			return;
		}
	}
	free(more.holders);
}

int rsh_contents_refuse(struct rsh_contents *c, struct rsh_subject *s,
			unsigned n_against, unsigned n_told,
			struct rsh_error *err)
{
	char whose[320], pair[128], seen[260] = "", would[384], layout[160];
	char text[256];
	const struct rsh_finding *f = &s->finding;
	struct rsh_groups g;
	bool explained;

	say_read_all(c, s);
	if (rsh_subject_group(s, &g) != 0) {
		rsh_groups_clear(&g);
		return rsh_error_nomem(err);
	}
	if (f->finer)
		snprintf(pair, sizeof(pair), "ranks %u and %u%s should hold "
			 "the same slice, but their bytes differ", f->differ[0],
			 f->differ[1], say_same_stage(s, f->differ) ? "" :
			 " of two stages");
	else
		snprintf(pair, sizeof(pair), "ranks %u and %u should hold "
			 "different slices, but their bytes are the same",
			 f->same[0], f->same[1]);
	explained = say_guess(c, s, &g, would, sizeof(would));
	if (!c->src)
		snprintf(whose, sizeof(whose), "it was saved under a strategy, "
			 "for without one all ranks hold the same");
	else
		snprintf(whose, sizeof(whose), explained ?
			 "%s is not the strategy of this tree" :
			 "its contents contradict %s", c->src->path);
	/* If there were too many such tensors, the ranks of this one were not
	 * kept. */
	if (g.n > 1)
		snprintf(seen, sizeof(seen), " (%s)",
			 rsh_partition_text(g.ranks, g.group, g.n, text,
					    sizeof(text)));
	rsh_groups_clear(&g);
	return rsh_error_set(
		err, EINVAL,
		"%s: %s: parameter %s (%s): %s%s; %u "
		"of %u tensors that were compared contradict it%s; "
		"--check structure does not compare them",
		c->path, whose, rsh_names_text(c->names, s->name),
		rsh_item_text(s->item, layout, sizeof(layout)), pair,
		seen, n_against, n_told, would);
}
