/* SPDX-License-Identifier: Apache-2.0 */
/* plan/needs.c lists the source files that a virtual file needs, and finds
 * what is missing of them. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "planner_i.h"
#include "rsh/util/checked.h"
#include "rsh/util/mem.h"

/* Returns the rank whose file is to hold the slice. */
static uint32_t slice_rank(const struct rsh_conversion *c, uint32_t name,
			   uint32_t key)
{
	const struct rsh_strategy_param *s = rsh_listed(c->src, name);
	uint32_t stage = s && !c->by_stage ? rsh_param_source_stage(s)->stage :
					     0;

	return rsh_source_rank(c, stage, key);
}

/* Says that the rank's file is not there, or that it is and lacks the
 * parameter. */
static int missing(const struct planner *p, const struct rsh_virtual_file *f,
		   uint32_t name, uint32_t rank, const char *layouts,
		   struct rsh_error *err)
{
	const struct rsh_conversion *c = p->c;
	uint32_t needs = p->block * c->dst_ranks + f->local;

	if (!rsh_rank_index(c, rank))
		return rsh_error_set(err, ENOENT,
				     "rank %u has no checkpoint file, but rank "
				     "%u needs its slice of parameter %s%s",
				     rank, needs, rsh_plan_name(p, name),
				     layouts);
	return rsh_error_set(err, ENOENT,
			     "%s: the file is valid, but parameter %s is not "
			     "in it, of which rank %u needs its slice%s",
			     c->path[rank] ? c->path[rank] : "?",
			     rsh_plan_name(p, name), needs, layouts);
}

static int missing_slice(const struct planner *p,
			 const struct rsh_virtual_file *f, uint32_t name,
			 uint32_t key, struct rsh_error *err)
{
	const struct rsh_conversion *c = p->c;
	const struct rsh_strategy_param *s = rsh_listed(c->src, name);
	const struct rsh_strategy_param *d = rsh_listed(c->dst, name);
	uint32_t needs = p->block * c->dst_ranks + f->local;
	char from[160], to[160], layouts[352];

	rsh_item_text(s ? rsh_param_source_stage(s)->item : NULL, from,
		      sizeof(from));
	rsh_item_text(d ? rsh_param_dest_stage(c->dst, d, needs, c->compat)->item
			: NULL, to, sizeof(to));
	snprintf(layouts, sizeof(layouts), " (from %s to %s)", from, to);
	return missing(p, f, name, slice_rank(c, name, key), layouts, err);
}

int rsh_plan_missing_copy(const struct planner *p,
			  const struct rsh_virtual_file *f, uint32_t name,
			  struct rsh_error *err)
{
	return missing(p, f, name, slice_rank(p->c, name, f->copy_key), "",
		       err);
}

static int lose(struct planner *p, const struct rsh_lost *lost,
		struct rsh_error *sentence)
{
	int rc = rsh_lost_add(p->c, lost, sentence);

	if (rc)
		return rsh_error_nomem(sentence);
	sentence->code = 0;
	return 0;
}

int rsh_plan_lose(struct planner *p, struct rsh_virtual_file *f, uint32_t name,
		  struct rsh_error *sentence)
{
	const struct rsh_lost lost = { name, RSH_NO_TRANSFER };

	f->lost = true;
	return lose(p, &lost, sentence);
}

/* One transfer and the file that needs slices of it. */
struct use {
	struct planner *p;
	const struct rsh_virtual_file *f;
	const struct rsh_transfer *t;
	const struct rsh_grid_pair *pair;
	uint64_t n_found;
	uint32_t lowest; /* of the keys that no file supplies */
};

void rsh_plan_use(struct planner *p, uint32_t rank)
{
	if (p->used[rank])
		return;
	p->used[rank] = true;
	p->used_ranks[p->n_used++] = rank;
}

void rsh_plan_unuse(struct planner *p)
{
	while (p->n_used > 0)
		p->used[p->used_ranks[--p->n_used]] = false;
}

static void use_key(void *ctx, uint32_t key)
{
	struct use *u = ctx;
	const struct rsh_conversion *c = u->p->c;
	uint32_t rank = rsh_supply_rank(u->pair->supply, key);

	if (rank == RSH_NO_RANK) {
		if (key < u->lowest)
			u->lowest = key;
		return;
	}
	u->n_found++;
	rsh_plan_use(u->p, rank);
	if ((rank - c->first_rank) % c->stage_ranks == key)
		return;
	rank = slice_rank(c, u->t->name, key);
	if (rsh_rank_index(c, rank))
		rsh_note_add_lacking(u->p->c, rank, u->t->name);
	else
		rsh_note_add(u->p->c, RSH_NOTE_REPLICA, u->t->name);
}

static bool is_inside(const struct rsh_box *box, const uint32_t *cell)
{
	for (uint32_t d = 0; d < box->n_dims; d++)
		if (cell[d] < box->from[d] || cell[d] >= box->to[d])
			return false;
	return true;
}

