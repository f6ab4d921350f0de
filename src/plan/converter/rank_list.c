/* SPDX-License-Identifier: Apache-2.0 */
/* plan/converter/rank_list.c computes MindSpore's rank_list_for_transform.
 * This is one list of local ranks for all pairs of layouts.  It is repeated for
 * every source stage that has parameters of the destination stage. */
#include "rsh/plan/rank_list.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "rsh/plan/redistribution.h"
#include "rsh/util/mem.h"

struct pair {
	const struct rsh_strategy_item *src, *dst;
	struct rsh_redistribution *redist;
};

struct rsh_rank_list {
	const struct rsh_strategy *src; /* NULL: unsharded */
	uint32_t dst_ranks;             /* in a stage */
	bool *stages;                   /* [stage of src]: it is loaded */
	uint32_t n;
	size_t cap;
	struct pair *pairs;
};

/* Adds a pair of layouts.  0, -ENOMEM, or -EDOM: they cannot be
 * redistributed. */
static int list_add_pair(struct rsh_rank_list *l,
			 const struct rsh_strategy_item *src,
			 const struct rsh_strategy_item *dst)
{
	struct pair *p;
	int rc;

	/* MindSpore treats an expanded map as the map of a tensor with more
	 * dimensions. */
	if (dst && dst->n_map != src->n_map)
		return -EDOM;
	for (uint32_t i = 0; i < l->n; i++)
		if (rsh_item_same_layout(l->pairs[i].src, src) &&
		    rsh_item_same_layout(l->pairs[i].dst, dst))
			return 0;
	if (rsh_room(l->pairs, l->cap, l->n + 1))
		return -ENOMEM;
	p = &l->pairs[l->n];
	*p = (struct pair){ src, dst, NULL };
	rc = rsh_redistribution_new(src, dst, NULL, src->n_map,
				    RSH_GRID_CONVERTER, &p->redist);
	if (rc == 0)
		l->n++;
	return rc;
}

static int list_collect(struct rsh_rank_list *l, const struct rsh_strategy *dst,
			uint32_t stage, const struct rsh_names *names,
			struct rsh_error *err)
{
	char a[160], b[160];
	uint32_t left = 0;
	int rc = 0;

	for (uint32_t i = 0; i < l->src->n_params && rc == 0; i++) {
		const struct rsh_strategy_param *s = &l->src->params[i];
		const struct rsh_strategy_param *d =
			rsh_strategy_find(dst, s->name);
		const struct rsh_strategy_item *from =
			rsh_param_source_stage(s)->item, *to = NULL;

		if (d && !rsh_param_in_stage(d, stage))
			continue;
		left++;
		for (uint32_t k = 0; k < s->n_stages; k++)
			l->stages[s->stages[k].stage] = true;
		if (dst && !d)
			continue;
		if (d)
			to = rsh_param_dest_stage(dst, d,
						  stage * dst->stage_ranks,
						  true)->item;
		rc = list_add_pair(l, from, to);
		if (rc == -EDOM)
			rc = rsh_error_set(err, EDOM, "%s: MindSpore has no "
					   "list for parameter %s from %s to "
					   "%s", l->src->path,
					   rsh_names_text(names, s->name),
					   rsh_item_text(from, a, sizeof(a)),
					   rsh_item_text(to, b, sizeof(b)));
		else if (rc)
			rc = rsh_error_nomem(err);
	}
	if (rc == 0 && left == 0)
		rc = rsh_error_set(err, EDOM, "%s: none of its parameters is "
				   "of stage %u of %s", l->src->path, stage,
				   dst->path);
	return rc;
}

int rsh_rank_list_new(const struct rsh_strategy *src,
		      const struct rsh_strategy *dst, uint32_t stage,
		      const struct rsh_names *names, struct rsh_rank_list **out,
		      struct rsh_error *err)
{
	struct rsh_rank_list *l = calloc(1, sizeof(*l));
	int rc = 0;

	if (!l)
		return rsh_error_nomem(err);
	l->src = src;
	l->dst_ranks = dst ? dst->stage_ranks : 1;
	if (src) {
		l->stages = calloc(src->n_stages, sizeof(*l->stages));
		rc = l->stages ? list_collect(l, dst, stage, names, err) :
				 rsh_error_nomem(err);
	}
	if (rc) {
		rsh_rank_list_free(l);
		return rc;
	}
	*out = l;
	return 0;
}

void rsh_rank_list_free(struct rsh_rank_list *l)
{
	if (!l)
		return;
	for (uint32_t i = 0; i < l->n; i++)
		rsh_redistribution_free(l->pairs[i].redist);
	free(l->pairs);
	free(l->stages);
	free(l);
}

void rsh_rank_list_mark(const struct rsh_rank_list *l, uint32_t rank,
			bool *ranks, uint32_t n)
{
	/* If a stage has one device, MindSpore's function uses the global
	 * rank. */
	uint32_t local = l->dst_ranks > 1 ? rank % l->dst_ranks : rank;
	uint32_t per_stage = l->src ? l->src->stage_ranks : 1;

	memset(ranks, 0, n);
	if (!l->src && n > 0)
		ranks[0] = true;
	/* The same keys are loaded from each stage. */
	for (uint32_t s = 0; l->src && s < l->src->n_stages; s++) {
		uint32_t first = s * per_stage;

		if (!l->stages[s] || first >= n)
			continue;
		for (uint32_t i = 0; i < l->n; i++)
			rsh_redistribution_keys(l->pairs[i].redist, local,
						ranks + first,
						n - first < per_stage ?
						n - first : per_stage);
	}
}
