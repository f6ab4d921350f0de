/* The order of a file's records. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "planner_i.h"
#include "rsh/util/checked.h"
#include "rsh/util/mem.h"

/* Adds the rank's index to the sequence unless an equal one is in it. */
static void add_to_seq(struct planner *p, uint32_t rank, uint32_t *n)
{
	if (!rsh_rank_index(p->c, rank))
		return;
	for (uint32_t i = 0; i < *n; i++)
		if (p->index_id[p->seq[i]] == p->index_id[rank])
			return;
	p->seq[(*n)++] = rank;
}

/* The distinct indexes in the order in which the converter loads files; p->seq
 * holds a rank for each. */
static uint32_t load_sequence(struct planner *p)
{
	const struct rsh_conversion *c = p->c;
	const struct rsh_block *b = p->b;
	uint32_t n = 0;

	if (c->by_stage) {
		for (uint32_t k = 0; k < c->stage_ranks; k++)
			add_to_seq(p, rsh_source_rank(c, 0, k), &n);
		return n;
	}
	for (uint32_t i = b->n_stages; i-- > 0;)
		for (uint32_t k = c->stage_ranks; k-- > 0;)
			if (p->keys[k])
				add_to_seq(p,
					   rsh_source_rank(c, b->stages[i], k),
					   &n);
	return n;
}

static bool same_seq(const struct planner *p, const struct name_list *l,
		     uint32_t n)
{
	if (l->n_seq != n)
		return false;
	for (uint32_t i = 0; i < n; i++)
		if (l->seq[i] != p->index_id[p->seq[i]])
			return false;
	return true;
}

static int walk_names(struct planner *p, struct name_list *l, uint32_t n_seq)
{
	size_t cap = 0;
	uint32_t at = 0;
	cleanup_free uint32_t *first_seen = NULL;

	p->epoch++;
	for (uint32_t i = 0; i < n_seq; i++) {
		const struct rsh_ckpt_index *ix =
			rsh_rank_index(p->c, p->seq[i]);

		for (uint32_t r = 0; r < ix->n_records; r++) {
			uint32_t name = ix->records[r].name;

			if (p->seen[name] == p->epoch ||
			    p->fate[name] == FATE_DROPPED)
				continue;
			p->seen[name] = p->epoch;
			if (rsh_grow(&first_seen, &cap, l->n + 1,
				     sizeof(*first_seen)))
				return -ENOMEM;
			first_seen[l->n++] = name;
			l->n_handled += p->fate[name] == FATE_HANDLED;
		}
	}
	l->names = rsh_alloc_array(l->n, sizeof(*l->names));
	if (!l->names)
		return -ENOMEM;
	for (int handled = 1; handled >= 0; handled--)
		for (uint32_t i = 0; i < l->n; i++)
			if ((p->fate[first_seen[i]] == FATE_HANDLED) == handled)
				l->names[at++] = first_seen[i];
	return 0;
}

/* The names for the loaded keys; lists are kept for the next rank. */
const struct name_list *rsh_plan_list_names(struct planner *p)
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
		l->seq[i] = p->index_id[p->seq[i]];
	return walk_names(p, l, n) ? NULL : l;
}

