/* SPDX-License-Identifier: Apache-2.0 */
/* formats/megatron/describe.c joins the tensors of all files to the description
 * of a distributed checkpoint.
 *
 * A chunk is what one file has of a tensor.  Of gate and up a file has two runs
 * of rows, which have two records and are two chunks (file.c). */
#include "config.h"

#include "megatron_i.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "rsh/util/checked.h"
#include "rsh/util/files.h"
#include "rsh/util/mem.h"

/* ---- how a tensor is cut ---- */

/* Decides how a tensor is cut, from any of its slices.  As others it returns
 * true after a problem. */
static bool cut_decide(struct rsh_megatron_work *w,
		       const struct rsh_megatron_ref *r,
		       struct rsh_megatron_cut *out)
{
	const struct rsh_source_megatron *st = w->st;
	const uint64_t *a = st->args;
	enum rsh_megatron_kind kind = r->is.kind;
	uint64_t whole = 0;
	bool down;

	*out = (struct rsh_megatron_cut){
		.n = r->is.of_expert ? st->expert_tensor : st->tensor,
	};
	if (kind == RSH_MEGATRON_QKV)
		kind = a[RSH_MEGATRON_LATENT] ? RSH_MEGATRON_SAME :
						RSH_MEGATRON_ROWS;
	if (kind == RSH_MEGATRON_Q_DOWN)
		whole = a[RSH_MEGATRON_Q_RANK];
	if (kind == RSH_MEGATRON_KV_DOWN)
		whole = a[RSH_MEGATRON_KV_RANK] + a[RSH_MEGATRON_ROPE_DIM];
	/* Of an expert each rank has another one. */
	if (kind == RSH_MEGATRON_UNKNOWN && st->n_blocks > 1 &&
	    strstr(r->name, "experts"))
		return rsh_megatron_blame_unknown(w, r);
	if (kind == RSH_MEGATRON_SAME || out->n == 1) {
		out->n = 1;
		return false;
	}
	down = kind == RSH_MEGATRON_Q_DOWN || kind == RSH_MEGATRON_KV_DOWN;
	if (kind == RSH_MEGATRON_UNKNOWN || r->e->n_dims == 0 ||
	    (down && r->e->dims[0] != whole &&
	     r->e->dims[0] * out->n != whole) ||
	    (kind == RSH_MEGATRON_COLUMNS && r->e->n_dims != 2) ||
	    (kind == RSH_MEGATRON_GATE && r->e->gate == RSH_MEGATRON_ODD_GATE))
		return rsh_megatron_blame_unknown(w, r);
	if (down && r->e->dims[0] == whole)
		out->n = 1;
	out->axis = kind == RSH_MEGATRON_COLUMNS;
	out->gated = kind == RSH_MEGATRON_GATE &&
		     r->e->gate == RSH_MEGATRON_GATED;
	out->uneven = kind == RSH_MEGATRON_VOCABULARY;
	return false;
}

/* ---- one tensor ---- */

/* Adds the chunk of a slice that begins at `at` or, of gate and up, the chunks
 * of both halves. */
static void chunks_add(struct rsh_megatron_work *w,
		       const struct rsh_megatron_ref *r,
		       const struct rsh_megatron_cut *c, uint64_t at)
{
	const uint32_t n_dims = r->e->n_dims;
	const bool halves = c->gated && c->n > 1;
	uint64_t from[RSH_MAX_DIMS] = { 0 }, size[RSH_MAX_DIMS];

	memcpy(size, r->e->dims, n_dims * sizeof(*size));
	if (halves)
		size[0] /= 2;
	for (unsigned i = 0; i < 1u + halves; i++) {
		if (c->n > 1)
			from[c->axis] = halves ?
				(i * c->n + r->piece) * size[0] : at;
		rsh_joined_chunk(w->j, r->file, i == 0 ? r->e->key :
				 rsh_arena_format(w->arena, "%s"
						  RSH_MEGATRON_UP, r->e->key),
				 n_dims, from, size);
	}
}

/* Makes the chunks of a tensor, whose slices ascend. */
static bool chunks_make(struct rsh_megatron_work *w,
			const struct rsh_megatron_ref *r, size_t n,
			const struct rsh_megatron_cut *c,
			struct rsh_dcp_tensor *t)
{
	uint64_t *dims = rsh_arena_array(w->arena, uint64_t, t->n_dims);
	uint64_t at = 0;
	bool many = false;

	if (!dims)
		return true;
	for (size_t i = 0; i < n; i++) {
		if (c->n > 1 && i > 0 && r[i].piece != r[i - 1].piece)
			many |= !rsh_add_u64(at, r[i - 1].e->dims[c->axis],
					     &at);
		if (!r[i].spare)
			chunks_add(w, &r[i], c, at);
		for (uint32_t d = 0; d < t->n_dims; d++)
			dims[d] = r[i].e->dims[d];
		if (c->n > 1)
			many |= !rsh_add_u64(dims[c->axis], at, &dims[c->axis]);
	}
	t->dims = dims;
	return (many || !rsh_dcp_is_countable(t)) &&
	       rsh_joined_blame(w->j, r->name, EBADMSG, RSH_MEGATRON_TOO_MANY);
}

