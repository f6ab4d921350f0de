/* SPDX-License-Identifier: Apache-2.0 */
/* weights/own_adapters.c finds the adapters that a checkpoint of MindSpore has
 * beside its weights, and merges them, or gives them PEFT's names. */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "adapters_i.h"
#include "rsh/plan/kinds.h"
#include "rsh/util/files.h"
#include "rsh/weights/own_adapters.h"

#define OWN_TEXT ((size_t)8192) /* longest name */

static const char weight_end[] = ".weight";

/* The ends of the names of a matrix A, and of its B. */
static const char *const ends[][2] = {
	{ ".lora_A.weight", ".lora_B.weight" },
	{ ".mindpet_delta_lora_a", ".mindpet_delta_lora_b" },
	{ ".mindpet_delta_lora_A", ".mindpet_delta_lora_B" },
	{ ".tk_delta_lora_a", ".tk_delta_lora_b" },
	{ ".lora_a", ".lora_b" },
};
#define N_ENDS (sizeof(ends) / sizeof(ends[0]))

struct own_work {
	struct rsh_catalogue *cat;
	struct rsh_arena *arena, scratch;
	struct rsh_offer *v;
	uint32_t n;
	struct rsh_offer_index names;
};

static const char *own_text(const struct own_work *w, const struct rsh_offer *o)
{
	return rsh_names_text(w->cat->names, o->name);
}

/* Finds the offer whose name is `module` and `end`; NULL: there is none. */
static struct rsh_offer *own_find(const struct own_work *w, const char *module,
				  const char *end)
{
	const uint32_t at = rsh_offer_number(&w->names, "%s%s", module, end);

	return at ? &w->v[at - 1] : NULL;
}

/* ---- taking them out of the offers ---- */

/* Returns which matrix a name is: 2 * its row in `ends`, and 1 more for a B;
 * -1: none. */
static int own_matrix(const char *name)
{
	for (size_t i = 0; i < N_ENDS; i++)
		for (int k = 0; k < 2; k++)
			if (rsh_has_suffix(name, ends[i][k]))
				return (int)(2 * i) + k;
	return -1;
}

int own_check_matrix(const struct rsh_catalogue *cat, const struct rsh_offer *o,
		     struct rsh_error *err)
{
	const char *name = rsh_names_text(cat->names, o->name);

	if (o->n_dims != 2)
		return rsh_error_set(err, ENOTSUP, "%.400s is not a matrix",
				     name);
	if (!rsh_quantised_plain(o->dtype) || !rsh_offer_tensor(cat, o))
		return rsh_error_set(err, ENOTSUP, "%.400s is %s, and not "
				     "BFloat16, Float16 or Float32, or is "
				     "transposed", name,
				     rsh_dtype_name(o->dtype));
	return 0;
}

static int own_check(const struct own_work *w, const struct rsh_own_adapter *x,
		     struct rsh_error *err)
{
	int rc = own_check_matrix(w->cat, &x->a, err) ?:
		 own_check_matrix(w->cat, &x->b, err);

	if (rc == 0 && (x->a.dims[0] != x->b.dims[1] || x->a.dims[0] == 0 ||
			x->a.dims[0] > UINT32_MAX))
		rc = rsh_error_set(err, EINVAL, "%.400s has rank %llu, and its "
				   "other matrix %llu", own_text(w, &x->a),
				   (unsigned long long)x->a.dims[0],
				   (unsigned long long)x->b.dims[1]);
	if (rc == 0 && x->a.dims[0] > RSH_LOW_RANK_MAX)
		rc = rsh_error_set(err, ENOTSUP, "%.400s has rank %llu, and %u "
				   "is the largest that can be merged",
				   own_text(w, &x->a),
				   (unsigned long long)x->a.dims[0],
				   RSH_LOW_RANK_MAX);
	return rc;
}

/* Adds the adapter of a matrix A.  A matrix B is taken with its A, and here it
 * is only checked that there is one. */
static int own_take(const struct own_work *w, const struct rsh_offer *o,
		    int matrix, struct rsh_own_adapters *out,
		    struct rsh_error *err)
{
	const char *name = own_text(w, o);
	const char *const *end = ends[matrix / 2];
	const char *other = end[!(matrix % 2)];
	const size_t stem = strlen(name) - strlen(end[matrix % 2]);
	struct rsh_own_adapter x = {
		.module = rsh_arena_strndup(w->arena, name, stem), .a = *o,
	};
	const struct rsh_offer *second;
	int rc;

