/* SPDX-License-Identifier: Apache-2.0 */
/* strategy/grid.c computes the mesh axes over which each dimension of a tensor
 * is cut, and from these which rank holds which cell. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "rsh/strategy/grid.h"
#include "rsh/strategy/strategy.h"
#include "rsh/util/checked.h"

/* ---- optimizer shard ---- */

bool rsh_item_uses_axis(const struct rsh_strategy_item *it, uint32_t axis)
{
	for (uint32_t e = 0; e < it->n_map; e++)
		for (uint32_t i = 0; i < it->map[e].n; i++)
			if (it->n_mesh - 1 - (uint32_t)it->map[e].axes[i] ==
			    axis)
				return true;
	return false;
}

struct rsh_repeated rsh_item_repeated(const struct rsh_strategy_item *it)
{
	struct rsh_repeated r = { 1, 0, 0, 1, 0 };

	for (uint32_t a = it->n_mesh, stride = 1; a-- > 0;
	     stride *= it->mesh[a]) {
		if (it->mesh[a] == 1 || rsh_item_uses_axis(it, a))
			continue;
		r.group *= it->mesh[a];
		r.n_axes++;
		r.first = a;
		r.stride = stride;
		r.last += (it->mesh[a] - 1) * stride;
	}
	return r;
}

/* Sets *out to the size of the optimizer shard, 1 for none.  A shard that the
 * converter refuses is refused here as well, except shards that its arithmetic
 * for axes cannot express. */
static int shard_size(const struct rsh_strategy_item *it, uint32_t n_dims,
		      uint32_t *out, struct rsh_error *err)
{
	const struct rsh_repeated rep = rsh_item_repeated(it);
	uint32_t step;

	*out = 1;
	if (it->opt_step == 0 || it->opt_size == 0)
		return 0;
	if (it->opt_step < 0 || it->opt_size < -1)
		return rsh_error_set(err, EINVAL,
				     "its optimizer shard has step %d and size "
				     "%d", it->opt_step, it->opt_size);
	if (rep.n_axes == 0)
		return rsh_error_set(err, EINVAL,
				     "it has an optimizer shard, but the tensor "
				     "map leaves no ranks equal to shard over");
	if (n_dims == 0)
		return rsh_error_set(err, EINVAL,
				     "it has an optimizer shard, but the tensor "
				     "is a scalar");
	/* The step follows from the mesh.  If the converter uses the step, and
	 * it contradicts the mesh, the file is damaged. */
	step = rep.n_axes == 1 ? rep.stride : 1;
	if (!it->nested && (rep.n_axes == 1 || rep.n_axes == it->n_mesh) &&
	    (uint32_t)it->opt_step != step)
		return rsh_error_set(err, EINVAL,
				     "its optimizer shard has step %d, the mesh "
				     "says %u", it->opt_step, step);
	*out = it->opt_size == -1 ? rep.group : (uint32_t)it->opt_size;
	if (*out > rep.group || rep.group % *out)
		return rsh_error_set(err, EINVAL,
				     "its optimizer shard of size %u does not "
				     "divide the %u ranks that hold the same "
				     "slice", *out, rep.group);
	return 0;
}

/* ---- making a grid ---- */

static void grid_add_axis(struct rsh_grid_axis *axes, uint32_t *n,
			  uint32_t size, uint32_t stride)
{
	if (size > 1)
		axes[(*n)++] = (struct rsh_grid_axis){ size, stride };
}

/* Places the slices as the training job holds them: over the map's axes in
 * their order, and the shard over consecutive positions among the ranks that
 * the map does not distinguish. */
static void place_runtime(struct rsh_grid *g,
			  const struct rsh_strategy_item *it,
			  const struct rsh_fold *fold)
{
	uint32_t stride[RSH_MAX_AXES] = { 0 }, n = 0, s = 1;

	for (uint32_t a = it->n_mesh; a-- > 0; s *= it->mesh[a])
		stride[a] = s;
	for (uint32_t d = 0; d < g->n_dims; d++) {
		g->first[d] = (uint8_t)n;
		for (uint32_t e = fold->first[d]; e < fold->first[d + 1]; e++)
			for (uint32_t i = 0; i < it->map[e].n; i++) {
				uint32_t a = it->n_mesh - 1 -
					     (uint32_t)it->map[e].axes[i];

				grid_add_axis(g->axes, &n, it->mesh[a],
					      stride[a]);
			}
	}
	g->first[g->n_dims] = (uint8_t)n;
	for (uint32_t a = 0; a < it->n_mesh; a++)
		if (!rsh_item_uses_axis(it, a))
			grid_add_axis(g->free, &g->n_free, it->mesh[a],
				      stride[a]);
}

