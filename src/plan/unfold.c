/* SPDX-License-Identifier: Apache-2.0 */
/* plan/unfold.c changes the shape of an offer: the elements and their order
 * stay the same, and its parts get the factors of the new dimensions. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "parts_i.h"
#include "rsh/plan/writer.h"
#include "rsh/util/mem.h"

#define FACTORS_MAX 64
/* A tensor in more parts is not made. */
#define PARTS_MAX 65536

/* A part while it is changed. */
struct unfold_part {
	uint32_t tensor, n_dims; /* of the catalogue's tensor */
	uint32_t n;
	struct rsh_factor f[FACTORS_MAX];
	uint64_t shown_from[RSH_MAX_DIMS + 1], from[RSH_MAX_DIMS];
};

struct unfold {
	struct rsh_arena *arena;
	const struct rsh_catalogue *cat;
	uint32_t n_dims; /* that are shown after the change */
	uint32_t d;      /* is divided into d and d + 1, or made of them */
	uint64_t inner;  /* size of d + 1 */
	struct rsh_recipe_part *v;
	uint32_t n;
	size_t cap;
};

/* ---- one part ---- */

static void part_load(const struct rsh_catalogue *c, const struct rsh_offer *o,
		      const struct rsh_recipe_part *r, struct unfold_part *out)
{
	*out = (struct unfold_part){
		.tensor = r->tensor, .n_dims = c->tensors[r->tensor]->n_dims,
	};
	memcpy(out->shown_from, r->shown_from,
	       o->n_dims * sizeof(*out->shown_from));
	memcpy(out->from, r->from, out->n_dims * sizeof(*out->from));
	for (uint32_t k = 0; k < r->n_factors; k++)
		if (r->factors[k].size != 1)
			out->f[out->n++] = r->factors[k];
	out->n = rsh_factors_merge(out->f, out->n);
}

static int part_keep(struct unfold *u, const struct unfold_part *p)
{
	struct rsh_factor *f = rsh_arena_copy(u->arena, p->f, p->n);
	uint64_t *from = rsh_arena_array(u->arena, uint64_t,
					 u->n_dims + p->n_dims);

	if (!f || !from ||
	    rsh_grow(&u->v, &u->cap, (size_t)u->n + 1, sizeof(*u->v)))
		return -ENOMEM;
	memcpy(from, p->shown_from, u->n_dims * sizeof(*from));
	memcpy(from + u->n_dims, p->from, p->n_dims * sizeof(*from));
	u->v[u->n++] = (struct rsh_recipe_part){
		p->tensor, p->n, f, from, from + u->n_dims,
	};
	return 0;
}

/* ---- dividing a dimension ---- */

/* Divides a part whose elements have no carry between both dimensions.  Returns
 * false if some have one. */
static bool part_divide(const struct unfold *u, const struct unfold_part *p,
			struct unfold_part *out)
{
	const uint64_t base = p->shown_from[u->d];
	uint64_t last = base % u->inner; /* of the inner dimension */

	*out = *p;
	out->n = 0;
	for (uint32_t i = 0; i < p->n; i++) {
		struct rsh_factor f = p->f[i];
		const uint64_t all = f.size * f.shown_step;

		if (out->n + 2 > FACTORS_MAX)
			return false;
		if (f.shown_dim != u->d) {
			f.shown_dim = (uint8_t)(f.shown_dim +
						(f.shown_dim > u->d));
			out->f[out->n++] = f;
			continue;
		}
		if (f.shown_step % u->inner == 0) {
			f.shown_step /= u->inner;
			out->f[out->n++] = f;
			continue;
		}
		if (all > u->inner && all % u->inner == 0 &&
		    u->inner % f.shown_step == 0) {
			const uint64_t size = u->inner / f.shown_step;

			out->f[out->n++] = (struct rsh_factor){
				f.size / size, 1, f.step * size,
				f.shown_dim, f.dim,
			};
			f.size = size;
		}
		last += (f.size - 1) * f.shown_step;
		f.shown_dim++;
		out->f[out->n++] = f;
	}
	for (uint32_t d = u->n_dims - 1; d > u->d + 1; d--)
		out->shown_from[d] = p->shown_from[d - 1];
	out->shown_from[u->d] = base / u->inner;
	out->shown_from[u->d + 1] = base % u->inner;
	return last < u->inner;
}

/* Returns how many steps of a factor are before the place where the part is
 * cut in two: a multiple of the inner size, if there is one. */
