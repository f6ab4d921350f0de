/* Planning the files of one destination stage.
 *
 * The order of records is the converter's: the files it loads, highest rank
 * first (lowest first in a by-stage conversion), the names in first-seen order,
 * handled parameters before copied ones. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "conversion_i.h"
#include "rsh/layout/redistribution.h"
#include "rsh/util/checked.h"
#include "rsh/util/mem.h"

enum fate {
	FATE_COPIED,
	FATE_HANDLED,
	FATE_DROPPED, /* belongs to other destination stages only */
};

/* Parameters with the same two layouts load the same keys. */
struct layout_pair {
	const struct rsh_strategy_item *src;
	const struct rsh_strategy_item *dst;
	struct rsh_redistribution *redist; /* NULL: the converter refuses */
	uint32_t transfer; /* of one such parameter; RSH_NO_TRANSFER: none */
};

/* The names of a file in order, for one sequence of distinct indexes. */
struct name_list {
	uint32_t n_seq;
	uint32_t *seq;     /* ids of the indexes walked */
	uint32_t n;
	uint32_t n_handled;
	uint32_t *names;   /* handled ones first */
};

struct planner {
	struct rsh_conversion *c;
	uint32_t block;
	struct rsh_block *b;
	uint8_t *fate;         /* [name], enum fate */
	uint32_t *transfer_of; /* [name] */
	uint32_t *index_id;    /* [global rank]: equal for a shared index */
	uint32_t *seen;        /* [name] and, before, [index id]: epochs */
	uint32_t epoch;
	uint32_t n_pairs, n_lists;
	struct layout_pair *pairs;
	struct name_list *lists;
	size_t pairs_cap, lists_cap;
	/* scratch of one rank */
	bool *keys;            /* [stage_ranks] */
	bool *slice_keys;      /* [max source mesh] */
	uint32_t n_slice_keys;
	bool *used;            /* [global rank] */
	uint32_t *seq;         /* [global rank] */
	struct rsh_slot *slots;
	size_t slots_cap;
	uint64_t *pair_done;   /* [pair]: rank and stage last marked */
};

static const struct rsh_strategy_param *
listed(const struct rsh_strategy *s, uint32_t name)
{
	return s ? rsh_strategy_find(s, name) : NULL;
}

static const char *name_text(const struct planner *p, uint32_t name)
{
	return rsh_names_text(p->c->names, name);
}

/* ---- which parameters take part ---- */

/* Is the destination's parameter one of this block's ranks? */
static bool in_block(const struct planner *p,
		     const struct rsh_strategy_param *src,
		     const struct rsh_strategy_param *dst)
{
	if (p->c->by_stage)
		return src != NULL;
	return rsh_param_in_stage(dst, p->block);
}

static enum fate fate_of(const struct planner *p, uint32_t name)
{
	const struct rsh_conversion *c = p->c;
	const struct rsh_strategy_param *s = listed(c->src, name);
	const struct rsh_strategy_param *d = listed(c->dst, name);
	bool here = d && in_block(p, s, d);
	/* A parameter of other destination stages is struck from both sides. */
	bool struck = d && !here;
	bool on_src = c->src ? s && !struck : true;
	bool on_dst = c->dst ? here : true;

	if (!c->src && !c->dst)
		return FATE_COPIED;
	if (on_src && on_dst)
		return FATE_HANDLED;
	if ((!c->src || (s && struck)) && (!c->dst || struck))
		return FATE_DROPPED;
	return FATE_COPIED;
}

