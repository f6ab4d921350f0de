/* SPDX-License-Identifier: Apache-2.0 */
/* strategy/replicas.c finds the ranks that hold the same slice of every
 * parameter. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "rsh/strategy/grid.h"
#include "rsh/strategy/strategy.h"
#include "rsh/util/mem.h"

static bool same_cell(const struct rsh_strategy_item *item, uint32_t a,
		      uint32_t b)
{
	uint32_t cell_a[RSH_MAX_DIMS], cell_b[RSH_MAX_DIMS];
	cleanup_grid struct rsh_grid *g = NULL;

	/* The plan reports a layout that is not valid. */
	if (rsh_grid_new_unsized(item, &g, NULL))
		return true;
	rsh_grid_cell(g, a, cell_a);
	rsh_grid_cell(g, b, cell_b);
	return memcmp(cell_a, cell_b, item->n_map * sizeof(*cell_a)) == 0;
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
			rsh_param_item(&s->params[i], stage);

		if (!item || same_cell(item, a % s->stage_ranks,
				       b % s->stage_ranks))
			continue;
		*differs = s->params[i].name;
		return false;
	}
	return true;
}

/* ---- all ranks at once ---- */

/* This is a rank that is being sorted into a group. */
struct member {
	uint32_t rank;
	uint32_t group;  /* group by the layouts before this one */
	uint32_t holder; /* first rank that holds the same slice in this
			  * layout */
};

RSH_ORDER(by_group_and_holder, struct member,
	  rsh_compare_u64(x->group, y->group) ?:
	  rsh_compare_u64(x->holder, y->holder) ?:
	  rsh_compare_u64(x->rank, y->rank))

/* Divides the groups of a stage by one layout; `base` is the stage's first
 * rank. */
static void divide(const struct rsh_grid *g, uint32_t base, uint32_t *first,
		   struct member *m)
{
	uint32_t n = rsh_grid_n_ranks(g), cell[RSH_MAX_DIMS], leader = 0;

	for (uint32_t r = 0; r < n; r++) {
		rsh_grid_cell(g, r, cell);
		m[r] = (struct member){ r, first[base + r],
					rsh_grid_member(g, cell, 0) };
	}
	qsort(m, n, sizeof(*m), by_group_and_holder);
	for (uint32_t i = 0; i < n; i++) {
		if (i == 0 || m[i].group != m[i - 1].group ||
		    m[i].holder != m[i - 1].holder)
			leader = base + m[i].rank;
		first[base + m[i].rank] = leader;
	}
}

int rsh_strategy_replicas(const struct rsh_strategy *s, uint32_t *first)
{
	cleanup_free struct member *scratch =
		rsh_alloc_array(s->stage_ranks, sizeof(*scratch));
	cleanup_free const struct rsh_strategy_item **seen = NULL;
	size_t cap = 0;

	if (!scratch)
		return -ENOMEM;
	for (uint32_t stage = 0; stage < s->n_stages; stage++) {
		const uint32_t base = stage * s->stage_ranks;
		size_t n = 0;

		for (uint32_t r = 0; r < s->stage_ranks; r++)
			first[base + r] = base;
		for (uint32_t i = 0; i < s->n_params; i++) {
			const struct rsh_strategy_item *item =
				rsh_param_item(&s->params[i], stage);
			struct rsh_grid *g;

			if (!item || rsh_any(k, n, rsh_item_same_layout(seen[k],
									item)))
				continue;
			if (rsh_push(seen, n, cap, item))
				return -ENOMEM;
			if (rsh_grid_new_unsized(item, &g, NULL))
				continue;
			divide(g, base, first, scratch);
			rsh_grid_free(g);
		}
	}
	return 0;
}