/* Makes the tensor of which n refs are slices. */
static void tensor_take(void *ctx, void *first, size_t n)
{
	struct rsh_megatron_work *w = ctx;
	const struct rsh_source_megatron *st = w->st;
	struct rsh_megatron_ref *r = first;
	struct rsh_dcp_tensor t = {
		.name = r->name, .dtype = r->e->dtype, .n_dims = r->e->n_dims,
	};
	struct rsh_megatron_cut c = { .n = 1 }, other;
	bool wrong = r->is.grouped ? rsh_megatron_grouped_take(w, r, n, &t) :
				     cut_decide(w, r, &c);

	/* Without a cut all slices are copies. */
	for (size_t i = 0; i < n && !wrong && !r->is.grouped; i++) {
		const uint32_t tensor = st->listed[r[i].file].tensor;

		r[i].piece = c.n == 1 ? 0 : r[i].is.of_expert ?
			     tensor % st->expert_tensor : tensor;
		wrong = cut_decide(w, &r[i], &other) ||
			((other.n != c.n || other.gated != c.gated) &&
			 rsh_megatron_blame_unknown(w, &r[i]));
	}
	if (!wrong && (r->is.grouped ||
		       (!rsh_megatron_slices_check(w, r, n, &c) &&
			!chunks_make(w, r, n, &c, &t))))
		rsh_joined_tensor(w->j, &t);
}

/* ---- all tensors ---- */

/* Sets the name that a tensor has in the whole model. */
static bool ref_name(struct rsh_megatron_work *w, struct rsh_megatron_ref *r)
{
	const struct rsh_source_megatron *st = w->st;
	struct rsh_arena *arena = w->arena;
	const char *name = r->e->name, *end;
	char expert[24] = "", before[64] = "", state[48] = "";
	uint64_t local, block;

	if (r->e->state)
		snprintf(state, sizeof(state), RSH_MEGATRON_STATE "%s.",
			 rsh_megatron_state_names[r->e->state]);
	/* The last stage has a copy of the embedding if the head is tied. */
	if (st->args[RSH_MEGATRON_UNTIED] != 1 && st->pipeline > 1 &&
	    strcmp(name, "output_layer.weight") == 0) {
		r->name = rsh_arena_format(arena, "%s"
					   "embedding.word_embeddings.weight",
					   state);
		return !r->name;
	}
	if (r->is.n > 0) {
		local = st->args[RSH_MEGATRON_EXPERTS] / st->n_blocks;
		block = rsh_megatron_block(st, r->file);
		if (r->is.expert >= local)
			return rsh_joined_blame(w->j, name, EBADMSG, "args say "
						  "that a rank has %u experts",
						  (unsigned)local);
		snprintf(expert, sizeof(expert), "%llu",
			 (unsigned long long)(block * local + r->is.expert));
	}
	if (r->is.after_layer) {
		snprintf(before, sizeof(before), "decoder.layers.%zu",
			 rsh_megatron_layer_number(
				 st, r->order, r->is.layer));
		name = r->is.after_layer;
	}
	end = r->e->name + (r->is.n ? r->is.at : strlen(r->e->name));
	r->name = rsh_arena_format(arena, "%s%s%.*s%s%s", state, before,
				   (int)(end - name), name, expert,
				   r->is.n ? end + r->is.n : "");
	return !r->name;
}

/* Returns the file of which `file` has the names, or had them; NULL: it is not
 * used.  States are used if all files of them can be. */
static const struct rsh_megatron_file *
file_like(const struct rsh_source_megatron *st, uint32_t file, uint32_t *like)
{
	*like = file;
	if (file >= st->n && file < st->all.n && st->no_states)
		return NULL;
	for (size_t i = 0; i < st->n_lost; i++)
		if (st->lost[i] == file)
			*like = rsh_megatron_sibling(st, file);
	return *like < st->all.n ? st->all.files[*like] : NULL;
}

