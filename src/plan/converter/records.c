/* SPDX-License-Identifier: Apache-2.0 */
/* plan/converter/records.c finds the properties of one record of a virtual
 * file: its source, its name and type, and whether the converter would drop
 * it. */
#include <errno.h>
#include <string.h>

#include "converter_i.h"
#include "rsh/plan/kinds.h"

int rsh_stage_learn_copy_grid(struct stage_state *p, uint32_t name,
			      struct rsh_error *err)
{
	struct rsh_converter *c = p->c;
	const struct rsh_strategy_param *s = rsh_strategy_find(c->src, name);

	if (!c->o.replicas || !s || c->copy_grids[name] ||
	    p->shown_of[name] != RSH_COPIED)
		return 0;
	for (uint32_t i = 0; i < c->cat->n_present; i++) {
		const struct rsh_ckpt_index *ix =
			c->cat->index[c->cat->present[i]];
		const struct rsh_record *r = rsh_ckpt_find(ix, name);
		struct rsh_grid_sizes sizes = { .local = true };
		uint64_t ignored[RSH_MAX_DIMS];
		const struct rsh_cut *cut;
		int rc;

		if (!r)
			continue;
		sizes.dims = rsh_record_dims(ix, r);
		sizes.n_dims = r->n_dims;
		/* A record whose size does not fit its strategy is copied as
		 * well, like a record whose cut is not known. */
		rc = rsh_layout_cut(c->cat, rsh_param_source_stage(s)->item,
				    &sizes, RSH_GRID_RUNTIME, &cut, ignored,
				    NULL);
		if (rc == 0)
			c->copy_grids[name] = rsh_cut_grid(cut);
		return rc == -ENOMEM ? rsh_error_nomem(err) : 0;
	}
	return 0;
}

/* Finds the rank from which a record is copied. */
static int find_copy(struct stage_state *p, const struct rsh_shown_file *f,
		     uint32_t name, uint32_t *rank, struct rsh_error *err)
{
	struct rsh_converter *c = p->c;
	const struct rsh_copy_order *o = &c->orders[f->rank];
	const struct rsh_strategy_param *s = rsh_strategy_find(c->src, name);
	bool elsewhere;
	uint32_t stage;

	if (rsh_copy_source(c, o, name, NULL, rank, &elsewhere)) {
		if (elsewhere)
			rsh_note_add(c, RSH_NOTE_MISSING_COPY, name);
		return 0;
	}
	stage = s && !c->by_stage ? rsh_param_source_stage(s)->stage : 0;
	return rsh_blueprint_missing(c->plan,
				     rsh_job_rank(&c->files, stage,
						  o->copy_key),
				     f->rank, name, "", err);
}

/* Fills the shape of a copied record. */
static int describe(struct stage_state *p, const struct rsh_shown_file *f,
		    uint32_t name, struct rsh_record_shape *shape,
		    struct rsh_error *err)
{
	struct rsh_converter *c = p->c;
	const struct rsh_ckpt_index *ix;
	const struct rsh_record *r;
	enum rsh_codec codec;
	uint32_t rank;
	int rc = rsh_stage_learn_copy_grid(p, name, err) ?:
		 find_copy(p, f, name, &rank, err);

	if (rc)
		return rc;
	ix = rsh_catalogue_index(c->cat, rank);
	r = rsh_ckpt_find(ix, name);
	rc = rsh_record_check_chunks(c->cat, rank, r, rsh_record_unit(c, r),
				     err);
	if (rc)
		return rc;
	rsh_copy_shape(c, ix, r, shape, &codec);
	if (c->o.unlisted == RSH_UNLISTED_ERROR && c->dst &&
	    !rsh_strategy_find(c->dst, name))
		return rsh_error_set(err, EINVAL, "parameter %s is not listed "
				     "by %s", shape->name, c->dst->path);
	return 0;
}

int rsh_dst_stage_record(void *ctx, struct rsh_shown_file *f, uint32_t name,
			 struct rsh_record_shape *shape, bool *taken,
			 struct rsh_error *err)
{
	struct stage_state *p = ctx;
	struct rsh_converter *c = p->c;
	int rc = p->shown_of[name] == RSH_COPIED ?
		describe(p, f, name, shape, err) : 0;

