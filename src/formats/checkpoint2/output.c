/* SPDX-License-Identifier: Apache-2.0 */
/* formats/checkpoint2/output.c shows a conversion as a step of Checkpoint 2.0:
 * the files of ranks in one directory, metadata.json, which describes their
 * content, and the tracker, which names the step (wire/checkpoint2.h).
 *
 *   /latest_checkpointed_iteration.txt
 *   /iteration_<step>/metadata.json, common.json
 *   /iteration_<step>/model-<rank>-<ranks>.safetensors, opt-..
 *
 * All of metadata.json is made from the plan, so that it matches the files of
 * every planner. */
#include "config.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "text_i.h"
#include "rsh/formats/outputs.h"
#include "rsh/source/inspect.h"
#include "rsh/strategy/grid.h"
#include "rsh/util/checked.h"
#include "rsh/util/log.h"
#include "rsh/util/mem.h"
#include "rsh/util/place.h"
#include "rsh/wire/checkpoint2.h"

struct ckpt2_shown {
	uint32_t n_files;  /* files of all ranks */
	uint32_t per_rank; /* files of a rank */
	struct rsh_ckpt2_tensor *tensors;
	uint32_t *names;   /* [tensor] */
	uint32_t n_tensors;
	bool *named;       /* [name]: there is a tensor with this name */
	/* [file]: a bit for each name; files with the same records share one
	 * array */
	uint64_t **held;
	struct rsh_arena arena; /* memory of the arrays, dims and bits */
	struct rsh_ckpt2_text *metadata;
	char *common;
	size_t common_bytes;
	char step[24];
	char step_name[RSH_CKPT2_NAME_MAX];
	char n_ranks_name[40];
	struct rsh_item dir;
	/* number of names left out because they are slices */
	uint32_t n_slices;
	const char *slice;      /* the first of them */
};

static void ckpt2_free(void *state)
{
	struct ckpt2_shown *c = state;

	if (!c)
		return;
	rsh_ckpt2_text_free(c->metadata);
	free(c->common);
	rsh_arena_clear(&c->arena);
	free(c);
}

/* ---- the content of the files ---- */

/* Returns whether a copied record is a slice of a tensor that is split in the
 * source. */
static bool is_slice(const struct rsh_output_tree *t, uint32_t name)
{
	const struct rsh_strategy_param *p =
		t->src && t->dst ? rsh_strategy_find(t->src, name) : NULL;
	struct rsh_error ignored = RSH_ERROR_INIT;
	cleanup_grid struct rsh_grid *grid = NULL;

	if (!p)
		return false;
	if (rsh_grid_new_unsized(rsh_param_source_stage(p)->item, &grid,
				 &ignored))
		return true;
	return rsh_any(d, rsh_grid_n_dims(grid), rsh_grid_split(grid, d) > 1);
}

/* Adds the tensor of a record, unless a lower rank already has it.  Counters
 * are not described, as in mindformers: its loader would take them for tensors
 * of the network. */
static int ck2_add_tensor(struct ckpt2_shown *c,
			  const struct rsh_output_tree *t, uint32_t file,
			  const struct rsh_virtual_record *r)
{
	const uint32_t n = r->cut ? rsh_cut_n_ranks(r->cut) :
			   t->dst ? t->dst->stage_ranks : 1;
	const uint32_t rank = file / c->per_rank;
	uint64_t *dims = NULL;

	if (c->named[r->name] ||
	    rsh_plan_kind(t->plan, r->name, r->shape.name) == RSH_KIND_COUNTER)
		return 0;
	c->named[r->name] = true;
	if (!r->cut && is_slice(t, r->name)) {
		if (c->n_slices++ == 0)
			c->slice = r->shape.name;
		return 0;
	}
	/* The record has the tensor or a slice of it. */
	if (!r->cut) {
		dims = rsh_arena_array(&c->arena, uint64_t,
				       r->shape.n_dims + 1);
		if (!dims)
			return -ENOMEM;
		for (uint32_t d = 0; d < r->shape.n_dims; d++)
			dims[d] = (uint64_t)r->shape.dims[d];
	}
	c->tensors[c->n_tensors] = (struct rsh_ckpt2_tensor){
		.name = r->shape.name,
		.dtype = r->shape.dtype,
		.n_dims = r->shape.n_dims,
		.dims = dims ? dims : r->whole_dims,
		.cut = r->cut,
		.first = rank - rank % n,
		.n_ranks = n,
		.opt = file % c->per_rank,
	};
	c->names[c->n_tensors++] = r->name;
	return 0;
}

