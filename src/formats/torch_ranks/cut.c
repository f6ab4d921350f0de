/* SPDX-License-Identifier: Apache-2.0 */
/* formats/torch_ranks/cut.c computes which elements of an axis each rank has.
 *
 * The indexes of an axis are a list, at first 0, 1, 2, ...  Each dimension of
 * the mesh that cuts the axis divides the list: Shard into so many pieces as
 * the dimension has ranks, each of ceil(length / ranks), of which the last ones
 * may be shorter or empty.  A strided shard is cut after others (cut_dims());
 * or else the list is divided into `factor` parts, each of these as Shard does,
 * and a rank has one piece of each part. */
#include "config.h"

#include "torch_ranks_i.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "rsh/util/checked.h"
#include "rsh/util/mem.h"

/* A list of indexes, as runs. */
struct cut_list {
	struct rsh_ranks_run *v;
	size_t n, cap;
	uint64_t length;
};

/* This is a cut while it is made. */
struct cutting {
	uint8_t dims[RSH_MESH_DIMS_MAX]; /* of the mesh, that cut the axis */
	uint32_t n_dims;
	bool strided; /* factors divide the list */
	uint64_t *budget;
};

/* Returns whether one more step is allowed. */
static bool cut_spend(struct cutting *c)
{
	if (*c->budget == 0)
		return false;
	--*c->budget;
	return true;
}

/* Appends a run.  Adjacent runs become one. */
static int list_add(struct cutting *c, struct cut_list *l, uint64_t from,
		    uint64_t n)
{
	struct rsh_ranks_run *last = l->n ? &l->v[l->n - 1] : NULL;

	if (n == 0)
		return 0;
	l->length += n;
	if (last && last->from + last->n == from) {
		last->n += n;
		return 0;
	}
	if (!cut_spend(c))
		return -EFBIG;
	return rsh_push(l->v, l->n, l->cap, (struct rsh_ranks_run){ from, n });
}

/* Takes the piece of one rank out of the list. */
static int list_cut(struct cutting *c, const struct cut_list *of,
		    const struct rsh_ranks_placement *p, uint32_t n_ranks,
		    uint32_t rank, struct cut_list *to)
{
	const uint64_t part = rsh_div_up(of->length,
					 c->strided &&
					 p->kind == RSH_RANKS_STRIDED ?
						 p->factor : 1);
	/* Parts ascend, so the search for their runs goes on. */
	uint64_t skipped = 0;
	size_t i = 0;
	int rc = 0;

	for (uint64_t from = 0; from < of->length && rc == 0; from += part) {
		const uint64_t n = rsh_min_u64(part, of->length - from);
		const uint64_t piece = rsh_div_up(n, n_ranks);
		const uint64_t begin = rsh_min_u64(n, piece * rank);
		uint64_t at = from + begin;
		uint64_t left = rsh_min_u64(piece, n - begin);

		if (!cut_spend(c))
			return -EFBIG;
		while (i < of->n && skipped + of->v[i].n <= at)
			skipped += of->v[i++].n;
		while (rc == 0 && left > 0 && i < of->n) {
			const struct rsh_ranks_run *run = &of->v[i];
			const uint64_t within = at - skipped;
			const uint64_t k = rsh_min_u64(left, run->n - within);

			rc = list_add(c, to, run->from + within, k);
			at += k;
			left -= k;
			if (within + k == run->n) {
				skipped += run->n;
				i++;
			}
		}
	}
	return rc;
}

/* Finds the dimensions of the mesh that cut the axis, in the order in which
 * they do.  A strided shard says that others, which come later and have so many
 * ranks as its factor, cut before it: fully_shard() over tensor parallel.  If
 * there are no such ones, *strided is true: its factor divides the
 * list.  Returns the number of pieces. */
