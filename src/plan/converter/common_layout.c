/* SPDX-License-Identifier: Apache-2.0 */
/* plan/converter/common_layout.c refines two layouts to a common mesh and a
 * common shape, as MindSpore's RedistributionLayoutTransfer does before it
 * infers operators. */
#include <string.h>

#include "tensor_layout_i.h"
#include "rsh/util/mem.h"

typedef unsigned __int128 wide;

#define MAX_FACTORS (2 * RSH_LAYOUT_DIMS)

/* The distinct cumulative products of one or two lists of sizes, ascending. */
struct products {
	uint32_t n;
	wide v[MAX_FACTORS + 2];
};

static bool add_product(struct products *p, wide v)
{
	uint32_t i = p->n;

	while (i > 0 && p->v[i - 1] >= v)
		i--;
	if (i < p->n && p->v[i] == v)
		return true;
	if (p->n == MAX_FACTORS + 2)
		return false;
	memmove(&p->v[i + 1], &p->v[i], (p->n - i) * sizeof(p->v[0]));
	p->v[i] = v;
	p->n++;
	return true;
}

static bool times(wide *p, uint64_t by)
{
	return !__builtin_mul_overflow(*p, (wide)by, p);
}

/* Gives the quotients of successive products.  False: a quotient is not an
 * integer, or there are too many. */
static bool quotients(const struct products *p, uint64_t *out, uint32_t max,
		      uint32_t *n)
{
	*n = 0;
	for (uint32_t i = 1; i < p->n; i++) {
		wide q = p->v[i] / p->v[i - 1];

		if (p->v[i] % p->v[i - 1] || *n == max || q > UINT64_MAX)
			return false;
		out[(*n)++] = (uint64_t)q;
	}
	return true;
}

void rsh_layout_trim(struct rsh_tensor_layout *p)
{
	int moved[RSH_LAYOUT_AXES];
	uint32_t n = 0;

	for (uint32_t i = 0; i < p->n_mesh; i++) {
		moved[i] = p->mesh[i] > 1 ? (int)n : RSH_NO_AXIS;
		if (p->mesh[i] > 1)
			p->mesh[n++] = p->mesh[i];
	}
	p->n_mesh = n;
	n = 0;
	for (uint32_t i = 0; i < p->n_dims; i++) {
		struct rsh_layout_dim d = p->dims[i];

		if (d.size == 1)
			continue;
		if (d.axis != RSH_NO_AXIS)
			d.axis = moved[d.axis];
		p->dims[n++] = d;
	}
	p->n_dims = n;
}

/* ---- the mesh ---- */

static bool common_mesh(const struct rsh_tensor_layout *a,
			const struct rsh_tensor_layout *b, uint64_t *mesh,
			uint32_t *n)
{
	const struct rsh_tensor_layout *both[2] = { a, b };
	struct products p = { 1, { 1 } };

	for (int k = 0; k < 2; k++) {
		wide v = 1;

		for (uint32_t i = 0; i < both[k]->n_mesh; i++)
			if (!times(&v, both[k]->mesh[i]) || !add_product(&p, v))
				return false;
	}
	return quotients(&p, mesh, RSH_LAYOUT_AXES, n);
}

/* Rewrites p for a finer mesh.  False: a dimension cannot be rewritten. */
static bool refine_mesh(struct rsh_tensor_layout *p, const uint64_t *mesh,
			uint32_t n)
{
	struct rsh_tensor_layout old = *p;
	uint32_t first[RSH_LAYOUT_AXES + 1], at = 0;

	for (uint32_t i = 0; i < old.n_mesh; i++) {
		uint64_t product = 1;

		first[i] = at;
		while (product < old.mesh[i] && at < n)
			product *= mesh[at++];
	}
	first[old.n_mesh] = at;
	memcpy(p->mesh, mesh, n * sizeof(*mesh));
	p->n_mesh = n;
	p->n_dims = 0;
	for (uint32_t i = 0; i < old.n_dims; i++) {
		uint64_t size = old.dims[i].size;
		int axis = old.dims[i].axis;
		uint32_t k;

		if (axis == RSH_NO_AXIS) {
			if (!rsh_layout_add_dim(p, size, RSH_NO_AXIS))
				return false;
			continue;
		}
		for (k = first[axis]; k + 1 < first[axis + 1]; k++) {
			if (size % mesh[k] ||
			    !rsh_layout_add_dim(p, mesh[k], (int)k))
				return false;
			size /= mesh[k];
		}
		if (size % mesh[k] || !rsh_layout_add_dim(p, size, (int)k))
			return false;
	}
	rsh_layout_trim(p);
	return true;
}

/* ---- the shape ---- */

