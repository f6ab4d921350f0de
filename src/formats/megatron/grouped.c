/* SPDX-License-Identifier: Apache-2.0 */
/* formats/megatron/grouped.c joins the experts of several ranks that are in one
 * tensor (legacy grouped GEMM).
 *
 * weight1 of n experts has the shape [h, n * w] and the bytes of [n, h, w]; a
 * row has f columns of the gate, then f of up.  weight2 has the shape
 * [n * f, h] and the bytes of [n, f, h].  So weight1 is joined as a matrix of
 * n * h rows.
 *
 * The catalogue has the matrices in the order of the ranks: columns of gate and
 * up of tensor rank 0, then of rank 1; rows of all experts of a tensor rank,
 * then of the next.  Factors say where the whole tensor has them. */
#include "config.h"

#include "megatron_i.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "rsh/util/checked.h"
#include "rsh/util/mem.h"
#include "rsh/wire/torch_dtype.h"

/* ---- joining ---- */

/* Finds the sizes from both tensors of a file.  Returns false if they do not
 * fit. */
static bool sizes_find(const struct rsh_source_megatron *st,
		       const struct rsh_megatron_ref *r,
		       struct rsh_megatron_group *out)
{
	const struct rsh_megatron_file *f = st->all.files[r->like];
	const struct rsh_megatron_entry *one, *two;
	char name[4096];
	const size_t n = strlen(r->e->name) - 1;

	*out = (struct rsh_megatron_group){
		.n = st->args[RSH_MEGATRON_EXPERTS] / st->n_blocks,
	};
	snprintf(name, sizeof(name), "%.*s1", (int)n, r->e->name);
	one = rsh_megatron_find(f, r->e->chunk, name, r->e->state);
	snprintf(name, sizeof(name), "%.*s2", (int)n, r->e->name);
	two = rsh_megatron_find(f, r->e->chunk, name, r->e->state);
	if (out->n == 0 || !one || !two || one->n_dims != 2 ||
	    two->n_dims != 2 || !one->row_major || !two->row_major ||
	    one->dims[0] % out->n != 0 || two->dims[0] % out->n != 0)
		return false;
	/* The record of weight1 has n * h rows (file.c). */
	out->hidden = one->dims[0] / out->n;
	out->width = one->dims[1];
	out->f = two->dims[0] / out->n;
	return out->f > 0 && out->hidden == two->dims[1] &&
	       (out->width == out->f || out->width / 2 == out->f) &&
	       out->width % out->f == 0;
}

static void fold_add(struct rsh_megatron_work *w,
		     const struct rsh_megatron_group *z, const char *name,
		     bool first)
{
	struct rsh_source_megatron *st = w->st;
	const uint64_t ranks = st->expert_tensor, n = z->n * st->n_blocks;
	struct rsh_megatron_folded *f;

	/* The rows of one tensor rank are in order. */
	if (!first && ranks == 1)
		return;
	if (rsh_room(st->folded, st->cap_folded, st->n_folded + 1)) {
		w->arena->failed = true;
		return;
	}
	f = &st->folded[st->n_folded++];
	*f = (struct rsh_megatron_folded){
		.name = name, .first = first, .z = *z,
	};
	f->dims[0] = first ? z->hidden : n * ranks * z->f;
	f->dims[1] = first ? n * ranks * z->width : z->hidden;
	f->by_bytes[0] = first ? n * z->hidden : f->dims[0];
	f->by_bytes[1] = first ? ranks * z->width : f->dims[1];
}

static void chunks_make(struct rsh_megatron_work *w,
			const struct rsh_megatron_ref *r, size_t n,
			const struct rsh_megatron_group *z,
			struct rsh_dcp_tensor *t)
{
	const struct rsh_source_megatron *st = w->st;
	const uint32_t ranks = st->expert_tensor;
	const bool first = r->is.grouped == 1;
	const uint64_t dims[] = {
		r->e->dims[0] * st->n_blocks * (first ? 1 : ranks),
		r->e->dims[1] * (first ? ranks : 1),
	};

