/* SPDX-License-Identifier: Apache-2.0 */
/* plan/converter/redistribution.c computes which source ranks MindSpore's
 * converter loads for a destination rank, without inferring operators as it
 * does.
 *
 * Both layouts are refined to one mesh and one shape (common_layout.c).  A mesh
 * axis is "gathered" if it cuts a dimension of the source that it does not cut
 * in the destination.  For a destination rank the converter loads the source
 * ranks that have the same coordinates on all axes that are not gathered, and
 * any coordinates on the gathered axes.  If there is no common shape, all axes
 * that cut the source are gathered.
 *
 * An example: the rows of w are cut, and in the source an optimizer shard cuts
 * them once more.
 *
 *   source       mesh [4,2], map [0,-1], shard of 2
 *   destination  mesh [4,2], map [0,-1]
 *
 *   common mesh        axis  0  1  2     rank = 4 * a0 + 2 * a1 + a2
 *                      size  2  2  2
 *   rows, source             .  x  x     cut over axis 2, then over axis 1
 *   rows, destination        .  .  x     cut over axis 2
 *   gathered                    ^
 *
 *   destination rank   0    1    2    3    4    5    6    7
 *   loads             0,2  1,3  0,2  1,3  4,6  5,7  4,6  5,7
 *   class              0    1    0    1    4    5    4    5
 *
 * Rank 7 is (1,1,1) and loads (1,*,1): 5 and 7.  Ranks that load the same ranks
 * are one class.  The number of the class is the loaded source rank that has
 * coordinate 0 on all gathered axes.
 *
 * The converter may load more than is needed.  If rows over mesh [8] are
 * converted to rows over mesh [4], every rank loads all 8 files and uses 2 of
 * them.  The reason is that the mesh [4] is padded in front to [2,4], so its
 * rows are cut over other axes than the source's.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "tensor_layout_i.h"
#include "rsh/plan/redistribution.h"
#include "rsh/strategy/grid.h"
#include "rsh/util/checked.h"

struct rsh_redistribution {
	uint32_t n_ranks; /* ranks of the source's own mesh */
	uint32_t n_mesh;
	uint64_t mesh[RSH_LAYOUT_AXES]; /* over the ranks of the larger side */
	bool gathered[RSH_LAYOUT_AXES];
};

/* The mesh axes that cut each dimension of a tensor.  Axes are indexes into
 * `mesh`, and those of size 1 are included. */
struct cut_axes {
	uint32_t n_mesh;
	uint64_t mesh[RSH_LAYOUT_AXES];
	uint32_t n_dims;
	struct {
		uint32_t n;
		uint32_t axes[RSH_MAX_AXES];
		uint64_t size;
	} dims[RSH_MAX_DIMS];
	uint32_t shard;             /* parts of the optimizer shard; 1: none */
	uint32_t n_taken;           /* axes of the optimizer shard */
	uint32_t taken[RSH_MAX_AXES];
	uint32_t n_unused;          /* axes longer than 1 that cut nothing,
				     * ascending */
	uint32_t unused[RSH_MAX_AXES];
};

/* ---- from an item to its axes ---- */

static void cut_axes_of_item(struct cut_axes *s,
			     const struct rsh_strategy_item *it,
			     const struct rsh_grid *g,
			     const struct rsh_fold *fold)
{
	uint64_t cuts = 1;

	memset(s, 0, sizeof(*s));
	s->n_dims = rsh_grid_n_dims(g);
	s->n_mesh = it->n_mesh;
	for (uint32_t a = 0; a < it->n_mesh; a++)
		s->mesh[a] = it->mesh[a];
	for (uint32_t d = 0; d < rsh_grid_n_dims(g); d++) {
		for (uint32_t e = fold->first[d]; e < fold->first[d + 1]; e++)
			for (uint32_t i = 0; i < it->map[e].n; i++)
				s->dims[d].axes[s->dims[d].n++] =
					it->n_mesh - 1 -
					(uint32_t)it->map[e].axes[i];
		for (uint32_t i = 0; i < s->dims[d].n; i++)
			cuts *= s->mesh[s->dims[d].axes[i]];
	}
	for (uint32_t a = 0; a < s->n_mesh; a++)
		if (s->mesh[a] > 1 && !rsh_item_uses_axis(it, a))
			s->unused[s->n_unused++] = a;
	s->shard = 1;
	if (it->opt_step && it->opt_size && rsh_grid_n_dims(g))
		s->shard = it->opt_size == -1
				   ? rsh_grid_n_ranks(g) / (uint32_t)cuts
				   : (uint32_t)it->opt_size;
}

/* Assigns the innermost unused axes to the optimizer shard.  If only a part of
 * an axis is needed, splits the axis in two and assigns the inner part. */
