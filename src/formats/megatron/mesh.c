/* SPDX-License-Identifier: Apache-2.0 */
/* formats/megatron/mesh.c finds the sizes of the mesh, and which
 * numbers the layers of each chunk have in the model. */
#include "config.h"

#include "megatron_i.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "rsh/util/mem.h"

/* ---- the args of all files ---- */

static int check_file(const struct rsh_source_megatron *st, uint32_t i,
		      struct rsh_error *err)
{
	const struct rsh_joined *j = &st->all;
	const struct rsh_megatron_file *f = j->files[i];
	const struct rsh_megatron_file *first = j->files[st->first];

	if (!f)
		return 0;
	if (f->wrong)
		return rsh_joined_refuse(j, j->names[i], ENOTSUP, err, "%s",
					 f->wrong);
	for (unsigned k = 0; k < RSH_MEGATRON_ARGS; k++)
		if (f->args[k] != first->args[k])
			return rsh_joined_refuse(
				j, j->names[i], EBADMSG, err, "its args have "
				"another %s than those of %s",
				rsh_megatron_arg_names[k], j->names[st->first]);
	return f->n_chunks == first->n_chunks ? 0 :
	       rsh_joined_refuse(j, j->names[i], EBADMSG, err, "it has %u "
				 "chunks of the model, and %s has %u",
				 f->n_chunks, j->names[st->first],
				 first->n_chunks);
}

static int refuse_args(const struct rsh_source_megatron *st, const char *what,
		       struct rsh_error *err)
{
	return rsh_joined_refuse(&st->all, st->all.names[st->first], ENOTSUP,
				 err, "its args say tensor %u, pipeline %u, "
				 "expert %u, expert tensor parallel size %u "
				 "and %" PRIu64 " experts: %s", st->tensor,
				 st->pipeline, st->expert, st->expert_tensor,
				 st->args[RSH_MEGATRON_EXPERTS], what);
}

