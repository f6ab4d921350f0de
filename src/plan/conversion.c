/* SPDX-License-Identifier: Apache-2.0 */
/* plan/conversion.c makes a conversion: it takes over the view of the source,
 * plans one destination stage after the other, and answers what is asked of
 * the files. */
#include <errno.h>
#include <search.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "framing_i.h"
#include "rsh/util/checked.h"

/* ---- the converter's dispatch ---- */

/* Names that the converter leaves out when it compares the two strategies. */
static bool is_optimizer_state(const char *name)
{
	return strncmp(name, "accu_grads", 10) == 0 ||
	       strncmp(name, "adam_v", 6) == 0 ||
	       strncmp(name, "adam_m", 6) == 0;
}

/* The converter goes stage by stage when both strategies have one stage and
 * the source lists fewer parameters than the destination and no others. */
static bool goes_by_stage(const struct rsh_strategy *src,
			  const struct rsh_strategy *dst,
			  const struct rsh_names *names)
{
	uint32_t n_src = 0, n_dst = 0;

	if (!src || !dst || src->n_stages != 1 || dst->n_stages != 1)
		return false;
	for (uint32_t i = 0; i < src->n_params; i++) {
		uint32_t name = src->params[i].name;

		if (is_optimizer_state(rsh_names_text(names, name)))
			continue;
		if (!rsh_strategy_find(dst, name))
			return false;
		n_src++;
	}
	for (uint32_t i = 0; i < dst->n_params; i++)
		n_dst += !is_optimizer_state(
			rsh_names_text(names, dst->params[i].name));
	return n_src < n_dst;
}

/* Whose stage an unmerged file is the converter asks only when it goes by
 * stage; else such a file is taken for a job of one stage. */
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

/* Ranks of a job without a strategy all hold the same whole tensors.  Wanted in
 * another strategy they are planned as stages of one rank each, of which the
 * first is the one that the converter takes. */
static uint32_t source_stages(const struct rsh_strategy *src,
			      const struct rsh_strategy *dst,
			      const struct rsh_source_view *view)
{
	if (src)
		return src->n_stages;
	return dst && view->n_ranks > 0 ? view->n_ranks : 1;
}

/* ---- making and freeing ---- */

static int copy_view(struct rsh_conversion *c,
		     const struct rsh_source_view *view)
{
	c->n_view = view->n_ranks;
	c->copy_grids = calloc(c->n_names + 1, sizeof(*c->copy_grids));
	if (!c->copy_grids)
		return -ENOMEM;
	c->index = calloc(c->n_view + 1, sizeof(*c->index));
	c->path = calloc(c->n_view + 1, sizeof(*c->path));
	if (!c->index || !c->path)
		return -ENOMEM;
	for (uint32_t r = 0; r < c->n_view; r++) {
		c->index[r] = view->index[r];
		if (!view->path || !view->path[r])
			continue;
		c->path[r] = strdup(view->path[r]);
		if (!c->path[r])
			return -ENOMEM;
	}
	return rsh_present_make(c);
}

static int by_text(const void *a, const void *b)
{
	return strcmp(*(const char *const *)a, *(const char *const *)b);
}

/* Two parameters must not be written under one name. */
static int check_renamed(const struct rsh_conversion *c, struct rsh_error *err)
{
	const char **all = calloc(c->n_names + 1, sizeof(*all));
	uint32_t n = 0;
	int rc = 0;

	if (!all)
		return rsh_error_nomem(err);
	for (uint32_t i = 0; i < c->n_names; i++)
		if (!c->unwanted[i])
			all[n++] = rsh_written_name(c, i);
	qsort(all, n, sizeof(*all), by_text);
	for (uint32_t i = 1; i < n && rc == 0; i++)
		if (strcmp(all[i - 1], all[i]) == 0)
			rc = rsh_error_set(err, EINVAL, "renaming gives two "
					   "parameters the name %s", all[i]);
	free(all);
	return rc;
}

/* Asks once for every name whether it is wanted and what it becomes. */
static int ask_names(struct rsh_conversion *c,
		     const struct rsh_conversion_options *o,
		     struct rsh_error *err)
{
	c->filtered = o->wanted != NULL;
	c->unwanted = calloc(c->n_names + 1, sizeof(*c->unwanted));
	if (o->rename)
		c->renamed = calloc(c->n_names + 1, sizeof(*c->renamed));
	if (!c->unwanted || (o->rename && !c->renamed))
		return rsh_error_nomem(err);
	for (uint32_t i = 0; i < c->n_names; i++) {
		const char *name = rsh_names_text(c->names, i);

		if (o->wanted)
			c->unwanted[i] = !o->wanted(o->ctx, name);
		if (o->rename)
			c->renamed[i] = o->rename(o->ctx, name);
	}
	return o->rename ? check_renamed(c, err) : 0;
}