/* Places the slices on the mesh that the converter builds itself for a "simple"
 * item: [repeat, shard] and then one axis for each tensor dimension, in the
 * order of the dimensions.  This differs from the real mesh if the map lists
 * its axes in another order. */
static void place_simple(struct rsh_grid *g, uint32_t shard)
{
	uint32_t stride[RSH_MAX_DIMS], s = 1, n = 0;

	for (uint32_t d = g->n_dims; d-- > 0; s *= g->split[d])
		stride[d] = s; /* split[0] does not include the shard yet */
	for (uint32_t d = 0; d < g->n_dims; d++) {
		g->first[d] = (uint8_t)n;
		grid_add_axis(g->axes, &n, g->split[d], stride[d]);
		if (d == 0)
			grid_add_axis(g->axes, &n, shard, s);
	}
	g->first[g->n_dims] = (uint8_t)n;
	grid_add_axis(g->free, &g->n_free, g->n_ranks / (s * shard), s * shard);
}

bool rsh_item_is_simple(const struct rsh_strategy_item *it)
{
	const struct rsh_repeated rep = rsh_item_repeated(it);

	return !it->nested && rep.n_axes > 0 && rep.first == 0 &&
	       (rep.n_axes == 1 || rep.n_axes == it->n_mesh);
}

int rsh_item_check_dims(const struct rsh_strategy_item *it,
			const struct rsh_grid_sizes *sizes,
			const uint32_t *split, uint32_t first, uint64_t *whole,
			struct rsh_error *err)
{
	int rc = 0;

	for (uint32_t d = first; rc == 0 && d < sizes->n_dims; d++) {
		whole[d] = (uint64_t)sizes->dims[d];
		if (sizes->local &&
		    (!rsh_mul_u64(whole[d], split[d], &whole[d]) ||
		     whole[d] > INT64_MAX))
			return rsh_error_set(err, EINVAL,
					     "dimension %u overflows", d);
		if (whole[d] % split[d])
			return rsh_error_set(err, EINVAL,
					     "dimension %u of size %llu cannot "
					     "be cut into %u equal slices", d,
					     (unsigned long long)whole[d],
					     split[d]);
		rc = rsh_item_check_shape(it, sizes->n_dims, d, whole[d], err);
	}
	return rc;
}

int rsh_grid_new(const struct rsh_strategy_item *it,
		 const struct rsh_grid_sizes *sizes, enum rsh_grid_rule rule,
		 struct rsh_grid **out, struct rsh_error *err)
{
	const uint32_t n_dims = sizes->n_dims;
	uint64_t whole[RSH_MAX_DIMS];
	struct rsh_grid g;
	struct rsh_fold fold;
	uint32_t shard;
	int rc;

	if (n_dims > RSH_MAX_DIMS || it->n_mesh > RSH_MAX_AXES)
		return rsh_error_set(err, EINVAL, "too many dimensions");
	rc = shard_size(it, n_dims, &shard, err) ?:
	     rsh_fold_map(it, sizes, shard, &fold, err);
	if (rc)
		return rc;
	/* Equal grids must have equal bytes, including padding. */
	memset(&g, 0, sizeof(g));
	g.n_ranks = rsh_item_ranks(it);
	g.n_dims = n_dims;
	g.shard = 1;
	for (uint32_t d = 0; d < n_dims; d++) {
		g.split[d] = 1;
		for (uint32_t e = fold.first[d]; e < fold.first[d + 1]; e++)
			g.split[d] *= rsh_map_entry_split(it, &it->map[e]);
	}
	if (rule == RSH_GRID_CONVERTER && shard > 1 && rsh_item_is_simple(it)) {
		place_simple(&g, shard);
	} else {
		place_runtime(&g, it, &fold);
		g.shard = shard;
	}
	if (shard > 1)
		g.split[0] *= shard;
	rc = rsh_item_check_dims(it, sizes, g.split, 0, whole, err) ?:
	     rsh_item_rows(it, sizes, g.split, err);
	if (rc > 0)
		return rsh_error_set(err, EINVAL,
				     "its rows are split manually (manual_split)");
	if (rc)
		return rc;
	*out = rsh_grid_make(&g);
	return *out ? 0 : rsh_error_nomem(err);
}

