/* SPDX-License-Identifier: Apache-2.0 */
/* contents/slices.c finds slices that no file has, by names alone. */
#include "config.h"

#include "contents_i.h"

#include <errno.h>
#include <stdlib.h>

#include "rsh/util/mem.h"

struct finding_slices {
	const struct rsh_strategy *strategy;
	const struct rsh_ckpt_index *const *index;
	uint32_t n_ranks; /* of `index` */
	struct rsh_lost_slices *out;
	/* The distinct indexes of a stage: ranks mostly share one. */
	const struct rsh_ckpt_index **distinct;
	uint32_t n_distinct;
	bool *held; /* [cell] */
};

static const struct rsh_ckpt_index *index_of(const struct finding_slices *w,
					     uint32_t rank)
{
	return rank < w->n_ranks ? w->index[rank] : NULL;
}

static void take_distinct(struct finding_slices *w, uint32_t stage)
{
	const uint32_t n = w->strategy->stage_ranks;

	w->n_distinct = 0;
	for (uint32_t r = stage * n; r < (stage + 1) * n; r++) {
		const struct rsh_ckpt_index *ix = index_of(w, r);
		uint32_t i = w->n_distinct;

		while (i > 0 && w->distinct[i - 1] != ix)
			i--;
		if (ix && i == 0)
			w->distinct[w->n_distinct++] = ix;
	}
}

/* Returns whether some of the indexes have the name, and some have not. */
static bool is_partly_there(const struct finding_slices *w, uint32_t name)
{
	uint32_t n = 0;

	for (uint32_t i = 0; i < w->n_distinct; i++)
		n += rsh_ckpt_find(w->distinct[i], name) != NULL;
	return n > 0 && n < w->n_distinct;
}

static void find_of(struct finding_slices *w, uint32_t name,
		    const struct rsh_param_stage *stage)
{
	const uint32_t n = w->strategy->stage_ranks, base = stage->stage * n;
	uint32_t cell[RSH_MAX_DIMS];
	cleanup_grid struct rsh_grid *g = NULL;

	/* The planner reports an invalid layout. */
	if (!is_partly_there(w, name) ||
	    rsh_grid_new_unsized(stage->item, &g, NULL))
		return;
	for (uint32_t r = 0; r < n; r++)
		w->held[r] = false;
	for (unsigned pass = 0; pass < 2; pass++)
		for (uint32_t r = 0; r < rsh_grid_n_ranks(g) && r < n; r++) {
			const struct rsh_ckpt_index *ix = index_of(w, base + r);
			struct rsh_lost_slices *lost = &w->out[base + r];
			uint32_t member;

			rsh_grid_cell(g, r, cell);
			member = rsh_grid_member(g, cell, 0);
			if (!ix || w->held[member])
				continue;
			if (pass == 1 && lost->n++ == 0)
				lost->name = name;
			w->held[member] = pass == 1 || rsh_ckpt_find(ix, name);
		}
}

int rsh_contents_lost_slices(const struct rsh_strategy *s,
			     const struct rsh_ckpt_index *const *index,
			     uint32_t n_ranks, struct rsh_lost_slices *out)
{
	cleanup_free const struct rsh_ckpt_index **distinct =
		rsh_alloc_array(s->stage_ranks, sizeof(*distinct));
	cleanup_free bool *held =
		calloc((size_t)s->stage_ranks + 1, sizeof(*held));
	struct finding_slices w = {
		.strategy = s, .index = index, .n_ranks = n_ranks, .out = out,
		.distinct = distinct, .held = held,
	};

	if (!distinct || !held)
		return -ENOMEM;
	for (uint32_t stage = 0; stage < s->n_stages; stage++) {
		take_distinct(&w, stage);
		for (uint32_t i = 0; w.n_distinct > 1 && i < s->n_params; i++)
			for (uint32_t k = 0; k < s->params[i].n_stages; k++)
				if (s->params[i].stages[k].stage == stage)
					find_of(&w, s->params[i].name,
						&s->params[i].stages[k]);
	}
	return 0;
}
