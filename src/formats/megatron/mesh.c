/* SPDX-License-Identifier: Apache-2.0 */
/* formats/megatron/mesh.c finds out which place in the mesh each file has, and
 * which numbers the layers of each chunk have in the model. */
#include "config.h"

#include "megatron_i.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "rsh/util/mem.h"

/* ---- the args of all files ---- */

static int check_file(const struct rsh_source_megatron *st, uint32_t i,
		      struct rsh_error *err)
{
	const struct rsh_megatron_file *f = rsh_megatron_file_of(st, i);
	const struct rsh_megatron_file *first = rsh_megatron_file_of(st, 0);

	if (!f)
		return rsh_error_set(err, ENOENT, "%s/%s cannot be read, and "
				     "has a part of the model",
				     st->path, st->listed[i].name);
	if (f->wrong)
		return rsh_error_set(err, ENOTSUP, "%s/%s: %s",
				     st->path, st->listed[i].name, f->wrong);
	for (unsigned k = 0; first && k < RSH_MEGATRON_ARGS; k++)
		if (f->args[k] != first->args[k])
			return rsh_error_set(
				err, EBADMSG, "%s/%s: its args have another %s "
				"than those of %s", st->path,
				st->listed[i].name, rsh_megatron_arg_name(k),
				st->listed[0].name);
	return !first || f->n_chunks == first->n_chunks ? 0 :
	       rsh_error_set(err, EBADMSG, "%s/%s: it has %u chunks of the "
			     "model, and %s has %u",
			     st->path, st->listed[i].name,
			     f->n_chunks, st->listed[0].name, first->n_chunks);
}

static int refuse_args(const struct rsh_source_megatron *st, const char *what,
		       struct rsh_error *err)
{
	return rsh_error_set(err, ENOTSUP, "%s/%s: its args say tensor %u, "
			     "pipeline %u, expert %u, expert tensor parallel "
			     "size %u and %" PRIu64 " experts: %s",
			     st->path, st->listed[0].name,
			     st->tensor, st->pipeline, st->expert,
			     st->expert_tensor, st->args[RSH_MEGATRON_EXPERTS],
			     what);
}

static int take_sizes(struct rsh_source_megatron *st, struct rsh_error *err)
{
	const uint64_t *a = rsh_megatron_file_of(st, 0)->args;
	uint64_t n_blocks, expert_tensor;

	for (unsigned k = RSH_MEGATRON_TENSOR; k <= RSH_MEGATRON_EXPERTS; k++)
		if (a[k] > RSH_MEGATRON_RANKS_MAX)
			return rsh_error_set(err, EBADMSG, "%s/%s: its args "
					     "have a %s that cannot be",
					     st->path, st->listed[0].name,
					     rsh_megatron_arg_name(k));
	st->args = a;
	st->tensor = (uint32_t)a[RSH_MEGATRON_TENSOR];
	st->pipeline = (uint32_t)a[RSH_MEGATRON_PIPELINE];
	st->expert = a[RSH_MEGATRON_EXPERT] ?
		     (uint32_t)a[RSH_MEGATRON_EXPERT] : 1;
	st->n_chunks = rsh_megatron_file_of(st, 0)->n_chunks;
	rsh_megatron_expert_sizes(a, &n_blocks, &expert_tensor);
	st->n_blocks = (uint32_t)n_blocks;
	st->expert_tensor = (uint32_t)expert_tensor;
	if (n_blocks > RSH_MEGATRON_RANKS_MAX)
		return refuse_args(st, "that is too many", err);
	if (a[RSH_MEGATRON_EXPERTS] % st->n_blocks != 0)
		return refuse_args(st, "experts cannot be divided so", err);
	if (st->tensor % st->expert_tensor != 0)
		return refuse_args(st, "files of ranks with these sizes "
				   "overwrite each other or lack weights",
				   err);
	if (a[RSH_MEGATRON_DUAL] && st->n_chunks != 2)
		return refuse_args(st, "schedules_method is dualpipev, which "
				   "has two chunks in each file", err);
	return 0;
}

/* ---- directories ---- */

