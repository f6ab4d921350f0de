/* SPDX-License-Identifier: Apache-2.0 */
/* formats/megatron/mesh.c finds the sizes of the mesh, and which
 * numbers the layers of each chunk have in the model. */
#include "config.h"

#include "megatron_i.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "rsh/util/mem.h"

/* ---- the args of all files ---- */

/* Sets the first file that can be read. */
static int find_first(struct rsh_source_megatron *st, struct rsh_error *err)
{
	st->first = 0;
	while (st->first < st->n && !st->all.files[st->first])
		st->first++;
	if (st->first < st->n)
		return 0;
	return st->n == 0 ?
	       rsh_error_set(err, ENOENT, "%s: no file of a rank is in it",
			     st->all.path) : rsh_megatron_refuse_lost(st, 0, err);
}

static int check_file(const struct rsh_source_megatron *st, uint32_t i,
		      struct rsh_error *err)
{
	const struct rsh_megatron_file *f = rsh_megatron_file_of(st, i);
	const struct rsh_megatron_file *first =
		rsh_megatron_file_of(st, st->first);

	if (!f)
		return 0;
	if (f->wrong)
		return rsh_error_set(err, ENOTSUP, "%s/%s: %s", st->all.path,
				     st->all.names[i], f->wrong);
	for (unsigned k = 0; k < RSH_MEGATRON_ARGS; k++)
		if (f->args[k] != first->args[k])
			return rsh_error_set(
				err, EBADMSG, "%s/%s: its args have another %s "
				"than those of %s", st->all.path,
				st->all.names[i], rsh_megatron_arg_name(k),
				st->all.names[st->first]);
	return f->n_chunks == first->n_chunks ? 0 :
	       rsh_error_set(err, EBADMSG, "%s/%s: it has %u chunks of the "
			     "model, and %s has %u", st->all.path,
			     st->all.names[i], f->n_chunks,
			     st->all.names[st->first], first->n_chunks);
}

static int refuse_args(const struct rsh_source_megatron *st, const char *what,
		       struct rsh_error *err)
{
	return rsh_error_set(err, ENOTSUP, "%s/%s: its args say tensor %u, "
			     "pipeline %u, expert %u, expert tensor parallel "
			     "size %u and %" PRIu64 " experts: %s",
			     st->all.path, st->all.names[st->first],
			     st->tensor, st->pipeline, st->expert,
			     st->expert_tensor, st->args[RSH_MEGATRON_EXPERTS],
			     what);
}

static int take_sizes(struct rsh_source_megatron *st, struct rsh_error *err)
{
	const uint64_t *a = rsh_megatron_file_of(st, st->first)->args;
	uint64_t n_blocks, expert_tensor;

	for (unsigned k = RSH_MEGATRON_TENSOR; k <= RSH_MEGATRON_EXPERTS; k++)
		if (a[k] > RSH_MEGATRON_RANKS_MAX)
			return rsh_error_set(err, EBADMSG, "%s/%s: its args "
					     "have a %s that cannot be",
					     st->all.path,
					     st->all.names[st->first],
					     rsh_megatron_arg_name(k));
	st->args = a;
	st->tensor = (uint32_t)a[RSH_MEGATRON_TENSOR];
	st->pipeline = (uint32_t)a[RSH_MEGATRON_PIPELINE];
	st->expert = a[RSH_MEGATRON_EXPERT] ?
		     (uint32_t)a[RSH_MEGATRON_EXPERT] : 1;
	st->n_chunks = rsh_megatron_file_of(st, st->first)->n_chunks;
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
		bsearch(&key, st->layers, st->n_layers, sizeof(key),
			layer_by_place);

	return (size_t)(found - st->layers);
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
					     st->all.path, st->all.dir, i - first,
					     st->layers[i].chunk);
	}
	if (st->n_layers + noops == said)
		return 0;
	return rsh_error_set(err, EBADMSG, "%s/%s: the files have %zu layers, "
			     "and args say %" PRIu64 "%s",
			     st->all.path, st->all.dir,
			     st->n_layers, said > noops ? said - noops : 0,
			     noops ? " without those of noop_layers" : "");
}

int rsh_megatron_mesh_find(struct rsh_source_megatron *st,
			   struct rsh_error *err)
{
	int rc = find_first(st, err) ?: check_file(st, st->first, err) ?:
		 take_sizes(st, err) ?: rsh_megatron_places_find(st, err);

	for (uint32_t i = 0; i < st->n && rc == 0; i++)
		rc = check_file(st, i, err);
	if (rc == 0 && layers_collect(st))
		rc = rsh_error_nomem(err);
	return rc ?: layers_check(st, err);
}
