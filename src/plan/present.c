/* SPDX-License-Identifier: Apache-2.0 */
/* plan/present.c lists the source files that are there.  A job may name
 * a million ranks of which few have one, so only these are ever walked. */
#include <errno.h>
#include <stdlib.h>

#include "conversion_i.h"
#include "rsh/util/mem.h"

static uint32_t lower_bound(const uint32_t *v, uint32_t n, uint32_t x)
{
	uint32_t lo = 0;

	while (lo < n) {
		uint32_t mid = lo + (n - lo) / 2;

		if (v[mid] < x)
			lo = mid + 1;
		else
			n = mid;
	}
	return lo;
}

uint32_t rsh_present_from(const struct rsh_conversion *c, uint32_t rank)
{
	return lower_bound(c->present, c->n_present, rank);
}

uint32_t rsh_held_from(const struct rsh_conversion *c, uint32_t key)
{
	if (c->n_held == c->stage_ranks)
		return key;
	return lower_bound(c->held, c->n_held, key);
}

void rsh_stage_present(const struct rsh_conversion *c, uint32_t stage,
		       uint32_t *from, uint32_t *to)
{
	*from = rsh_present_from(c, rsh_source_rank(c, stage, 0));
	*to = rsh_present_from(c, rsh_source_rank(c, stage + 1, 0));
}

static void list_held(struct rsh_conversion *c)
{
	uint32_t end = rsh_source_rank(c, c->n_stages, 0);
	uint32_t n = 0;

	for (uint32_t i = 0; i < c->n_present; i++)
		if (c->present[i] >= c->first_rank && c->present[i] < end)
			c->held[c->n_held++] =
				(c->present[i] - c->first_rank) %
				c->stage_ranks;
	qsort(c->held, c->n_held, sizeof(*c->held), rsh_by_u32);
	for (uint32_t i = 0; i < c->n_held; i++)
		if (n == 0 || c->held[i] != c->held[n - 1])
			c->held[n++] = c->held[i];
	c->n_held = n;
}

struct owner {
	const struct rsh_ckpt_index *index;
	uint32_t rank;
};

static int by_index(const void *a, const void *b)
{
	const struct owner *x = a, *y = b;

	return x->index < y->index ? -1 : x->index > y->index;
}

/* Numbers the distinct indexes. */
static int number_indexes(struct rsh_conversion *c)
{
	cleanup_free struct owner *o = rsh_alloc_array(c->n_present,
						       sizeof(*o));

	if (!o)
		return -ENOMEM;
	for (uint32_t i = 0; i < c->n_present; i++)
		o[i] = (struct owner){ c->index[c->present[i]],
				       c->present[i] };
	qsort(o, c->n_present, sizeof(*o), by_index);
	for (uint32_t i = 0; i < c->n_present; i++) {
		if (i == 0 || o[i].index != o[i - 1].index)
			c->n_indexes++;
		c->index_id[o[i].rank] = c->n_indexes - 1;
	}
	return 0;
}

int rsh_present_make(struct rsh_conversion *c)
{
	uint32_t n = 0;

	for (uint32_t r = 0; r < c->n_view; r++)
		n += c->index[r] != NULL;
	c->present = rsh_alloc_array(n, sizeof(*c->present));
	c->held = rsh_alloc_array(n, sizeof(*c->held));
	c->index_id = calloc((size_t)c->n_view + 1, sizeof(*c->index_id));
	if (!c->present || !c->held || !c->index_id)
		return -ENOMEM;
	for (uint32_t r = 0; r < c->n_view; r++)
		if (c->index[r])
			c->present[c->n_present++] = r;
	list_held(c);
	return number_indexes(c);
}
