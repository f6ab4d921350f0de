/* SPDX-License-Identifier: Apache-2.0 */
/* contents/cut.c finds how a tensor is cut by its strategy, and which tensors
 * are cut alike. */
#include "config.h"

#include "contents_i.h"

#define XXH_INLINE_ALL
#include <xxhash.h>

int rsh_subject_grid(const struct rsh_contents *c, const struct rsh_subject *s,
		     struct rsh_grid **out)
{
	return s->item ?
		rsh_grid_new(s->item, rsh_record_dims(s->index, s->record),
			     s->record->n_dims, true, c->rule, out, NULL) :
		rsh_grid_new_whole(s->record->n_dims, out, NULL);
}

/* Sets which slice the rank has, and its number when dimension 0 is left
 * out. */
static void cut_cell(const struct rsh_grid *g, uint32_t local,
		     struct rsh_sampled *h)
{
	uint32_t cell[RSH_MAX_DIMS];

	h->cell = h->rest = 0;
	if (rsh_grid_n_dims(g) == 0)
		return;
	rsh_grid_cell(g, local, cell);
	for (uint32_t d = 0; d < rsh_grid_n_dims(g); d++) {
		h->cell = h->cell * rsh_grid_split(g, d) + cell[d];
		if (d > 0)
			h->rest = h->rest * rsh_grid_split(g, d) + cell[d];
	}
}

static uint64_t cut_hash(uint64_t a, uint64_t b)
{
	const uint64_t both[2] = { a, b };

	return XXH3_64bits(both, sizeof(both));
}

/* Makes a number of which ranks share rank 0's slice, of those that tell meshes
 * apart. */
static uint64_t cut_partition(const struct rsh_grid *g, uint32_t n)
{
	struct rsh_sampled zero, other;
	uint64_t hash = n;

	cut_cell(g, 0, &zero);
	for (uint32_t d = 1; d < n; d++) {
		if (n % d)
			continue;
		cut_cell(g, d, &other);
		hash = cut_hash(hash, d * 2 + (other.cell == zero.cell));
	}
	return hash;
}

static uint64_t cut_layout(const struct rsh_strategy_item *it)
{
	uint64_t hash = 0;

	if (!it)
		return 0;
	for (uint32_t i = 0; i < it->n_mesh; i++)
		hash = cut_hash(hash, it->mesh[i]);
	for (uint32_t e = 0; e < it->n_map; e++) {
		hash = cut_hash(hash, UINT64_MAX);
		for (uint32_t i = 0; i < it->map[e].n; i++)
			hash = cut_hash(hash, (uint32_t)it->map[e].axes[i]);
	}
	hash = cut_hash(hash, (uint32_t)it->opt_step);
	return cut_hash(hash, (uint32_t)it->opt_size);
}

int rsh_subject_set_cut(const struct rsh_contents *c, struct rsh_subject *s)
{
	const struct rsh_subject *last = c->n_subjects ?
		&c->subjects[c->n_subjects - 1] : NULL;
	struct rsh_grid *g;
	int rc;

	/* What all ranks hold whole is cut alike. */
	if (last && !s->item && !last->item && last->n_local == s->n_local) {
		s->partition = last->partition;
		s->layout = last->layout;
		return 0;
	}
	rc = rsh_subject_grid(c, s, &g);
	if (rc)
		return rc;
	s->partition = cut_partition(g, s->n_local);
	s->layout = cut_hash(cut_layout(s->item), s->partition);
	rsh_grid_free(g);
	return 0;
}

int rsh_subject_set_cells(const struct rsh_contents *c, struct rsh_subject *s)
{
	struct rsh_grid *g;
	int rc = rsh_subject_grid(c, s, &g);

	if (rc)
		return rc;
	for (uint32_t i = 0; i < s->n_holders; i++)
		cut_cell(g, s->holders[i].rank % s->n_local, &s->holders[i]);
	rsh_grid_free(g);
	return 0;
}
