/* SPDX-License-Identifier: Apache-2.0 */
/* converter/deal.c deals the converter's parameters out among replicas. */
#include <errno.h>
#include <stdlib.h>

#include "planner_i.h"
#include "rsh/util/mem.h"
#include "rsh/writer/redundancy.h"

/* Deals one parameter out, and notes whether another rank keeps it. */
static int redundancy_one(struct planner *p, struct rsh_redundancy *d,
			  uint32_t name, struct rsh_error *err)
{
	const struct rsh_converter *c = p->c;
	uint32_t t = p->shown_of[name];
	const struct rsh_param_stage *stage;
	bool keeps = true;
	int rc;

	if (t != RSH_NO_SHOWN) {
		rc = rsh_redundancy_next(d, rsh_cut_grid(c->handled[t].cut),
					 &keeps, err);
	} else {
		stage = rsh_param_dest_stage(c->dst,
					     rsh_strategy_find(c->dst, name),
					     p->block * c->dst_ranks, false);
		rc = rsh_redundancy_unsaved(d, stage->item, &keeps, err);
	}
	p->dealt[name] = !keeps;
	return rc;
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
	rsh_redundancy_sort(p->by_text, p->n_by_text, c->cat->names);
	return 0;
}

int rsh_planner_deal(struct planner *p, uint32_t local, struct rsh_error *err)
{
	struct rsh_redundancy *d;
	int rc = 0;

	if (!p->c->remove_redundancy)
		return 0;
	if (!p->by_text && sort_names(p))
		return rsh_error_nomem(err);
	d = rsh_redundancy_new(local);
	if (!d)
		return rsh_error_nomem(err);
	for (uint32_t i = 0; i < p->n_by_text && rc == 0; i++)
		rc = redundancy_one(p, d, p->by_text[i], err);
	rsh_redundancy_free(d);
	return rc;
}