static int look_at_files(struct ckpt2_shown *c, const struct rsh_output_tree *t)
{
	const uint32_t n_names = rsh_names_count(t->names);

	c->tensors = rsh_arena_array(&c->arena, struct rsh_ckpt2_tensor,
				     n_names);
	c->names = rsh_arena_array(&c->arena, uint32_t, n_names);
	c->named = rsh_arena_array(&c->arena, bool, n_names);
	c->held = rsh_arena_array(&c->arena, uint64_t *, c->n_files);
	if (c->arena.failed)
		return -ENOMEM;
	for (uint32_t file = 0; file < c->n_files; file++) {
		const bool same = file >= c->per_rank &&
			rsh_plan_same_records(t->plan, file,
					      file - c->per_rank);
		uint64_t *held = same ? c->held[file - c->per_rank] :
			rsh_arena_array(&c->arena, uint64_t, n_names / 64 + 1);

		c->held[file] = held;
		if (!held)
			return -ENOMEM;
		for (uint32_t i = 0; i < rsh_plan_n_records(t->plan, file);
		     i++) {
			struct rsh_virtual_record r = { 0 };

			rsh_plan_record(t->plan, file, i, &r);
			/* A lost record has no shape. */
			if (!r.shape.name)
				continue;
			held[r.name / 64] |= UINT64_C(1) << r.name % 64;
			if (ck2_add_tensor(c, t, file, &r))
				return -ENOMEM;
		}
	}
	return 0;
}

static bool file_holds(const void *ctx, uint32_t tensor, uint32_t rank)
{
	const struct ckpt2_shown *c = ctx;
	const uint32_t name = c->names[tensor];
	const uint64_t *held =
		c->held[rank * c->per_rank + c->tensors[tensor].opt];

	return held[name / 64] >> name % 64 & 1;
}

static int make_metadata(struct ckpt2_shown *c,
			 const struct rsh_output_tree *t, struct rsh_error *err)
{
	struct rsh_ckpt2_tree all = {
		.n_ranks = c->n_files / c->per_rank,
		.holds = file_holds, .ctx = c,
	};

	if (look_at_files(c, t))
		return rsh_error_nomem(err);
	if (c->n_slices)
		rsh_log_warning("metadata.json leaves out %s%s, which the "
				"destination does not list: the files have the "
				"slices as they are", c->slice,
				c->n_slices > 1 ? " and others" : "");
	if (c->n_tensors == 0)
		return rsh_error_set(err, EINVAL, "there is no tensor that "
				     "metadata.json could describe");
	all.n_tensors = c->n_tensors;
	all.tensors = c->tensors;
	return rsh_ckpt2_text_new(&all, &c->metadata, err);
}

/* ---- the step ---- */

/* Returns the value of a counter that rank 0 saved as a tensor.  Returns 0 if
 * there is none or the value is out of range. */
static double read_counter(const struct ckpt2_shown *c,
			   const struct rsh_output_tree *t, const char *name)
{
	const uint32_t file = c->per_rank - 1;
	const struct rsh_body body = rsh_body_of_plan(t->reader, file);

	for (uint32_t i = 0; i < rsh_plan_n_records(t->plan, file); i++) {
		struct rsh_virtual_record r = { 0 };
		union {
			int32_t i32;
			int64_t i64;
			float f32;
			double f64;
		} n;
		enum rsh_dtype type;
		double value;

		rsh_plan_record(t->plan, file, i, &r);
		if (!r.shape.name || strcmp(r.shape.name, name) != 0)
			continue;
		type = r.shape.dtype;
		if (r.shape.content_bytes != rsh_dtype_size(type) ||
		    r.shape.content_bytes > sizeof(n) ||
		    rsh_body_read(&body, &n, r.shape.content_bytes, r.offset) !=
			    (ssize_t)r.shape.content_bytes)
			return 0;
		value = type == RSH_DTYPE_INT32 ? n.i32 :
			type == RSH_DTYPE_INT64 ? (double)n.i64 :
			type == RSH_DTYPE_FLOAT32 ? n.f32 :
			type == RSH_DTYPE_FLOAT64 ? n.f64 : 0;
		return value > 0 && value < UINT32_MAX ? value : 0;
	}
	return 0;
}