	if (!x.module)
		return rsh_error_nomem(err);
	second = own_find(w, x.module, other);
	if (!second)
		return rsh_error_set(err, EINVAL, "%.400s is there, but %.400s%s "
				     "is missing", name, x.module, other);
	if (matrix % 2)
		return 0;
	x.b = *second;
	rc = own_check(w, &x, err);
	if (rc == 0)
		out->v[out->n++] = x;
	return rc;
}

static int own_take_all(struct own_work *w, struct rsh_own_adapters *out,
			struct rsh_error *err)
{
	uint32_t kept = 0;
	int rc = 0;

	/* Offers keep their places until all are looked at. */
	for (uint32_t i = 0; rc == 0 && i < w->n; i++) {
		const char *name = own_text(w, &w->v[i]);
		const int matrix = own_matrix(name);

		if (rsh_kind_is_of_optimizer(rsh_kinds_of(
			w->cat->kinds, w->v[i].name, name)))
			continue;
		if (matrix >= 0)
			rc = own_take(w, &w->v[i], matrix, out, err);
		else if (rsh_has_suffix(name, "_lora_a") ||
			 rsh_has_suffix(name, "_lora_b"))
			rc = rsh_error_set(err, ENOTSUP, "%.400s is a part of "
					   "the adapter of experts, which is "
					   "not supported", name);
	}
	for (uint32_t i = 0; rc == 0 && i < w->n; i++)
		if (own_matrix(own_text(w, &w->v[i])) < 0)
			w->v[kept++] = w->v[i];
	w->n = kept;
	return rc;
}

int rsh_weights_take_own(struct rsh_offers *io, struct rsh_arena *arena,
			 struct rsh_own_adapters *out, struct rsh_error *err)
{
	struct own_work w = {
		.cat = io->cat, .arena = arena, .v = io->v, .n = io->n,
	};
	int rc = rsh_offers_index(io, &w.scratch, &w.names) ?
		 rsh_error_nomem(err) : 0;

	*out = (struct rsh_own_adapters){ 0 };
	out->v = rsh_arena_array(arena, struct rsh_own_adapter, io->n);
	if (rc == 0 && !out->v)
		rc = rsh_error_nomem(err);
	if (rc == 0)
		rc = own_take_all(&w, out, err);
	if (rc == 0 && out->n == 0)
		rc = rsh_error_set(err, EINVAL, "SOURCE has no adapter: no "
				   "tensor has a name such as "
				   "MODULE.mindpet_delta_lora_a, "
				   "MODULE.lora_A.weight or MODULE.lora_a");
	io->n = w.n;
	rsh_arena_clear(&w.scratch);
	return rc;
}

/* ---- merging ---- */

static bool own_has_dims(const struct rsh_offer *o, uint64_t rows,
			 uint64_t columns)
{
	return o->n_dims == 2 && o->dims[0] == rows && o->dims[1] == columns;
}

static int own_check_weight(const struct own_work *w,
			    const struct rsh_own_adapter *x,
			    const struct rsh_offer *o, struct rsh_error *err)
{
	const uint64_t out = x->b.dims[0], in = x->a.dims[1];
	const struct rsh_tensor *t = rsh_offer_tensor(w->cat, o);

	if (!t || t->wide_bf16 || t->quantised || !rsh_quantised_plain(o->dtype))
		return rsh_error_set(err, ENOTSUP, "%.400s cannot be merged: "
				     "%.400s is not stored as BFloat16, "
				     "Float16 or Float32", own_text(w, &x->a),
				     own_text(w, o));
	if (!own_has_dims(o, out, in) && !own_has_dims(o, in, out))
		return rsh_error_set(err, EINVAL, "%.400s and its other matrix "
				     "give a product of [%llu,%llu], but %.400s "
				     "has another shape", own_text(w, &x->a),
				     (unsigned long long)out,
				     (unsigned long long)in, own_text(w, o));
	return 0;
}