static int refuse_dir(const struct rsh_source_megatron *st, uint32_t i,
		      struct rsh_error *err)
{
	return rsh_error_set(err, EBADMSG, "%s/%s is not of the mesh in args "
			     "(tensor %u, pipeline %u, expert %u)",
			     st->path, st->listed[i].name,
			     st->tensor, st->pipeline, st->expert);
}

/* Sets the place of each file by the numbers in the name of its directory. */
static int place_files(struct rsh_source_megatron *st, struct rsh_error *err)
{
	for (uint32_t i = 0; i < st->all.n; i++) {
		struct rsh_megatron_listed *l = &st->listed[i];
		uint32_t n = 0;

		l->tensor = l->numbers[n++];
		l->stage = st->pipeline > 1 && n < l->n_numbers ?
			   l->numbers[n++] : 0;
		l->expert = st->expert > 1 && n < l->n_numbers ?
			    l->numbers[n++] : 0;
		if (n != l->n_numbers ||
		    n != 1u + (st->pipeline > 1) + (st->expert > 1) ||
		    l->tensor >= st->tensor || l->stage >= st->pipeline ||
		    l->expert >= st->expert)
			return refuse_dir(st, i, err);
	}
	return 0;
}

static int refuse_missing(const struct rsh_source_megatron *st,
			  uint32_t tensor, uint32_t stage, uint32_t expert,
			  struct rsh_error *err)
{
	char stage_text[16] = "", expert_text[16] = "";

	if (st->pipeline > 1)
		snprintf(stage_text, sizeof(stage_text), "_%03u", stage);
	if (st->expert > 1)
		snprintf(expert_text, sizeof(expert_text), "_%03u", expert);
	return rsh_error_set(err, ENOENT, "%s/%smp_rank_%02u%s%s/"
			     RSH_MEGATRON_FILE " is missing, which the mesh in "
			     "args has (tensor %u, pipeline %u, expert %u)",
			     st->path, st->dir, tensor,
			     stage_text, expert_text, st->tensor, st->pipeline,
			     st->expert);
}

static bool has_place(const struct rsh_source_megatron *st, uint32_t tensor,
		      uint32_t stage, uint32_t expert)
{
	for (uint32_t i = 0; i < st->n; i++)
		if (st->listed[i].tensor == tensor &&
		    st->listed[i].stage == stage &&
		    st->listed[i].expert == expert)
			return true;
	return false;
}

static int check_product(const struct rsh_source_megatron *st, uint32_t stage,
			 struct rsh_error *err)
{
	for (uint32_t t = 0; t < st->tensor; t++)
		for (uint32_t e = 0; e < st->expert; e++)
			if (!has_place(st, t, stage, e))
				return refuse_missing(st, t, stage, e, err);
	return 0;
}

/* With fewer expert tensor ranks than tensor ranks a run does not have all
 * pairs of a tensor rank and an expert rank.  Rank r of a stage has tensor rank
 * r % tensor, and (r / expert_tensor) % expert of the experts.  What is needed
 * is all tensor ranks of dense weights, */
static int check_dense(const struct rsh_source_megatron *st, uint32_t stage,
		       struct rsh_error *err)
{
	for (uint32_t t = 0; t < st->tensor; t++) {
		bool found = false;

		for (uint32_t e = 0; e < st->expert && !found; e++)
			found = has_place(st, t, stage, e);
		if (!found)
			return refuse_missing(st, t, stage,
					      t / st->expert_tensor %
					      st->expert, err);
	}
	return 0;
}

/* and all pairs of an expert tensor rank and an expert rank. */
static int check_experts(const struct rsh_source_megatron *st, uint32_t stage,
			 struct rsh_error *err)
{
	for (uint32_t e = 0; e < st->expert; e++)
		for (uint32_t t = 0; t < st->expert_tensor; t++) {
			bool found = false;

			for (uint32_t k = t; k < st->tensor && !found;
			     k += st->expert_tensor)
				found = has_place(st, k, stage, e);
			if (!found)
				return refuse_missing(
					st, (e * st->expert_tensor + t) %
					st->tensor, stage, e, err);
		}
	return 0;
}