static bool same_shape(const struct rsh_tensor_layout *a,
		       const struct rsh_tensor_layout *b)
{
	if (a->n_dims != b->n_dims)
		return false;
	return rsh_all(i, a->n_dims, a->dims[i].size == b->dims[i].size);
}

static bool common_shape(const struct rsh_tensor_layout *a,
			 const struct rsh_tensor_layout *b, uint64_t *shape,
			 uint32_t *n)
{
	const struct rsh_tensor_layout *both[2] = { a, b };
	struct products p = { 1, { 1 } };
	wide total[2];

	for (int k = 0; k < 2; k++) {
		total[k] = 1;
		for (uint32_t i = both[k]->n_dims; i-- > 0;)
			if (!times(&total[k], both[k]->dims[i].size) ||
			    !add_product(&p, total[k]))
				return false;
	}
	if (total[0] != total[1] ||
	    !quotients(&p, shape, RSH_LAYOUT_DIMS, n))
		return false;
	/* The products begin at the end of the shape, so reverse them. */
	for (uint32_t i = 0; i < *n / 2; i++) {
		uint64_t t = shape[i];

		shape[i] = shape[*n - 1 - i];
		shape[*n - 1 - i] = t;
	}
	return true;
}

/* The parts of each mesh axis while the axes are split. */
struct split_mesh {
	uint32_t n[RSH_LAYOUT_AXES];
	uint64_t part[RSH_LAYOUT_AXES][RSH_LAYOUT_AXES];
};

/* Divides one dimension into the parts from shape[*at] on.  Until all axes are
 * split, a new dimension refers to its axis by axis * RSH_LAYOUT_AXES +
 * part. */
static bool cut_dim(struct rsh_tensor_layout *p, const struct rsh_layout_dim *d,
		    uint64_t left, const uint64_t *shape, uint32_t *at,
		    struct split_mesh *m)
{
	uint32_t n = 0;

	for (uint64_t product = 1; product < d->size;) {
		uint64_t part = shape[(*at)++];
		uint64_t on_axis;

		product *= part;
		if (left == 1) {
			if (!rsh_layout_add_dim(p, part, RSH_NO_AXIS))
				return false;
			continue;
		}
		if (part % left == 0)
			on_axis = left;
		else if (left % part == 0)
			on_axis = part;
		else
			return false;
		if (n == RSH_LAYOUT_AXES ||
		    !rsh_layout_add_dim(p, part,
				   d->axis * RSH_LAYOUT_AXES + (int)n))
			return false;
		m->part[d->axis][n++] = on_axis;
		left /= on_axis;
	}
	if (n)
		m->n[d->axis] = n;
	return true;
}

static bool refine_shape(struct rsh_tensor_layout *p, const uint64_t *shape)
{
	struct rsh_tensor_layout old = *p;
	struct split_mesh m;
	int first[RSH_LAYOUT_AXES];
	uint32_t at = 0;

	for (uint32_t i = 0; i < old.n_mesh; i++) {
		m.n[i] = 1;
		m.part[i][0] = old.mesh[i];
	}
	p->n_dims = 0;
	for (uint32_t i = 0; i < old.n_dims; i++) {
		const struct rsh_layout_dim *d = &old.dims[i];
		uint64_t left = d->axis == RSH_NO_AXIS ? 1 : old.mesh[d->axis];

		if (!cut_dim(p, d, left, shape, &at, &m))
			return false;
	}
	p->n_mesh = 0;
	for (uint32_t i = 0; i < old.n_mesh; i++) {
		first[i] = (int)p->n_mesh;
		for (uint32_t k = 0; k < m.n[i]; k++) {
			if (p->n_mesh == RSH_LAYOUT_AXES)
				return false;
			p->mesh[p->n_mesh++] = m.part[i][k];
		}
	}
	for (uint32_t i = 0; i < p->n_dims; i++)
		if (p->dims[i].axis != RSH_NO_AXIS)
			p->dims[i].axis =
				first[p->dims[i].axis / RSH_LAYOUT_AXES] +
				p->dims[i].axis % RSH_LAYOUT_AXES;
	rsh_layout_trim(p);
	return true;
}

bool rsh_layout_unify(struct rsh_tensor_layout *a, struct rsh_tensor_layout *b)
{
	uint64_t sizes[RSH_LAYOUT_DIMS];
	uint32_t n;

	for (;;) {
		if (!common_mesh(a, b, sizes, &n) ||
		    !refine_mesh(a, sizes, n) || !refine_mesh(b, sizes, n))
			return false;
		if (same_shape(a, b))
			return true;
		if (!common_shape(a, b, sizes, &n) ||
		    !refine_shape(a, sizes) || !refine_shape(b, sizes))
			return false;
	}
}
