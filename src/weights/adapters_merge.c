/* SPDX-License-Identifier: Apache-2.0 */
/* weights/adapters_merge.c adds the products of an adapter's matrices to the
 * weights that were found for them. */
#include <errno.h>
#include <stdarg.h>
#include <string.h>

#include "adapters_i.h"
#include "rsh/util/checked.h"

/* ---- messages ---- */

int adapting_bad(const struct adapting *w, const char *name, int code,
		 const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	rsh_error_vset(w->err, code, fmt, ap);
	va_end(ap);
	return rsh_error_set(w->err, code, "%s: %.400s %s",
			     rsh_catalogue_path(w->cat, w->adapters[w->a].file),
			     name, w->err->text);
}

/* ---- tensors of the adapter ---- */

int adapting_tensor(struct adapting *w, const struct rsh_record *r,
		    const struct rsh_tensor **out)
{
	uint32_t number;
	const int rc = rsh_catalogue_add_record(
		w->cat, w->adapters[w->a].file, w->index,
		(uint32_t)(r - w->index->records), &number, w->err);

	if (rc == 0)
		*out = w->cat->tensors[number];
	return rc;
}

const struct rsh_record *adapting_record(const struct adapting *w,
					 const char *name)
{
	const uint32_t number = rsh_names_find(w->cat->names, name,
					       strlen(name));

	return number == RSH_NAME_NONE ? NULL :
					 rsh_ckpt_find(w->index, number);
}

struct rsh_offer *adapting_offer(const struct adapting *w, const char *name)
{
	const uint32_t at = rsh_offer_number(&w->names, "%s", name);

	return at ? &w->v[at - 1] : NULL;
}

/* ---- merging ---- */

const uint64_t *adapting_dims(const struct rsh_offer *o)
{
	return o->dims + o->n_dims - 2;
}

/* Returns the number of matrices that have their parts of A and B. */
static uint64_t pair_planes(const struct adapting_pair *m)
{
	return m->n_planes ? m->n_planes :
	       m->weight->n_dims == 3 ? m->weight->dims[0] : 1;
}

/* Returns whether an offer has one part, in which the rows and columns of a
 * matrix, or of each matrix of a stack, are exchanged. */
static bool offer_is_transposed(const struct rsh_offer *o)
{
	const struct rsh_factor *f = o->n_parts == 1 && o->boxes && !o->add ?
				     o->parts->factors : NULL;
	const uint8_t row = o->n_dims - 2;

	return f && (o->n_dims == 2 || (o->n_dims == 3 && !f[0].dim)) &&
	       f[row].dim == row + 1 && f[row + 1].dim == row;
}

/* Returns the tensor that an offer shows completely, as it is or transposed;
 * NULL: there is none. */
static const struct rsh_tensor *offer_whole(const struct rsh_catalogue *cat,
					    const struct rsh_offer *o)
{
	const struct rsh_tensor *t;
	bool whole;

	if (!offer_is_transposed(o))
		return rsh_offer_tensor(cat, o);
	t = cat->tensors[o->parts->tensor];
	whole = t->n_dims == o->n_dims;
	for (uint32_t i = 0; i < o->n_dims && whole; i++)
		whole = t->dims[o->parts->factors[i].dim] == o->dims[i];
	return whole ? t : NULL;
}

int adapting_plain(const struct adapting *w, const struct rsh_offer *o,
		   const char *name)
{
	const struct rsh_tensor *t = offer_whole(w->cat, o);
	const char *text = rsh_names_text(w->cat->names, o->name);

	if (!t)
		return adapting_bad(w, name, ENOTSUP, "cannot be merged: "
				    "%.400s is in the source in several parts, "
				    "or with other elements", text);
	if (t->wide_bf16 || !rsh_quantised_plain(o->dtype))
		return adapting_bad(w, name, ENOTSUP, "cannot be merged: "
				    "%.400s is not stored as BFloat16, Float16 "
				    "or Float32", text);
	return 0;
}

struct adapters_change *adapting_change(struct adapting *w,
					const struct rsh_offer *o)
{
	struct adapters_change *c = &w->changes[o - w->v];

	if (c->by)
		return c;
	/* Embedding and head may be one tensor. */
	c->by = rsh_arena_array(w->arena, struct rsh_low_rank,
				2 * (size_t)w->n_adapters);
	c->factors = rsh_arena_array(w->arena, struct rsh_factors,
				     2 * (size_t)w->n_adapters);
	return c->by && c->factors ? c : NULL;
}