/* Looks only at the slices that some file holds, where these are fewer. */
static void use_held(struct use *u, const struct rsh_box *box)
{
	const struct rsh_supply *s = u->pair->supply;
	const uint32_t n = rsh_grid_n_replicas(s->grid);
	uint32_t cell[RSH_MAX_DIMS];

	for (uint32_t i = 0; i < s->n; i++) {
		if (i > 0 && s->at[i].place / n == s->at[i - 1].place / n)
			continue;
		rsh_grid_cell(s->grid, s->at[i].key, cell);
		if (is_inside(box, cell))
			use_key(u, rsh_grid_holder(s->grid, cell,
						   u->f->local));
	}
}

/* Remembers that some slices cannot be had; the sentence is about the lowest.
 */
static int lose_slices(struct use *u, struct rsh_virtual_file *f,
		       uint32_t transfer, const struct rsh_box *box,
		       struct rsh_error *err)
{
	const struct rsh_lost lost = { u->t->name, transfer };
	int rc = 0;

	f->lost = u->p->c->replicas;
	if (u->t->lost)
		return 0;
	if (u->p->c->n_lost == 0) {
		rsh_box_keys(u->pair, box, f->local, use_key, u);
		rc = missing_slice(u->p, f, u->t->name, u->lowest, err);
	}
	return u->p->c->replicas ? lose(u->p, &lost, err) : rc;
}

/* Marks the source ranks of a handled parameter. */
static int use_sources(struct planner *p, struct rsh_virtual_file *f,
		       uint32_t transfer, struct rsh_error *err)
{
	const struct rsh_transfer *t = p->c->transfers[transfer];
	struct use u = { p, f, t, &p->c->pairs[t->pair], 0, RSH_NO_RANK };
	struct rsh_box box;

	/* A tensor without elements needs nothing from anywhere. */
	if (t->content_bytes == 0 || p->pair_done[t->pair] == f->local + 1)
		return 0;
	rsh_pair_box(u.pair, f->local, &box);
	if (box.n_cells <= u.pair->supply->n)
		rsh_box_keys(u.pair, &box, f->local, use_key, &u);
	else
		use_held(&u, &box);
	if (u.n_found < box.n_cells)
		return lose_slices(&u, f, transfer, &box, err);
	/* Each parameter tells its own losses. */
	p->pair_done[t->pair] = f->local + 1;
	return 0;
}

int rsh_plan_list_sources(struct planner *p, struct rsh_virtual_file *f,
			  struct rsh_error *err)
{
	for (uint32_t i = 0; i < f->list->n; i++) {
		uint32_t t = f->list->slots[i].transfer;
		int rc = t == RSH_NO_TRANSFER ? 0 :
			 use_sources(p, f, t, err);

		if (rc)
			return rc;
	}
	f->sources = rsh_alloc_array(p->n_used, sizeof(*f->sources));
	if (!f->sources)
		return rsh_error_nomem(err);
	qsort(p->used_ranks, p->n_used, sizeof(*p->used_ranks), rsh_by_u32);
	if (p->n_used > 0)
		memcpy(f->sources, p->used_ranks,
		       p->n_used * sizeof(*f->sources));
	f->n_sources = p->n_used;
	return 0;
}

/* No loaded file holds a handled parameter.  It was not saved then - unless
 * its stage has no file at all. */
int rsh_plan_check_absent(struct planner *p, uint32_t name,
			  struct rsh_error *err)
{
	const struct rsh_conversion *c = p->c;
	const struct rsh_strategy_param *s = rsh_listed(c->src, name);

	if (!c->src && rsh_rank_index(c, rsh_plan_file_to_copy(p, 0)))
		return 0;
	for (uint32_t i = 0; i < (s ? s->n_stages : 1); i++) {
		uint32_t stage = s && !c->by_stage ? s->stages[i].stage : 0;
		uint32_t from, to;

		rsh_stage_present(c, stage, &from, &to);
		if (from < to)
			continue;
		rsh_error_set(err, ENOENT,
			      "ranks %u to %u have no checkpoint file, but "
			      "parameter %s is needed from them",
			      rsh_source_rank(c, stage, 0),
			      rsh_source_rank(c, stage + 1, 0) - 1,
			      rsh_plan_name(p, name));
		if (!c->replicas)
			return -ENOENT;
		p->absent = true;
		return lose(p, &(struct rsh_lost){ name, RSH_NO_TRANSFER },
			    err);
	}
	return 0;
}

/* Why a file would hold nothing that is resharded: a file that it needs is
 * missing, or the strategies are those of another model. */
int rsh_plan_nothing_handled(struct planner *p, struct rsh_virtual_file *f,
			     struct rsh_error *err)
{
	const struct rsh_conversion *c = p->c;

	for (uint32_t name = 0; name < c->n_names; name++) {
		uint32_t t = p->transfer_of[name];
		int rc = t == RSH_NO_TRANSFER ? 0 : use_sources(p, f, t, err);

		if (rc)
			return rc;
	}
	if (f->lost)
		return 0;
	return rsh_error_set(err, EINVAL,
			     "rank %u: no parameter of the source files is "
			     "listed by %s%s%s",
			     p->block * c->dst_ranks + f->local,
			     c->src ? c->src->path : c->dst->path,
			     c->src && c->dst ? " and " : "",
			     c->src && c->dst ? c->dst->path : "");
}

