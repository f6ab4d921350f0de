/* SPDX-License-Identifier: Apache-2.0 */
/* converter/order.c lists the names of a file's records in the converter's
 * order.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "planner_i.h"
#include "rsh/util/checked.h"
#include "rsh/util/mem.h"

/* Adds the rank's index to the sequence unless an equal one is in it. */
static void add_to_seq(struct planner *p, uint32_t rank, uint32_t *n)
{
	uint32_t *seen = &p->seen_index[p->c->cat->index_id[rank]];

	if (*seen == p->epoch)
		return;
	*seen = p->epoch;
	p->seq[(*n)++] = rank;
}

/* Adds the stage's file for a marked key; for one that is missing a neighbour
 * tells the names and their order: the next in the stage, after the last the
 * first. */
static void order_load(struct planner *p, uint32_t stage, uint32_t held,
		       uint32_t *n)
{
	const struct rsh_converter *c = p->c;
	const struct rsh_job_files *f = &c->files;
	uint32_t from, to, next;

	if (held < f->n_held) {
		uint32_t rank = rsh_job_rank(f, stage, f->held[held]);

		if (rsh_catalogue_index(c->cat, rank) &&
		    (c->o.replicas || p->marks.exact[held])) {
			add_to_seq(p, rank, n);
			return;
		}
	}
	if (!c->o.replicas)
		return;
	rsh_job_files_of(f, stage, &from, &to);
	if (from == to)
		return;
	next = held < f->n_held ?
		rsh_catalogue_present_from(c->cat, rsh_job_rank(f, stage,
							f->held[held])) : to;
	add_to_seq(p, c->cat->present[next < to ? next : from], n);
}

/* Is there a key above the last one that is held? */
static bool any_above(const struct rsh_job_files *f)
{
	return f->n_held == 0 || f->held[f->n_held - 1] + 1 < f->stage_ranks;
}

/* Lists the distinct indexes in the order in which the converter loads files;
 * p->seq then holds a rank for each. */
static uint32_t load_sequence(struct planner *p)
{
	const struct rsh_converter *c = p->c;
	const struct rsh_job_files *f = &c->files;
	const struct rsh_block *b = p->b;
	uint32_t n = 0;

	p->epoch++;
	if (c->by_stage) {
		uint32_t i, end;

		for (rsh_job_files_of(f, 0, &i, &end); i < end; i++)
			add_to_seq(p, c->cat->present[i], &n);
		return n;
	}
	if (!c->src && c->dst && !p->reduced) {
		for (uint32_t i = 0; i < b->n_stages && n == 0; i++)
			order_load(p, b->stages[i], 0, &n);
		return n;
	}
	for (uint32_t i = b->n_stages; i-- > 0;)
		for (uint32_t k = f->n_held + 1; k-- > 0;)
			if (p->marks.near[k] ||
			    (p->reduced && (k < f->n_held || any_above(f))))
				order_load(p, b->stages[i], k, &n);
	return n;
}

static bool same_seq(const struct planner *p, const struct name_list *l,
		     uint32_t n)
{
	if (l->n_seq != n)
		return false;
	for (uint32_t i = 0; i < n; i++)
		if (l->seq[i] != p->c->cat->index_id[p->seq[i]])
			return false;
	return true;
}

/* These are names while they are being put in order. */
struct order {
	uint32_t *names;
	uint32_t n;
	size_t cap;
};

static uint32_t place_of(const struct order *o, uint32_t name)
{
	uint32_t i = 0;

	while (o->names[i] != name)
		i++;
	return i;
}

static void order_clear(struct order *o)
{
	free(o->names);
}

/* Adds one file's names: at the end or, when each file holds a part of one
 * common order, behind the file's name before. */
static int add_names(struct planner *p, const struct rsh_ckpt_index *ix,
		     struct order *o)
{
	uint32_t next = 0;

	for (uint32_t r = 0; r < ix->n_records; r++) {
		uint32_t name = ix->records[r].name;

		if (p->fate[name] == FATE_DROPPED)
			continue;
		if (p->seen[name] == p->epoch) {
			if (p->reduced)
				next = place_of(o, name) + 1;
			continue;
		}
		p->seen[name] = p->epoch;
		if (rsh_grow(&o->names, &o->cap, o->n + 1, sizeof(*o->names)))
			return -ENOMEM;
		if (!p->reduced)
			next = o->n;
		memmove(o->names + next + 1, o->names + next,
			(o->n++ - next) * sizeof(*o->names));
		o->names[next++] = name;
	}
	return 0;
}

/* Adds the handled names that other files hold and these should: they are to be
 * had from there, or to be missed, but not left out in silence. */
static int add_unseen(struct planner *p, struct order *o)
{
	for (uint32_t name = 0; name < p->c->cat->n_names; name++) {
		if (p->fate[name] != FATE_HANDLED || p->seen[name] == p->epoch ||
		    p->shown_of[name] == RSH_NO_SHOWN)
			continue;
		if (rsh_grow(&o->names, &o->cap, o->n + 1, sizeof(*o->names)))
			return -ENOMEM;
		o->names[o->n++] = name;
	}
	return 0;
}

static int walk_names(struct planner *p, struct name_list *l, uint32_t n_seq)
{
	__attribute__((cleanup(order_clear))) struct order o = { 0 };
	uint32_t at = 0;

	p->epoch++;
	for (uint32_t i = 0; i < n_seq; i++)
		if (add_names(p, rsh_catalogue_index(p->c->cat, p->seq[i]), &o))
			return -ENOMEM;
	if (add_unseen(p, &o))
		return -ENOMEM;
	l->n = o.n;
	l->names = rsh_alloc_array(l->n, sizeof(*l->names));
	if (!l->names)
		return -ENOMEM;
	for (int handled = 1; handled >= 0; handled--)
		for (uint32_t i = 0; i < o.n; i++) {
			if ((p->fate[o.names[i]] == FATE_HANDLED) != handled)
				continue;
			l->names[at++] = o.names[i];
			l->n_handled += (uint32_t)handled;
		}
	return 0;
}

const struct name_list *rsh_planner_list_names(struct planner *p)
{
	uint32_t n = load_sequence(p);
	struct name_list *l;

	for (uint32_t i = 0; i < p->n_lists; i++)
		if (same_seq(p, &p->lists[i], n))
			return &p->lists[i];
	if (rsh_grow(&p->lists, &p->lists_cap, p->n_lists + 1, sizeof(*l)))
		return NULL;
	l = &p->lists[p->n_lists++];
	memset(l, 0, sizeof(*l));
	l->seq = rsh_alloc_array(n, sizeof(*l->seq));
	if (!l->seq)
		return NULL;
	l->n_seq = n;
	for (uint32_t i = 0; i < n; i++)
		l->seq[i] = p->c->cat->index_id[p->seq[i]];
	return walk_names(p, l, n) ? NULL : l;
}
