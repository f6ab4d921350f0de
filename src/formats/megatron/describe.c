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
#include "rsh/util/text.h"

/* ---- how a tensor is cut ---- */

/* Decides how a tensor is cut, from any of its slices.  Returns 0, 1 after a
 * problem, or -ENOMEM. */
static int cut_decide(struct rsh_megatron_work *w,
		      const struct rsh_megatron_ref *r,
		      struct rsh_megatron_cut *out)
{
	const struct rsh_source_megatron *st = w->st;
	const uint64_t *a = st->args;
	enum rsh_megatron_kind kind = r->is.kind;
	uint64_t whole = 0;

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
		return 0;
	}
	if (kind == RSH_MEGATRON_UNKNOWN || r->e->n_dims == 0)
		return rsh_megatron_blame_unknown(w, r);
	if (kind == RSH_MEGATRON_Q_DOWN || kind == RSH_MEGATRON_KV_DOWN) {
		if (r->e->dims[0] == whole)
			out->n = 1;
		else if (r->e->dims[0] * out->n != whole)
			return rsh_megatron_blame_unknown(w, r);
	}
	if (kind == RSH_MEGATRON_COLUMNS) {
		if (r->e->n_dims != 2)
			return rsh_megatron_blame_unknown(w, r);
		out->axis = 1;
	}
	if (kind == RSH_MEGATRON_GATE) {
		if (r->e->gate == RSH_MEGATRON_ODD_GATE)
			return rsh_megatron_blame_unknown(w, r);
		out->gated = r->e->gate == RSH_MEGATRON_GATED;
	}
	out->uneven = kind == RSH_MEGATRON_VOCABULARY;
	return 0;
}

/* ---- one tensor ---- */

/* Adds the chunk of a slice that begins at `at` or, of gate and up, the chunks
 * of both halves. */
static int chunks_add(struct rsh_megatron_work *w,
		      const struct rsh_megatron_ref *r,
		      const struct rsh_megatron_cut *c, uint64_t at,
		      struct rsh_dcp_tensor *t)
{
	const bool halves = c->gated && c->n > 1;
	const uint64_t half = halves ? r->e->dims[0] / 2 : 0;

	for (unsigned i = 0; i < 1u + halves; i++) {
		uint64_t *box = rsh_megatron_chunk_add(
			w, t, r, i ? RSH_MEGATRON_UP : "");

		if (!box)
			return -ENOMEM;
		if (c->n > 1)
			box[c->axis] = halves ? (i * c->n + r->piece) * half :
						at;
		if (halves)
			box[t->n_dims] = half;
	}
	return 0;
}

/* Makes the chunks of a tensor, whose slices ascend. */
static int chunks_make(struct rsh_megatron_work *w,
		       const struct rsh_megatron_ref *r, size_t n,
		       const struct rsh_megatron_cut *c,
		       struct rsh_dcp_tensor *t)
{
	uint64_t *dims = rsh_arena_array(&w->d->arena_, uint64_t, t->n_dims);
	uint64_t at = 0;
	int rc = dims ? 0 : -ENOMEM;

	for (size_t i = 0; i < n && rc == 0; i++) {
		if (c->n > 1 && i > 0 && r[i].piece != r[i - 1].piece &&
		    !rsh_add_u64(at, r[i - 1].e->dims[c->axis], &at))
			return rsh_megatron_blame(w, r->name, EBADMSG,
						  RSH_MEGATRON_TOO_MANY);
		if (!r[i].spare)
			rc = chunks_add(w, &r[i], c, at, t);
		for (uint32_t d = 0; d < t->n_dims; d++)
			dims[d] = r[i].e->dims[d];
		if (c->n > 1 &&
		    !rsh_add_u64(dims[c->axis], at, &dims[c->axis]))
			return rsh_megatron_blame(w, r->name, EBADMSG,
						  RSH_MEGATRON_TOO_MANY);
	}
	t->dims = dims;
	return rc || rsh_dcp_is_countable(t) ? rc :
	       rsh_megatron_blame(w, r->name, EBADMSG, RSH_MEGATRON_TOO_MANY);
}