static bool take_shard(struct cut_axes *s)
{
	uint64_t left = s->shard;

	for (uint32_t k = s->n_unused; k-- > 0 && left > 1;) {
		uint32_t a = s->unused[k];

		if (left >= s->mesh[a]) {
			if (left % s->mesh[a])
				return false;
			left /= s->mesh[a];
		} else {
			if (s->mesh[a] % left || s->n_mesh == RSH_LAYOUT_AXES)
				return false;
			memmove(&s->mesh[a + 1], &s->mesh[a],
				(s->n_mesh++ - a) * sizeof(s->mesh[0]));
			s->mesh[a] /= left;
			s->mesh[a + 1] = left;
			left = 1;
			for (uint32_t d = 0; d < s->n_dims; d++)
				for (uint32_t i = 0; i < s->dims[d].n; i++)
					s->dims[d].axes[i] +=
						s->dims[d].axes[i] > a;
			for (uint32_t i = 0; i < s->n_taken; i++)
				s->taken[i]++;
			a++;
		}
		memmove(&s->taken[1], &s->taken[0],
			s->n_taken++ * sizeof(s->taken[0]));
		s->taken[0] = a;
	}
	return left == 1;
}

/* ---- from axes to a tensor layout ---- */

/* Adds a dimension that is cut over axes a, b, c as (a, b, rest). */
static bool put_dim(struct rsh_tensor_layout *p, const struct cut_axes *s,
		    uint32_t d, uint64_t size)
{
	uint32_t n = s->dims[d].n;

	if (n == 0)
		return rsh_layout_add_dim(p, size, RSH_NO_AXIS);
	for (uint32_t i = 0; i + 1 < n; i++) {
		uint32_t a = s->dims[d].axes[i];

		if (!rsh_layout_add_dim(p, s->mesh[a], (int)a))
			return false;
		size /= s->mesh[a];
	}
	return rsh_layout_add_dim(p, size, (int)s->dims[d].axes[n - 1]);
}

static bool layout_of_axes(struct rsh_tensor_layout *p,
			   const struct cut_axes *s)
{
	memset(p, 0, sizeof(*p));
	p->n_mesh = s->n_mesh;
	memcpy(p->mesh, s->mesh, s->n_mesh * sizeof(s->mesh[0]));
	for (uint32_t d = 0; d < s->n_dims; d++) {
		uint64_t size = s->dims[d].size, split = 1;

		if (d > 0 || s->n_taken == 0) {
			if (!put_dim(p, s, d, size))
				return false;
			continue;
		}
		for (uint32_t i = 0; i < s->dims[0].n; i++)
			split *= s->mesh[s->dims[0].axes[i]];
		if (!put_dim(p, s, 0, split))
			return false;
		size /= split;
		for (uint32_t i = 0; i + 1 < s->n_taken; i++) {
			if (!rsh_layout_add_dim(p, s->mesh[s->taken[i]],
					(int)s->taken[i]))
				return false;
			size /= s->mesh[s->taken[i]];
		}
		if (!rsh_layout_add_dim(p, size, (int)s->taken[s->n_taken - 1]))
			return false;
	}
	return true;
}

/* Makes the layout that the converter invents for a "simple" optimizer shard.
 */
static bool layout_of_simple_shard(struct rsh_tensor_layout *p,
				   const struct cut_axes *s, uint32_t n_ranks)
{
	uint64_t split[RSH_MAX_DIMS], all = 1;

	memset(p, 0, sizeof(*p));
	if (s->n_dims + 2 > RSH_LAYOUT_AXES)
		return false;
	for (uint32_t d = 0; d < s->n_dims; d++) {
		split[d] = 1;
		for (uint32_t i = 0; i < s->dims[d].n; i++)
			split[d] *= s->mesh[s->dims[d].axes[i]];
		all *= split[d];
	}
	p->mesh[p->n_mesh++] = n_ranks / all / s->shard;
	p->mesh[p->n_mesh++] = s->shard;
	for (uint32_t d = 0; d < s->n_dims; d++) {
		bool ok = d == 0 ? rsh_layout_add_dim(p, split[0], 2) &&
					   rsh_layout_add_dim(p,
							      s->dims[0].size /
								      split[0],
							      1)
				 : rsh_layout_add_dim(p, s->dims[d].size,
						      (int)d + 2);

		if (!ok)
			return false;
		p->mesh[p->n_mesh++] = split[d];
	}
	return true;
}

/* Returns whether the made-up mesh differs from the real one. */
static bool is_misplaced(const struct cut_axes *s)
{
	uint32_t last = 0;

	for (uint32_t d = 0; d < s->n_dims; d++)
		for (uint32_t i = 0; i < s->dims[d].n; i++) {
			uint32_t a = s->dims[d].axes[i];

			if (s->mesh[a] == 1)
				continue;
			if (a < last)
				return true;
			last = a;
		}
	return false;
}

