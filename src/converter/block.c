/* SPDX-License-Identifier: Apache-2.0 */
/* converter/block.c plans the files of one destination stage.
 *
 * The order of records is the converter's: the files it loads, highest rank
 * first (lowest first in a by-stage conversion), the names in first-seen order,
 * handled parameters before copied ones. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "planner_i.h"
#include "rsh/util/checked.h"
#include "rsh/util/mem.h"

/* ---- which parameters take part ---- */

bool rsh_planner_in_block(const struct planner *p,
		     const struct rsh_strategy_param *src,
		     const struct rsh_strategy_param *dst)
{
	if (p->c->by_stage)
		return src != NULL;
	return rsh_param_in_stage(dst, p->block);
}

static enum fate fate_of(const struct planner *p, uint32_t name)
{
	const struct rsh_converter *c = p->c;
	const struct rsh_strategy_param *s = rsh_listed(c->src, name);
	const struct rsh_strategy_param *d = rsh_listed(c->dst, name);
	bool here = d && rsh_planner_in_block(p, s, d);
	/* A parameter of other destination stages is struck from both sides. */
	bool struck = d && !here;
	bool on_src = c->src ? s && !struck : true;
	bool on_dst = c->dst ? here : true;

	if (c->chosen.unwanted[name])
		return FATE_DROPPED;
	if (!c->src && !c->dst)
		return FATE_COPIED;
	if (on_src && on_dst)
		return FATE_HANDLED;
	if ((!c->src || (s && struck)) && (!c->dst || struck))
		return FATE_DROPPED;
	return c->unlisted == RSH_UNLISTED_DROP && c->dst && !d ? FATE_DROPPED :
								  FATE_COPIED;
}

static int collect_stages(struct planner *p, struct rsh_error *err)
{
	const struct rsh_strategy *src = p->c->src;
	cleanup_free bool *used = calloc(p->c->files.n_stages, sizeof(*used));

	p->b->stages = rsh_alloc_array(p->c->files.n_stages,
				       sizeof(*p->b->stages));
	if (!used || !p->b->stages)
		return rsh_error_nomem(err);
	if (!src && !p->c->dst) {
		used[0] = true;
	} else if (!src) {
		for (uint32_t i = 0; i < p->c->cat->n_present; i++)
			used[p->c->cat->present[i]] = true;
	} else if (p->c->by_stage) {
		used[0] = true;
	} else {
		for (uint32_t i = 0; i < src->n_params; i++) {
			const struct rsh_strategy_param *s = &src->params[i];
			const struct rsh_strategy_param *d =
				rsh_listed(p->c->dst, s->name);

			if (d && !rsh_planner_in_block(p, s, d))
				continue;
			for (uint32_t k = 0; k < s->n_stages; k++)
				used[s->stages[k].stage] = true;
		}
	}
	for (uint32_t s = 0; s < p->c->files.n_stages; s++)
		if (used[s])
			p->b->stages[p->b->n_stages++] = s;
	return 0;
}

static int show_handled(struct planner *p, struct rsh_error *err)
{
	for (uint32_t name = 0; name < p->c->cat->n_names; name++) {
		int rc;

		p->shown_of[name] = RSH_NO_SHOWN;
		p->fate[name] = (uint8_t)fate_of(p, name);
		if (p->fate[name] != FATE_HANDLED)
			continue;
		rc = rsh_handled_make(p->c, p->b, p->block, name,
				       &p->shown_of[name], err);
		if (rc == 0 && p->shown_of[name] != RSH_NO_SHOWN &&
		    p->c->replicas)
			p->reduced |=
				p->c->handled[p->shown_of[name]].reduced;
		/* Without a destination every name is handled, also those that
		 * no source file can hold. */
		if (rc == 0 && p->shown_of[name] == RSH_NO_SHOWN)
			rc = rsh_planner_check_absent(p, name, err);
		if (rc)
			return rc;
	}
	return 0;
}

/* Prepares the copying of files where the source has no strategy. */
static int plan_copy(struct planner *p, uint32_t local, struct rsh_error *err)
{
	const struct rsh_converter *c = p->c;
	uint32_t rank = rsh_planner_file_to_copy(p, c->dst ? 0 : local);

	if (c->replicas)
		p->reduced = rsh_planner_is_part(p, rank);
	else if (!c->dst && !rsh_catalogue_index(c->cat, local))
		return rsh_error_set(err, ENOENT, "rank %u has no checkpoint "
				     "file", local);
	return 0;
}

/* Says where the file's copied records are taken from, and marks the keys that
 * the converter would load for it. */