static int dense_take(struct rsh_megatron_work *w, struct rsh_megatron_ref *r,
		      size_t n, struct rsh_dcp_tensor *t)
{
	const struct rsh_source_megatron *st = w->st;
	struct rsh_megatron_cut c = { .n = 1 }, other;
	int rc = cut_decide(w, r, &c);

	/* Without a cut all slices are copies. */
	for (size_t i = 0; i < n && rc == 0; i++) {
		const uint32_t tensor = st->listed[r[i].file].tensor;

		r[i].piece = c.n == 1 ? 0 : r[i].is.of_expert ?
			     tensor % st->expert_tensor : tensor;
		rc = cut_decide(w, &r[i], &other);
		if (rc == 0 && (other.n != c.n || other.gated != c.gated))
			rc = rsh_megatron_blame_unknown(w, &r[i]);
	}
	return rc ?: rsh_megatron_slices_check(w, r, n, &c) ?:
	       chunks_make(w, r, n, &c, t);
}

/* Makes the tensor of which n refs are slices. */
static int tensor_take(void *ctx, void *first, size_t n)
{
	struct rsh_megatron_work *w = ctx;
	struct rsh_megatron_ref *r = first;
	struct rsh_dcp_tensor *t = &w->tensors[w->d->n_tensors];
	int rc;

	*t = (struct rsh_dcp_tensor){
		.name = r->name, .dtype = r->e->dtype, .n_dims = r->e->n_dims,
		.chunks = rsh_arena_array(&w->d->arena_, struct rsh_dcp_chunk,
					  2 * n),
	};
	if (!t->chunks)
		return -ENOMEM;
	rc = r->is.grouped ? rsh_megatron_grouped_take(w, r, n, t) :
			     dense_take(w, r, n, t);
	w->d->n_tensors += rc == 0;
	return rc < 0 ? rc : 0;
}

/* ---- all tensors ---- */

/* Sets the name that a tensor has in the whole model.  Returns 0, 1 after a
 * problem, or -ENOMEM. */