static int collect_stages(struct planner *p, struct rsh_error *err)
{
	const struct rsh_strategy *src = p->c->src;
	cleanup_free bool *used = calloc(p->c->n_stages, sizeof(*used));

	p->b->stages = rsh_alloc_array(p->c->n_stages, sizeof(*p->b->stages));
	if (!used || !p->b->stages)
		return rsh_error_nomem(err);
	if (!src || p->c->by_stage) {
		used[0] = true;
	} else {
		for (uint32_t i = 0; i < src->n_params; i++) {
			const struct rsh_strategy_param *s = &src->params[i];
			const struct rsh_strategy_param *d =
				listed(p->c->dst, s->name);

			if (d && !in_block(p, s, d))
				continue;
			for (uint32_t k = 0; k < s->n_stages; k++)
				used[s->stages[k].stage] = true;
		}
	}
	for (uint32_t s = 0; s < p->c->n_stages; s++)
		if (used[s])
			p->b->stages[p->b->n_stages++] = s;
	return 0;
}

/* No loaded file holds a handled parameter.  It was not saved then - unless
 * its stage has no file at all. */
static int check_absent(struct planner *p, uint32_t name,
			struct rsh_error *err)
{
	const struct rsh_conversion *c = p->c;
	const struct rsh_strategy_param *s = listed(c->src, name);

	for (uint32_t i = 0; i < (s ? s->n_stages : 1); i++) {
		uint32_t stage = s && !c->by_stage ? s->stages[i].stage : 0;
		uint32_t k = 0;

		while (k < c->stage_ranks &&
		       !rsh_rank_index(c, rsh_source_rank(c, stage, k)))
			k++;
		if (k == c->stage_ranks)
			return rsh_error_set(err, ENOENT,
					     "ranks %u to %u have no checkpoint "
					     "file, but parameter %s is needed "
					     "from them",
					     rsh_source_rank(c, stage, 0),
					     rsh_source_rank(c, stage, k - 1),
					     name_text(p, name));
	}
	return 0;
}

static int make_transfers(struct planner *p, struct rsh_error *err)
{
	for (uint32_t name = 0; name < p->c->n_names; name++) {
		int rc;

		p->transfer_of[name] = RSH_NO_TRANSFER;
		p->fate[name] = (uint8_t)fate_of(p, name);
		if (p->fate[name] != FATE_HANDLED)
			continue;
		rc = rsh_transfer_make(p->c, p->b, p->block, name,
				       &p->transfer_of[name], err);
		/* Without a destination every name is handled, also those that
		 * no source file can hold. */
		if (rc == 0 && p->transfer_of[name] == RSH_NO_TRANSFER)
			rc = check_absent(p, name, err);
		if (rc)
			return rc;
	}
	return 0;
}

/* ---- which ranks the converter loads ---- */

