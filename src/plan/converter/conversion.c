/* SPDX-License-Identifier: Apache-2.0 */
/* plan/converter/conversion.c defines the policy of MindSpore's converter
 * (plan/policy.h), and the functions that the plan calls. */
#include <search.h>
#include <stdio.h>
#include <stdlib.h>

#include "converter_i.h"
#include "rsh/util/mem.h"
#include "rsh/util/text.h"

/* ---- the converter's dispatch ---- */

/* Returns whether the converter leaves out a name when it compares the two
 * strategies. */
static bool is_not_compared(const char *name)
{
	return rsh_begins_any(name, "accu_grads", "adam_v", "adam_m");
}

/* Returns whether the converter converts stage by stage.  It does so if both
 * strategies have one stage and the parameters of the source are a proper
 * subset of those of the destination. */
static bool goes_by_stage(const struct rsh_strategy *src,
			  const struct rsh_strategy *dst,
			  const struct rsh_names *names)
{
	uint32_t n_src = 0, n_dst = 0;

	if (!src || !dst || src->n_stages != 1 || dst->n_stages != 1)
		return false;
	for (uint32_t i = 0; i < src->n_params; i++) {
		uint32_t name = src->params[i].name;

		if (is_not_compared(rsh_names_text(names, name)))
			continue;
		if (!rsh_strategy_find(dst, name))
			return false;
		n_src++;
	}
	for (uint32_t i = 0; i < dst->n_params; i++)
		n_dst += !is_not_compared(
			rsh_names_text(names, dst->params[i].name));
	return n_src < n_dst;
}

/* Returns the first source rank.  The converter uses the stage of an unmerged
 * strategy file only if it converts by stage.  Otherwise it treats such a file
 * as a job of one stage. */
static uint32_t first_rank(const struct rsh_strategy *src, bool by_stage)
{
	return by_stage ? src->lone_stage * src->stage_ranks : 0;
}

void rsh_conversion_source_ranks(const struct rsh_strategy *src,
				 const struct rsh_strategy *dst,
				 const struct rsh_names *names, bool replicas,
				 uint32_t *first, uint32_t *n)
{
	*first = first_rank(src, goes_by_stage(src, dst, names));
	*n = src ? src->stage_ranks * src->n_stages :
	     dst && !replicas ? 1 : UINT32_MAX;
}

/* ---- functions for the plan ---- */

static const char *converter_written(const void *ctx, uint32_t name)
{
	const struct rsh_converter *c = ctx;

	return rsh_name_filter_name(&c->chosen, name);
}

static bool converter_pick(const void *ctx, uint32_t rank, uint32_t name,
			   const atomic_bool *avoid, uint32_t *file)
{
	const struct rsh_converter *c = ctx;

	return rsh_copy_source(c, &c->orders[rank], name, avoid, file, NULL);
}

static void converter_explain(const void *ctx, uint32_t rank, uint32_t name,
			      char *text, size_t size)
{
	const struct rsh_converter *c = ctx;
	const struct rsh_strategy_param *s =
		rsh_strategy_find(c->src, name);
	const struct rsh_strategy_param *d =
		rsh_strategy_find(c->dst, name);
	char from[160], to[160];

	rsh_item_text(s ? rsh_param_source_stage(s)->item : NULL, from,
		      sizeof(from));
	rsh_item_text(
		d ? rsh_param_dest_stage(c->dst, d, rank, c->o.compat)->item
		  : NULL, to, sizeof(to));
	snprintf(text, size, " (from %s to %s)", from, to);
}

static void converter_stands_in(void *ctx, uint32_t own, uint32_t name)
{
	struct rsh_converter *c = ctx;

	if (rsh_catalogue_index(c->cat, own))
		rsh_note_add_lacking(c, own, name);
	else
		rsh_note_add(c, RSH_NOTE_REPLICA, name);
}

static void converter_free(void *ctx)
{
	struct rsh_converter *c = ctx;

	tdestroy(c->key_sets, free);
	free(c->resharded);
	free(c->files.held);
	rsh_name_filter_clear(&c->chosen);
	rsh_arena_clear(&c->arena);
	free(c);
}

/* ---- making ---- */