static bool make_layout(struct rsh_tensor_layout *p,
			const struct rsh_strategy_item *it, struct cut_axes *s,
			uint32_t n_ranks, enum rsh_grid_rule rule)
{
	if (it && it->opt_step && it->opt_size && rsh_item_is_simple(it) &&
	    (rule == RSH_GRID_CONVERTER || !is_misplaced(s)))
		return layout_of_simple_shard(p, s, n_ranks);
	return take_shard(s) && layout_of_axes(p, s);
}

/* Adds a leading replicated axis to the smaller mesh. */
static bool pad(struct rsh_tensor_layout *p, uint64_t by)
{
	if (by == 1)
		return true;
	if (p->n_mesh == RSH_LAYOUT_AXES)
		return false;
	memmove(&p->mesh[1], &p->mesh[0], p->n_mesh++ * sizeof(p->mesh[0]));
	p->mesh[0] = by;
	for (uint32_t i = 0; i < p->n_dims; i++)
		if (p->dims[i].axis != RSH_NO_AXIS)
			p->dims[i].axis++;
	return true;
}

/* ---- the plan ---- */

/* The grids and folds of both sides.  If the dimensions are not known, made-up
 * dimensions are used, which both sides divide. */
struct sides {
	struct rsh_grid *grid[2];
	struct rsh_fold fold[2];
};

static int side_new(struct sides *w, int k, const struct rsh_strategy_item *it,
		    const int64_t *whole, uint32_t n_dims)
{
	const struct rsh_grid_sizes sizes = { whole, n_dims, false };
	int rc;

	if (!it)
		return rsh_grid_new_whole(n_dims, &w->grid[k], NULL);
	rc = rsh_grid_new(it, &sizes, RSH_GRID_RUNTIME, &w->grid[k], NULL);
	return rc ? rc
		  : rsh_fold_map(it, &sizes, rsh_grid_shard(w->grid[k]),
				 &w->fold[k], NULL);
}

/* Returns whether the layout has rows that are split manually, of which the
 * converter knows nothing. */
static bool has_rows(const struct rsh_strategy_item *it, uint32_t n_dims)
{
	return it && it->n_rows && it->n_map == n_dims;
}

static int sides_new(struct sides *w, const struct rsh_strategy_item *src,
		     const struct rsh_strategy_item *dst, const int64_t *whole,
		     uint32_t n_dims)
{
	struct rsh_strategy_item plain[2];
	int64_t made_up[RSH_MAX_DIMS];

	if (n_dims > RSH_MAX_DIMS)
		return -EDOM;
	if (!whole || has_rows(src, n_dims) || has_rows(dst, n_dims)) {
		/* The shape is removed, since it would contradict the made-up
		 * dimensions. */
		for (uint32_t d = 0; d < n_dims; d++)
			made_up[d] = (int64_t)rsh_item_ranks(src) *
				     (dst ? rsh_item_ranks(dst) : 1);
		whole = made_up;
		plain[0] = *src;
		plain[0].n_shape = plain[0].n_rows = plain[0].n_offsets = 0;
		src = &plain[0];
		if (dst) {
			plain[1] = *dst;
			plain[1].n_shape = plain[1].n_rows = 0;
			plain[1].n_offsets = 0;
			dst = &plain[1];
		}
	}
	return side_new(w, 0, src, whole, n_dims) ?:
	       side_new(w, 1, dst, whole, n_dims);
}

static bool redist_plan(struct rsh_redistribution *r,
			const struct rsh_strategy_item *src,
			const struct rsh_strategy_item *dst,
			const struct sides *w, enum rsh_grid_rule rule)
{
	uint64_t n_src = rsh_grid_n_ranks(w->grid[0]);
	uint64_t n_dst = rsh_grid_n_ranks(w->grid[1]);
	uint64_t total = rsh_max_u64(n_src, n_dst);
	struct cut_axes axes[2];
	struct rsh_tensor_layout a, b, before;

	if (n_src % n_dst && n_dst % n_src)
		return false;
	cut_axes_of_item(&axes[0], src, w->grid[0], &w->fold[0]);
	if (dst)
		cut_axes_of_item(&axes[1], dst, w->grid[1], &w->fold[1]);
	else /* one device holds the whole tensor */
		axes[1] = (struct cut_axes){
			.n_mesh = 1, .mesh = { 1 }, .shard = 1,
			.n_dims = rsh_grid_n_dims(w->grid[0]),
		};
	/* The converter works with made-up sizes, not with those of the
	 * tensor. */
	for (uint32_t d = 0; d < rsh_grid_n_dims(w->grid[0]); d++)
		axes[0].dims[d].size = axes[1].dims[d].size =
			total * rsh_grid_split(w->grid[0], d);
	if (!make_layout(&a, src, &axes[0], (uint32_t)n_src, rule) ||
	    !make_layout(&b, dst, &axes[1], (uint32_t)n_dst, rule) ||
	    !pad(&a, total / n_src) || !pad(&b, total / n_dst))
		return false;
	rsh_layout_trim(&a);
	rsh_layout_trim(&b);
	before = a;
	r->n_ranks = (uint32_t)n_src;
	if (rsh_layout_unify(&a, &b)) {
		for (uint32_t i = 0; i < a.n_dims; i++)
			if (a.dims[i].axis != RSH_NO_AXIS &&
			    a.dims[i].axis != b.dims[i].axis)
				r->gathered[a.dims[i].axis] = true;
	} else {
		a = before;
		for (uint32_t i = 0; i < a.n_dims; i++)
			if (a.dims[i].axis != RSH_NO_AXIS)
				r->gathered[a.dims[i].axis] = true;
	}
	r->n_mesh = a.n_mesh;
	memcpy(r->mesh, a.mesh, sizeof(r->mesh));
	return true;
}