	if (rc == -ENOENT && c->o.replicas) {
		*taken = false;
		f->lost = true;
		return rsh_blueprint_lose(c->plan, name, err);
	}
	if (rc)
		return rc;
	if (shape->dtype == RSH_DTYPE_BFLOAT16 &&
	    c->src_format == RSH_FILE_CKPT)
		rsh_note_add(c, RSH_NOTE_BF16, name);
	else if (shape->dtype == RSH_DTYPE_INT4)
		rsh_note_add(c, RSH_NOTE_INT4, name);
	else if (shape->dtype == RSH_DTYPE_STR)
		rsh_note_add(c, RSH_NOTE_STR, name);
	if ((rsh_strategy_find(c->src, name) || rsh_strategy_find(c->dst, name)) &&
	    strchr(rsh_names_text(c->cat->names, name), '-'))
		rsh_note_add(c, RSH_NOTE_DASH, name);
	if (shape->content_bytes == 0 && rsh_drops_empty(c)) {
		rsh_note_add(c, RSH_NOTE_EMPTY, name);
		*taken = !c->o.compat;
	}
	return 0;
}

const char *rsh_written_name(const struct rsh_converter *c, uint32_t name)
{
	const char *renamed = rsh_name_filter_name(&c->chosen, name);

	return renamed ? renamed : rsh_names_text(c->cat->names, name);
}

enum rsh_codec rsh_record_codec(const struct rsh_converter *c,
				const struct rsh_record *r,
				enum rsh_dtype *dtype)
{
	enum rsh_codec cast = RSH_CODEC_COUNT;
	/* The converter converts the BFloat16 of a .ckpt to float32 and
	 * back. */
	bool canonical = c->o.compat && c->src_format == RSH_FILE_CKPT;

	*dtype = c->o.compat && r->dtype == RSH_DTYPE_INT4 ? RSH_DTYPE_INT8 :
							   r->dtype;
	if (c->o.cast != RSH_DTYPE_UNKNOWN && r->n_dims > 0 &&
	    rsh_kinds_of(c->cat->kinds, r->name, rsh_names_text(
			 c->cat->names, r->name)) == RSH_KIND_WEIGHT)
		cast = rsh_codec_cast(r->dtype, r->wide_bf16, c->o.cast);
	if (cast != RSH_CODEC_COUNT) {
		*dtype = c->o.cast;
		return cast;
	}
	if (r->dtype != RSH_DTYPE_BFLOAT16)
		return RSH_CODEC_NONE;
	if (r->wide_bf16)
		return canonical ? RSH_CODEC_BF16_WIDE_NAN :
				   RSH_CODEC_BF16_WIDE;
	return canonical ? RSH_CODEC_BF16_NAN : RSH_CODEC_NONE;
}

uint32_t rsh_record_unit(const struct rsh_converter *c,
			 const struct rsh_record *r)
{
	enum rsh_dtype dtype;
	uint32_t in, out;

	rsh_codec_units(rsh_record_codec(c, r, &dtype), &in, &out);
	return in;
}

void rsh_copy_shape(const void *converter, const struct rsh_ckpt_index *ix,
		    const struct rsh_record *r, struct rsh_record_shape *out,
		    enum rsh_codec *codec)
{
	const struct rsh_converter *c = converter;
	uint32_t in, written;

	*codec = rsh_record_codec(c, r, &out->dtype);
	rsh_codec_units(*codec, &in, &written);
	out->name = rsh_written_name(c, r->name);
	out->name_len = strlen(out->name);
	out->n_dims = r->n_dims;
	out->dims = rsh_record_dims(ix, r);
	out->order = NULL;
	out->content_bytes = r->content_bytes / in * written;
	/* The converter reads an empty vector as a scalar and writes it as the
	 * number 0. */
	if (c->o.compat && c->src_format == RSH_FILE_CKPT &&
	    r->content_bytes == 0 && r->dtype != RSH_DTYPE_STR &&
	    r->n_dims == 1 && rsh_record_dims(ix, r)[0] == 0) {
		out->n_dims = 0;
		out->content_bytes = rsh_dtype_size(out->dtype);
	}
}

/* The converter loses tensors without elements both when it reads a .ckpt file
 * and when it writes one. */
bool rsh_drops_empty(const struct rsh_converter *c)
{
	return c->src_format == RSH_FILE_CKPT ||
	       c->o.framing->type == RSH_FILE_CKPT;
}