int adapting_once(const struct adapting *w, const char *name,
		  const struct rsh_offer *o, uint32_t *last)
{
	if (*last == w->a + 1)
		return adapting_bad(w, name, EINVAL, "changes %.400s, as "
				    "another tensor of the adapter does",
				    rsh_names_text(w->cat->names, o->name));
	*last = w->a + 1;
	return 0;
}

static int adapting_check_factor(const struct adapting *w, const char *name,
				 const struct rsh_tensor *t)
{
	if (t->n_dims != 2)
		return adapting_bad(w, name, ENOTSUP, "is not a matrix");
	if (!rsh_quantised_plain(t->dtype))
		return adapting_bad(w, name, ENOTSUP, "is %s, and not "
				    "BFloat16, Float16 or Float32",
				    rsh_dtype_name(t->dtype));
	return 0;
}

static int adapting_check_shapes(const struct adapting *w,
				 const struct adapting_pair *m)
{
	const uint64_t rank = rsh_adapter_config_rank(
		w->adapters[w->a].config, m->module);
	const uint64_t product[] = { m->b->dims[0], m->a->dims[1] };
	const struct rsh_offer *o = m->weight;
	const bool stack = m->is_parameter && o->n_dims == 3;
	uint64_t all = rank;

	if (stack && o->dims[0] == 0)
		return adapting_bad(w, m->name, EINVAL, "changes %.400s, "
				    "which has no matrix",
				    rsh_names_text(w->cat->names, o->name));
	if (m->is_parameter && !rsh_mul_u64(rank, pair_planes(m), &all))
		all = 0;
	if (m->a->dims[0] != all || m->b->dims[1] != all)
		return adapting_bad(w, m->name, EINVAL, "has rank %llu, "
				    "its other matrix %llu, and %s says %llu",
				    (unsigned long long)m->a->dims[0],
				    (unsigned long long)m->b->dims[1],
				    RSH_ADAPTER_CONFIG_NAME,
				    (unsigned long long)all);
	if (m->n_planes)
		return 0;
	if ((o->n_dims != 2 && !stack) ||
	    adapting_dims(o)[m->turned] != product[0] ||
	    adapting_dims(o)[!m->turned] != product[1])
		return adapting_bad(w, m->name, EINVAL, "and its other "
				    "matrix give a product of [%llu,%llu], but "
				    "%.400s has another shape",
				    (unsigned long long)product[m->turned],
				    (unsigned long long)product[!m->turned],
				    rsh_names_text(w->cat->names, o->name));
	return 0;
}

/* Sets whether the weight is stored transposed.  The shape tells it; PEFT's
 * config has one value for all weights, even if they differ. */
static void adapting_turn(struct adapting *w, struct adapting_pair *m)
{
	const struct rsh_offer *o = m->weight;
	const uint64_t out = m->b->dims[0], in = m->a->dims[1];
	const bool says = rsh_adapter_config_is_turned(
		w->adapters[w->a].config);

	if (m->embeds || o->n_dims != 2) {
		m->turned = m->embeds;
	} else if (out == in) {
		m->turned = says;
		w->square = o;
	} else {
		m->turned = says ? o->dims[0] != out || o->dims[1] != in :
				   o->dims[0] == in && o->dims[1] == out;
		w->differs |= m->turned != says;
	}
}

/* Checks that the ranks of all adapters of a weight are not too large. */
static int adapting_check_rank(const struct adapting *w,
			       const struct adapting_pair *m,
			       const struct adapters_change *c)
{
	uint64_t rank = m->a->dims[0] / pair_planes(m);

	for (uint32_t i = 0; i < c->n; i++)
		rank += c->by[i].rank;
	if (rank <= RSH_LOW_RANK_MAX)
		return 0;
	return adapting_bad(w, m->name, ENOTSUP, "gives a weight adapters "
			    "of rank %llu in all, and %u is the largest that "
			    "can be merged", (unsigned long long)rank,
			    RSH_LOW_RANK_MAX);
}