static int own_merge(struct own_work *w, const struct rsh_own_adapter *x,
		     double alpha, struct rsh_error *err)
{
	struct rsh_offer *o = own_find(w, x->module, weight_end);
	const struct rsh_tensor *a = rsh_offer_tensor(w->cat, &x->a);
	const struct rsh_tensor *b = rsh_offer_tensor(w->cat, &x->b);
	struct adapters_change c = { .n = 1 };
	int rc;

	if (!o)
		return rsh_error_set(err, EINVAL, "%.400s changes %.400s%s, "
				     "which is not in the source",
				     own_text(w, &x->a), x->module, weight_end);
	rc = own_check_weight(w, x, o, err);
	if (rc)
		return rc;
	c.by = rsh_arena_array(w->arena, struct rsh_low_rank, 1);
	c.factors = rsh_arena_array(w->arena, struct rsh_factors, 1);
	if (!c.by || !c.factors)
		return rsh_error_nomem(err);
	*c.by = (struct rsh_low_rank){
		.rank = (uint32_t)x->a.dims[0],
		.scale = (float)(alpha / (double)x->a.dims[0]),
	};
	/* A square weight is not transposed, as in MindSpore Transformers. */
	*c.factors = own_has_dims(o, x->b.dims[0], x->a.dims[1]) ?
		(struct rsh_factors){ b, a, false, false } :
		(struct rsh_factors){ a, b, true, true };
	return adapters_change_offer(w->cat, w->arena, &c, o, err);
}

int rsh_weights_merge_own(const struct rsh_own_adapters *a, double alpha,
			  struct rsh_arena *arena, struct rsh_offers *io,
			  struct rsh_error *err)
{
	struct own_work w = {
		.cat = io->cat, .arena = arena, .v = io->v, .n = io->n,
	};
	int rc = rsh_offers_index(io, &w.scratch, &w.names) ?
		 rsh_error_nomem(err) : 0;

	for (uint32_t i = 0; rc == 0 && i < a->n; i++)
		rc = own_merge(&w, &a->v[i], alpha, err);
	rsh_arena_clear(&w.scratch);
	return rc;
}

/* ---- the weights, for a table ---- */

int rsh_weights_stand_ins(const struct rsh_own_adapters *a,
			  struct rsh_catalogue *cat, struct rsh_arena *arena,
			  struct rsh_offers *out, struct rsh_error *err)
{
	*out = (struct rsh_offers){ .cat = cat, .n = a->n };
	out->v = rsh_arena_array(arena, struct rsh_offer, a->n);
	if (!out->v)
		return rsh_error_nomem(err);
	for (uint32_t i = 0; i < a->n; i++) {
		const struct rsh_own_adapter *x = &a->v[i];
		const uint64_t dims[] = { x->b.dims[0], x->a.dims[1] };

		if (adapters_stand_in(cat, arena, &(struct rsh_tensor){
				      .dtype = x->b.dtype, .n_dims = 2,
				      .dims = dims },
				      rsh_arena_format(arena, "%s%s", x->module,
						       weight_end), &out->v[i]))
			return rsh_error_nomem(err);
	}
	rsh_catalogue_update_names(cat);
	return 0;
}

/* ---- PEFT's names ---- */

/* A tensor of Hugging Face's form, and the adapter of which it is a part. */
struct own_part {
	const struct rsh_offer *weight; /* made of a stand-in */
	const struct rsh_own_adapter *from;
};

/* Returns the adapter whose stand-in a tensor of the catalogue is; NULL:
 * none. */
static const struct rsh_own_adapter *own_of(const struct rsh_own_adapters *a,
					    const struct rsh_offers *stand_ins,
					    uint32_t tensor)
{
	/* They were added one after the other. */
	const uint32_t first = stand_ins->v[0].parts->tensor;

	return tensor >= first && tensor - first < a->n ?
		&a->v[tensor - first] : NULL;
}

/* Returns whether a part has all columns as they are. */
static bool own_keeps_columns(const struct rsh_recipe_part *p, uint64_t n)
{
	bool same = p->shown_from[1] == 0 && p->from[1] == 0;
	uint64_t found = 1;

	for (uint32_t i = 0; same && i < p->n_factors; i++) {
		const struct rsh_factor *f = &p->factors[i];

		if (f->size == 1 || (f->shown_dim != 1 && f->dim != 1))
			continue;
		same = f->shown_dim == 1 && f->dim == 1 && f->step == 1 &&
		       f->shown_step == 1 && found == 1;
		found = f->size;
	}
	return same && found == n;
}

/* Makes the rows of B as those of the weight are made. */
static int own_make_rows(struct rsh_arena *arena, const struct own_part *p,
			 struct rsh_offer *out)
{
	const struct rsh_offer *o = p->weight, *b = &p->from->b;
	const uint32_t tensor = b->parts->tensor;
	const uint64_t rank = b->dims[1];
	struct rsh_recipe_part *parts =
		rsh_arena_array(arena, struct rsh_recipe_part, o->n_parts);
	uint64_t *dims = rsh_arena_array(arena, uint64_t, 2);

