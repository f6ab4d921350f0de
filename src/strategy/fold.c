/* SPDX-License-Identifier: Apache-2.0 */
/* strategy/fold.c folds an expanded tensor map back onto the tensor's
 * dimensions.
 *
 * A dimension of size S that is split over mesh axes a, b, c is written by
 * JSON files (and by MindSpore <= 2.5) as three dimensions (a, b, S/(a*b)),
 * each split over one axis.  Within such a group every entry but the last is
 * split down to 1, which is what tells groups apart; the last may be unsplit,
 * where the planner struck out a mesh axis of size 1. */
#include <errno.h>
#include <string.h>

#include "rsh/strategy/fold.h"
#include "rsh/util/checked.h"

uint32_t rsh_map_entry_split(const struct rsh_strategy_item *item,
			     const struct rsh_map_entry *e)
{
	uint32_t split = 1;

	/* This cannot overflow: each axis occurs once and the mesh has fewer
	 * than 2^31 ranks. */
	for (uint32_t i = 0; i < e->n; i++)
		split *= item->mesh[item->n_mesh - 1 - (uint32_t)e->axes[i]];
	return split;
}

struct folding {
	const struct rsh_strategy_item *item;
	const int64_t *dims;
	bool local;
	uint32_t shard;
};

/* Tells whether entries from .. to - 1 can be dimension d. */
static bool group_fits(const struct folding *f, uint32_t d, uint32_t from,
		       uint32_t to)
{
	const struct rsh_strategy_item *it = f->item;
	uint64_t whole = 1, split = d == 0 ? f->shard : 1;

	for (uint32_t e = from; e < to; e++) {
		uint32_t s = rsh_map_entry_split(it, &it->map[e]);

		if (e + 1 < to && it->map[e].n == 0)
			return false;
		/* A group that ends in an unsplit entry is only believed if
		 * there is a shape to compare it with. */
		if (!it->n_shape && to - from > 1 && it->map[e].n == 0)
			return false;
		if (it->n_shape && e + 1 < to && it->shape[e] != s)
			return false;
		if (it->n_shape &&
		    !rsh_mul_u64(whole, (uint64_t)it->shape[e], &whole))
			return false;
		split *= s;
	}
	if (f->local) {
		uint64_t want;

		return !it->n_shape ||
		       (rsh_mul_u64((uint64_t)f->dims[d], split, &want) &&
			want == whole);
	}
	if (it->n_shape && (uint64_t)f->dims[d] != whole)
		return false;
	return (uint64_t)f->dims[d] % split == 0;
}

int rsh_fold_map(const struct rsh_strategy_item *item, const int64_t *dims,
		 uint32_t n_dims, bool dims_are_local, uint32_t shard,
		 struct rsh_fold *out, struct rsh_error *err)
{
	const struct folding f = { item, dims, dims_are_local, shard };
	/* ways[d][e] counts the foldings of the first e entries onto d
	 * dimensions (2 stands for "several"), and from[d][e] says where the
	 * last group of one begins. */
	uint8_t ways[RSH_MAX_DIMS + 1][RSH_MAX_DIMS + 1];
	uint8_t from[RSH_MAX_DIMS + 1][RSH_MAX_DIMS + 1];
	uint32_t n = item->n_map;

	if (n == n_dims) {
		for (uint32_t d = 0; d <= n_dims; d++)
			out->first[d] = d;
		return 0;
	}
	if (n < n_dims || n > RSH_MAX_DIMS ||
	    (item->n_shape && item->n_shape != n))
		return rsh_error_set(err, EINVAL,
				     "its tensor map has %u dimensions, the "
				     "tensor has %u", n, n_dims);
	memset(ways, 0, sizeof(ways));
	memset(from, 0, sizeof(from));
	ways[0][0] = 1;
	for (uint32_t d = 1; d <= n_dims; d++)
		for (uint32_t e = d; e <= n; e++)
			for (uint32_t b = d - 1; b < e; b++) {
				if (!ways[d - 1][b] ||
				    !group_fits(&f, d - 1, b, e))
					continue;
				ways[d][e] += ways[d - 1][b];
				if (ways[d][e] > 2)
					ways[d][e] = 2;
				from[d][e] = (uint8_t)b;
			}
	if (ways[n_dims][n] != 1)
		return rsh_error_set(err, EINVAL,
				     "its expanded tensor map of %u dimensions "
				     "%s the %u dimensions of the tensor",
				     n, ways[n_dims][n] ?
				     "can be folded in several ways onto" :
				     "does not fit", n_dims);
	out->first[n_dims] = n;
	for (uint32_t d = n_dims; d > 0; d--)
		out->first[d - 1] = from[d][out->first[d]];
	return 0;
}
