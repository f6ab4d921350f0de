/* SPDX-License-Identifier: Apache-2.0 */
/* converter/deal.c deals parameters out among the ranks that hold the same
 * slices.
 *
 * MindSpore's ModelCheckpoint with remove_redundancy lets one rank of each
 * group of replicas keep a parameter: those of one group, in the order of their
 * names, go round the group's ranks in turn. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "planner_i.h"
#include "rsh/util/mem.h"

/* A group is the ranks that hold the same slices, ascending.  `dealt` counts
 * the parameters that they have been dealt. */
struct deal_group {
	uint32_t n;
	uint32_t *ranks;
	uint32_t dealt;
};

struct deal {
	struct deal_group *groups;
	uint32_t n_groups;
	size_t cap;
	uint32_t *ranks; /* scratch: the group at hand */
	uint32_t n;
};

static void deal_clear(struct deal *d)
{
	for (uint32_t i = 0; i < d->n_groups; i++)
		free(d->groups[i].ranks);
	free(d->groups);
	free(d->ranks);
}

/* Finds the local ranks that hold the same slice as `local`. */
static void find_group(struct deal *d, const struct rsh_grid *g, uint32_t local)
{
	uint32_t cell[RSH_MAX_DIMS];

	rsh_grid_cell(g, local, cell);
	d->n = rsh_grid_n_replicas(g);
	for (uint32_t i = 0; i < d->n; i++)
		d->ranks[i] = rsh_grid_member(g, cell, i);
	qsort(d->ranks, d->n, sizeof(*d->ranks), rsh_by_u32);
}

static struct deal_group *keep_group(struct deal *d)
{
	struct deal_group *g;

	for (uint32_t i = 0; i < d->n_groups; i++) {
		g = &d->groups[i];
		if (g->n == d->n && memcmp(g->ranks, d->ranks,
					   d->n * sizeof(*d->ranks)) == 0)
			return g;
	}
	if (rsh_grow(&d->groups, &d->cap, d->n_groups + 1, sizeof(*d->groups)))
		return NULL;
	g = &d->groups[d->n_groups];
	*g = (struct deal_group){ .n = d->n };
	g->ranks = rsh_alloc_array(d->n, sizeof(*g->ranks));
	if (!g->ranks)
		return NULL;
	memcpy(g->ranks, d->ranks, d->n * sizeof(*d->ranks));
	d->n_groups++;
	return g;
}

/* Deals one parameter out, and notes whether another rank than `local` keeps
 * it. */
static int deal_one(struct planner *p, struct deal *d, uint32_t name,
		    uint32_t local, struct rsh_error *err)
{
	const struct rsh_converter *c = p->c;
	uint32_t t = p->shown_of[name];
	const struct rsh_param_stage *stage;
	struct rsh_grid *unsized = NULL;
	struct deal_group *g;
	int rc;

	if (t != RSH_NO_SHOWN) {
		find_group(d, rsh_cut_grid(c->handled[t].cut), local);
	} else {
		/* A parameter that is listed but was never saved takes its turn
		 * all the same. */
		stage = rsh_param_dest_stage(c->dst,
					     rsh_strategy_find(c->dst, name),
					     p->block * c->dst_ranks, false);
		rc = rsh_grid_new_unsized(stage->item, &unsized, err);
		if (rc)
			return rc;
		find_group(d, unsized, local);
		rsh_grid_free(unsized);
	}
	g = keep_group(d);
	if (!g)
		return rsh_error_nomem(err);
	p->dealt[name] = g->ranks[g->dealt++ % g->n] != local;
	return 0;
}

static int deal_by_text(const void *a, const void *b, void *names)
{
	return strcmp(rsh_names_text(names, *(const uint32_t *)a),
		      rsh_names_text(names, *(const uint32_t *)b));
}

static int sort_names(struct planner *p)
{
	const struct rsh_converter *c = p->c;

	p->by_text = rsh_alloc_array(c->cat->n_names, sizeof(*p->by_text));
	p->dealt = calloc(c->cat->n_names + 1, sizeof(*p->dealt));
	if (!p->by_text || !p->dealt)
		return -ENOMEM;
	for (uint32_t name = 0; name < c->cat->n_names; name++)
		if (p->fate[name] == FATE_HANDLED && rsh_listed(c->dst, name))
			p->by_text[p->n_by_text++] = name;
	qsort_r(p->by_text, p->n_by_text, sizeof(*p->by_text), deal_by_text,
		c->cat->names);
	return 0;
}

int rsh_planner_deal(struct planner *p, uint32_t local, struct rsh_error *err)
{
	__attribute__((cleanup(deal_clear))) struct deal d = { 0 };

	if (!p->c->remove_redundancy)
		return 0;
	if (!p->by_text && sort_names(p))
		return rsh_error_nomem(err);
	d.ranks = rsh_alloc_array(p->c->dst_ranks, sizeof(*d.ranks));
	if (!d.ranks)
		return rsh_error_nomem(err);
	for (uint32_t i = 0; i < p->n_by_text; i++) {
		int rc = deal_one(p, &d, p->by_text[i], local, err);

		if (rc)
			return rc;
	}
	return 0;
}