static uint32_t cut_dims(const struct rsh_ranks_how *h, uint32_t axis,
			 uint8_t *dims, uint32_t *n, bool *strided)
{
	uint32_t pieces = 1;

	*n = 0;
	*strided = false;
	for (uint32_t i = h->mesh->n_dims; i-- > 0;) {
		const uint8_t d = h->order[i];
		const struct rsh_ranks_placement *p = &h->placements[d];
		uint64_t before = 1;
		uint32_t at = 0;

		if (!rsh_ranks_is_cut(p) || p->axis != axis)
			continue;
		while (p->kind == RSH_RANKS_STRIDED && at < *n &&
		       before < p->factor)
			before *= h->mesh->dims[dims[at++]];
		*strided |= p->kind == RSH_RANKS_STRIDED && before != p->factor;
		memmove(dims + at + 1, dims + at, *n - at);
		dims[at] = d;
		++*n;
		pieces *= h->mesh->dims[d];
	}
	if (!*strided)
		return pieces;
	*n = 0;
	for (uint32_t i = 0; i < h->mesh->n_dims; i++) {
		const uint8_t d = h->order[i];

		if (rsh_ranks_is_cut(&h->placements[d]) &&
		    h->placements[d].axis == axis)
			dims[(*n)++] = d;
	}
	return pieces;
}

int rsh_ranks_cut_axis(const struct rsh_ranks_how *h, uint32_t axis,
		       uint64_t size, uint64_t *budget,
		       struct rsh_ranks_cut *out)
{
	struct cutting c = { .budget = budget };
	int rc = 0;

	*out = (struct rsh_ranks_cut){
		.n = cut_dims(h, axis, c.dims, &c.n_dims, &c.strided),
	};
	out->first = rsh_alloc_array((size_t)out->n + 1, sizeof(*out->first));
	out->length = rsh_alloc_array(out->n, sizeof(*out->length));
	if (!out->first || !out->length)
		return -ENOMEM;
	out->first[0] = 0;
	for (uint32_t i = 0; i < out->n && rc == 0; i++) {
		struct cut_list l = { .n = 0 };
		uint32_t rest = out->n;

		rc = list_add(&c, &l, 0, size);
		for (uint32_t k = 0; k < c.n_dims && rc == 0; k++) {
			const uint32_t d = c.dims[k], n = h->mesh->dims[d];
			struct cut_list to = { .n = 0 };

			rest /= n;
			rc = list_cut(&c, &l, &h->placements[d], n,
				      i / rest % n, &to);
			free(l.v);
			l = to;
		}
		if (rc == 0 &&
		    rsh_room(out->runs, out->cap_runs, out->n_runs + l.n + 1))
			rc = -ENOMEM;
		if (rc == 0 && l.n > 0)
			memcpy(out->runs + out->n_runs, l.v,
			       l.n * sizeof(*l.v));
		out->n_runs += rc == 0 ? l.n : 0;
		out->length[i] = l.length;
		out->first[i + 1] = (uint32_t)out->n_runs;
		free(l.v);
	}
	return rc;
}

void rsh_ranks_cut_clear(struct rsh_ranks_cut *c)
{
	free(c->first);
	free(c->runs);
	free(c->length);
	*c = (struct rsh_ranks_cut){ .n = 0 };
}

bool rsh_ranks_cut_range(const struct rsh_ranks_how *h, uint32_t axis,
			 uint64_t size, uint32_t place, uint32_t *piece,
			 uint64_t *from, uint64_t *length)
{
	const struct rsh_ranks_mesh *m = h->mesh;
	uint32_t coordinate[RSH_MESH_DIMS_MAX], n;
	uint8_t dims[RSH_MESH_DIMS_MAX];
	bool strided;

	for (uint32_t d = m->n_dims; d-- > 0; place /= m->dims[d])
		coordinate[d] = place % m->dims[d];
	cut_dims(h, axis, dims, &n, &strided);
	*piece = 0;
	*from = 0;
	*length = size;
	for (uint32_t i = 0; i < n; i++) {
		const uint32_t d = dims[i];
		const uint64_t each = rsh_div_up(*length, m->dims[d]);
		const uint64_t begin = rsh_min_u64(*length,
						   each * coordinate[d]);

		*piece = *piece * m->dims[d] + coordinate[d];
		*from += begin;
		*length = rsh_min_u64(each, *length - begin);
	}
	return !strided;
}
