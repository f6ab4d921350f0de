/* SPDX-License-Identifier: Apache-2.0 */
/* plan/supply.c answers which source file supplies which slice of a handled
 * parameter. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "conversion_i.h"
#include "rsh/util/mem.h"

/* A rank for every key is looked up faster than searched for, and as long as
 * it takes no more than that for each file that is there. */
#define ALL_PER_FILE 16

static int by_place(const void *a, const void *b)
{
	const struct rsh_holder *x = a, *y = b;

	return x->place < y->place ? -1 : x->place > y->place;
}

static uint32_t first_from(const struct rsh_supply *s, uint32_t place)
{
	uint32_t lo = 0, hi = s->n;

	while (lo < hi) {
		uint32_t mid = lo + (hi - lo) / 2;

		if (s->at[mid].place < place)
			lo = mid + 1;
		else
			hi = mid;
	}
	return lo;
}

/* The slice's own file or, where replicas make up for it, the one of the next
 * rank that holds the same: after the last comes the first, so that the load of
 * a lost rank spreads. */
static uint32_t search(const struct rsh_supply *s, uint32_t key)
{
	uint32_t place = rsh_grid_place(s->grid, key);
	uint32_t n = rsh_grid_n_replicas(s->grid);
	uint32_t first = place - place % n;
	uint32_t i = first_from(s, place);

	if (i < s->n && s->at[i].place == place)
		return s->at[i].rank;
	if (!s->replicas)
		return RSH_NO_RANK;
	if (i == s->n || s->at[i].place >= first + n)
		i = first_from(s, first);
	return i < s->n && s->at[i].place < first + n ? s->at[i].rank :
							RSH_NO_RANK;
}

uint32_t rsh_supply_rank(const struct rsh_supply *s, uint32_t key)
{
	return s->all ? s->all[key] : search(s, key);
}

static int list_all(const struct rsh_conversion *c, struct rsh_supply *s)
{
	uint32_t *all;

	if (c->stage_ranks / ALL_PER_FILE > s->n)
		return 0;
	all = rsh_alloc_array(c->stage_ranks, sizeof(*all));
	if (!all)
		return -ENOMEM;
	for (uint32_t k = 0; k < c->stage_ranks; k++)
		all[k] = search(s, k);
	s->all = all;
	return 0;
}

static int fill(const struct rsh_conversion *c, struct rsh_supply *s)
{
	const uint32_t n = rsh_grid_n_replicas(s->grid);

	s->at = rsh_alloc_array(c->n_held, sizeof(*s->at));
	if (!s->at)
		return -ENOMEM;
	for (uint32_t i = 0; i < c->n_held; i++)
		if (s->own[i] != RSH_NO_RANK)
			s->at[s->n++] = (struct rsh_holder){
				rsh_grid_place(s->grid, c->held[i]),
				s->own[i], c->held[i],
			};
	qsort(s->at, s->n, sizeof(*s->at), by_place);
	for (uint32_t i = 0; i < s->n; i++)
		s->n_cells += i == 0 ||
			      s->at[i].place / n != s->at[i - 1].place / n;
	return list_all(c, s);
}

void rsh_supply_free(struct rsh_supply *s)
{
	if (!s)
		return;
	free(s->own);
	free(s->at);
	free(s->all);
	free(s);
}

int rsh_supply_keep(struct rsh_conversion *c, const struct rsh_grid *grid,
		    uint32_t *own, const struct rsh_supply **out)
{
	struct rsh_supply *s;

	for (uint32_t i = 0; i < c->n_supplies; i++) {
		s = c->supplies[i];
		if (s->grid != grid ||
		    memcmp(s->own, own, c->n_held * sizeof(*own)) != 0)
			continue;
		free(own);
		*out = s;
		return 0;
	}
	s = calloc(1, sizeof(*s));
	if (!s) {
		free(own);
		return -ENOMEM;
	}
	s->grid = grid;
	s->own = own;
	s->replicas = c->replicas;
	if (fill(c, s) ||
	    rsh_grow(&c->supplies, &c->supplies_cap, c->n_supplies + 1,
		     sizeof(*c->supplies))) {
		rsh_supply_free(s);
		return -ENOMEM;
	}
	c->supplies[c->n_supplies++] = s;
	*out = s;
	return 0;
}