static uint64_t cut_at(const struct unfold *u, const struct unfold_part *p,
		       const struct rsh_factor *f)
{
	const uint64_t within = p->shown_from[u->d] % u->inner;
	const uint64_t step = f->shown_step;
	uint64_t n = (u->inner - within + step - 1) / step;

	if (within == 0)
		n = (f->size * step - 1) / u->inner * u->inner / step;
	return n > 0 && n < f->size ? n : f->size / 2;
}

/* Adds what a part becomes: it is cut until no part has a carry. */
static int part_add(struct unfold *u, const struct unfold_part *p)
{
	struct unfold_part half;
	uint32_t which = UINT32_MAX;
	uint64_t n;
	int rc;

	if (part_divide(u, p, &half))
		return part_keep(u, &half);
	for (uint32_t i = 0; i < p->n; i++)
		if (p->f[i].shown_dim == u->d && p->f[i].size > 1 &&
		    p->f[i].shown_step % u->inner != 0 &&
		    (which == UINT32_MAX ||
		     p->f[i].shown_step > p->f[which].shown_step))
			which = i;
	if (which == UINT32_MAX || u->n >= PARTS_MAX)
		return -ENOTSUP;
	n = cut_at(u, p, &p->f[which]);
	half = *p;
	half.f[which].size = n;
	rc = part_add(u, &half);
	half = *p;
	half.f[which].size -= n;
	half.shown_from[u->d] += n * p->f[which].shown_step;
	half.from[p->f[which].dim] += n * p->f[which].step;
	return rc ?: part_add(u, &half);
}

/* ---- offers ---- */

/* Joins dimensions d and d + 1 of a part. */
static void part_join(const struct unfold *u, struct unfold_part *p)
{
	for (uint32_t k = 0; k < p->n; k++) {
		struct rsh_factor *f = &p->f[k];

		if (f->shown_dim == u->d)
			f->shown_step *= u->inner;
		f->shown_dim = (uint8_t)(f->shown_dim - (f->shown_dim > u->d));
	}
	p->shown_from[u->d] = p->shown_from[u->d] * u->inner +
			      p->shown_from[u->d + 1];
	for (uint32_t k = u->d + 1; k < u->n_dims; k++)
		p->shown_from[k] = p->shown_from[k + 1];
	p->n = rsh_factors_merge(p->f, p->n);
}

/* Gives an offer the dimensions of `u`, which are one more or one less. */
static int unfold_offer(struct unfold *u, struct rsh_offer *o)
{
	const bool divides = u->n_dims > o->n_dims;
	uint64_t *dims = rsh_arena_array(u->arena, uint64_t, u->n_dims);
	struct rsh_recipe_part *v;
	struct unfold_part part;
	int rc = dims ? 0 : -ENOMEM;

	if (u->n_dims > RSH_MAX_DIMS)
		return -ENOTSUP;
	for (uint32_t i = 0; i < o->n_parts && rc == 0; i++) {
		part_load(u->cat, o, &o->parts[i], &part);
		if (!divides)
			part_join(u, &part);
		rc = divides ? part_add(u, &part) : part_keep(u, &part);
	}
	v = rc ? NULL : rsh_arena_copy(u->arena, u->v, u->n);
	if (v) {
		for (uint32_t i = 0; i < u->n_dims; i++)
			dims[i] = o->dims[divides ? i - (i > u->d) :
						    i + (i > u->d)];
		dims[u->d] = divides ? o->dims[u->d] / u->inner :
				       o->dims[u->d] * u->inner;
		if (divides)
			dims[u->d + 1] = u->inner;
		o->dims = dims;
		o->n_dims = u->n_dims;
		o->n_parts = u->n;
		o->parts = v;
		o->boxes = false;
	}
	free(u->v);
	return rc ?: v ? 0 : -ENOMEM;
}

int rsh_offer_divide(const struct rsh_catalogue *c, struct rsh_arena *arena,
		     struct rsh_offer *o, uint32_t d, uint64_t inner)
{
	return unfold_offer(&(struct unfold){
		.arena = arena, .cat = c, .n_dims = o->n_dims + 1, .d = d,
		.inner = inner,
	}, o);
}

int rsh_offer_join(const struct rsh_catalogue *c, struct rsh_arena *arena,
		   struct rsh_offer *o, uint32_t d)
{
	return unfold_offer(&(struct unfold){
		.arena = arena, .cat = c, .n_dims = o->n_dims - 1, .d = d,
		.inner = o->dims[d + 1],
	}, o);
}
