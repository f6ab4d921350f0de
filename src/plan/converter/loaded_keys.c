/* SPDX-License-Identifier: Apache-2.0 */
/* plan/converter/loaded_keys.c marks the source files that the converter would
 * load for one destination rank.  The order of the records follows from these
 * (dst_stage.c).
 *
 * A key is a source rank within its stage.  Each pair of layouts marks keys
 * (converter/redistribution.c).  If the converter refuses a pair, the keys of
 * the cells that overlap are marked.  There may be a million keys, so only held
 * keys are stored: those of existing files.  A marked key without a file is
 * mapped to the next held one.  With replicas, the file of that key gives the
 * names and their order.
 *
 * An example: 8 keys a stage, 4 of them held; the pairs mark 0, 2, 3 and 7.
 *
 *   key            0   1   2   3   4   5   6   7
 *   held               1   2           5   6
 *   marked         x       x   x               x
 *   mapped to      1       2   5               wraps around
 *
 *   place i            0      1      2      3      4 = above all
 *   held[i]            1      2      5      6
 *   marks.near[i]      yes    yes    yes    no     yes
 *   marks.exact[i]     no     yes    no     no
 *
 * Place 4 means the first file of the stage, which is here the file of key 1.
 *
 * For one pair of layouts, ranks of one class have the same keys.  If there are
 * many (FEW_KEYS), they are computed once for each class and kept as a
 * list. */
#include <errno.h>
#include <search.h>
#include <stdlib.h>
#include <string.h>

#include "converter_i.h"
#include "rsh/util/mem.h"

static int keys_add_pair(struct stage_state *p,
			 const struct rsh_strategy_item *src,
			 const struct rsh_strategy_item *dst, uint32_t shown)
{
	enum rsh_grid_rule rule = p->c->o.compat ? RSH_GRID_CONVERTER :
						 RSH_GRID_RUNTIME;
	const struct rsh_tensor *t = NULL;
	int64_t whole[RSH_MAX_DIMS];
	struct layout_pair *lp;
	int rc;

	/* No record tells how the longer map is folded. */
	if (shown == RSH_COPIED && dst && dst->n_map != src->n_map)
		return 0;
	for (uint32_t i = 0; i < p->n_pairs; i++) {
		lp = &p->pairs[i];
		if (!rsh_item_same_layout(lp->src, src) ||
		    !rsh_item_same_layout(lp->dst, dst))
			continue;
		if (lp->shown != RSH_COPIED || shown == RSH_COPIED)
			return 0;
		/* Compute it again, since the dimensions are known only now. */
		rsh_redistribution_free(lp->redist);
		p->pairs[i] = p->pairs[--p->n_pairs];
		break;
	}
	if (rsh_room(p->pairs, p->pairs_cap, p->n_pairs + 1))
		return -ENOMEM;
	lp = &p->pairs[p->n_pairs];
	*lp = (struct layout_pair){ src, dst, NULL, shown, NULL };
	if (shown != RSH_COPIED) {
		t = p->c->cat->tensors[p->c->resharded[shown].tensor];
		for (uint32_t d = 0; d < t->n_dims; d++)
			whole[d] = (int64_t)t->dims[d];
	}
	rc = rsh_redistribution_new(src, dst, t ? whole : NULL,
				    t ? t->n_dims : src->n_map, rule,
				    &lp->redist);
	if (rc == -ENOMEM)
		return rc;
	p->n_pairs++;
	if (t && (rc || src->n_map != t->n_dims ||
		  (dst && dst->n_map != t->n_dims)))
		rsh_note_add(p->c, RSH_NOTE_REFUSED, t->name);
	return 0;
}

int rsh_stage_collect_pairs(struct stage_state *p, struct rsh_error *err)
{
	const struct rsh_converter *c = p->c;

	if (!c->src || c->by_stage)
		return 0;
	for (uint32_t i = 0; i < c->src->n_params; i++) {
		const struct rsh_strategy_param *s = &c->src->params[i];
		const struct rsh_strategy_param *d =
			rsh_strategy_find(c->dst, s->name);
		const struct rsh_strategy_item *to = NULL;

		if (p->action[s->name] != ACTION_RESHARD)
			continue;
		if (d)
			to = rsh_param_dest_stage(c->dst, d,
						  p->stage * c->dst_ranks,
						  c->o.compat)->item;
		if (keys_add_pair(p, rsh_param_source_stage(s)->item, to,
				   p->shown_of[s->name]))
			return rsh_error_nomem(err);
	}
	return 0;
}