static int ref_name(struct rsh_megatron_work *w, struct rsh_megatron_ref *r)
{
	const struct rsh_source_megatron *st = w->st;
	struct rsh_arena *arena = &w->d->arena_;
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
		return r->name ? 0 : -ENOMEM;
	}
	if (r->is.n > 0) {
		local = st->args[RSH_MEGATRON_EXPERTS] / st->n_blocks;
		block = rsh_megatron_block(st, r->file);
		if (r->is.expert >= local)
			return rsh_megatron_blame(w, name, EBADMSG, "args say "
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
	return r->name ? 0 : -ENOMEM;
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

static int refs_make(struct rsh_megatron_work *w)
{
	const struct rsh_source_megatron *st = w->st;
	const struct rsh_megatron_file *f;
	size_t n = 0;
	uint32_t like;
	int rc = 0;

	for (uint32_t i = 0; i < st->n_places; i++) {
		f = file_like(st, i, &like);
		n += f ? f->n : 0;
	}
	w->refs = rsh_alloc_array(n + 1, sizeof(*w->refs));
	if (!w->refs)
		return -ENOMEM;
	for (uint32_t i = 0; i < st->n_places; i++) {
		f = file_like(st, i, &like);
		for (uint32_t k = 0; f && k < f->n && rc >= 0; k++) {
			struct rsh_megatron_ref *r = &w->refs[w->n_refs];

			*r = (struct rsh_megatron_ref){
				.e = &f->v[k], .file = i, .like = like,
				.lost = like != i,
				.order = rsh_megatron_chunk_order(
					st, st->listed[i].stage,
					f->v[k].chunk),
			};
			rsh_megatron_name_read(f->v[k].name, &r->is);
			rc = ref_name(w, r);
			w->n_refs += rc == 0;
		}
	}
	if (w->n_refs > 0)
		qsort(w->refs, w->n_refs, sizeof(*w->refs),
		      rsh_megatron_ref_by_name);
	return rc < 0 ? rc : 0;
}

static int tensor_by_name(const void *a, const void *b)
{
	const struct rsh_dcp_tensor *x = a, *y = b;

	return strcmp(x->name, y->name);
}

static int problem_is(const struct rsh_tensor_problems *p, const char *name)
{
	for (size_t i = 0; i < p->n; i++)
		if (strcmp(p->v[i].name, name) == 0)
			return true;
	return false;
}

/* If some weights have states, each parameter has them. */
static int states_check(struct rsh_megatron_work *w)
{
	const struct rsh_dcp *d = w->d;
	int rc = 0;

	if (w->st->all.n == w->st->n || w->st->no_states)
		return 0;
	for (uint32_t i = 0; i < d->n_tensors && rc >= 0; i++) {
		const char *of = d->tensors[i].name;
		struct rsh_dcp_tensor key;

		if (rsh_megatron_is_state(of) ||
		    rsh_has_suffix(of, ".expert_bias"))
			continue;
		key.name = rsh_arena_format(&w->d->arena_, RSH_MEGATRON_STATE
					    "exp_avg.%s", of);
		if (!key.name)
			return -ENOMEM;
		if (!bsearch(&key, d->tensors, d->n_tensors, sizeof(key),
			     tensor_by_name) &&
		    !problem_is(&w->st->all.problems, key.name))
			rc = rsh_megatron_blame(w, key.name, ENOENT, "no file "
						"has it");
	}
	return rc < 0 ? rc : 0;
}

static int tensors_make(struct rsh_megatron_work *w)
{
	int rc = refs_make(w);

	w->tensors = rsh_arena_array(&w->d->arena_, struct rsh_dcp_tensor,
				     w->n_refs);
	if (rc || !w->tensors)
		return -ENOMEM;
	w->d->tensors = w->tensors;
	return rsh_joined_each(w->refs, w->n_refs, sizeof(*w->refs),
			       tensor_take, w) ?: states_check(w);
}

/* Decides whether states can be shown. */
static int states_decide(struct rsh_source_megatron *st)
{
	st->no_states = NULL;
	for (uint32_t i = 0; i < st->all.n && !st->no_states; i++) {
		const struct rsh_megatron_file *f = st->all.files[i];

		if (f && i >= st->n && f->wrong)
			st->no_states = rsh_arena_format(
				&st->arena, "%s: %s", st->listed[i].name,
				f->wrong);
		else if (f && i < st->n && f->has_optimizer)
			st->no_states = rsh_arena_format(
				&st->arena, "%s: they have numbers in place of "
				"names", st->listed[i].name);
		else
			continue;
		if (!st->no_states)
			return -ENOMEM;
	}
	return 0;
}

int rsh_megatron_describe(struct rsh_source_megatron *st, struct rsh_error *err)
{
	struct rsh_megatron_work w = { .st = st };
	const char **files;
	int rc;

	if (st->all.described)
		return 0;
	rc = rsh_megatron_mesh_find(st, err);
	if (rc)
		return rc;
	st->n_pairs = st->n_folded = 0;
	w.d = rsh_joined_begin(&st->all);
	if (!w.d)
		return rsh_error_nomem(err);
	files = rsh_arena_array(&w.d->arena_, const char *, st->n_places);
	rc = files ? states_decide(st) ?: tensors_make(&w) : -ENOMEM;
	free(w.refs);
	if (rc)
		return rsh_error_nomem(err);
	for (uint32_t i = 0; i < st->n_places; i++)
		files[i] = st->listed[i].name;
	w.d->files = files;
	w.d->n_files = st->n_places;
	st->all.described = true;
	return 0;
}