static int take_sizes(struct rsh_source_megatron *st, struct rsh_error *err)
{
	const struct rsh_megatron_file *first = st->all.files[st->first];
	const uint64_t *a = first->args;
	uint64_t n_blocks, expert_tensor;

	for (unsigned k = RSH_MEGATRON_TENSOR; k <= RSH_MEGATRON_EXPERTS; k++)
		if (a[k] > RSH_MEGATRON_RANKS_MAX)
			return rsh_joined_refuse(
				&st->all, st->all.names[st->first], EBADMSG,
				err, "its args have a %s that cannot be",
				rsh_megatron_arg_names[k]);
	st->args = a;
	st->tensor = (uint32_t)a[RSH_MEGATRON_TENSOR];
	st->pipeline = (uint32_t)a[RSH_MEGATRON_PIPELINE];
	st->expert = a[RSH_MEGATRON_EXPERT] ?
		     (uint32_t)a[RSH_MEGATRON_EXPERT] : 1;
	st->n_chunks = first->n_chunks;
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

/* ---- layers ---- */

uint32_t rsh_megatron_chunk_order(const struct rsh_source_megatron *st,
				  uint32_t stage, uint32_t chunk)
{
	if (chunk > 0 && st->args[RSH_MEGATRON_DUAL])
		stage = st->pipeline - 1 - stage;
	return chunk * st->pipeline + stage;
}

RSH_ORDER(layer_by_place, struct rsh_megatron_layer,
	  rsh_by_u32(&x->chunk, &y->chunk) ?:
	  rsh_compare_u64(x->number, y->number))

static int layers_collect(struct rsh_source_megatron *st)
{
	struct rsh_megatron_name name;
	size_t kept = 0;

	st->n_layers = 0;
	for (uint32_t i = 0; i < st->n; i++) {
		const struct rsh_megatron_file *f = st->all.files[i];

		for (uint32_t k = 0; f && k < f->n; k++) {
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
			if (rsh_push(st->layers, st->n_layers, st->cap_layers,
				     l))
				return -ENOMEM;
		}
	}
	rsh_sort(st->layers, st->n_layers, layer_by_place);
	for (size_t i = 0; i < st->n_layers; i++)
		if (kept == 0 || layer_by_place(&st->layers[kept - 1],
						&st->layers[i]) != 0)
			st->layers[kept++] = st->layers[i];
	st->n_layers = kept;
	return 0;
}

size_t rsh_megatron_layer_number(const struct rsh_source_megatron *st,
				 uint32_t chunk, uint64_t number)
{
	const struct rsh_megatron_layer key = { chunk, number };
	const struct rsh_megatron_layer *found =
		rsh_find(&key, st->layers, st->n_layers, layer_by_place);

	return (size_t)(found - st->layers);
}

/* Only layers that args call noop may be missing. */
static int layers_check(const struct rsh_source_megatron *st,
			struct rsh_error *err)
{
	const struct rsh_joined *j = &st->all;
	const uint64_t said = st->args[RSH_MEGATRON_LAYERS];
	const uint64_t noops = st->args[RSH_MEGATRON_NOOPS];

	for (size_t i = 0, first = 0; i < st->n_layers && noops == 0; i++) {
		if (st->layers[i].chunk != st->layers[first].chunk)
			first = i;
		if (st->layers[i].number != i - first)
			return rsh_error_set(err, EBADMSG, "%s/%s: layer %zu "
					     "is missing in chunk %u of the "
					     "model, which has later layers",
					     j->path, j->dir, i - first,
					     st->layers[i].chunk);
	}
	return st->n_layers + noops == said ? 0 :
	       rsh_error_set(err, EBADMSG, "%s/%s: the files have %zu layers, "
			     "and args say %" PRIu64 "%s", j->path, j->dir,
			     st->n_layers, said > noops ? said - noops : 0,
			     noops ? " without those of noop_layers" : "");
}

/* ---- places of files ---- */

/* A tree that lacks more files is none. */
#define LOST_MAX 64

/* Returns a file with this place; RSH_MEGATRON_NO_FILE: there is none. */
static uint32_t find_place(const struct rsh_source_megatron *st,
			   const struct rsh_megatron_listed *at, uint32_t from)
{
	while (from < st->n && (st->listed[from].tensor != at->tensor ||
				st->listed[from].stage != at->stage ||
				st->listed[from].expert != at->expert))
		from++;
	return from < st->n ? from : RSH_MEGATRON_NO_FILE;
}

/* Sets the place of each file by the numbers in the name of its directory; no
 * two have one. */
static int place_files(struct rsh_source_megatron *st, struct rsh_error *err)
{
	const struct rsh_joined *j = &st->all;
	uint32_t k;

	for (uint32_t i = 0; i < j->n; i++) {
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
			return rsh_error_set(
				err, EBADMSG, "%s/%s is not of the mesh in "
				"args (tensor %u, pipeline %u, expert %u)",
				j->path, j->names[i], st->tensor,
				st->pipeline, st->expert);
	}
	for (uint32_t i = 0; i < st->n; i++) {
		k = find_place(st, &st->listed[i], i + 1);
		if (k != RSH_MEGATRON_NO_FILE)
			return rsh_error_set(err, EBADMSG, "%s: %s and %s are "
					     "of the same rank", j->path,
					     j->names[i], j->names[k]);
	}
	return 0;
}

int rsh_megatron_refuse_lost(const struct rsh_source_megatron *st,
			     uint32_t file, struct rsh_error *err)
{
	const struct rsh_joined *j = &st->all;

	if (file < st->n)
		return rsh_error_set(err, ENOENT, "%s/%s cannot be read, and "
				     "has a part of the model", j->path,
				     j->names[file]);
	return rsh_error_set(err, ENOENT, "%s/%s is missing, which the mesh in "
			     "args has (tensor %u, pipeline %u, expert %u)",
			     j->path, j->names[file], st->tensor, st->pipeline,
			     st->expert);
}

uint32_t rsh_megatron_sibling(const struct rsh_source_megatron *st,
			      uint32_t file)
{
	const struct rsh_megatron_listed *l = &st->listed[file];
	uint32_t found = RSH_MEGATRON_NO_FILE;

	/* Slices of a vocabulary may have any size. */
	for (uint32_t i = 0; i < st->n; i++)
		if (st->all.files[i] && st->listed[i].stage == l->stage &&
		    (found == RSH_MEGATRON_NO_FILE ||
		     (st->listed[i].tensor == l->tensor &&
		      st->listed[found].tensor != l->tensor)))
			found = i;
	return found;
}

/* Returns whether the file of a place was read. */
static bool has_place(const struct rsh_source_megatron *st,
		      const struct rsh_megatron_listed *at)
{
	const uint32_t file = find_place(st, at, 0);

	return file != RSH_MEGATRON_NO_FILE && st->all.files[file];
}

/* Adds a place to those whose files are lost; one without a file gets the name
 * of one.  Returns 0, or -errno with a sentence if nobody knows what the file
 * had. */
static int lose(struct rsh_source_megatron *st,
		const struct rsh_megatron_listed *at, struct rsh_error *err)
{
	struct rsh_joined *j = &st->all;
	uint32_t file = find_place(st, at, 0);

	if (file == RSH_MEGATRON_NO_FILE) {
		struct rsh_megatron_listed *v = rsh_arena_array(
			&j->arena, struct rsh_megatron_listed,
			(size_t)j->n_names + 1);
		const char *dir = rsh_megatron_dir(&j->arena, at, st->pipeline,
						   st->expert);
		const char *name = !dir ? NULL : rsh_arena_format(
			&j->arena, "%s%s/" RSH_MEGATRON_FILE, j->dir, dir);

		file = v && name ? rsh_joined_add_name(j, name) :
				   RSH_DCP_NO_FILE;
		if (file == RSH_DCP_NO_FILE)
			return rsh_error_nomem(err);
		memcpy(v, st->listed, file * sizeof(*v));
		v[file] = *at;
		v[file].model = file;
		st->listed = v;
	}
	if (st->n_lost == LOST_MAX ||
	    rsh_megatron_sibling(st, file) == RSH_MEGATRON_NO_FILE)
		return rsh_megatron_refuse_lost(st, file, err);
	return rsh_push(st->lost, st->n_lost, st->cap_lost, file) ?
	       rsh_error_nomem(err) : 0;
}

/* With fewer expert tensor ranks than tensor ranks a run does not have all
 * pairs of a tensor rank and an expert rank.  Rank r of a stage has tensor rank
 * r % tensor, and (r / expert_tensor) % expert of the experts.  What is needed
 * is all tensor ranks of dense weights, and all pairs of an expert tensor rank
 * and an expert rank. */
static int check_stage(struct rsh_source_megatron *st, uint32_t stage,
		       struct rsh_error *err)
{
	const bool all = st->args[RSH_MEGATRON_EXTENDS] || st->expert == 1 ||
			 st->expert_tensor == st->tensor;
	struct rsh_megatron_listed at = { .stage = stage };
	uint32_t t, e;
	int rc = 0;

	for (t = 0; t < st->tensor && rc == 0; t++) {
		bool found = false;

		at.tensor = t;
		for (at.expert = 0; at.expert < st->expert && rc == 0;
		     at.expert++) {
			const bool has = has_place(st, &at);

			found |= has;
			if (all && !has)
				rc = lose(st, &at, err);
		}
		at.expert = t / st->expert_tensor % st->expert;
		if (!all && !found)
			rc = lose(st, &at, err);
	}
	for (e = 0; e < st->expert && !all; e++)
		for (t = 0; t < st->expert_tensor && rc == 0; t++) {
			bool found = false;

			at.expert = e;
			for (at.tensor = t; at.tensor < st->tensor && !found;
			     at.tensor += st->expert_tensor)
				found = has_place(st, &at);
			at.tensor = (e * st->expert_tensor + t) % st->tensor;
			if (!found)
				rc = lose(st, &at, err);
		}
	return rc;
}

/* Megatron-LM saves the rank of the process, converters none or always the
 * same.  Tensor ranks are next to each other, and stages far apart. */
static int check_ranks(const struct rsh_source_megatron *st,
		       struct rsh_error *err)
{
	const struct rsh_joined *j = &st->all;
	const struct rsh_megatron_file *first = j->files[st->first], *f;
	bool known = false;

	for (uint32_t i = 0; i < st->n; i++) {
		f = j->files[i];
		known |= f && f->rank != first->rank;
	}
	for (uint32_t i = 0; i < st->n && known; i++) {
		const struct rsh_megatron_listed *l = &st->listed[i];

		f = j->files[i];
		if (!f || f->rank >= f->world || f->world % st->pipeline != 0)
			continue;
		if (f->rank % st->tensor != l->tensor ||
		    (!f->stages_inside &&
		     f->rank / (f->world / st->pipeline) != l->stage))
			return rsh_joined_refuse(
				j, j->names[i], EBADMSG, err, "it is of "
				"another rank: its args say rank %" PRIu64
				" of %" PRIu64, f->rank, f->world);
	}
	return 0;
}

/* Checks that the files are of one save, as far as they say it: a job that was
 * killed may have replaced only some of them. */
static int check_iterations(const struct rsh_source_megatron *st,
			    struct rsh_error *err)
{
	const struct rsh_joined *j = &st->all;
	const struct rsh_megatron_file *first = NULL;
	const char *name = NULL;

	for (uint32_t i = 0; i < st->n; i++) {
		const struct rsh_megatron_file *f = j->files[i];

		if (!f || !f->has_iteration)
			continue;
		if (first && f->iteration != first->iteration)
			return rsh_joined_refuse(
				j, j->names[i], EBADMSG, err, "it is of "
				"iteration %" PRIu64 ", and %s is of iteration "
				"%" PRIu64, f->iteration, name,
				first->iteration);
		name = first ? name : j->names[i];
		first = first ? first : f;
	}
	return 0;
}

/* Returns whether a file is a copy of another one of its stage: all matrices
 * that should differ are equal, by their checksums. */
static bool is_twin(const struct rsh_source_megatron *st, uint32_t a,
		    uint32_t b)
{
	const struct rsh_megatron_file *f = st->all.files[a];
	const struct rsh_megatron_file *g = st->all.files[b];
	const uint32_t t = st->listed[a].tensor, u = st->listed[b].tensor;
	bool any = false;

	if (!f || !g || f->n != g->n || st->listed[a].stage !=
					st->listed[b].stage)
		return false;
	for (uint32_t i = 0; i < f->n; i++) {
		const struct rsh_megatron_entry *x = &f->v[i], *y = &g->v[i];
		struct rsh_megatron_name is;

		if (!x->has_crc || !y->has_crc || x->n_dims < 2)
			continue;
		rsh_megatron_name_read(x->name, &is);
		/* Experts differ between blocks and expert tensor ranks, others
		 * between tensor ranks that cut them. */
		if (is.of_expert ?
		    rsh_megatron_block(st, a) == rsh_megatron_block(st, b) &&
			    t % st->expert_tensor == u % st->expert_tensor :
		    t == u || is.kind == RSH_MEGATRON_UNKNOWN ||
			    is.kind == RSH_MEGATRON_SAME ||
			    is.kind == RSH_MEGATRON_Q_DOWN ||
			    is.kind == RSH_MEGATRON_KV_DOWN ||
			    (is.kind == RSH_MEGATRON_QKV &&
			     st->args[RSH_MEGATRON_LATENT]))
			continue;
		any = true;
		if (x->crc != y->crc || x->bytes != y->bytes ||
		    strcmp(x->name, y->name) != 0)
			return false;
	}
	return any;
}

int rsh_megatron_mesh_find(struct rsh_source_megatron *st,
			   struct rsh_error *err)
{
	struct rsh_joined *j = &st->all;
	int rc;

	st->first = 0;
	while (st->first < st->n && !j->files[st->first])
		st->first++;
	if (st->n == 0)
		return rsh_error_set(err, ENOENT, "%s: no file of a rank is in "
				     "it", j->path);
	if (st->first == st->n)
		return rsh_megatron_refuse_lost(st, 0, err);
	rc = check_file(st, st->first, err) ?: take_sizes(st, err) ?:
	     place_files(st, err);
	st->n_lost = 0;
	j->n_names = j->n;
	for (uint32_t i = 0; i < st->pipeline && rc == 0; i++)
		rc = check_stage(st, i, err);
	rc = rc ?: check_ranks(st, err);
	for (uint32_t i = 0; i < st->n && rc == 0; i++)
		for (uint32_t k = i + 1; k < st->n && rc == 0; k++)
			if (is_twin(st, i, k))
				rc = rsh_joined_refuse(
					j, j->names[k], EBADMSG, err, "it has "
					"the weights of %s, which is of "
					"another rank", j->names[i]);
	for (uint32_t i = 0; i < st->n && rc == 0; i++)
		rc = check_file(st, i, err);
	rc = rc ?: check_iterations(st, err);
	if (rc == 0 && layers_collect(st))
		rc = rsh_error_nomem(err);
	return rc ?: layers_check(st, err);
}
