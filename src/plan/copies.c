/* SPDX-License-Identifier: Apache-2.0 */
/* plan/copies.c picks the file from which a cell of a tensor is read.
 *
 * Holders are sorted by the places of their ranks.  The holders of one cell
 * follow each other:
 *
 *   place    0   1   2   3   4   5     3 cells of 2 replicas
 *   file     7   .   2   9   .   .     three files are missing: one of cell 0
 *                                      and both of cell 2
 *
 * For cell 0 and replica 1 there is no file at place 1; the search continues
 * from the start of the cell and gives file 7. */
#include <errno.h>
#include <search.h>
#include <stdlib.h>
#include <string.h>

#include "plan_i.h"
#include "rsh/util/mem.h"

/* A table with an entry for every place is faster than a search.  It is made
 * only if it has at most so many entries for each holder. */
#define ALL_PER_HOLDER 16

/* A holder, at the place of its rank. */
struct placed_holder {
	uint32_t place;
	uint32_t given; /* its number among the holders as they were given */
};

struct rsh_copies {
	const struct rsh_cut *cut;
	bool replicas;
	uint32_t n;
	struct rsh_holder *holders; /* as they were given */
	struct placed_holder *at;   /* by place, then as they were given */
	uint32_t n_cells;
	uint32_t *all; /* [place]: index in `at` of the first one from there on;
			* NULL: the table would be too large */
};

RSH_ORDER(holders_by_place, struct placed_holder,
	  rsh_compare_u64(x->place, y->place) ?:
	  rsh_compare_u64(x->given, y->given))

static int copies_place(struct rsh_copies *c, const struct rsh_holder *holders)
{
	c->holders = rsh_alloc_array(c->n, sizeof(*c->holders));
	c->at = rsh_alloc_array(c->n, sizeof(*c->at));
	if (!c->holders || !c->at)
		return -ENOMEM;
	for (uint32_t i = 0; i < c->n; i++) {
		c->holders[i] = holders[i];
		c->at[i] = (struct placed_holder){
			rsh_cut_place(c->cut, holders[i].rank), i
		};
	}
	qsort(c->at, c->n, sizeof(*c->at), holders_by_place);
	return 0;
}

static uint32_t copies_from(const struct rsh_copies *c, uint32_t place)
{
	return c->all ? c->all[place] :
	       rsh_first(i, c->n, c->at[i].place < place);
}

static int copies_list_all(struct rsh_copies *c)
{
	const uint32_t n = rsh_cut_n_ranks(c->cut);
	uint32_t i = 0;

	if (n / ALL_PER_HOLDER > c->n)
		return 0;
	c->all = rsh_alloc_array((size_t)n + 1, sizeof(*c->all));
	if (!c->all)
		return -ENOMEM;
	for (uint32_t place = 0; place <= n; place++) {
		while (i < c->n && c->at[i].place < place)
			i++;
		c->all[place] = i;
	}
	return 0;
}

void rsh_copies_each(const struct rsh_copies *c, rsh_cell_fn *each, void *ctx)
{
	const struct rsh_grid *g = rsh_cut_grid(c->cut);
	uint32_t cell = 0, end;

	for (uint32_t i = 0; i < c->n;) {
		if (g) {
			cell = c->at[i].place / rsh_grid_n_replicas(g);
			end = (cell + 1) * rsh_grid_n_replicas(g);
		} else {
			while (rsh_cut_first_place(c->cut, cell + 1) <=
			       c->at[i].place)
				cell++;
			end = rsh_cut_first_place(c->cut, cell + 1);
		}
		while (i < c->n && c->at[i].place < end)
			i++;
		each(ctx, cell);
	}
}

static void copies_count_cell(void *ctx, uint32_t cell)
{
	uint32_t *n = ctx;

	(void)cell;
	++*n;
}

void rsh_copies_free(struct rsh_copies *c)
{
	if (!c)
		return;
	free(c->holders);
	free(c->at);
	free(c->all);
	free(c);
}

RSH_ORDER(copies_compare, struct rsh_copies,
	  rsh_compare_u64((uintptr_t)x->cut, (uintptr_t)y->cut) ?:
	  rsh_compare_u64(x->n, y->n) ?:
	  rsh_compare_u64(x->replicas, y->replicas) ?:
	  (x->n ? memcmp(x->holders, y->holders,
	  x->n * sizeof(*x->holders)) : 0))

/* Most tensors with the same cut are in the same files, so their copies are
 * equal and are kept once. */
static const struct rsh_copies *
copies_find(const struct rsh_catalogue *c, const struct rsh_cut *cut,
	    const struct rsh_holder *holders, uint32_t n, bool replicas)
{
	const struct rsh_copies key = {
		.cut = cut, .replicas = replicas, .n = n,
		.holders = (struct rsh_holder *)(uintptr_t)holders,
	};
	struct rsh_copies **found = tfind(&key, &c->copies, copies_compare);

	return found ? *found : NULL;
}

const struct rsh_copies *
rsh_catalogue_keep_copies(struct rsh_catalogue *c, const struct rsh_cut *cut,
			  const struct rsh_holder *holders, uint32_t n,
			  bool replicas)
{
	const struct rsh_copies *found = copies_find(c, cut, holders, n,
						     replicas);
	struct rsh_copies *s;

	if (found)
		return found;
	s = calloc(1, sizeof(*s));
	if (!s)
		return NULL;
	*s = (struct rsh_copies){ .cut = cut, .replicas = replicas, .n = n };
	if (copies_place(s, holders) || copies_list_all(s) ||
	    !tsearch(s, &c->copies, copies_compare)) {
		rsh_copies_free(s);
		return NULL;
	}
	rsh_copies_each(s, copies_count_cell, &s->n_cells);
	return s;
}

uint32_t rsh_copies_n_cells(const struct rsh_copies *c)
{
	return c->n_cells;
}

bool rsh_copies_have_replicas(const struct rsh_copies *c)
{
	return c->replicas;
}

uint32_t rsh_copies_n_holders(const struct rsh_copies *c)
{
	return c->n;
}

const struct rsh_holder *rsh_copies_holders(const struct rsh_copies *c)
{
	return c->holders;
}

/* Finds the first holder at places [from, end) that is not to be avoided. */
static bool copies_pick_within(const struct rsh_copies *c, uint32_t from,
			       uint32_t end, const atomic_bool *avoid,
			       struct rsh_holder *out)
{
	for (uint32_t i = copies_from(c, from);
	     i < c->n && c->at[i].place < end; i++) {
		const struct rsh_holder *h = &c->holders[c->at[i].given];

		if (!rsh_is_avoided(avoid, h->file)) {
			*out = *h;
			return true;
		}
	}
	return false;
}

bool rsh_copies_pick(const struct rsh_copies *c, uint32_t cell,
		     uint32_t replica, const atomic_bool *avoid,
		     struct rsh_holder *out)
{
	const uint32_t first = rsh_cut_first_place(c->cut, cell);
	const uint32_t own = first + replica;
	uint32_t end;

	if (!c->replicas && !avoid)
		return copies_pick_within(c, own, own + 1, NULL, out);
	end = first + rsh_cut_n_replicas(c->cut, cell);
	return copies_pick_within(c, own, end, avoid, out) ||
	       copies_pick_within(c, first, own, avoid, out);
}
