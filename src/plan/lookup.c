/* SPDX-License-Identifier: Apache-2.0 */
/* plan/lookup.c answers which file holds what.  It is asked while planning and
 * again while reading, so that both get the same answer. */
#include <string.h>

#include "conversion_i.h"

const struct rsh_ckpt_index *rsh_rank_index(const struct rsh_conversion *c,
					    uint32_t rank)
{
	return rank < c->n_view ? c->index[rank] : NULL;
}

const struct rsh_record *rsh_rank_record(const struct rsh_conversion *c,
					 uint32_t rank, uint32_t name)
{
	const struct rsh_ckpt_index *ix = rsh_rank_index(c, rank);

	return ix ? rsh_ckpt_find(ix, name) : NULL;
}

static bool are_alike(const struct rsh_ckpt_index *a,
		      const struct rsh_record *x,
		      const struct rsh_ckpt_index *b,
		      const struct rsh_record *y)
{
	return x->dtype == y->dtype && x->wide_bf16 == y->wide_bf16 &&
	       x->content_bytes == y->content_bytes && x->n_dims == y->n_dims &&
	       (x->n_dims == 0 ||
		memcmp(rsh_record_dims(a, x), rsh_record_dims(b, y),
		       x->n_dims * sizeof(int64_t)) == 0);
}

/* Ranks of an unsharded source hold the same, if it is one: is the record of
 * this rank like the first one? */
static bool is_like_first(const struct rsh_conversion *c, uint32_t name,
			  uint32_t rank)
{
	const struct rsh_ckpt_index *ix = rsh_rank_index(c, rank);
	const struct rsh_record *r = ix ? rsh_ckpt_find(ix, name) : NULL;

	for (uint32_t i = 0; r && c->present[i] < rank; i++) {
		const struct rsh_ckpt_index *first =
			rsh_rank_index(c, c->present[i]);
		const struct rsh_record *f = rsh_ckpt_find(first, name);

		if (f)
			return are_alike(ix, r, first, f);
	}
	return true;
}

/* A shared parameter may be cut otherwise in another stage: its slices there are
 * not those of the layout that counts. */
bool rsh_stage_fits(const struct rsh_conversion *c, uint32_t name,
		    uint32_t stage)
{
	const struct rsh_strategy_param *s = c->src ?
		rsh_strategy_find(c->src, name) : NULL;
	const struct rsh_strategy_item *item = s ? rsh_param_item(s, stage) :
						   NULL;

	return !item ||
	       rsh_item_same_layout(item, rsh_param_source_stage(s)->item);
}

bool rsh_find_in_stages(const struct rsh_conversion *c,
			const struct rsh_block *b, uint32_t name, uint32_t key,
			const atomic_bool *avoid, uint32_t *rank)
{
	for (uint32_t i = 0; i < b->n_stages; i++) {
		*rank = rsh_source_rank(c, b->stages[i], key);
		if (rsh_rank_record(c, *rank, name) && !rsh_is_avoided(avoid, *rank) &&
		    (c->src ? rsh_stage_fits(c, name, b->stages[i]) :
			      !c->dst || is_like_first(c, name, *rank)))
			return true;
	}
	return false;
}

/* Finds a replica by walking the files, where these are fewer than the
 * replicas. */
static bool find_held_replica(const struct rsh_conversion *c,
			      const struct rsh_block *b,
			      const struct rsh_grid *g, uint32_t name,
			      uint32_t key, const atomic_bool *avoid,
			      uint32_t *rank)
{
	uint32_t n = rsh_grid_n_replicas(g), place = rsh_grid_place(g, key);
	uint32_t best = n;

	for (uint32_t i = 0; i < c->n_held; i++) {
		uint32_t other = rsh_grid_place(g, c->held[i]), after, found;

		after = (other + n - place % n) % n;
		if (other / n != place / n || after == 0 || after >= best ||
		    !rsh_find_in_stages(c, b, name, c->held[i], avoid, &found))
			continue;
		best = after;
		*rank = found;
	}
	return best < n;
}

/* Begins with the replica after `key` itself, so that the load of a lost rank
 * spreads. */
bool rsh_find_replica(const struct rsh_conversion *c,
		      const struct rsh_block *b, const struct rsh_grid *g,
		      uint32_t name, uint32_t key, const atomic_bool *avoid,
		      uint32_t *rank)
{
	uint32_t n = rsh_grid_n_replicas(g), mine = rsh_grid_replica(g, key);
	uint32_t cell[RSH_MAX_DIMS];

	if (c->n_held < n)
		return find_held_replica(c, b, g, name, key, avoid, rank);
	rsh_grid_cell(g, key, cell);
	for (uint32_t i = 1; i < n; i++)
		if (rsh_find_in_stages(c, b, name,
				       rsh_grid_member(g, cell, (mine + i) % n),
				       avoid, rank))
			return true;
	return false;
}