static int plan_blocks(struct rsh_conversion *c, uint32_t copies,
		       struct rsh_error *err)
{
	c->n_blocks = c->dst && !c->by_stage ? c->dst->n_stages : 1;
	c->dst_ranks = c->dst ? c->dst->stage_ranks : 1;
	if (!c->src && !c->dst && copies)
		c->dst_ranks = copies;
	c->n_files = c->n_blocks * c->dst_ranks;
	c->blocks = calloc(c->n_blocks, sizeof(*c->blocks));
	c->files = calloc(c->n_files, sizeof(*c->files));
	if (!c->blocks || !c->files)
		return rsh_error_nomem(err);
	for (uint32_t b = 0; b < c->n_blocks; b++) {
		int rc = rsh_block_plan(c, b, err);

		if (rc)
			return rc;
	}
	return 0;
}

/* A rank, as of another stage, may be left without parameters; but not all. */
static int check_filtered(const struct rsh_conversion *c, struct rsh_error *err)
{
	for (uint32_t i = 0; i < c->n_files; i++)
		if (c->files[i].lost || c->files[i].list->n > 0)
			return 0;
	return rsh_error_set(err, EINVAL, "no parameter is left (which are "
			     "wanted is asked by their names in the source)");
}

static const struct rsh_framing *const framings[RSH_FORMAT_COUNT] = {
	[RSH_FORMAT_CKPT] = &rsh_ckpt_framing,
	[RSH_FORMAT_SAFETENSORS] = &rsh_safetensors_framing,
};

int rsh_conversion_new(const struct rsh_strategy *src,
		       const struct rsh_strategy *dst,
		       const struct rsh_source_view *view,
		       const struct rsh_conversion_options *opts,
		       struct rsh_conversion **out, struct rsh_error *err)
{
	struct rsh_conversion *c = calloc(1, sizeof(*c));
	int rc;

	if (!c)
		return rsh_error_nomem(err);
	c->src = src;
	c->dst = dst;
	c->compat = opts->compat;
	c->replicas = opts->replicas;
	c->allow_missing = opts->allow_missing;
	c->unlisted = opts->unlisted;
	c->remove_redundancy = opts->remove_redundancy && dst;
	c->cast = opts->cast;
	c->src_format = view->format;
	c->format = opts->format;
	c->joined = view->joined;
	c->part_bytes = opts->part_bytes;
	c->framing = c->part_bytes ? &rsh_hf_framing : framings[c->format];
	c->names = view->names;
	c->n_names = rsh_names_count(view->names);
	c->by_stage = goes_by_stage(src, dst, view->names);
	c->first_rank = first_rank(src, c->by_stage);
	c->stage_ranks = src ? src->stage_ranks : dst ? 1 : view->n_ranks;
	c->n_stages = source_stages(src, dst, view);
	/* Safetensors it converts all at once, with the same result. */
	if (c->by_stage && c->src_format == RSH_FORMAT_CKPT) {
		rsh_note_add(c, RSH_NOTE_BY_STAGE, RSH_NAME_NONE);
		if (c->compat)
			snprintf(c->suffix, sizeof(c->suffix), "_part%u",
				 src->lone_stage);
	}
	if (!src && !dst)
		rsh_note_add(c, RSH_NOTE_NONE, RSH_NAME_NONE);
	rc = ask_names(c, opts, err);
	if (rc == 0 && (copy_view(c, view) || rsh_whole_prepare(c) < 0))
		rc = rsh_error_nomem(err);
	if (rc == 0)
		rc = plan_blocks(c, opts->copies, err);
	if (rc == 0 && c->filtered)
		rc = check_filtered(c, err);
	if (c->n_lost) {
		int lost = rsh_lost_report(c, opts->report_lost, opts->ctx,
					   err);

		if (rc == 0)
			rc = lost;
	}
	if (rc == 0 && rsh_notes_write(c))
		rc = rsh_error_nomem(err);
	if (rc) {
		rsh_conversion_free(c);
		return rc;
	}
	*out = c;
	return 0;
}

static void free_all(void *array, uint32_t n)
{
	void **p = array;

	for (uint32_t i = 0; i < n; i++)
		free(p[i]);
	free(p);
}