	t->dims = rsh_arena_copy(w->arena, dims, 2);
	for (size_t i = 0; i < n; i++) {
		const uint64_t *own = r[i].e->dims;
		const uint64_t from[] = {
			(first ? r[i].piece / ranks : r[i].piece) * own[0],
			first ? r[i].piece % ranks * own[1] : 0,
		};

		if (!r[i].spare)
			rsh_joined_chunk(w->j, r[i].file, r[i].e->key, 2, from,
					 own);
	}
	fold_add(w, z, t->name, first);
}

bool rsh_megatron_grouped_take(struct rsh_megatron_work *w,
			       struct rsh_megatron_ref *r, size_t n,
			       struct rsh_dcp_tensor *t)
{
	const struct rsh_source_megatron *st = w->st;
	const struct rsh_megatron_cut c = {
		.n = st->n_blocks * st->expert_tensor,
	};
	struct rsh_megatron_group z, other;
	uint64_t all;

	if (!sizes_find(st, r, &z))
		return rsh_megatron_blame_unknown(w, r);
	for (size_t i = 0; i < n; i++) {
		const struct rsh_megatron_listed *l = &st->listed[r[i].file];

		r[i].piece = rsh_megatron_block(st, r[i].file) *
			     st->expert_tensor + l->tensor % st->expert_tensor;
		if (!sizes_find(st, &r[i], &other) ||
		    memcmp(&z, &other, sizeof(z)) != 0)
			return rsh_megatron_blame_unknown(w, &r[i]);
	}
	/* Even if a size is 0. */
	if (!rsh_mul_u64(z.n * c.n, rsh_max_u64(z.width, z.f), &all) ||
	    !rsh_mul_u64(all, rsh_max_u64(z.hidden, 1), &all) ||
	    all > INT64_MAX / RSH_TORCH_ELEMENT_MAX)
		return rsh_joined_blame(w->j, r->name, EBADMSG,
					  RSH_MEGATRON_TOO_MANY);
	if (rsh_megatron_slices_check(w, r, n, &c))
		return true;
	chunks_make(w, r, n, &z, t);
	return false;
}

/* ---- the shape that is shown ---- */

#define FACTORS 5

/* Returns how many factors a tensor has, which are set. */
static uint32_t factors_of(const struct rsh_source_megatron *st,
			   const struct rsh_megatron_folded *of, bool by_bytes,
			   struct rsh_factor *f)
{
	const struct rsh_megatron_group *z = &of->z;
	const uint64_t ranks = st->expert_tensor, all = z->n * st->n_blocks;
	uint32_t n = 0;

	if (!of->first) {
		f[n++] = (struct rsh_factor){
			st->n_blocks, z->n * ranks * z->f,
			z->n * ranks * z->f, 0, 0 };
		f[n++] = (struct rsh_factor){
			z->n, ranks * z->f, z->f, 0, 0 };
		f[n++] = (struct rsh_factor){
			ranks, z->f, z->n * z->f, 0, 0 };
		f[n++] = (struct rsh_factor){ z->f, 1, 1, 0, 0 };
		f[n++] = (struct rsh_factor){ z->hidden, 1, 1, 1, 1 };
		return n;
	}
	if (by_bytes) {
		f[n++] = (struct rsh_factor){ all * z->hidden, 1, 1, 0, 0 };
	} else {
		/* A row of h has the columns of all experts. */
		f[n++] = (struct rsh_factor){ z->hidden, 1, all, 0, 0 };
		f[n++] = (struct rsh_factor){
			all, ranks * z->width, 1, 1, 0 };
	}
	f[n++] = (struct rsh_factor){
		z->width / z->f, ranks * z->f, z->f, 1, 1 };
	f[n++] = (struct rsh_factor){ ranks, z->f, z->width, 1, 1 };
	f[n++] = (struct rsh_factor){ z->f, 1, 1, 1, 1 };
	return n;
}