static int tell_step(struct ckpt2_shown *c, const struct rsh_output_tree *t)
{
	struct rsh_candidate_step named;
	struct rsh_training_state common = { 0 };
	uint64_t counted;
	int n;

	rsh_source_candidate_step(t->source, rsh_source_chosen(t->source),
				  &named);
	common.step = named.stepped ? named.step : 0;
	/* In a name such as "gpt-3_20.ckpt" the 20 counts steps of the third
	 * epoch.  The number of steps in an epoch is not known, so the saved
	 * counter is used. */
	if (!named.stepped || named.epoch > 1) {
		counted = (uint64_t)read_counter(c, t, "global_step");
		common.step = rsh_max_u64(common.step, counted);
	}
	common.epoch = named.stepped ? named.epoch : 0;
	common.loss_scale = read_counter(c, t, "loss_scale");
	common.batch_size = (uint64_t)read_counter(c, t, "global_batch_size");
	if (rsh_source_training_state(t->source, &common))
		return -ENOMEM;
	snprintf(c->step, sizeof(c->step), "%" PRIu64, common.step);
	rsh_ckpt2_step_name(common.step, c->step_name);
	n = rsh_ckpt2_common_format(&common, &c->common);
	if (n < 0) {
		c->common = NULL;
		return -ENOMEM;
	}
	c->common_bytes = (size_t)n;
	return 0;
}

/* ---- the tree ---- */

static int metadata_read(const struct rsh_body *b, struct rsh_target *to,
			 size_t len, uint64_t offset)
{
	if (to->area)
		to->data = to->area + rsh_place(0);
	rsh_ckpt2_text_read(b->of, to->data, len, offset);
	return 0;
}

static int ckpt2_add_rows(struct ckpt2_shown *c, struct rsh_output_tree *t)
{
	static const char *const kinds[] = { "model-", "opt-" };
	const uint64_t dir_node = RSH_NODE_BESIDE(0);
	const struct rsh_row dir = {
		.n = 1, .first = dir_node, .step = 1,
		.parent = t->tree->root, .items = &c->dir,
	};
	const struct rsh_output_text step = {
		.body = rsh_body_of_text(c->step, strlen(c->step)),
		.mode = 0444,
	}, common = {
		.body = rsh_body_of_text(c->common, c->common_bytes),
		.mode = 0444,
	}, metadata = {
		.body = { .read = metadata_read, .of = c->metadata,
			  .size = rsh_ckpt2_text_size(c->metadata) },
		.mode = 0444,
	};
	int rc;

	c->dir = (struct rsh_item){ c->step_name, RSH_NODE_DIR, 0 };
	rc = rsh_tree_add(t->tree, &dir) ?:
	     rsh_output_add_file(t, RSH_NODE_BESIDE(1), t->tree->root,
				 RSH_CKPT2_TRACKER, &step);
	for (uint32_t k = 0; rc == 0 && k < c->per_rank; k++) {
		const struct rsh_row files = {
			.n = c->n_files / c->per_rank,
			.first = RSH_NODE_OF_FILE(k),
			.step = 2 * c->per_rank, .parent = dir_node,
			.kind = RSH_NODE_FILE, .before = kinds[k], .digits = 7,
			.after = c->n_ranks_name, .leaf = k,
			.leaf_step = c->per_rank,
		};

		rc = rsh_tree_add(t->tree, &files);
	}
	return rc ?: rsh_output_add_file(t, RSH_NODE_BESIDE(2), dir_node,
					 "metadata.json", &metadata) ?:
		     rsh_output_add_file(t, RSH_NODE_BESIDE(3), dir_node,
					 "common.json", &common);
}

static int ckpt2_build(struct rsh_output_tree *t, struct rsh_error *err)
{
	struct ckpt2_shown *c = t->state = calloc(1, sizeof(*c));
	int rc;

	if (!c)
		return rsh_error_nomem(err);
	c->n_files = rsh_plan_n_files(t->plan);
	c->per_rank = rsh_plan_files_of_rank(t->plan);
	rc = make_metadata(c, t, err);
	if (rc)
		return rc;
	if (tell_step(c, t))
		return rsh_error_nomem(err);
	snprintf(c->n_ranks_name, sizeof(c->n_ranks_name), "-%07" PRIu32 "%s",
		 c->n_files / c->per_rank, t->output->suffix);
	return ckpt2_add_rows(c, t) ? rsh_error_nomem(err) : 0;
}

const struct rsh_output rsh_output_checkpoint2 = {
	.name = "checkpoint2",
	.digest = 1,
	.suffix = ".safetensors",
	.framing = &rsh_safetensors_framing,
	.division = RSH_DIVIDE_KINDS,
	.takes = RSH_TAKES_RANKS,
	.last = RSH_CKPT2_TRACKER,
	.build = ckpt2_build,
	.free = ckpt2_free,
};