int rsh_redistribution_new(const struct rsh_strategy_item *src,
			   const struct rsh_strategy_item *dst,
			   const int64_t *whole, uint32_t n_dims,
			   enum rsh_grid_rule rule,
			   struct rsh_redistribution **out)
{
	struct rsh_redistribution *r = calloc(1, sizeof(*r));
	struct sides w = { 0 };
	int rc = r ? sides_new(&w, src, dst, whole, n_dims) : -ENOMEM;

	if (rc == 0 && !redist_plan(r, src, dst, &w, rule))
		rc = -EDOM;
	rsh_grid_free(w.grid[0]);
	rsh_grid_free(w.grid[1]);
	if (rc) {
		free(r);
		return rc == -ENOMEM ? rc : -EDOM;
	}
	*out = r;
	return 0;
}

void rsh_redistribution_free(struct rsh_redistribution *r)
{
	free(r);
}

/* Counts the steps of `stride` before source ranks repeat.  Axes that only a
 * larger destination has do not select different source ranks. */
static uint64_t distinct(const struct rsh_redistribution *r, uint32_t axis,
			 uint64_t stride)
{
	uint64_t a = r->n_ranks, b = stride % r->n_ranks;

	while (b) {
		uint64_t rest = a % b;

		a = b;
		b = rest;
	}
	return rsh_min_u64(r->mesh[axis], r->n_ranks / a);
}

static uint64_t mesh_ranks(const struct rsh_redistribution *r)
{
	uint64_t n = 1;

	for (uint32_t a = 0; a < r->n_mesh; a++)
		n *= r->mesh[a];
	return n;
}

static void walk(const struct rsh_redistribution *r, uint32_t axis,
		 uint64_t stride, uint64_t base, rsh_key_fn *each, void *ctx)
{
	uint64_t n;

	while (axis < r->n_mesh && !r->gathered[axis])
		stride /= r->mesh[axis++];
	if (axis == r->n_mesh) {
		each(ctx, (uint32_t)(base % r->n_ranks));
		return;
	}
	stride /= r->mesh[axis];
	n = distinct(r, axis, stride);
	for (uint64_t i = 0; i < n; i++)
		walk(r, axis + 1, stride, base + i * stride, each, ctx);
}

uint32_t rsh_redistribution_class(const struct rsh_redistribution *r,
				  uint32_t rank)
{
	uint64_t stride = mesh_ranks(r), base = 0;

	for (uint32_t a = 0; a < r->n_mesh; a++) {
		stride /= r->mesh[a];
		if (!r->gathered[a])
			base += rank / stride % r->mesh[a] * stride;
	}
	return (uint32_t)(base % r->n_ranks);
}

uint64_t rsh_redistribution_count(const struct rsh_redistribution *r)
{
	uint64_t stride = mesh_ranks(r), n = 1;

	for (uint32_t a = 0; a < r->n_mesh; a++) {
		stride /= r->mesh[a];
		if (r->gathered[a])
			n *= distinct(r, a, stride);
	}
	return n;
}

void rsh_redistribution_each(const struct rsh_redistribution *r, uint32_t rank,
			     rsh_key_fn *each, void *ctx)
{
	walk(r, 0, mesh_ranks(r), rsh_redistribution_class(r, rank), each, ctx);
}

struct marks {
	bool *keys;
	uint32_t n;
};

static void redist_mark(void *ctx, uint32_t key)
{
	const struct marks *m = ctx;

	if (key < m->n)
		m->keys[key] = true;
}

void rsh_redistribution_keys(const struct rsh_redistribution *r, uint32_t rank,
			     bool *keys, uint32_t n)
{
	struct marks m = { keys, n };

	rsh_redistribution_each(r, rank, redist_mark, &m);
}