uint32_t rsh_stage_file_to_copy(const struct stage_state *p, uint32_t local)
{
	const struct rsh_converter *c = p->c;

	if (rsh_catalogue_index(c->cat, local))
		return local;
	return c->cat->n_present ? c->cat->present[0] : 0;
}

/* Counts the wanted names of a file that were not seen in this epoch. */
static uint32_t see_names(struct stage_state *p,
			  const struct rsh_ckpt_index *ix)
{
	uint32_t n = 0;

	for (uint32_t r = 0; r < ix->n_records; r++) {
		uint32_t name = ix->records[r].name;

		if (p->action[name] == ACTION_DROP || p->seen[name] == p->epoch)
			continue;
		p->seen[name] = p->epoch;
		n++;
	}
	return n;
}

bool rsh_stage_is_part(struct stage_state *p, uint32_t rank)
{
	const struct rsh_converter *c = p->c;
	const struct rsh_ckpt_index *ix = rsh_catalogue_index(c->cat, rank);

	if (!ix)
		return false;
	if (p->n_names == 0) {
		p->epoch++;
		for (uint32_t i = 0; i < c->cat->n_present; i++) {
			uint32_t r = c->cat->present[i];
			uint32_t *seen = &p->seen_index[c->cat->index_id[r]];

			if (*seen == p->epoch)
				continue;
			*seen = p->epoch;
			p->n_names += see_names(p, c->cat->index[r]);
		}
	}
	p->epoch++;
	return see_names(p, ix) < p->n_names;
}

/* ---- marking keys ---- */

/* Larger sets of keys are computed once for all ranks of a class. */
#define FEW_KEYS 64

/* The keys that one pair marks for the destination ranks of one class. */
struct key_class {
	uint64_t id;
	uint32_t n;
	uint32_t places[]; /* 2 * the place in held[], and 1 more if exact */
};

static void marks_fill(const struct stage_state *p, struct rsh_marks *m,
		       bool value)
{
	memset(m->exact, value, p->c->files.n_held + 1);
	memset(m->near, value, p->c->files.n_held + 1);
}

/* The keys that one pair marks for one destination rank. */
struct pair_keys {
	const struct rsh_converter *c;
	struct rsh_marks *marks;
	const struct layout_pair *lp;
	/* If the converter refuses the pair: the slices that are needed. */
	const struct rsh_cut *cut;
	uint64_t dims[RSH_MAX_DIMS];
	struct rsh_box box;
	uint32_t replica;
	uint32_t local;
	uint64_t n;
	uint64_t class;
};

static void keys_mark(void *ctx, uint32_t key)
{
	const struct pair_keys *k = ctx;
	const uint32_t i = rsh_job_files_from(&k->c->files, key);

	k->marks->near[i] = true;
	if (i < k->c->files.n_held && k->c->files.held[i] == key)
		k->marks->exact[i] = true;
}

static void find_keys(const struct rsh_converter *c,
		      const struct layout_pair *lp, uint32_t local,
		      struct pair_keys *k)
{
	const struct rsh_tensor *t;
	const struct rsh_cut *to;
	uint32_t cell;

	*k = (struct pair_keys){ .c = c, .lp = lp, .local = local };
	if (lp->redist) {
		k->n = rsh_redistribution_count(lp->redist);
		k->class = rsh_redistribution_class(lp->redist, local);
		return;
	}
	t = c->cat->tensors[c->resharded[lp->shown].tensor];
	to = rsh_blueprint_cut(c->plan, lp->shown);
	k->cut = t->cut;
	/* The converter also loads the files of a tensor without elements, so
	 * such dimensions are replaced by others. */
	for (uint32_t d = 0; d < t->n_dims; d++)
		k->dims[d] = t->dims[d] ? t->dims[d] :
			(uint64_t)rsh_grid_split(rsh_cut_grid(k->cut), d) *
				rsh_grid_split(rsh_cut_grid(to), d);
	cell = rsh_cut_cell(to, local);
	rsh_cut_box(to, k->dims, cell, &k->box);
	k->replica = rsh_cut_replica(k->cut, local);
	k->n = rsh_cut_overlap(k->cut, k->dims, &k->box, NULL, NULL);
	k->class = (uint64_t)cell << 32 | k->replica;
}