void rsh_conversion_free(struct rsh_conversion *c)
{
	if (!c)
		return;
	for (uint32_t i = 0; i < c->n_grids; i++)
		rsh_grid_free(c->grids[i]);
	free(c->grids);
	for (uint32_t i = 0; i < c->n_supplies; i++)
		rsh_supply_free(c->supplies[i]);
	free(c->supplies);
	free(c->pairs);
	free_all(c->transfers, c->n_transfers);
	for (uint32_t i = 0; i < c->n_lists; i++)
		free(c->lists[i]->header);
	free_all(c->lists, c->n_lists);
	tdestroy(c->key_sets, free);
	free_all(c->path, c->path ? c->n_view : 0);
	for (uint32_t i = 0; c->blocks && i < c->n_blocks; i++)
		free(c->blocks[i].stages);
	for (uint32_t i = 0; c->files && i < c->n_files; i++)
		free(c->files[i].sources);
	for (uint32_t i = 0; i < RSH_NOTE_COUNT; i++)
		free(c->notes[i].text);
	free(c->lost);
	free(c->lost_whole);
	free(c->present);
	free(c->held);
	free(c->index_id);
	free(c->same_as);
	free(c->unwanted);
	free(c->renamed);
	free(c->copy_grids);
	free(c->blocks);
	free(c->files);
	free(c->index);
	free(c);
}

/* ---- asking ---- */

enum rsh_format rsh_conversion_format(const struct rsh_conversion *c)
{
	return c->format;
}

uint32_t rsh_conversion_n_files(const struct rsh_conversion *c)
{
	return c->n_files;
}

uint64_t rsh_conversion_size(const struct rsh_conversion *c, uint32_t rank)
{
	uint64_t bytes = c->files[rank].list->bytes;

	return bytes == 0 && rsh_conversion_is_lost(c, rank) ? 1 : bytes;
}

uint32_t rsh_conversion_n_records(const struct rsh_conversion *c,
				  uint32_t rank)
{
	return c->files[rank].list->n;
}

const char *rsh_conversion_name_suffix(const struct rsh_conversion *c)
{
	return c->suffix;
}

bool rsh_conversion_is_lost(const struct rsh_conversion *c, uint32_t rank)
{
	return c->files[rank].lost;
}

const uint32_t *rsh_conversion_sources(const struct rsh_conversion *c,
				       uint32_t rank, uint32_t *n)
{
	*n = c->files[rank].n_sources;
	return c->files[rank].sources;
}

/* Describes the record as it stands in the source file. */
static void whole_record(const struct rsh_conversion *c,
			 const struct rsh_virtual_file *f,
			 const struct rsh_slot *s,
			 struct rsh_virtual_record *out)
{
	const struct rsh_ckpt_index *ix = c->index[f->origin];
	const struct rsh_record *r = rsh_ckpt_find(ix, s->name);
	const char *name = rsh_names_text(c->names, s->name);

	*out = (struct rsh_virtual_record){
		.shape = {
			.name = name,
			.name_len = strlen(name),
			.dtype = r->dtype,
			.n_dims = r->n_dims,
			.dims = rsh_record_dims(ix, r),
			.content_bytes = r->content_bytes,
		},
		.offset = s->offset,
	};
	if (r->n_extents)
		out->total_bytes = rsh_whole_record_end(ix, r) - s->offset;
}

void rsh_conversion_record(const struct rsh_conversion *c, uint32_t rank,
			   uint32_t i, struct rsh_virtual_record *out)
{
	const struct rsh_virtual_file *f = &c->files[rank];
	const struct rsh_slot *s = &f->list->slots[i];
	enum rsh_codec codec;
	uint32_t from;

	if (f->origin != RSH_NO_RANK) {
		whole_record(c, f, s, out);
		return;
	}
	out->resharded = s->transfer != RSH_NO_TRANSFER;
	if (out->resharded) {
		rsh_transfer_shape(c, c->transfers[s->transfer], &out->shape);
	} else if (rsh_copy_source(c, f, s->name, NULL, &from, NULL)) {
		const struct rsh_ckpt_index *ix = rsh_rank_index(c, from);

		rsh_copy_shape(c, ix, rsh_ckpt_find(ix, s->name), &out->shape,
			       &codec);
	}
	out->offset = s->offset;
	out->total_bytes = (i + 1 < f->list->n ? f->list->slots[i + 1].offset :
						 f->list->bytes) - s->offset;
}