bool rsh_transfer_source(const struct rsh_conversion *c,
			 const struct rsh_block *b,
			 const struct rsh_transfer *t, uint32_t key,
			 const atomic_bool *avoid, uint32_t *rank)
{
	const struct rsh_grid_pair *pair = &c->pairs[t->pair];

	*rank = rsh_supply_rank(pair->supply, key);
	if (*rank == RSH_NO_RANK)
		return false;
	if (!rsh_is_avoided(avoid, *rank))
		return true;
	return rsh_find_in_stages(c, b, t->name, key, avoid, rank) ||
	       rsh_find_replica(c, b, pair->src, t->name, key, avoid, rank);
}

bool rsh_copy_source(const struct rsh_conversion *c,
		     const struct rsh_virtual_file *f, uint32_t name,
		     const atomic_bool *avoid, uint32_t *rank, bool *elsewhere)
{
	const struct rsh_grid *g = c->copy_grids[name];

	if (elsewhere)
		*elsewhere = false;
	if (rsh_find_in_stages(c, f->block, name, f->copy_key, avoid, rank))
		return true;
	if (elsewhere)
		*elsewhere = true;
	if (g && c->replicas) {
		if (rsh_find_replica(c, f->block, g, name, f->copy_key, avoid,
				 rank))
			return true;
		/* A slice of its own: another would be a wrong one. */
		if (rsh_grid_n_replicas(g) < rsh_grid_n_ranks(g))
			return false;
	}
	for (int loaded = 1; loaded >= !c->replicas; loaded--)
		for (uint32_t i = 0; i < c->n_held; i++)
			if (f->keys[i] == loaded &&
			    rsh_find_in_stages(c, f->block, name, c->held[i],
					       avoid, rank))
				return true;
	return false;
}

/* ---- shapes and codecs ---- */

const char *rsh_written_name(const struct rsh_conversion *c, uint32_t name)
{
	return c->renamed && c->renamed[name] ? c->renamed[name] :
						rsh_names_text(c->names, name);
}

/* State that belongs to an optimizer, by the prefixes that MindSpore's
 * optimizers give it. */
static bool is_optimizer_state(const char *name)
{
	static const char *const prefixes[] = {
		"adam_m.", "adam_v.", "accu_grads.", "moments.", "moment1.",
		"moment2.", "momentum.", "exp_avg.", "exp_avg_sq.",
		"accum.", "mean_square.", "mean_gradient.",
	};

	for (size_t i = 0; i < sizeof(prefixes) / sizeof(prefixes[0]); i++)
		if (strncmp(name, prefixes[i], strlen(prefixes[i])) == 0)
			return true;
	return false;
}

/* RSH_CODEC_COUNT where there is no cast between the two types. */
static enum rsh_codec cast_codec(const struct rsh_record *r, enum rsh_dtype to)
{
	bool wide = r->wide_bf16;

	if (r->dtype == RSH_DTYPE_BFLOAT16 && to == RSH_DTYPE_FLOAT16)
		return wide ? RSH_CODEC_WIDE_TO_F16 : RSH_CODEC_BF16_TO_F16;
	if (r->dtype == RSH_DTYPE_BFLOAT16 && to == RSH_DTYPE_FLOAT32)
		return wide ? RSH_CODEC_WIDE_TO_F32 : RSH_CODEC_BF16_TO_F32;
	if (r->dtype == RSH_DTYPE_FLOAT16 && to == RSH_DTYPE_BFLOAT16)
		return RSH_CODEC_F16_TO_BF16;
	if (r->dtype == RSH_DTYPE_FLOAT16 && to == RSH_DTYPE_FLOAT32)
		return RSH_CODEC_F16_TO_F32;
	if (r->dtype == RSH_DTYPE_FLOAT32 && to == RSH_DTYPE_BFLOAT16)
		return RSH_CODEC_F32_TO_BF16;
	if (r->dtype == RSH_DTYPE_FLOAT32 && to == RSH_DTYPE_FLOAT16)
		return RSH_CODEC_F32_TO_F16;
	return RSH_CODEC_COUNT;
}

