/* SPDX-License-Identifier: Apache-2.0 */
/* plan/converter/order.c lists the names of a file's records in the converter's
 * order.  The converter loads files from the highest rank on (in a by-stage
 * conversion, from the lowest).  Names are in the order in which they first
 * occur in these files, and resharded parameters come before copied ones. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "dst_stage_i.h"
#include "rsh/util/mem.h"

/* Adds the rank's index to the sequence unless the sequence has an equal
 * one. */
static void add_to_seq(struct stage_state *p, uint32_t rank, uint32_t *n)
{
	uint32_t *seen = &p->seen_index[p->c->cat->index_id[rank]];

	if (*seen == p->epoch)
		return;
	*seen = p->epoch;
	p->seq[(*n)++] = rank;
}

/* Adds the stage's file for a marked key.  If it is missing, adds the next file
 * of the stage (after the last file, the first), which has the same names in
 * the same order. */
static void order_load(struct stage_state *p, uint32_t stage, uint32_t held,
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

/* Lists the distinct indexes in the order in which the converter loads files.
 * Sets p->seq to a rank for each, and returns their number. */
static uint32_t load_sequence(struct stage_state *p)
{
	const struct rsh_converter *c = p->c;
	const struct rsh_job_files *f = &c->files;
	const struct rsh_dst_stage *b = p->dst_stage;
	/* Whether there is a key above the last held one. */
	const bool any_above = f->n_held == 0 ||
			       f->held[f->n_held - 1] + 1 < f->stage_ranks;
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
			    (p->reduced && (k < f->n_held || any_above)))
				order_load(p, b->stages[i], k, &n);
	return n;
}

/* Adds the names of a file at the end.  If files lack parameters (p->reduced),
 * each has a part of a common order; then adds a name after the file's previous
 * name.  Returns the number of names. */
static uint32_t add_names(struct stage_state *p,
			  const struct rsh_ckpt_index *ix, uint32_t *names,
			  uint32_t n)
{
	uint32_t next = 0;

	for (uint32_t r = 0; r < ix->n_records; r++) {
		uint32_t name = ix->records[r].name;

		if (p->action[name] == ACTION_DROP)
			continue;
		if (p->seen[name] == p->epoch) {
			next = 0;
			while (p->reduced && names[next++] != name)
				;
			continue;
		}
		p->seen[name] = p->epoch;
		if (!p->reduced)
			next = n;
		memmove(names + next + 1, names + next,
			(n++ - next) * sizeof(*names));
		names[next++] = name;
	}
	return n;
}

/* Sets l->names to the names of the files of p->seq in order, resharded ones
 * first. */
static int order_walk_names(struct stage_state *p, struct name_list *l)
{
	const uint32_t n_names = p->c->cat->n_names;
	cleanup_free uint32_t *names = rsh_alloc_array(n_names, sizeof(*names));
	uint32_t n = 0;

	if (!names)
		return -ENOMEM;
	p->epoch++;
	for (uint32_t i = 0; i < l->n_seq; i++)
		n = add_names(p, rsh_catalogue_index(p->c->cat, p->seq[i]),
			      names, n);
	/* Add resharded parameters that only other files hold, so that they are
	 * read from there, or reported as missing. */
	for (uint32_t name = 0; name < n_names; name++)
		if (p->action[name] == ACTION_RESHARD &&
		    p->seen[name] != p->epoch &&
		    p->shown_of[name] != RSH_COPIED)
			names[n++] = name;
	l->names = rsh_arena_array(&p->arena, uint32_t, n);
	if (!l->names)
		return -ENOMEM;
	for (uint32_t i = 0; i < n; i++)
		if (p->action[names[i]] == ACTION_RESHARD)
			l->names[l->n++] = names[i];
	l->n_resharded = l->n;
	for (uint32_t i = 0; i < n; i++)
		if (p->action[names[i]] != ACTION_RESHARD)
			l->names[l->n++] = names[i];
	return 0;
}

const struct name_list *rsh_stage_list_names(struct stage_state *p)
{
	const uint32_t n = load_sequence(p);
	const uint32_t *id = p->c->cat->index_id;
	struct name_list *l;

	for (uint32_t i = 0; i < p->n_lists; i++) {
		uint32_t same = 0;

		l = &p->lists[i];
		while (l->n_seq == n && same < n &&
		       l->seq[same] == id[p->seq[same]])
			same++;
		if (l->n_seq == n && same == n)
			return l;
	}
	if (rsh_grow(&p->lists, &p->lists_cap, p->n_lists + 1, sizeof(*l)))
		return NULL;
	l = &p->lists[p->n_lists++];
	*l = (struct name_list){
		.n_seq = n, .seq = rsh_arena_array(&p->arena, uint32_t, n),
	};
	if (!l->seq)
		return NULL;
	for (uint32_t i = 0; i < n; i++)
		l->seq[i] = id[p->seq[i]];
	return order_walk_names(p, l) ? NULL : l;
}