static int add_pair(struct planner *p, const struct rsh_strategy_item *src,
		    const struct rsh_strategy_item *dst, uint32_t transfer)
{
	enum rsh_grid_rule rule = p->c->compat ? RSH_GRID_CONVERTER :
						 RSH_GRID_RUNTIME;
	const struct rsh_transfer *t = NULL;
	int64_t whole[RSH_MAX_DIMS];
	struct layout_pair *lp;
	int rc;

	for (uint32_t i = 0; i < p->n_pairs; i++) {
		lp = &p->pairs[i];
		if (!rsh_item_same_layout(lp->src, src) ||
		    !rsh_item_same_layout(lp->dst, dst))
			continue;
		if (lp->transfer != RSH_NO_TRANSFER ||
		    transfer == RSH_NO_TRANSFER)
			return 0;
		/* Only now are the dimensions known. */
		rsh_redistribution_free(lp->redist);
		p->pairs[i] = p->pairs[--p->n_pairs];
		break;
	}
	if (rsh_grow(&p->pairs, &p->pairs_cap, p->n_pairs + 1,
		     sizeof(*p->pairs)))
		return -ENOMEM;
	lp = &p->pairs[p->n_pairs];
	*lp = (struct layout_pair){ src, dst, NULL, transfer };
	if (transfer != RSH_NO_TRANSFER) {
		const struct rsh_grid_pair *g;

		t = p->c->transfers[transfer];
		g = &p->c->pairs[t->pair];
		for (uint32_t d = 0; d < t->n_dims; d++)
			whole[d] = t->dims[d] * rsh_grid_split(g->dst, d);
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

static int collect_pairs(struct planner *p, struct rsh_error *err)
{
	const struct rsh_conversion *c = p->c;

	if (!c->src || c->by_stage)
		return 0;
	for (uint32_t i = 0; i < c->src->n_params; i++) {
		const struct rsh_strategy_param *s = &c->src->params[i];
		const struct rsh_strategy_param *d = listed(c->dst, s->name);
		const struct rsh_strategy_item *to = NULL;

		if (p->fate[s->name] != FATE_HANDLED)
			continue;
		if (d)
			to = rsh_param_dest_stage(c->dst, d,
						  p->block * c->dst_ranks,
						  c->compat)->item;
		if (add_pair(p, rsh_param_source_stage(s)->item, to,
			     p->transfer_of[s->name]))
			return rsh_error_nomem(err);
	}
	return 0;
}

static void mark_keys(struct planner *p, uint32_t local)
{
	const struct rsh_conversion *c = p->c;

	memset(p->keys, c->by_stage, c->stage_ranks);
	if (!c->src)
		p->keys[0] = true;
	for (uint32_t i = 0; i < p->n_pairs; i++) {
		const struct layout_pair *lp = &p->pairs[i];

		if (lp->redist) {
			rsh_redistribution_keys(lp->redist, local, p->keys,
						c->stage_ranks);
		} else if (lp->transfer != RSH_NO_TRANSFER) {
			rsh_pair_keys(&c->pairs[c->transfers[lp->transfer]->pair],
				      local, p->keys, c->stage_ranks);
			/* Its plans always name the rank's own counterpart,
			 * which copied records come from. */
			p->keys[local % c->stage_ranks] = true;
		}
	}
}

/* Gives the conversion's own copy of p->keys. */
static const bool *keep_keys(struct planner *p)
{
	struct rsh_conversion *c = p->c;
	bool *copy;

	for (uint32_t i = 0; i < c->n_key_sets; i++)
		if (memcmp(c->key_sets[i], p->keys, c->stage_ranks) == 0)
			return c->key_sets[i];
	if (rsh_grow(&c->key_sets, &c->key_sets_cap, c->n_key_sets + 1,
		     sizeof(*c->key_sets)))
		return NULL;
	copy = rsh_alloc_array(c->stage_ranks, sizeof(*copy));
	if (!copy)
		return NULL;
	c->key_sets[c->n_key_sets++] = memcpy(copy, p->keys, c->stage_ranks);
	return copy;
}

/* ---- the order of records ---- */

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
static const struct name_list *list_names(struct planner *p)
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

/* ---- one file ---- */

static void note_record(struct planner *p, uint32_t name, enum rsh_dtype dtype,
			uint64_t content_bytes)
{
	struct rsh_conversion *c = p->c;

	if (dtype == RSH_DTYPE_BFLOAT16)
		rsh_note_add(c, RSH_NOTE_BF16, name);
	else if (dtype == RSH_DTYPE_INT4)
		rsh_note_add(c, RSH_NOTE_INT4, name);
	else if (dtype == RSH_DTYPE_STR)
		rsh_note_add(c, RSH_NOTE_STR, name);
	if (content_bytes == 0)
		rsh_note_add(c, RSH_NOTE_EMPTY, name);
	if ((listed(c->src, name) || listed(c->dst, name)) &&
	    strchr(name_text(p, name), '-'))
		rsh_note_add(c, RSH_NOTE_DASH, name);
}

/* The record of a name in a file: its shape, and its transfer or the rank that
 * it is copied from. */
static int describe(struct planner *p, const struct rsh_virtual_file *f,
		    uint32_t name, struct rsh_record_shape *shape,
		    struct rsh_slot *slot, struct rsh_error *err)
{
	struct rsh_conversion *c = p->c;
	enum rsh_codec codec;
	uint32_t rank;
	bool elsewhere;

	slot->name = name;
	slot->transfer = p->transfer_of[name];
	if (slot->transfer != RSH_NO_TRANSFER) {
		rsh_transfer_shape(c, c->transfers[slot->transfer], shape);
	} else if (p->fate[name] == FATE_HANDLED ||
		   !rsh_copy_source(c, f, name, &rank, &elsewhere)) {
		return rsh_error_set(err, ENOENT,
				     "parameter %s: no loaded file of the %u "
				     "ranks of its mesh holds it",
				     name_text(p, name), c->stage_ranks);
	} else {
		const struct rsh_ckpt_index *ix = rsh_rank_index(c, rank);

		rsh_copy_shape(c, ix, rsh_ckpt_find(ix, name), shape, &codec);
		p->used[rank] = true;
		if (elsewhere)
			rsh_note_add(c, RSH_NOTE_MISSING_COPY, name);
	}
	slot->content_bytes = shape->content_bytes;
	return 0;
}

static const struct rsh_slot_list *keep_list(struct planner *p, uint32_t n,
					     uint64_t bytes)
{
	struct rsh_conversion *c = p->c;
	struct rsh_slot_list *l;

	for (uint32_t i = 0; i < c->n_lists; i++) {
		l = c->lists[i];
		if (l->n == n && l->bytes == bytes &&
		    (n == 0 || memcmp(l->slots, p->slots,
				      n * sizeof(*l->slots)) == 0))
			return l;
	}
	if (rsh_grow(&c->lists, &c->lists_cap, c->n_lists + 1,
		     sizeof(*c->lists)))
		return NULL;
	l = malloc(sizeof(*l) + n * sizeof(*l->slots));
	if (!l)
		return NULL;
	l->n = n;
	l->bytes = bytes;
	if (n)
		memcpy(l->slots, p->slots, n * sizeof(*l->slots));
	c->lists[c->n_lists++] = l;
	return l;
}

static int make_slots(struct planner *p, struct rsh_virtual_file *f,
		      const struct name_list *names, struct rsh_error *err)
{
	uint64_t at = 0, bytes;
	uint32_t n = 0;

	if (rsh_grow(&p->slots, &p->slots_cap, names->n, sizeof(*p->slots)))
		return rsh_error_nomem(err);
	for (uint32_t i = 0; i < names->n; i++) {
		struct rsh_slot *slot = &p->slots[n];
		struct rsh_record_shape shape;
		int rc;

		rc = describe(p, f, names->names[i], &shape, slot, err);
		if (rc)
			return rc;
		note_record(p, slot->name, shape.dtype, shape.content_bytes);
		if (shape.content_bytes == 0 && p->c->compat)
			continue;
		slot->offset = at;
		if (!rsh_ckpt_emit_size(&shape, &bytes) ||
		    !rsh_add_u64(at, bytes, &at) || at > INT64_MAX)
			return rsh_error_set(err, EFBIG,
					     "parameter %s makes the file of a "
					     "rank too large", shape.name);
		n++;
	}
	f->list = keep_list(p, n, at);
	return f->list ? 0 : rsh_error_nomem(err);
}

/* ---- the files that it needs ---- */

static int missing_slice(struct planner *p, const struct rsh_virtual_file *f,
			 const struct rsh_transfer *t, uint32_t key,
			 struct rsh_error *err)
{
	const struct rsh_conversion *c = p->c;
	const struct rsh_strategy_param *s = listed(c->src, t->name);
	uint32_t stage = s && !c->by_stage ? rsh_param_source_stage(s)->stage :
					     0;
	uint32_t rank = rsh_source_rank(c, stage, key);
	uint32_t needs = p->block * c->dst_ranks + f->local;
	char from[160], to[160];
	const struct rsh_strategy_param *d = listed(c->dst, t->name);

	rsh_item_text(s ? rsh_param_source_stage(s)->item : NULL, from,
		      sizeof(from));
	rsh_item_text(d ? rsh_param_dest_stage(c->dst, d, needs, c->compat)->item
			: NULL, to, sizeof(to));
	if (key >= c->stage_ranks)
		return rsh_error_set(err, EINVAL,
				     "parameter %s is laid out over more ranks "
				     "(%s) than the %u of a stage of %s",
				     name_text(p, t->name), from,
				     c->stage_ranks, c->src->path);
	if (!rsh_rank_index(c, rank))
		return rsh_error_set(err, ENOENT,
				     "rank %u has no checkpoint file, but rank "
				     "%u needs its slice of parameter %s (from "
				     "%s to %s)", rank, needs,
				     name_text(p, t->name), from, to);
	return rsh_error_set(err, ENOENT,
			     "%s: parameter %s is not in it, but rank %u needs "
			     "its slice (from %s to %s)",
			     c->path[rank] ? c->path[rank] : "?",
			     name_text(p, t->name), needs, from, to);
}

/* Marks the source ranks of a handled parameter. */
static int use_sources(struct planner *p, const struct rsh_virtual_file *f,
		       const struct rsh_transfer *t, struct rsh_error *err)
{
	const struct rsh_grid_pair *pair = &p->c->pairs[t->pair];
	uint64_t done = ((uint64_t)f->local + 1) << 32 | t->stage;
	uint32_t n = rsh_grid_n_ranks(pair->src);

	if (t->complete && p->pair_done[t->pair] == done)
		return 0;
	if (n > p->n_slice_keys) {
		free(p->slice_keys);
		p->slice_keys = rsh_alloc_array(n, sizeof(bool));
		p->n_slice_keys = p->slice_keys ? n : 0;
		if (!p->slice_keys)
			return rsh_error_nomem(err);
	}
	memset(p->slice_keys, 0, n);
	rsh_pair_keys(pair, f->local, p->slice_keys, n);
	for (uint32_t k = 0; k < n; k++) {
		uint32_t rank;

		if (!p->slice_keys[k])
			continue;
		if (!rsh_transfer_source(p->c, p->b, t, k, &rank))
			return missing_slice(p, f, t, k, err);
		p->used[rank] = true;
	}
	if (t->complete)
		p->pair_done[t->pair] = done;
	return 0;
}

static int list_sources(struct planner *p, struct rsh_virtual_file *f,
			struct rsh_error *err)
{
	uint32_t n = 0;

	for (uint32_t i = 0; i < f->list->n; i++) {
		uint32_t t = f->list->slots[i].transfer;
		int rc = t == RSH_NO_TRANSFER ? 0 :
			 use_sources(p, f, p->c->transfers[t], err);

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

/* Source device count of the last handled parameter: the converter takes
 * copied records from local rank modulo that. */
static uint32_t copy_modulus(const struct planner *p,
			     const struct name_list *names)
{
	const struct rsh_strategy_param *s;

	if (!p->c->src || names->n_handled == 0)
		return 1;
	s = listed(p->c->src, names->names[names->n_handled - 1]);
	return rsh_item_ranks(rsh_param_source_stage(s)->item);
}

/* Why a file would hold nothing that is resharded: a file that it needs is
 * missing, or the strategies are those of another model. */
static int nothing_handled(struct planner *p, const struct rsh_virtual_file *f,
			   struct rsh_error *err)
{
	const struct rsh_conversion *c = p->c;

	for (uint32_t name = 0; name < c->n_names; name++) {
		uint32_t t = p->transfer_of[name];
		int rc = t == RSH_NO_TRANSFER ? 0 :
			 use_sources(p, f, c->transfers[t], err);

		if (rc)
			return rc;
	}
	return rsh_error_set(err, EINVAL,
			     "rank %u: no parameter of the source files is "
			     "listed by %s%s%s",
			     p->block * c->dst_ranks + f->local,
			     c->src ? c->src->path : c->dst->path,
			     c->src && c->dst ? " and " : "",
			     c->src && c->dst ? c->dst->path : "");
}

static int plan_file(struct planner *p, uint32_t local, struct rsh_error *err)
{
	struct rsh_conversion *c = p->c;
	struct rsh_virtual_file *f =
		&c->files[p->block * c->dst_ranks + local];
	const struct name_list *names;
	int rc;

	f->block = p->b;
	f->local = local;
	mark_keys(p, local);
	f->keys = keep_keys(p);
	names = f->keys ? list_names(p) : NULL;
	if (!names)
		return rsh_error_nomem(err);
	if (names->n_handled == 0 && (c->src || c->dst))
		return nothing_handled(p, f, err);
	f->copy_key = local % copy_modulus(p, names);
	memset(p->used, 0, c->n_view);
	rc = make_slots(p, f, names, err);
	return rc ? rc : list_sources(p, f, err);
}

/* ---- the block ---- */

/* Numbers the distinct indexes. */
static void number_indexes(struct planner *p)
{
	const struct rsh_conversion *c = p->c;

	for (uint32_t r = 0; r < c->n_view; r++) {
		p->index_id[r] = r;
		if (!c->index[r])
			continue;
		/* Shared indexes come in long runs of ranks. */
		for (uint32_t k = r; k-- > 0;)
			if (c->index[k] == c->index[r]) {
				p->index_id[r] = p->index_id[k];
				break;
			}
	}
}

static int planner_init(struct planner *p, struct rsh_error *err)
{
	const struct rsh_conversion *c = p->c;

	p->fate = calloc(c->n_names + 1, sizeof(*p->fate));
	p->transfer_of = calloc(c->n_names + 1, sizeof(*p->transfer_of));
	p->seen = calloc(c->n_names + 1, sizeof(*p->seen));
	p->index_id = calloc(c->n_view + 1, sizeof(*p->index_id));
	p->seq = calloc(c->n_view + 1, sizeof(*p->seq));
	p->used = calloc(c->n_view + 1, sizeof(*p->used));
	p->keys = calloc(c->stage_ranks, sizeof(*p->keys));
	if (!p->fate || !p->transfer_of || !p->seen || !p->index_id ||
	    !p->seq || !p->used || !p->keys)
		return rsh_error_nomem(err);
	number_indexes(p);
	return 0;
}

static void planner_free(struct planner *p)
{
	for (uint32_t i = 0; i < p->n_pairs; i++)
		rsh_redistribution_free(p->pairs[i].redist);
	for (uint32_t i = 0; i < p->n_lists; i++) {
		free(p->lists[i].seq);
		free(p->lists[i].names);
	}
	free(p->pairs);
	free(p->lists);
	free(p->fate);
	free(p->transfer_of);
	free(p->seen);
	free(p->index_id);
	free(p->seq);
	free(p->used);
	free(p->keys);
	free(p->slice_keys);
	free(p->slots);
	free(p->pair_done);
}

int rsh_block_plan(struct rsh_conversion *c, uint32_t block,
		   struct rsh_error *err)
{
	struct planner p = { .c = c, .block = block, .b = &c->blocks[block] };
	int rc = planner_init(&p, err);

	if (rc == 0)
		rc = collect_stages(&p, err);
	if (rc == 0)
		rc = make_transfers(&p, err);
	if (rc == 0)
		rc = collect_pairs(&p, err);
	if (rc == 0) {
		p.pair_done = calloc(c->n_pairs + 1, sizeof(*p.pair_done));
		rc = p.pair_done ? 0 : rsh_error_nomem(err);
	}
	for (uint32_t local = 0; rc == 0 && local < c->dst_ranks; local++)
		rc = plan_file(&p, local, err);
	planner_free(&p);
	return rc;
}