static struct rsh_converter *
converter_new(const struct rsh_strategy *src, const struct rsh_strategy *dst,
	      const struct rsh_source_view *view,
	      const struct rsh_plan_options *o)
{
	struct rsh_converter *c = calloc(1, sizeof(*c));

	if (!c)
		return NULL;
	c->cat = rsh_catalogue_new(view);
	if (!c->cat) {
		free(c);
		return NULL;
	}
	c->src = src;
	c->dst = dst;
	c->o = *o;
	c->src_format = view->format;
	c->joined = view->joined;
	c->foreign = view->foreign;
	c->by_stage = goes_by_stage(src, dst, view->names);
	c->files = (struct rsh_job_files){
		.cat = c->cat, .src = src,
		.first_rank = first_rank(src, c->by_stage),
		.stage_ranks = src ? src->stage_ranks :
			       dst ? 1 : view->n_ranks,
		/* Without a source strategy all ranks hold the same whole
		 * tensors.  With a destination strategy they are planned as
		 * stages of one rank; the converter reads the first one. */
		.n_stages = src ? src->n_stages :
			    dst && view->n_ranks > 0 ? view->n_ranks : 1,
	};
	c->n_dst_stages = dst && !c->by_stage ? dst->n_stages : 1;
	c->dst_ranks = dst ? dst->stage_ranks : 1;
	if (!src && !dst && o->n_shown_ranks)
		c->dst_ranks = o->n_shown_ranks;
	return c;
}

/* Finds whether there are records for second files.  It looks at the records of
 * files, since parameters that only strategies list are in no file. */
static int find_optimizer_params(struct rsh_converter *c, struct rsh_error *err)
{
	cleanup_free bool *apart = calloc(c->cat->n_names + 1, sizeof(*apart));
	const struct rsh_ckpt_index *last = NULL;

	if (!apart)
		return rsh_error_nomem(err);
	for (uint32_t i = 0; i < c->cat->n_names; i++)
		apart[i] = !c->chosen.unwanted[i] &&
			   rsh_name_filter_apart(&c->chosen, c->cat, i);
	c->chosen.two_files = false;
	for (uint32_t i = 0; i < c->cat->n_present; i++) {
		const struct rsh_ckpt_index *ix =
			rsh_catalogue_index(c->cat, c->cat->present[i]);

		for (uint32_t k = 0; ix != last && k < ix->n_records; k++)
			c->chosen.two_files |= apart[ix->records[k].name];
		last = ix;
	}
	return 0;
}

static int converter_begin(void *ctx, struct rsh_writer_state *w,
			   struct rsh_error *err)
{
	struct stage_state *p = ctx;
	struct rsh_converter *c = p->c;
	char suffix[32];

	p->w = w;
	c->plan = w->plan;
	/* The converter converts safetensors all at once, with the same
	 * result. */
	if (c->by_stage && c->src_format == RSH_FILE_CKPT) {
		rsh_note_add(c, RSH_NOTE_BY_STAGE, RSH_NAME_NONE);
		snprintf(suffix, sizeof(suffix), "_part%u", c->src->lone_stage);
		if (c->o.compat)
			rsh_blueprint_name_suffix(c->plan, suffix);
	}
	if (!c->src && !c->dst)
		rsh_note_add(c, RSH_NOTE_NONE, RSH_NAME_NONE);
	c->dst_stages = rsh_arena_array(&c->arena, struct rsh_dst_stage,
					c->n_dst_stages);
	c->orders = rsh_arena_array(&c->arena, struct rsh_copy_order,
				    (size_t)c->n_dst_stages * c->dst_ranks);
	c->copy_grids = rsh_arena_array(&c->arena, const struct rsh_grid *,
					c->cat->n_names);
	if (c->arena.failed || rsh_job_files_list(&c->files) ||
	    rsh_whole_prepare(c) < 0)
		return rsh_error_nomem(err);
	return c->chosen.two_files ? find_optimizer_params(c, err) : 0;
}

static int converter_end(void *ctx)
{
	struct stage_state *p = ctx;

	return rsh_notes_write(p->c);
}

int rsh_convert(const struct rsh_strategy *src, const struct rsh_strategy *dst,
		const struct rsh_source_view *view,
		const struct rsh_plan_options *opts,
		struct rsh_plan **out, struct rsh_error *err)
{
	struct rsh_converter *c = converter_new(src, dst, view, opts);
	struct stage_state p = { .c = c };
	struct rsh_policy policy = {
		.ctx = &p,
		.ops = {
			.ctx = c,
			.written_name = converter_written,
			.pick = converter_pick,
			.copy_shape = rsh_copy_shape,
			.same_slices = rsh_converter_same_slices,
			.explain = converter_explain,
			.replica_used = converter_stands_in,
			.free = converter_free,
		},
		.begin = converter_begin,
		.stage = rsh_dst_stage_begin,
		.is_deduplicated = rsh_dst_stage_deduplicates,
		.file = rsh_dst_stage_file,
		.record = rsh_dst_stage_record,
		.end = converter_end,
	};
	int rc;

	if (!c)
		return rsh_error_nomem(err);
	policy.filter = &c->chosen;
	policy.n_stages = c->n_dst_stages;
	policy.stage_ranks = c->dst_ranks;
	/* From here on the plan owns the converter. */
	rc = rsh_write_plan_by(c->cat, &policy, dst, opts, out, err);
	rsh_stage_clear(&p);
	return rc;
}
