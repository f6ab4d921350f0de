/* SPDX-License-Identifier: Apache-2.0 */
/* converter/held.c lists the keys that some stage has a file of.  A job may
 * name a million ranks of which few have one, so only these are ever walked. */
#include <errno.h>
#include <stdlib.h>

#include "converter_i.h"
#include "rsh/util/mem.h"

uint32_t rsh_held_from(const struct rsh_converter *c, uint32_t key)
{
	if (c->n_held == c->stage_ranks)
		return key;
	return rsh_first_from(c->held, c->n_held, key);
}

void rsh_stage_present(const struct rsh_converter *c, uint32_t stage,
		       uint32_t *from, uint32_t *to)
{
	*from = rsh_catalogue_present_from(c->cat, rsh_source_rank(c, stage, 0));
	*to = rsh_catalogue_present_from(c->cat, rsh_source_rank(c, stage + 1, 0));
}

static void list_held(struct rsh_converter *c)
{
	uint32_t end = rsh_source_rank(c, c->n_stages, 0);
	uint32_t n = 0;

	for (uint32_t i = 0; i < c->cat->n_present; i++)
		if (c->cat->present[i] >= c->first_rank && c->cat->present[i] < end)
			c->held[c->n_held++] =
				(c->cat->present[i] - c->first_rank) %
				c->stage_ranks;
	qsort(c->held, c->n_held, sizeof(*c->held), rsh_by_u32);
	for (uint32_t i = 0; i < c->n_held; i++)
		if (n == 0 || c->held[i] != c->held[n - 1])
			c->held[n++] = c->held[i];
	c->n_held = n;
}

int rsh_held_make(struct rsh_converter *c)
{
	c->held = rsh_alloc_array(c->cat->n_present, sizeof(*c->held));
	if (!c->held)
		return -ENOMEM;
	list_held(c);
	return 0;
}