static void refs_make(struct rsh_megatron_work *w)
{
	const struct rsh_source_megatron *st = w->st;
	const struct rsh_megatron_file *f;
	size_t n = 0;
	uint32_t like;

	for (uint32_t i = 0; i < st->all.n_names; i++) {
		f = file_like(st, i, &like);
		n += f ? f->n : 0;
	}
	w->refs = rsh_alloc_array(n + 1, sizeof(*w->refs));
	w->arena->failed |= !w->refs;
	for (uint32_t i = 0; i < st->all.n_names && w->refs; i++) {
		f = file_like(st, i, &like);
		for (uint32_t k = 0; f && k < f->n; k++) {
			struct rsh_megatron_ref *r = &w->refs[w->n_refs];

			*r = (struct rsh_megatron_ref){
				.e = &f->v[k], .file = i, .like = like,
				.lost = like != i,
				.order = rsh_megatron_chunk_order(
					st, st->listed[i].stage,
					f->v[k].chunk),
			};
			rsh_megatron_name_read(f->v[k].name, &r->is);
			w->n_refs += !ref_name(w, r);
		}
	}
	rsh_sort(w->refs, w->n_refs, rsh_megatron_ref_by_name);
}

/* If some weights have states, each parameter has them. */
static void states_check(struct rsh_megatron_work *w)
{
	const size_t n = w->j->n_tensors, n_problems = w->j->n_problems;
	const bool any = w->st->all.n > w->st->n && !w->st->no_states;

	for (size_t i = 0; i < n && any; i++) {
		const char *of = w->j->tensors[i].name;
		struct rsh_dcp_tensor key;

		if (rsh_megatron_is_state(of) ||
		    rsh_has_suffix(of, ".expert_bias"))
			continue;
		key.name = rsh_arena_format(w->arena, RSH_MEGATRON_STATE
					    "exp_avg.%s", of);
		if (!key.name)
			return;
		if (!rsh_any(k, n_problems, strcmp(w->j->problems[k].name,
						   key.name) == 0) &&
		    !rsh_find(&key, w->j->tensors, n, rsh_joined_by_name))
			rsh_joined_blame(w->j, key.name, ENOENT, "no file has "
					 "it");
	}
}

static int megatron_describe(void *state, struct rsh_error *err)
{
	struct rsh_source_megatron *st = state;
	struct rsh_joined *j = &st->all;
	struct rsh_megatron_work w = {
		.st = st, .j = j, .arena = &j->dcp.pub->arena_,
	};
	int rc = rsh_megatron_mesh_find(st, err);

	if (rc)
		return rc;
	st->n_pairs = st->n_folded = 0;
	/* Whether states can be shown. */
	st->no_states = NULL;
	for (uint32_t i = 0; i < j->n && !st->no_states; i++) {
		const struct rsh_megatron_file *f = j->files[i];
		const char *why = f && i >= st->n ? f->wrong :
				  f && f->has_optimizer ? "they have numbers "
				  "in place of names" : NULL;

		if (why)
			st->no_states = rsh_arena_format(&j->arena, "%s: %s",
							 j->names[i], why);
	}
	w.arena->failed |= j->arena.failed;
	refs_make(&w);
	rsh_joined_each(j, w.refs, w.n_refs, sizeof(*w.refs), tensor_take, &w);
	states_check(&w);
	free(w.refs);
	return 0;
}

static const char *megatron_about(const void *state, struct rsh_arena *arena)
{
	const struct rsh_source_megatron *st = state;
	char virtual[32] = "";

	if (st->n_chunks > 1)
		snprintf(virtual, sizeof(virtual), " x %u virtual",
			 st->n_chunks);
	return rsh_arena_format(arena, "mesh: tensor %u, pipeline %u%s, expert "
				"%u; %zu layer%s; optimizer: %s", st->tensor,
				st->pipeline, virtual, st->expert, st->n_layers,
				st->n_layers == 1 ? "" : "s",
				st->no_states ? "not shown" :
				st->all.n > st->n ? "distributed" : "none");
}

static bool is_state(const void *state, const char *name)
{
	(void)state;
	return rsh_megatron_is_state(name);
}

/* Lists copies that differ. */
static int list_pairs(const void *state, const struct rsh_list_job *job)
{
	const struct rsh_source_megatron *st = state;
	int rc = 0;

	for (size_t i = 0; i < st->n_pairs && rc == 0; i++) {
		struct rsh_error why = RSH_ERROR_INIT;

		rc = rsh_megatron_pair_check(st, &st->pairs[i], &why);
		if (rc == 0 || rc == -ENOMEM)
			continue;
		rsh_error_prefix(&why, "tensor %s", st->pairs[i].name);
		rc = job->take ? job->take(
			job->ctx, &(struct rsh_listed_tensor){
				.name = st->pairs[i].name,
				.wrong = why.text }) : 0;
	}
	return rc;
}

static void megatron_clear(void *state)
{
	struct rsh_source_megatron *st = state;

	free(st->layers);
	free(st->lost);
	free(st->pairs);
	free(st->folded);
}

const struct rsh_joined_format rsh_megatron_files = {
	.read = rsh_megatron_file_read,
	.describe = megatron_describe,
	.about = megatron_about,
	.is_state = is_state,
	.list_more = list_pairs,
	.list = rsh_megatron_list,
	.clear = megatron_clear,
};
