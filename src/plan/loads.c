/* Which source ranks the converter would load. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "planner_i.h"
#include "rsh/util/checked.h"
#include "rsh/util/mem.h"

static int add_pair(struct planner *p, const struct rsh_strategy_item *src,
		    const struct rsh_strategy_item *dst, uint32_t transfer)
{
	enum rsh_grid_rule rule = p->c->compat ? RSH_GRID_CONVERTER :
						 RSH_GRID_RUNTIME;
	const struct rsh_transfer *t = NULL;
	int64_t whole[RSH_MAX_DIMS];
	struct layout_pair *lp;
	int rc;

	for (uint32_t i = 0; i < p->n_pairs; i++) {
		lp = &p->pairs[i];
		if (!rsh_item_same_layout(lp->src, src) ||
		    !rsh_item_same_layout(lp->dst, dst))
			continue;
		if (lp->transfer != RSH_NO_TRANSFER ||
		    transfer == RSH_NO_TRANSFER)
			return 0;
		/* Only now are the dimensions known. */
		rsh_redistribution_free(lp->redist);
		p->pairs[i] = p->pairs[--p->n_pairs];
		break;
	}
	if (rsh_grow(&p->pairs, &p->pairs_cap, p->n_pairs + 1,
		     sizeof(*p->pairs)))
		return -ENOMEM;
	lp = &p->pairs[p->n_pairs];
	*lp = (struct layout_pair){ src, dst, NULL, transfer };
	if (transfer != RSH_NO_TRANSFER) {
		const struct rsh_grid_pair *g;

		t = p->c->transfers[transfer];
		g = &p->c->pairs[t->pair];
		for (uint32_t d = 0; d < t->n_dims; d++)
			whole[d] = t->dims[d] * rsh_grid_split(g->dst, d);
	}
	rc = rsh_redistribution_new(src, dst, t ? whole : NULL,
				    t ? t->n_dims : src->n_map, rule,
				    &lp->redist);
	if (rc == -ENOMEM)
		return rc;
	p->n_pairs++;
	if (t && (rc || src->n_map != t->n_dims ||
		  (dst && dst->n_map != t->n_dims)))
		rsh_note_add(p->c, RSH_NOTE_REFUSED, t->name);
	return 0;
}

int rsh_plan_collect_pairs(struct planner *p, struct rsh_error *err)
{
	const struct rsh_conversion *c = p->c;

	if (!c->src || c->by_stage)
		return 0;
	for (uint32_t i = 0; i < c->src->n_params; i++) {
		const struct rsh_strategy_param *s = &c->src->params[i];
		const struct rsh_strategy_param *d = rsh_listed(c->dst, s->name);
		const struct rsh_strategy_item *to = NULL;

		if (p->fate[s->name] != FATE_HANDLED)
			continue;
		if (d)
			to = rsh_param_dest_stage(c->dst, d,
						  p->block * c->dst_ranks,
						  c->compat)->item;
		if (add_pair(p, rsh_param_source_stage(s)->item, to,
			     p->transfer_of[s->name]))
			return rsh_error_nomem(err);
	}
	return 0;
}

uint32_t rsh_plan_file_to_copy(const struct planner *p, uint32_t local)
{
	const struct rsh_conversion *c = p->c;

	if (rsh_rank_index(c, local))
		return local;
	for (uint32_t rank = 0; rank < c->n_view; rank++)
		if (rsh_rank_index(c, rank))
			return rank;
	return 0;
}

/* The wanted names of a file that were not seen in this epoch. */
static uint32_t see_names(struct planner *p, const struct rsh_ckpt_index *ix)
{
	uint32_t n = 0;

	for (uint32_t r = 0; r < ix->n_records; r++) {
		uint32_t name = ix->records[r].name;

		if (p->fate[name] == FATE_DROPPED || p->seen[name] == p->epoch)
			continue;
		p->seen[name] = p->epoch;
		n++;
	}
	return n;
}

bool rsh_plan_is_part(struct planner *p, uint32_t rank)
{
	const struct rsh_conversion *c = p->c;
	const struct rsh_ckpt_index *ix = rsh_rank_index(c, rank);

	if (!ix)
		return false;
	if (p->n_held == 0) {
		p->epoch++;
		for (uint32_t r = 0; r < c->n_view; r++)
			if (c->index[r] && p->index_id[r] == r)
				p->n_held += see_names(p, c->index[r]);
	}
	p->epoch++;
	return see_names(p, ix) < p->n_held;
}

void rsh_plan_mark_keys(struct planner *p, uint32_t local)
{
	const struct rsh_conversion *c = p->c;

	memset(p->keys, c->by_stage, c->stage_ranks);
	if (!c->src)
		p->keys[c->dst ? 0 : rsh_plan_file_to_copy(p, local)] = true;
	for (uint32_t i = 0; i < p->n_pairs; i++) {
		const struct layout_pair *lp = &p->pairs[i];

		if (lp->redist) {
			rsh_redistribution_keys(lp->redist, local, p->keys,
						c->stage_ranks);
		} else if (lp->transfer != RSH_NO_TRANSFER) {
			rsh_pair_keys(&c->pairs[c->transfers[lp->transfer]->pair],
				      local, p->keys, c->stage_ranks);
			/* Its plans always name the rank's own counterpart,
			 * which copied records come from. */
			p->keys[local % c->stage_ranks] = true;
		}
	}
}

/* Gives the conversion's own copy of p->keys. */
const bool *rsh_plan_keep_keys(struct planner *p)
{
	struct rsh_conversion *c = p->c;
	bool *copy;

	for (uint32_t i = 0; i < c->n_key_sets; i++)
		if (memcmp(c->key_sets[i], p->keys, c->stage_ranks) == 0)
			return c->key_sets[i];
	if (rsh_grow(&c->key_sets, &c->key_sets_cap, c->n_key_sets + 1,
		     sizeof(*c->key_sets)))
		return NULL;
	copy = rsh_alloc_array(c->stage_ranks, sizeof(*copy));
	if (!copy)
		return NULL;
	c->key_sets[c->n_key_sets++] = memcpy(copy, p->keys, c->stage_ranks);
	return copy;
}

