/* SPDX-License-Identifier: Apache-2.0 */
/* plan/redundancy.c assigns parameters to the ranks of groups round-robin. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "rsh/plan/redundancy.h"
#include "rsh/strategy/grid.h"
#include "rsh/util/mem.h"

/* The ranks that hold the same slices, ascending. */
struct redundancy_group {
	uint32_t n;
	uint32_t *ranks;
	uint32_t n_given; /* parameters that were assigned to them */
};

struct rsh_redundancy {
	uint32_t local;
	struct redundancy_group *groups;
	uint32_t n_groups;
	size_t cap;
	uint32_t *ranks; /* scratch: the current group */
	uint32_t n;
	size_t ranks_cap;
};

struct rsh_redundancy *rsh_redundancy_new(uint32_t local)
{
	struct rsh_redundancy *d = calloc(1, sizeof(*d));

	if (d)
		d->local = local;
	return d;
}

void rsh_redundancy_free(struct rsh_redundancy *d)
{
	if (!d)
		return;
	for (uint32_t i = 0; i < d->n_groups; i++)
		free(d->groups[i].ranks);
	free(d->groups);
	free(d->ranks);
	free(d);
}

/* Finds the local ranks that hold the same slice. */
static int redundancy_find_group(struct rsh_redundancy *d,
				 const struct rsh_grid *g)
{
	uint32_t cell[RSH_MAX_DIMS];

	d->n = rsh_grid_n_replicas(g);
	if (rsh_grow(&d->ranks, &d->ranks_cap, d->n, sizeof(*d->ranks)))
		return -ENOMEM;
	rsh_grid_cell(g, d->local, cell);
	for (uint32_t i = 0; i < d->n; i++)
		d->ranks[i] = rsh_grid_member(g, cell, i);
	qsort(d->ranks, d->n, sizeof(*d->ranks), rsh_by_u32);
	return 0;
}

static struct redundancy_group *redundancy_keep_group(struct rsh_redundancy *d)
{
	struct redundancy_group *g;

	for (uint32_t i = 0; i < d->n_groups; i++) {
		g = &d->groups[i];
		if (g->n == d->n && memcmp(g->ranks, d->ranks,
					   d->n * sizeof(*d->ranks)) == 0)
			return g;
	}
	if (rsh_grow(&d->groups, &d->cap, d->n_groups + 1, sizeof(*d->groups)))
		return NULL;
	g = &d->groups[d->n_groups];
	*g = (struct redundancy_group){ .n = d->n };
	g->ranks = rsh_alloc_array(d->n, sizeof(*g->ranks));
	if (!g->ranks)
		return NULL;
	memcpy(g->ranks, d->ranks, d->n * sizeof(*d->ranks));
	d->n_groups++;
	return g;
}

int rsh_redundancy_next(struct rsh_redundancy *d, const struct rsh_grid *grid,
			bool *keeps, struct rsh_error *err)
{
	struct redundancy_group *g = redundancy_find_group(d, grid)
					     ? NULL
					     : redundancy_keep_group(d);

	if (!g)
		return rsh_error_nomem(err);
	*keeps = g->ranks[g->n_given++ % g->n] == d->local;
	return 0;
}

int rsh_redundancy_unsaved(struct rsh_redundancy *d,
			   const struct rsh_strategy_item *item, bool *keeps,
			   struct rsh_error *err)
{
	struct rsh_grid *unsized;
	int rc = rsh_grid_new_unsized(item, &unsized, err);

	if (rc)
		return rc;
	rc = rsh_redundancy_next(d, unsized, keeps, err);
	rsh_grid_free(unsized);
	return rc;
}

static int redundancy_by_text(const void *a, const void *b, void *names)
{
	return strcmp(rsh_names_text(names, *(const uint32_t *)a),
		      rsh_names_text(names, *(const uint32_t *)b));
}

void rsh_redundancy_sort(uint32_t *list, uint32_t n, struct rsh_names *names)
{
	qsort_r(list, n, sizeof(*list), redundancy_by_text, names);
}
