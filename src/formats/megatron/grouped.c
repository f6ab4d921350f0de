/* SPDX-License-Identifier: Apache-2.0 */
/* formats/megatron/grouped.c joins the experts of several ranks that are in one
 * tensor (legacy grouped GEMM).
 *
 * weight1 of n experts has the shape [h, n * w] and the bytes of [n, h, w]; a
 * row has f columns of the gate, then f of up.  weight2 has the shape
 * [n * f, h] and the bytes of [n, f, h].  So weight1 is joined as a matrix of
 * n * h rows, and shown in the other shape. */
#include "config.h"

#include "megatron_i.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "rsh/util/checked.h"
#include "rsh/util/mem.h"

bool rsh_megatron_is_grouped(const struct rsh_source_megatron *st,
			     const struct rsh_megatron_ref *r)
{
	return r->is.grouped && (st->n_blocks > 1 || st->expert_tensor > 1);
}

/* ---- joining ---- */

/* What a rank has. */
struct sizes {
	uint64_t n;     /* experts */
	uint64_t hidden;
	uint64_t width; /* columns of an expert in weight1 */
	uint64_t f;     /* rows of an expert in weight2 */
};

/* Finds the sizes from both tensors of a file.  Returns false if they do not
 * fit. */
static bool sizes_find(const struct rsh_source_megatron *st,
		       const struct rsh_megatron_ref *r, struct sizes *out)
{
	const struct rsh_megatron_file *f = st->all.files[r->file];
	const struct rsh_megatron_entry *one, *two;
	char name[4096];
	const size_t n = strlen(r->e->name) - 1;

	*out = (struct sizes){
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

/* Makes the runs of rows of weight2: of each expert those of each tensor
 * rank. */
static int rows_make(struct rsh_megatron_work *w, const struct sizes *z,
		     struct rsh_dcp_axis *out)
{
	const uint32_t ranks = w->st->expert_tensor;
	const uint64_t n = z->n * w->st->n_blocks * ranks;
	struct rsh_dcp_run *runs;
	uint64_t at = 0;
	size_t i = 0;

	if (n > UINT32_MAX)
		return -ENOMEM;
	runs = rsh_arena_array(&w->d->arena_, struct rsh_dcp_run, n);
	if (!runs)
		return -ENOMEM;
	for (uint32_t b = 0; b < w->st->n_blocks; b++)
		for (uint32_t j = 0; j < ranks; j++)
			for (uint64_t k = 0; k < z->n; k++) {
				runs[i++] = (struct rsh_dcp_run){
					((b * z->n + k) * ranks + j) * z->f,
					at, z->f,
				};
				at += z->f;
			}
	*out = (struct rsh_dcp_axis){ (uint32_t)n, runs };
	return 0;
}

static int fold_add(struct rsh_megatron_work *w, const struct sizes *z,
		    const char *name)
{
	struct rsh_source_megatron *st = w->st;

	if (rsh_grow(&st->folded, &st->cap_folded, st->n_folded + 1,
		     sizeof(*st->folded)))
		return -ENOMEM;
	st->folded[st->n_folded++] = (struct rsh_megatron_folded){
		name, { z->hidden, z->n * st->n_blocks * z->width *
				   st->expert_tensor },
	};
	return 0;
}

static int chunks_make(struct rsh_megatron_work *w,
		       const struct rsh_megatron_ref *r, size_t n,
		       const struct sizes *z, struct rsh_dcp_tensor *t)
{
	const struct rsh_source_megatron *st = w->st;
	const uint32_t ranks = st->expert_tensor;
	const bool first = r->is.grouped == 1;
	struct rsh_dcp_axis *axes = rsh_arena_array(&w->d->arena_,
						    struct rsh_dcp_axis, 2);
	uint64_t *dims = rsh_arena_array(&w->d->arena_, uint64_t, 2);
	int rc = 0;

	if (!axes || !dims)
		return -ENOMEM;
	dims[0] = r->e->dims[0] * st->n_blocks * (first ? 1 : ranks);
	dims[1] = r->e->dims[1] * (first ? ranks : 1);
	t->dims = dims;
	for (size_t i = 0; i < n; i++) {
		uint64_t *box = rsh_megatron_chunk_add(w, t, &r[i], "");

		if (!box)
			return -ENOMEM;
		box[0] = (first ? r[i].piece / ranks : r[i].piece) *
			 r->e->dims[0];
		box[1] = first ? r[i].piece % ranks * r->e->dims[1] : 0;
	}
	if (ranks > 1 && !first)
		rc = rows_make(w, z, &axes[0]);
	else if (ranks > 1 && z->width > z->f)
		rc = rsh_megatron_gate_runs(w, ranks, z->width, &axes[1]);
	if (axes[0].n || axes[1].n)
		t->axes = axes;
	return rc ?: first ? fold_add(w, z, t->name) : 0;
}

int rsh_megatron_grouped_take(struct rsh_megatron_work *w,
			      struct rsh_megatron_ref *r, size_t n,
			      struct rsh_dcp_tensor *t)
{
	const struct rsh_source_megatron *st = w->st;
	const struct rsh_megatron_cut c = {
		.n = st->n_blocks * st->expert_tensor,
	};
	struct sizes z, other;
	uint64_t elements;
	int rc;

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
	if (!rsh_mul_u64(r->e->bytes, c.n, &elements) || elements > INT64_MAX)
		return rsh_megatron_blame(w, r->name, EBADMSG, "it has more "
					  "elements than can be");
	rc = rsh_megatron_slices_check(w, r, n, &c);
	return rc ?: chunks_make(w, r, n, &z, t);
}

/* ---- the shape that is shown ---- */

static int folded_by_name(const void *a, const void *b)
{
	const struct rsh_megatron_folded *x = a, *y = b;

	return strcmp(x->name, y->name);
}

const struct rsh_megatron_folded *
rsh_megatron_folded_find(const struct rsh_source_megatron *st, const char *name)
{
	const struct rsh_megatron_folded key = { .name = name };

	return st->n_folded == 0 ? NULL :
	       bsearch(&key, st->folded, st->n_folded, sizeof(key),
		       folded_by_name);
}

/* Makes a part of columns `from` to `from` + `n` of each expert, which are at
 * `at` in the matrix of the catalogue: row r of h has those of all experts. */
static int part_make(struct rsh_arena *arena, const struct rsh_offer *o,
		     const uint64_t *dims, uint32_t tensor, uint64_t from,
		     uint64_t at, uint64_t n, struct rsh_factored_part *out)
{
	const uint64_t hidden = dims[0], experts = o->dims[0] / hidden;
	struct rsh_factor *f = rsh_arena_array(arena, struct rsh_factor, 3);
	uint64_t *begin = rsh_arena_array(arena, uint64_t, 4);

	if (!f || !begin)
		return -ENOMEM;
	f[0] = (struct rsh_factor){ hidden, 1, experts, 0, 0 };
	f[1] = (struct rsh_factor){ experts, o->dims[1], 1, 1, 0 };
	f[2] = (struct rsh_factor){ n, 1, 1, 1, 1 };
	begin[1] = from;
	begin[3] = at;
	*out = (struct rsh_factored_part){ tensor, 3, f, begin, begin + 2 };
	return 0;
}

static int offer_fold(struct rsh_arena *arena, const uint64_t *dims,
		      struct rsh_offer *o)
{
	const uint32_t n = o->same ? 1 : o->n_parts;
	struct rsh_factored_part *v =
		rsh_arena_array(arena, struct rsh_factored_part, n);
	int rc = v ? 0 : -ENOMEM;

	for (uint32_t i = 0; i < n && rc == 0; i++) {
		const struct rsh_recipe_part *p = o->same ? NULL : &o->parts[i];

		rc = p ? part_make(arena, o, dims, p->tensor, p->box.from[1],
				   p->base[1], p->box.size[1], &v[i]) :
			 part_make(arena, o, dims, o->same - 1, 0, 0,
				   o->dims[1], &v[i]);
	}
	o->dims = dims;
	o->same = o->n_parts = 0;
	o->n_factored = n;
	o->factored = v;
	return rc;
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
			    offer_fold(job->arena, st->folded[i].dims,
				       &offers->v[k]))
				return -ENOMEM;
	}
	return 0;
}