int rsh_grid_new_unsized(const struct rsh_strategy_item *it,
			 struct rsh_grid **out, struct rsh_error *err)
{
	struct rsh_strategy_item plain = *it;
	int64_t dims[RSH_MAX_DIMS];
	const struct rsh_grid_sizes sizes = { dims, it->n_map, false };

	if (it->n_map > RSH_MAX_DIMS)
		return rsh_error_set(err, EINVAL, "too many dimensions");
	/* This size can be divided by every split of a mesh with that many
	 * ranks. */
	for (uint32_t d = 0; d < it->n_map; d++)
		dims[d] = rsh_item_ranks(it);
	plain.n_shape = plain.n_rows = plain.n_offsets = 0;
	return rsh_grid_new(&plain, &sizes, RSH_GRID_RUNTIME, out, err);
}

int rsh_grid_new_whole(uint32_t n_dims, struct rsh_grid **out,
		       struct rsh_error *err)
{
	if (n_dims > RSH_MAX_DIMS)
		return rsh_error_set(err, EINVAL, "too many dimensions");
	*out = rsh_grid_make_whole(n_dims);
	return *out ? 0 : rsh_error_nomem(err);
}

/* ---- folding a tensor map ---- */

/* This folds an expanded tensor map back onto the tensor's dimensions.
 *
 * If a dimension of size S is split over mesh axes a, b, c, JSON files (and
 * MindSpore <= 2.5) write it as three dimensions (a, b, S/(a*b)), each split
 * over one axis.  In such a group every entry except the last is split into
 * slices of size 1, which distinguishes the groups.  The last entry may be
 * unsplit if the planner removed a mesh axis of size 1.
 */

struct folding {
	const struct rsh_strategy_item *item;
	const struct rsh_grid_sizes *sizes;
	uint32_t shard;
};

/* Returns whether the entries from .. to - 1 can be dimension d. */
static bool group_fits(const struct folding *f, uint32_t d, uint32_t from,
		       uint32_t to)
{
	const struct rsh_strategy_item *it = f->item;
	uint64_t whole = 1, split = d == 0 ? f->shard : 1;

	for (uint32_t e = from; e < to; e++) {
		uint32_t s = rsh_map_entry_split(it, &it->map[e]);

		if (e + 1 < to && it->map[e].n == 0)
			return false;
		/* A group whose last entry is unsplit is accepted only if there
		 * is a shape to compare it with. */
		if (!it->n_shape && to - from > 1 && it->map[e].n == 0)
			return false;
		if (it->n_shape && e + 1 < to && it->shape[e] != s)
			return false;
		if (it->n_shape &&
		    !rsh_mul_u64(whole, (uint64_t)it->shape[e], &whole))
			return false;
		split *= s;
	}
	if (f->sizes->local) {
		uint64_t want;

		return !it->n_shape ||
		       (rsh_mul_u64((uint64_t)f->sizes->dims[d], split,
				    &want) && want == whole);
	}
	if (it->n_shape && (uint64_t)f->sizes->dims[d] != whole)
		return false;
	return (uint64_t)f->sizes->dims[d] % split == 0;
}

int rsh_fold_map(const struct rsh_strategy_item *item,
		 const struct rsh_grid_sizes *sizes, uint32_t shard,
		 struct rsh_fold *out, struct rsh_error *err)
{
	const struct folding f = { item, sizes, shard };
	const uint32_t n_dims = sizes->n_dims;
	/* ways[d][e] counts the foldings of the first e entries onto d
	 * dimensions (2 means more than one).  from[d][e] is where the last
	 * group of one of them begins. */
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
