/* Which ranks are copies of each other. */
#include <string.h>

#include "rsh/layout/grid.h"
#include "rsh/layout/strategy.h"

static const struct rsh_strategy_item *
item_in_stage(const struct rsh_strategy_param *p, uint32_t stage)
{
	for (uint32_t i = 0; i < p->n_stages; i++)
		if (p->stages[i].stage == stage)
			return p->stages[i].item;
	return NULL;
}

static bool same_cell(const struct rsh_strategy_item *item, uint32_t a,
		      uint32_t b)
{
	uint32_t cell_a[RSH_MAX_DIMS], cell_b[RSH_MAX_DIMS];
	struct rsh_grid *g;
	bool same;

	/* A layout that does not make sense is the planner's to refuse. */
	if (rsh_grid_new_unsized(item, &g, NULL))
		return true;
	rsh_grid_cell(g, a, cell_a);
	rsh_grid_cell(g, b, cell_b);
	same = memcmp(cell_a, cell_b, item->n_map * sizeof(*cell_a)) == 0;
	rsh_grid_free(g);
	return same;
}

bool rsh_strategy_same_slices(const struct rsh_strategy *s, uint32_t a,
			      uint32_t b, uint32_t *differs)
{
	uint32_t stage = a / s->stage_ranks;

	*differs = RSH_NAME_NONE;
	if (b / s->stage_ranks != stage)
		return false;
	for (uint32_t i = 0; i < s->n_params; i++) {
		const struct rsh_strategy_item *item =
			item_in_stage(&s->params[i], stage);

		if (!item || same_cell(item, a % s->stage_ranks,
				       b % s->stage_ranks))
			continue;
		*differs = s->params[i].name;
		return false;
	}
	return true;
}
