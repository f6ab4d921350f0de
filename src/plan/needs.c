/* The source files that a file needs. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "planner_i.h"
#include "rsh/util/checked.h"
#include "rsh/util/mem.h"

static int missing_slice(struct planner *p, const struct rsh_virtual_file *f,
			 const struct rsh_transfer *t, uint32_t key,
			 struct rsh_error *err)
{
	const struct rsh_conversion *c = p->c;
	const struct rsh_strategy_param *s = rsh_listed(c->src, t->name);
	uint32_t stage = s && !c->by_stage ? rsh_param_source_stage(s)->stage :
					     0;
	uint32_t rank = rsh_source_rank(c, stage, key);
	uint32_t needs = p->block * c->dst_ranks + f->local;
	char from[160], to[160];
	const struct rsh_strategy_param *d = rsh_listed(c->dst, t->name);

	rsh_item_text(s ? rsh_param_source_stage(s)->item : NULL, from,
		      sizeof(from));
	rsh_item_text(d ? rsh_param_dest_stage(c->dst, d, needs, c->compat)->item
			: NULL, to, sizeof(to));
	if (!rsh_rank_index(c, rank))
		return rsh_error_set(err, ENOENT,
				     "rank %u has no checkpoint file, but rank "
				     "%u needs its slice of parameter %s (from "
				     "%s to %s)", rank, needs,
				     rsh_plan_name(p, t->name), from, to);
	return rsh_error_set(err, ENOENT,
			     "%s: parameter %s is not in it, but rank %u needs "
			     "its slice (from %s to %s)",
			     c->path[rank] ? c->path[rank] : "?",
			     rsh_plan_name(p, t->name), needs, from, to);
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
	const struct rsh_lost lost = { name, RSH_NO_TRANSFER, 0 };

	f->lost = true;
	return lose(p, &lost, sentence);
}

/* The slice of `key` cannot be had from anywhere. */
static int lose_slice(struct planner *p, struct rsh_virtual_file *f,
		      uint32_t transfer, uint32_t key, struct rsh_error *err)
{
	const struct rsh_transfer *t = p->c->transfers[transfer];
	const struct rsh_grid *g = p->c->pairs[t->pair].src;
	struct rsh_lost lost = { t->name, transfer, key };
	uint32_t cell[RSH_MAX_DIMS];
	int rc = missing_slice(p, f, t, key, err);

	if (!p->c->replicas || rc == -EINVAL)
		return rc;
	rsh_grid_cell(g, key, cell);
	lost.key = rsh_grid_member(g, cell, 0);
	f->lost = true;
	return lose(p, &lost, err);
}

/* Marks the source ranks of a handled parameter. */
static int use_sources(struct planner *p, struct rsh_virtual_file *f,
		       uint32_t transfer, struct rsh_error *err)
{
	const struct rsh_transfer *t = p->c->transfers[transfer];
	const struct rsh_grid_pair *pair = &p->c->pairs[t->pair];
	uint32_t n = p->c->stage_ranks;
	bool all = true;

	/* A tensor without elements needs nothing from anywhere. */
	if (t->content_bytes == 0 || p->pair_done[t->pair] == f->local + 1)
		return 0;
	memset(p->slice_keys, 0, n);
	rsh_pair_keys(pair, f->local, p->slice_keys, n);
	for (uint32_t k = 0; k < n; k++) {
		uint32_t rank;
		int rc;

		if (!p->slice_keys[k])
			continue;
		if (rsh_transfer_source(p->c, p->b, t, k, NULL, &rank)) {
			p->used[rank] = true;
			if ((rank - p->c->first_rank) % p->c->stage_ranks != k)
				rsh_note_add(p->c, RSH_NOTE_REPLICA, t->name);
			continue;
		}
		all = false;
		rc = lose_slice(p, f, transfer, k, err);
		if (rc)
			return rc;
	}
	/* Each parameter tells its own losses. */
	if (all)
		p->pair_done[t->pair] = f->local + 1;
	return 0;
}

int rsh_plan_list_sources(struct planner *p, struct rsh_virtual_file *f,
			  struct rsh_error *err)
{
	uint32_t n = 0;

	for (uint32_t i = 0; i < f->list->n; i++) {
		uint32_t t = f->list->slots[i].transfer;
		int rc = t == RSH_NO_TRANSFER ? 0 :
			 use_sources(p, f, t, err);

		if (rc)
			return rc;
	}
	for (uint32_t r = 0; r < p->c->n_view; r++)
		n += p->used[r];
	f->sources = rsh_alloc_array(n, sizeof(*f->sources));
	if (!f->sources)
		return rsh_error_nomem(err);
	for (uint32_t r = 0; r < p->c->n_view; r++)
		if (p->used[r])
			f->sources[f->n_sources++] = r;
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
		uint32_t k = 0;

		while (k < c->stage_ranks &&
		       !rsh_rank_index(c, rsh_source_rank(c, stage, k)))
			k++;
		if (k < c->stage_ranks)
			continue;
		rsh_error_set(err, ENOENT,
			      "ranks %u to %u have no checkpoint file, but "
			      "parameter %s is needed from them",
			      rsh_source_rank(c, stage, 0),
			      rsh_source_rank(c, stage, k - 1),
			      rsh_plan_name(p, name));
		if (!c->replicas)
			return -ENOENT;
		p->absent = true;
		return lose(p, &(struct rsh_lost){ name, RSH_NO_TRANSFER, 0 },
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