	if (!parts || !dims)
		return -ENOMEM;
	for (uint32_t i = 0; i < o->n_parts; i++) {
		const struct rsh_recipe_part *of = &o->parts[i];
		struct rsh_factor *f = rsh_arena_array(arena, struct rsh_factor,
						       of->n_factors + 1);
		uint32_t n = 0;

		if (!f)
			return -ENOMEM;
		for (uint32_t k = 0; k < of->n_factors; k++)
			if (of->factors[k].dim == 0 &&
			    of->factors[k].shown_dim == 0)
				f[n++] = of->factors[k];
		f[n++] = (struct rsh_factor){ rank, 1, 1, 1, 1 };
		parts[i] = (struct rsh_recipe_part){ tensor, n, f,
						     of->shown_from, of->from };
	}
	dims[0] = o->dims[0];
	dims[1] = rank;
	*out = (struct rsh_offer){
		.dtype = b->dtype, .n_dims = 2, .dims = dims,
		.n_parts = o->n_parts, .parts = parts, .boxes = o->boxes,
	};
	return 0;
}

/* Makes the two matrices of a tensor of Hugging Face's form. */
static int own_show(const struct rsh_own_adapters *a,
		    const struct rsh_offers *stand_ins, struct rsh_arena *arena,
		    struct own_part *p, struct rsh_offer *out,
		    struct rsh_error *err)
{
	struct rsh_names *names = stand_ins->cat->names;
	const char *name = rsh_names_text(names, p->weight->name);
	const struct rsh_offer *o = p->weight;
	char text[OWN_TEXT];
	bool same = o->n_dims == 2, one = true;

	/* The columns have to be those of the weight, because these are the
	 * columns of A. */
	for (uint32_t i = 0; i < o->n_parts; i++) {
		const struct rsh_own_adapter *x =
			own_of(a, stand_ins, o->parts[i].tensor);

		one = one && x && (!p->from || p->from == x);
		p->from = x;
	}
	if (!one || !p->from)
		return rsh_error_set(err, ENOTSUP, "%.400s is made of several "
				     "weights, and PEFT has one adapter for it",
				     name);
	for (uint32_t i = 0; same && i < o->n_parts; i++)
		same = own_keeps_columns(&o->parts[i], o->dims[1]);
	if (!same || o->dims[1] != p->from->a.dims[1])
		return rsh_error_set(err, ENOTSUP, "%.400s has the columns of "
				     "%.400s%s in another order, so PEFT has no "
				     "adapter that is equal", name,
				     p->from->module, weight_end);
	if (!rsh_has_suffix(name, weight_end) || strlen(name) > OWN_TEXT / 2)
		return rsh_error_set(err, ENOTSUP, "%.400s is not the weight of "
				     "a module, so PEFT has no adapter for it",
				     name);
	out[0] = p->from->a;
	if (own_make_rows(arena, p, &out[1]))
		return rsh_error_nomem(err);
	for (unsigned i = 0; i < 2; i++) {
		const int len = snprintf(text, sizeof(text),
			"base_model.model.%.*s.lora_%c.weight",
			(int)(strlen(name) - strlen(weight_end)), name,
			i ? 'B' : 'A');

		out[i].name = rsh_names_add(names, text, (size_t)len);
		if (out[i].name == RSH_NAME_NONE)
			return rsh_error_nomem(err);
	}
	return 0;
}

int rsh_weights_show_own(const struct rsh_own_adapters *a,
			 const struct rsh_offers *stand_ins,
			 struct rsh_arena *arena, struct rsh_offers *io,
			 struct rsh_error *err)
{
	struct rsh_offer *v = rsh_arena_array(arena, struct rsh_offer,
					      2 * (size_t)io->n);
	int rc = v ? 0 : rsh_error_nomem(err);

	for (uint32_t i = 1; rc == 0 && i < a->n; i++)
		if (a->v[i].a.dims[0] != a->v[0].a.dims[0])
			rc = rsh_error_set(err, ENOTSUP, "the adapters of "
					   "%.400s and %.400s have different "
					   "ranks, %llu and %llu",
					   a->v[0].module, a->v[i].module,
					   (unsigned long long)a->v[0].a.dims[0],
					   (unsigned long long)a->v[i].a.dims[0]);
	for (uint32_t i = 0; rc == 0 && i < io->n; i++)
		rc = own_show(a, stand_ins, arena,
			      &(struct own_part){ .weight = &io->v[i] },
			      &v[2 * (size_t)i], err);
	if (rc)
		return rc;
	rsh_catalogue_update_names(io->cat);
	io->v = v;
	io->n *= 2;
	return 0;
}