static int order_copies(struct planner *p, uint32_t local,
			struct rsh_copy_order *o)
{
	const struct rsh_converter *c = p->c;

	o->block = p->b;
	/* The converter takes copied records from the local rank modulo the
	 * source's device count. */
	o->copy_key = c->src || c->dst ? local % c->files.stage_ranks :
					 rsh_planner_file_to_copy(p, local);
	if (rsh_planner_mark_keys(p, local))
		return -ENOMEM;
	o->keys = rsh_planner_keep_keys(p);
	return o->keys ? 0 : -ENOMEM;
}

/* Plans a file record by record. */
static int plan_records(struct planner *p, struct rsh_shown_file *f,
			struct rsh_error *err)
{
	struct rsh_converter *c = p->c;
	const struct name_list *names = rsh_planner_list_names(p);
	int rc = 0;

	if (!names)
		return rsh_error_nomem(err);
	if (names->n_handled == 0 && (c->src || c->dst) && !p->absent &&
	    !c->chosen.filtered)
		rc = rsh_planner_nothing_handled(p, f, err);
	if (rc == 0)
		rc = rsh_planner_deal(p, f->member, err);
	if (rc == 0)
		rc = rsh_planner_make_slots(p, f, names, err);
	if (rc)
		return rc;
	return rsh_name_filter_add(&c->chosen, c->plan, f, err);
}

static int plan_file(struct planner *p, uint32_t local, struct rsh_error *err)
{
	struct rsh_converter *c = p->c;
	struct rsh_shown_file f = {
		.rank = p->block * c->dst_ranks + local,
		.member = local,
		.lost = p->absent,
	};
	bool taken = false;
	int rc = c->src ? 0 : plan_copy(p, local, err);

	if (rc)
		return rc;
	if (order_copies(p, local, &c->orders[f.rank]))
		return rsh_error_nomem(err);
	if (c->same)
		rc = rsh_planner_take_whole(p, &f, &taken, err);
	return rc || taken ? rc : plan_records(p, &f, err);
}

/* ---- the block ---- */

static int marks_init(const struct rsh_converter *c, struct rsh_marks *m)
{
	m->exact = calloc((size_t)c->files.n_held + 1, sizeof(*m->exact));
	m->near = calloc((size_t)c->files.n_held + 1, sizeof(*m->near));
	return m->exact && m->near ? 0 : -ENOMEM;
}

static int planner_init(struct planner *p, struct rsh_error *err)
{
	const struct rsh_converter *c = p->c;

	p->fate = calloc(c->cat->n_names + 1, sizeof(*p->fate));
	p->shown_of = calloc(c->cat->n_names + 1, sizeof(*p->shown_of));
	p->seen = calloc(c->cat->n_names + 1, sizeof(*p->seen));
	p->seen_index = calloc(c->cat->n_indexes + 1, sizeof(*p->seen_index));
	p->seq = calloc(c->cat->n_indexes + 1, sizeof(*p->seq));
	p->whole = calloc(c->cat->n_indexes + 1, sizeof(*p->whole));
	if (!p->fate || !p->shown_of || !p->seen || !p->seen_index || !p->seq ||
	    !p->whole || marks_init(c, &p->marks) || marks_init(c, &p->some))
		return rsh_error_nomem(err);
	return 0;
}

static void marks_clear(struct rsh_marks *m)
{
	free(m->exact);
	free(m->near);
}

static void planner_free(struct planner *p)
{
	rsh_planner_pairs_clear(p);
	for (uint32_t i = 0; i < p->n_lists; i++) {
		free(p->lists[i].seq);
		free(p->lists[i].names);
	}
	free(p->lists);
	free(p->fate);
	free(p->shown_of);
	free(p->seen);
	free(p->seen_index);
	free(p->seq);
	free(p->whole);
	free(p->dealt);
	free(p->by_text);
	marks_clear(&p->marks);
	marks_clear(&p->some);
	free(p->slots);
	free(p->shapes);
}

int rsh_block_plan(struct rsh_converter *c, uint32_t block,
		   struct rsh_error *err)
{
	struct planner p = { .c = c, .block = block, .b = &c->blocks[block] };
	int rc = planner_init(&p, err);

	if (rc == 0)
		rc = collect_stages(&p, err);
	if (rc == 0)
		rc = show_handled(&p, err);
	if (rc == 0)
		rc = rsh_planner_collect_pairs(&p, err);
	for (uint32_t local = 0; rc == 0 && local < c->dst_ranks; local++)
		rc = plan_file(&p, local, err);
	planner_free(&p);
	return rc;
}