static void mark_cell(void *ctx, uint32_t cell)
{
	const struct pair_keys *k = ctx;

	keys_mark(ctx, rsh_cut_member(k->cut, cell, k->replica));
}

static void mark_each(struct pair_keys *k, struct rsh_marks *marks)
{
	k->marks = marks;
	if (k->lp->redist)
		rsh_redistribution_each(k->lp->redist, k->local, keys_mark, k);
	else
		rsh_cut_overlap(k->cut, k->dims, &k->box, mark_cell, k);
}

RSH_ORDER(by_class, struct key_class, x->id < y->id ? -1 : x->id > y->id)

/* Returns the class with these keys; NULL: out of memory. */
static const struct key_class *class_of(struct stage_state *p,
					struct layout_pair *lp,
					struct pair_keys *k)
{
	const struct key_class wanted = { .id = k->class };
	struct key_class **found = tfind(&wanted, &lp->classes, by_class);
	const uint32_t held = p->c->files.n_held;
	struct rsh_marks *m = &p->some;
	struct key_class *class;
	uint32_t n = 0;

	if (found)
		return *found;
	marks_fill(p, m, false);
	mark_each(k, m);
	for (uint32_t i = 0; i <= held; i++)
		n += m->near[i];
	class = malloc(sizeof(*class) + n * sizeof(*class->places));
	if (!class)
		return NULL;
	class->id = k->class;
	class->n = 0;
	for (uint32_t i = 0; i <= held; i++)
		if (m->near[i])
			class->places[class->n++] = 2 * i + m->exact[i];
	if (tsearch(class, &lp->classes, by_class))
		return class;
	free(class);
	return NULL;
}

static int mark_pair(struct stage_state *p, struct layout_pair *lp,
		     uint32_t local)
{
	const struct key_class *class;
	struct pair_keys k;

	find_keys(p->c, lp, local, &k);
	if (k.n <= FEW_KEYS) {
		mark_each(&k, &p->marks);
		return 0;
	}
	class = class_of(p, lp, &k);
	if (!class)
		return -ENOMEM;
	for (uint32_t i = 0; i < class->n; i++) {
		p->marks.near[class->places[i] / 2] = true;
		if (class->places[i] % 2)
			p->marks.exact[class->places[i] / 2] = true;
	}
	return 0;
}

int rsh_stage_mark_keys(struct stage_state *p, uint32_t local)
{
	const struct rsh_converter *c = p->c;
	struct pair_keys of_none = { .c = c, .marks = &p->marks };

	marks_fill(p, &p->marks, c->by_stage);
	if (!c->src)
		keys_mark(&of_none, c->dst ? 0 :
			  rsh_stage_file_to_copy(p, local));
	for (uint32_t i = 0; i < p->n_pairs; i++) {
		struct layout_pair *lp = &p->pairs[i];

		if (!lp->redist && lp->shown == RSH_COPIED)
			continue;
		if (mark_pair(p, lp, local))
			return -ENOMEM;
		/* Also mark the rank from which records are copied. */
		if (!lp->redist)
			keys_mark(&of_none, local % c->files.stage_ranks);
	}
	return 0;
}

void rsh_stage_pairs_clear(struct stage_state *p)
{
	for (uint32_t i = 0; i < p->n_pairs; i++) {
		rsh_redistribution_free(p->pairs[i].redist);
		tdestroy(p->pairs[i].classes, free);
	}
	free(p->pairs);
}

/* ---- sets of keys ---- */

struct key_set {
	uint32_t n;
	bool keys[];
};

RSH_ORDER(by_keys, struct key_set, memcmp(x->keys, y->keys, x->n))

const bool *rsh_stage_keep_keys(struct stage_state *p)
{
	uint32_t n = p->c->files.n_held;
	cleanup_free struct key_set *set = malloc(sizeof(*set) + n);
	struct key_set **kept;

	if (!set)
		return NULL;
	set->n = n;
	memcpy(set->keys, p->marks.exact, n);
	kept = tsearch(set, &p->c->key_sets, by_keys);
	if (!kept)
		return NULL;
	if (*kept == set)
		set = NULL;
	return (*kept)->keys;
}
