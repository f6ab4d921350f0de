/* SPDX-License-Identifier: Apache-2.0 */
/* plan/converter/copy_source.c finds the file from which a record is copied.
 * Planning and reading both call it, so they use the same file. */

#include "converter_i.h"
#include "rsh/util/mem.h"

/* Returns whether the record of this rank is like the record of the first file
 * that has it.  If it is not, the ranks of an unsharded source do not hold the
 * same records, although they should. */
static bool is_like_first(const struct rsh_converter *c, uint32_t name,
			  uint32_t rank)
{
	const struct rsh_ckpt_index *ix = rsh_catalogue_index(c->cat, rank);
	const struct rsh_record *r = ix ? rsh_ckpt_find(ix, name) : NULL;
	const uint32_t at = rsh_catalogue_first(c->cat, name);
	const struct rsh_ckpt_index *first;

	if (!r || at >= rank)
		return true;
	first = rsh_catalogue_index(c->cat, at);
	return rsh_records_alike(ix, r, first, rsh_ckpt_find(first, name));
}

/* Returns the index of the first loaded stage that may have a file with the
 * name.  This saves time without a strategy, where each rank is a stage. */
static uint32_t first_stage(const struct rsh_converter *c,
			    const struct rsh_dst_stage *b, uint32_t name)
{
	const uint32_t rank = rsh_catalogue_first(c->cat, name);

	return rsh_first(i, b->n_stages,
			 rsh_job_rank(&c->files, b->stages[i],
				      c->files.stage_ranks - 1) < rank);
}

static bool find_in_stages(const struct rsh_converter *c,
			   const struct rsh_dst_stage *b, uint32_t name,
			   uint32_t key, const atomic_bool *avoid,
			   uint32_t *rank)
{
	for (uint32_t i = first_stage(c, b, name); i < b->n_stages; i++) {
		const struct rsh_strategy_param *s;

		*rank = rsh_job_rank(&c->files, b->stages[i], key);
		if (!rsh_catalogue_record(c->cat, *rank, name) ||
		    rsh_is_avoided(avoid, *rank))
			continue;
		s = rsh_strategy_find(c->src, name);
		if (s && !rsh_job_stage_cuts(&c->files, name, b->stages[i],
					     rsh_param_source_stage(s)->item))
			continue;
		if (c->src || !c->dst || is_like_first(c, name, *rank))
			return true;
	}
	return false;
}

/* Finds a replica by a loop over the files.  It is used if there are fewer
 * files than replicas. */
static bool find_held_replica(const struct rsh_converter *c,
			      const struct rsh_copy_order *o, uint32_t name,
			      const atomic_bool *avoid, uint32_t *rank)
{
	const struct rsh_grid *g = c->copy_grids[name];
	uint32_t n = rsh_grid_n_replicas(g);
	uint32_t place = rsh_grid_place(g, o->copy_key);
	const struct rsh_job_files *f = &c->files;
	uint32_t best = n;

	for (uint32_t i = 0; i < f->n_held; i++) {
		uint32_t other = rsh_grid_place(g, f->held[i]), after, found;

		after = (other + n - place % n) % n;
		if (other / n != place / n || after == 0 || after >= best ||
		    !find_in_stages(c, o->dst_stage, name, f->held[i], avoid,
				    &found))
			continue;
		best = after;
		*rank = found;
	}
	return best < n;
}

/* Finds a replica.  The search begins with the replica after `copy_key`, so
 * that the reads of a lost rank are spread over several ranks. */
static bool find_replica(const struct rsh_converter *c,
			 const struct rsh_copy_order *o, uint32_t name,
			 const atomic_bool *avoid, uint32_t *rank)
{
	const struct rsh_grid *g = c->copy_grids[name];
	uint32_t n = rsh_grid_n_replicas(g);
	uint32_t mine = rsh_grid_replica(g, o->copy_key);
	uint32_t cell[RSH_MAX_DIMS];

	if (c->files.n_held < n)
		return find_held_replica(c, o, name, avoid, rank);
	rsh_grid_cell(g, o->copy_key, cell);
	for (uint32_t i = 1; i < n; i++)
		if (find_in_stages(c, o->dst_stage, name,
				   rsh_grid_member(g, cell, (mine + i) % n),
				   avoid, rank))
			return true;
	return false;
}

bool rsh_copy_source(const struct rsh_converter *c,
		     const struct rsh_copy_order *o, uint32_t name,
		     const atomic_bool *avoid, uint32_t *rank, bool *elsewhere)
{
	const struct rsh_grid *g = c->copy_grids[name];
	const struct rsh_job_files *f = &c->files;
	const uint32_t first = rsh_catalogue_first(c->cat, name);
	uint32_t from = 0, to = f->n_held;

	if (elsewhere)
		*elsewhere = false;
	if (find_in_stages(c, o->dst_stage, name, o->copy_key, avoid, rank))
		return true;
	if (elsewhere)
		*elsewhere = true;
	if (g && c->o.replicas) {
		if (find_replica(c, o, name, avoid, rank))
			return true;
		/* The record is a slice, so any other record would have other
		 * bytes. */
		if (rsh_grid_n_replicas(g) < rsh_grid_n_ranks(g))
			return false;
	}
	/* With one stage, no key outside of the first and the last file has the
	 * record. */
	if (f->n_stages == 1 && first != UINT32_MAX && first >= f->first_rank) {
		from = rsh_job_files_from(f, first - f->first_rank);
		to = rsh_first_from(f->held, f->n_held,
				    rsh_catalogue_last(c->cat, name) -
					    f->first_rank + 1);
	}
	for (int loaded = 1; loaded >= !c->o.replicas; loaded--)
		for (uint32_t i = from; i < to; i++)
			if (o->keys[i] == loaded &&
			    find_in_stages(c, o->dst_stage, name, f->held[i],
					   avoid, rank))
				return true;
	return false;
}