int adapting_add(struct adapting *w, struct adapting_pair *m)
{
	const struct rsh_adapter *by = &w->adapters[w->a];
	struct adapters_change *c;
	int rc = adapting_check_factor(w, m->name, m->a) ?:
		 adapting_check_factor(w, rsh_names_text(w->cat->names,
							 m->b->name),
				       m->b);

	if (rc)
		return rc;
	if (!m->is_parameter)
		adapting_turn(w, m);
	rc = adapting_check_shapes(w, m);
	if (rc)
		return rc;
	c = adapting_change(w, m->weight);
	if (!c)
		return rsh_error_nomem(w->err);
	rc = adapting_check_rank(w, m, c);
	if (rc == 0 && !m->is_tied_head)
		rc = adapting_once(w, m->name, m->weight, &c->added_by);
	if (rc)
		return rc;
	/* PEFT multiplies a Float32 by a Python number, as Float32. */
	c->by[c->n] = (struct rsh_low_rank){
		.rank = (uint32_t)(m->a->dims[0] / pair_planes(m)),
		.scale = (float)(by->scale *
				 rsh_adapter_config_scaling(by->config,
							    m->module)),
		.rounds = m->embeds || m->is_parameter,
	};
	c->factors[c->n] = m->turned ?
		(struct rsh_factors){ m->a, m->b, true, true } :
		(struct rsh_factors){ m->b, m->a, false, false };
	c->factors[c->n].n_planes = pair_planes(m);
	c->factors[c->n].plane = m->plane;
	c->factors[c->n++].first[0] = m->first_row;
	w->done[w->a].n_merged++;
	return 0;
}

/* ---- the offers ---- */

/* Exchanges the rows and columns of what is added. */
static void adapters_turn(const struct adapters_change *c)
{
	for (uint32_t i = 0; i < c->n; i++) {
		const struct rsh_factors f = c->factors[i];

		c->factors[i] = (struct rsh_factors){
			f.columns, f.rows, !f.columns_turned, !f.rows_turned,
			f.n_planes, f.plane, { f.first[1], f.first[0] },
		};
	}
}

int adapters_stand_in(struct rsh_catalogue *cat, struct rsh_arena *arena,
		      const struct rsh_tensor *of, const char *name,
		      struct rsh_offer *o)
{
	uint64_t *dims = rsh_arena_copy(arena, of->dims, of->n_dims);
	struct rsh_tensor t = *of;
	uint32_t number;

	t.name = name ? rsh_names_add(cat->names, name, strlen(name)) :
			RSH_NAME_NONE;
	if (!dims || t.name == RSH_NAME_NONE ||
	    rsh_catalogue_add_zeros(cat, &t, &number))
		return -ENOMEM;
	*o = (struct rsh_offer){
		.name = t.name, .dtype = t.dtype, .n_dims = t.n_dims,
		.dims = dims,
	};
	return rsh_offer_whole(cat, arena, number, NULL, o);
}

int adapters_change_offer(struct rsh_catalogue *cat, struct rsh_arena *arena,
			  const struct adapters_change *c, struct rsh_offer *o,
			  struct rsh_error *err)
{
	struct rsh_quantised *q =
		rsh_arena_array(arena, struct rsh_quantised, 1);
	const bool turned = !c->instead && offer_is_transposed(o);
	struct rsh_recipe_part *p;
	struct rsh_tensor t;
	uint32_t number;

	if (!q)
		return rsh_error_nomem(err);
	t = c->instead ? *c->instead : *cat->tensors[o->parts->tensor];
	if (turned)
		adapters_turn(c);
	if (c->n || t.dtype != o->dtype) {
		*q = t.quantised ? *t.quantised : *rsh_quantised_plain(t.dtype);
		q->type = o->dtype;
		q->n_adapters = c->n;
		q->adapters = c->by;
		q->factors = c->factors;
		t.quantised = q;
	}
	if (rsh_catalogue_add(cat, &t, &number))
		return rsh_error_nomem(err);
	if (!turned)
		return rsh_offer_whole(cat, arena, number, NULL, o) ?
		       rsh_error_nomem(err) : 0;
	o->parts = p = rsh_arena_copy(arena, o->parts, 1);
	if (!p)
		return rsh_error_nomem(err);
	p->tensor = number;
	return 0;
}