static int check_stage(const struct rsh_source_megatron *st, uint32_t stage,
		       struct rsh_error *err)
{
	if (st->args[RSH_MEGATRON_EXTENDS] || st->expert == 1 ||
	    st->expert_tensor == st->tensor)
		return check_product(st, stage, err);
	return check_dense(st, stage, err) ?: check_experts(st, stage, err);
}

/* ---- layers ---- */

uint32_t rsh_megatron_chunk_order(const struct rsh_source_megatron *st,
				  uint32_t stage, uint32_t chunk)
{
	if (chunk > 0 && st->args[RSH_MEGATRON_DUAL])
		stage = st->pipeline - 1 - stage;
	return chunk * st->pipeline + stage;
}

static int layer_by_place(const void *a, const void *b)
{
	const struct rsh_megatron_layer *x = a, *y = b;

	return rsh_by_u32(&x->chunk, &y->chunk) ?:
	       rsh_compare_u64(x->number, y->number);
}

static int layers_collect(struct rsh_source_megatron *st)
{
	struct rsh_megatron_name name;
	size_t kept = 0;

	st->n_layers = 0;
	for (uint32_t i = 0; i < st->n; i++) {
		const struct rsh_megatron_file *f = st->all.files[i];

		for (uint32_t k = 0; k < f->n; k++) {
			const struct rsh_megatron_layer *last =
				st->n_layers ? &st->layers[st->n_layers - 1] :
					       NULL;
			struct rsh_megatron_layer l = {
				.chunk = rsh_megatron_chunk_order(
					st, st->listed[i].stage,
					f->v[k].chunk),
			};

			rsh_megatron_name_read(f->v[k].name, &name);
			l.number = name.layer;
			/* Names ascend, so tensors of a layer are together. */
			if (!name.after_layer ||
			    (last && layer_by_place(last, &l) == 0))
				continue;
			if (rsh_grow(&st->layers, &st->cap_layers,
				     st->n_layers + 1, sizeof(*st->layers)))
				return -ENOMEM;
			st->layers[st->n_layers++] = l;
		}
	}
	if (st->n_layers > 0)
		qsort(st->layers, st->n_layers, sizeof(*st->layers),
		      layer_by_place);
	for (size_t i = 0; i < st->n_layers; i++)
		if (kept == 0 || layer_by_place(&st->layers[kept - 1],
						&st->layers[i]) != 0)
			st->layers[kept++] = st->layers[i];
	st->n_layers = kept;
	return 0;
}

/* Only layers that args call noop may be missing. */
static int layers_check(const struct rsh_source_megatron *st,
			struct rsh_error *err)
{
	const uint64_t said = st->args[RSH_MEGATRON_LAYERS];
	const uint64_t noops = st->args[RSH_MEGATRON_NOOPS];

	for (size_t i = 0, first = 0; i < st->n_layers && noops == 0; i++) {
		if (st->layers[i].chunk != st->layers[first].chunk)
			first = i;
		if (st->layers[i].number != i - first)
			return rsh_error_set(err, EBADMSG, "%s/%s: layer %zu "
					     "is missing in chunk %u of the "
					     "model, which has later layers",
					     st->path, st->dir, i - first,
					     st->layers[i].chunk);
	}
	if (st->n_layers + noops == said)
		return 0;
	return rsh_error_set(err, EBADMSG, "%s/%s: the files have %zu layers, "
			     "and args say %" PRIu64 "%s",
			     st->path, st->dir,
			     st->n_layers, said > noops ? said - noops : 0,
			     noops ? " without those of noop_layers" : "");
}

int rsh_megatron_mesh_find(struct rsh_source_megatron *st,
			   struct rsh_error *err)
{
	int rc = st->n > 0 ? check_file(st, 0, err) :
		 rsh_error_set(err, ENOENT, "%s: no file of a rank is in it",
			       st->path);

	rc = rc ?: take_sizes(st, err) ?: place_files(st, err);
	for (uint32_t i = 0; i < st->pipeline && rc == 0; i++)
		rc = check_stage(st, i, err);
	for (uint32_t i = 1; i < st->n && rc == 0; i++)
		rc = check_file(st, i, err);
	if (rc == 0 && layers_collect(st))
		rc = rsh_error_nomem(err);
	return rc ?: layers_check(st, err);
}