enum rsh_codec rsh_record_codec(const struct rsh_conversion *c,
				const struct rsh_record *r,
				enum rsh_dtype *dtype)
{
	enum rsh_codec cast = RSH_CODEC_COUNT;
	/* The converter's detour over float32, for which safetensors have no
	 * need. */
	bool canonical = c->compat && c->src_format == RSH_FORMAT_CKPT;

	*dtype = c->compat && r->dtype == RSH_DTYPE_INT4 ? RSH_DTYPE_INT8 :
							   r->dtype;
	if (c->cast != RSH_DTYPE_UNKNOWN && r->n_dims > 0 &&
	    !is_optimizer_state(rsh_names_text(c->names, r->name)))
		cast = cast_codec(r, c->cast);
	if (cast != RSH_CODEC_COUNT) {
		*dtype = c->cast;
		return cast;
	}
	if (r->dtype != RSH_DTYPE_BFLOAT16)
		return RSH_CODEC_NONE;
	if (r->wide_bf16)
		return canonical ? RSH_CODEC_BF16_WIDE_NAN :
				   RSH_CODEC_BF16_WIDE;
	return canonical ? RSH_CODEC_BF16_NAN : RSH_CODEC_NONE;
}

void rsh_copy_shape(const struct rsh_conversion *c,
		    const struct rsh_ckpt_index *ix, const struct rsh_record *r,
		    struct rsh_record_shape *out, enum rsh_codec *codec)
{
	uint32_t in, written;

	*codec = rsh_record_codec(c, r, &out->dtype);
	rsh_codec_units(*codec, &in, &written);
	out->name = rsh_written_name(c, r->name);
	out->name_len = strlen(out->name);
	out->n_dims = r->n_dims;
	out->dims = rsh_record_dims(ix, r);
	out->content_bytes = r->content_bytes / in * written;
	if (c->compat && c->src_format == RSH_FORMAT_CKPT &&
	    rsh_becomes_zero(ix, r)) {
		out->n_dims = 0;
		out->content_bytes = rsh_dtype_size(out->dtype);
	}
}

/* It is the reading and writing of .ckpt that loses them. */
bool rsh_drops_empty(const struct rsh_conversion *c)
{
	return c->src_format == RSH_FORMAT_CKPT || c->format == RSH_FORMAT_CKPT;
}

bool rsh_becomes_zero(const struct rsh_ckpt_index *ix,
		      const struct rsh_record *r)
{
	return r->content_bytes == 0 && r->dtype != RSH_DTYPE_STR &&
	       r->n_dims == 1 && rsh_record_dims(ix, r)[0] == 0;
}

void rsh_transfer_shape(const struct rsh_conversion *c,
			const struct rsh_transfer *t,
			struct rsh_record_shape *out)
{
	out->name = rsh_written_name(c, t->name);
	out->name_len = strlen(out->name);
	out->dtype = t->dtype;
	out->n_dims = t->n_dims;
	out->dims = t->dims;
	out->content_bytes = t->content_bytes;
}

/* ---- which slices a slice touches ---- */

/* Cells [*from, *to) of n_src equal ones that overlap cell `at` of n_dst. */
static void overlap(uint32_t at, uint32_t n_dst, uint32_t n_src, uint32_t *from,
		    uint32_t *to)
{
	*from = (uint32_t)((uint64_t)at * n_src / n_dst);
	*to = (uint32_t)((((uint64_t)at + 1) * n_src + n_dst - 1) / n_dst);
}

void rsh_pair_box(const struct rsh_grid_pair *p, uint32_t local,
		  struct rsh_box *out)
{
	uint32_t at[RSH_MAX_DIMS];

	out->n_dims = rsh_grid_n_dims(p->src);
	out->n_cells = 1;
	rsh_grid_cell(p->dst, local, at);
	for (uint32_t d = 0; d < out->n_dims; d++) {
		overlap(at[d], rsh_grid_split(p->dst, d),
			rsh_grid_split(p->src, d), &out->from[d], &out->to[d]);
		out->n_cells *= out->to[d] - out->from[d];
	}
}

void rsh_box_keys(const struct rsh_grid_pair *p, const struct rsh_box *box,
		  uint32_t local, rsh_key_fn *each, void *ctx)
{
	uint32_t at[RSH_MAX_DIMS];
	uint32_t d;

	memcpy(at, box->from, sizeof(at));
	for (;;) {
		each(ctx, rsh_grid_holder(p->src, at, local));
		for (d = box->n_dims; d > 0; d--) {
			if (++at[d - 1] < box->to[d - 1])
				break;
			at[d - 1] = box->from[d - 1];
		}
		if (d == 0)
			return;
	}
}