static int offer_fold(const struct rsh_source_megatron *st,
		      const struct rsh_megatron_folded *of, bool by_bytes,
		      struct rsh_arena *arena, struct rsh_offer *o)
{
	struct rsh_recipe_part *part =
		rsh_arena_array(arena, struct rsh_recipe_part, 1);
	struct rsh_factor *f = rsh_arena_array(arena, struct rsh_factor,
					       FACTORS);
	uint64_t *begin = rsh_arena_array(arena, uint64_t, 4);

	if (!part || !f || !begin)
		return -ENOMEM;
	*part = (struct rsh_recipe_part){
		o->same ? o->same - 1 : o->parts->tensor,
		factors_of(st, of, by_bytes, f), f, begin, begin + 2,
	};
	o->dims = by_bytes ? of->by_bytes : of->dims;
	o->same = 0;
	o->n_parts = 1;
	o->parts = part;
	o->boxes = false;
	return 0;
}

int rsh_megatron_fold(const struct rsh_source_megatron *st,
		      const struct rsh_read_job *job, struct rsh_offers *offers)
{
	for (size_t i = 0; i < st->n_folded; i++) {
		const char *name = st->folded[i].name;
		const uint32_t id = rsh_names_find(job->view->names, name,
						   strlen(name));

		for (uint32_t k = 0; k < offers->n; k++)
			if (offers->v[k].name == id &&
			    offer_fold(st, &st->folded[i], job->by_bytes,
				       job->arena, &offers->v[k]))
				return -ENOMEM;
	}
	return 0;
}

/* ---- lists ---- */

RSH_ORDER(folded_by_name, struct rsh_megatron_folded, strcmp(x->name, y->name))

/* A tensor is listed in the shape that is shown, in which its chunks are no
 * boxes. */
static int list_fold(const struct rsh_list_job *job,
		     struct rsh_listed_tensor *t)
{
	const struct rsh_source_megatron *st = rsh_source_state(job->source);
	const struct rsh_megatron_folded key = { .name = t->name };
	const struct rsh_megatron_folded *f =
		rsh_find(&key, st->folded, st->n_folded, folded_by_name);
	struct rsh_listed_chunk *chunks;

	if (!f)
		return 0;
	t->dims = f->dims;
	if (t->n_chunks == 0)
		return 0;
	chunks = rsh_arena_copy(job->arena, t->chunks, t->n_chunks);
	if (!chunks)
		return -ENOMEM;
	for (uint32_t i = 0; i < t->n_chunks; i++)
		chunks[i].from = chunks[i].size = NULL;
	t->chunks = chunks;
	return 0;
}

static int take_folded(void *ctx, const struct rsh_listed_tensor *t)
{
	const struct rsh_list_job *job = ctx;
	struct rsh_listed_tensor shown = *t;

	return list_fold(job, &shown) ?: job->take(job->ctx, &shown);
}

int rsh_megatron_list(const struct rsh_list_job *job, struct rsh_listed *out,
		      struct rsh_error *err)
{
	struct rsh_list_job own = *job;
	struct rsh_listed_tensor *v;
	int rc;

	/* Of records the boxes are compared. */
	if (job->part == RSH_LIST_RECORDS)
		return rsh_dcp_list(job, out, err);
	if (job->take) {
		own.take = take_folded;
		own.ctx = (void *)(uintptr_t)job;
	}
	rc = rsh_dcp_list(&own, out, err);
	if (rc || job->take)
		return rc;
	v = rsh_arena_copy(job->arena, out->tensors, out->n_tensors);
	for (uint32_t i = 0; v && i < out->n_tensors; i++)
		if (list_fold(job, &v[i]))
			v = NULL;
	if (!v)
		return rsh_error_nomem(err);
	out->tensors = v;
	return 0;
}
