/* SPDX-License-Identifier: Apache-2.0 */
/* contents/find.c finds what the bytes of one tensor show about its cut.
 *
 * Holders are sorted by slice to find differences inside a slice, and by hash
 * to find equal bytes in two slices.
 */
#include "config.h"

#include "contents_i.h"

#include <errno.h>
#include <stdlib.h>

#include "rsh/util/mem.h"

RSH_ORDER(holder_by_cell, struct rsh_sampled,
	  rsh_compare_u64(x->cell, y->cell) ?:
	  rsh_compare_u64(x->rank, y->rank))

RSH_ORDER(holder_by_hash, struct rsh_sampled,
	  rsh_compare_u64(x->hash, y->hash) ?:
	  rsh_compare_u64(x->rank, y->rank))

uint32_t rsh_subject_enough(const struct rsh_subject *s)
{
	unsigned size = rsh_dtype_size(s->record->dtype);
	uint64_t n = s->record->content_bytes / (size ? size : 1);

	/* A slice of one element, or of less than RSH_CONTENTS_DISTINCT bytes,
	 * has so few possible values that equal slices are common. */
	if (n < 2 || s->record->content_bytes < RSH_CONTENTS_DISTINCT)
		return UINT32_MAX;
	return n < RSH_CONTENTS_DISTINCT ? (uint32_t)n : RSH_CONTENTS_DISTINCT;
}

/* Keeps a pair of neighbours in the sorted list if it has the lowest rank so
 * far. */
static void find_take_pair(bool *any, uint32_t pair[2],
			   const struct rsh_sampled *h)
{
	if (*any && pair[0] < h[0].rank)
		return;
	*any = true;
	pair[0] = h[0].rank;
	pair[1] = h[1].rank;
}

int rsh_subject_find(struct rsh_subject *s)
{
	cleanup_free struct rsh_sampled *h =
		rsh_alloc_array(s->n_holders, sizeof(*h));
	uint32_t n = 0, enough = rsh_subject_enough(s);
	struct rsh_finding *f = &s->finding;
	bool several = false;

	if (!h)
		return -ENOMEM;
	*f = (struct rsh_finding){ .total = true, .along_first = true };
	for (uint32_t i = 0; i < s->n_holders; i++)
		if (!s->holders[i].failed && s->n_read > 0)
			h[n++] = s->holders[i];
	/* Do ranks of one slice differ, and ranks of two slices as they
	 * should? */
	qsort(h, n, sizeof(*h), holder_by_cell);
	for (uint32_t i = 1; i < n; i++) {
		const bool same = h[i].hash == h[i - 1].hash;

		if (h[i].cell != h[i - 1].cell) {
			f->told |= !same;
			continue;
		}
		f->told |= !same || h[i].distinct >= enough;
		if (!same)
			find_take_pair(&f->finer, f->differ, &h[i - 1]);
	}
	/* Are ranks of two slices equal? */
	qsort(h, n, sizeof(*h), holder_by_hash);
	for (uint32_t i = 1; i < n; i++) {
		if (h[i].hash != h[i - 1].hash) {
			several = true;
			continue;
		}
		if (h[i].cell == h[i - 1].cell || h[i].distinct < enough)
			continue;
		f->told = true;
		f->along_first &= h[i].rest == h[i - 1].rest;
		find_take_pair(&f->coarser, f->same, &h[i - 1]);
	}
	f->total = f->coarser && !several;
	f->along_first &= f->coarser;
	return 0;
}

/* ---- groups ---- */

RSH_ORDER(holder_by_rank, struct rsh_sampled, rsh_compare_u64(x->rank, y->rank))

int rsh_subject_group(struct rsh_subject *s, struct rsh_groups *g)
{
	g->n = 0;
	g->ranks = rsh_alloc_array(s->n_holders, sizeof(*g->ranks));
	g->group = rsh_alloc_array(s->n_holders, sizeof(*g->group));
	if (!g->ranks || !g->group)
		return -ENOMEM;
	rsh_sort(s->holders, s->n_holders, holder_by_rank);
	for (uint32_t i = 0; i < s->n_holders; i++) {
		uint32_t first = 0;

		if (s->holders[i].failed)
			continue;
		while (s->holders[first].failed ||
		       s->holders[first].hash != s->holders[i].hash)
			first++;
		g->ranks[g->n] = s->holders[i].rank;
		g->group[g->n++] = first;
	}
	return 0;
}

void rsh_groups_clear(struct rsh_groups *g)
{
	free(g->ranks);
	free(g->group);
}
