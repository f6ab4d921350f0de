/* SPDX-License-Identifier: Apache-2.0 */
/* strategy/derive_shapes.c computes the shapes of whole tensors from the slices
 * in a checkpoint. */
#include "derive_i.h"

#include <stdlib.h>
#include <string.h>

#include "rsh/strategy/grid.h"
#include "rsh/util/mem.h"

struct rsh_derive_shapes *rsh_derive_shapes_new(void)
{
	return calloc(1, sizeof(struct rsh_derive_shapes));
}

void rsh_derive_shapes_free(struct rsh_derive_shapes *s)
{
	if (!s)
		return;
	free(s->v);
	free(s->places);
	free(s);
}

const struct derive_shape *
rsh_derive_shape_of(const struct rsh_derive_shapes *s, uint32_t name)
{
	if (!s || name >= s->cap_places || !s->places[name])
		return NULL;
	return &s->v[s->places[name] - 1];
}

const int64_t *rsh_derive_shapes_dims(const struct rsh_derive_shapes *s,
				      uint32_t name)
{
	const struct derive_shape *shape = rsh_derive_shape_of(s, name);

	return shape ? shape->dims : NULL;
}

static int make_whole(struct derive_shape *shape,
		      const struct rsh_strategy_item *item,
		      const struct rsh_names *names, struct rsh_error *err)
{
	const struct rsh_grid_sizes sizes = { shape->dims, shape->n_dims,
					      true };
	uint64_t whole[RSH_MAX_DIMS];
	struct rsh_cut *cut;
	int rc = rsh_item_cut(item, &sizes, RSH_GRID_RUNTIME, &cut, whole, err);

	if (rc) {
		rsh_error_prefix(err, "parameter %s",
				 rsh_names_text(names, shape->name));
		return rc;
	}
	for (uint32_t d = 0; d < shape->n_dims; d++)
		shape->dims[d] = (int64_t)whole[d];
	rsh_cut_free(cut);
	return 0;
}

int rsh_derive_shapes_add(struct rsh_derive_shapes *s,
			  const struct rsh_strategy *src, uint32_t rank,
			  const struct rsh_ckpt_index *index,
			  const struct rsh_names *names, struct rsh_error *err)
{
	for (uint32_t i = 0; i < index->n_records; i++) {
		const struct rsh_record *r = &index->records[i];
		const struct rsh_strategy_param *p =
			rsh_strategy_find(src, r->name);
		const struct rsh_strategy_item *item =
			p ? rsh_param_item(p, rank / src->stage_ranks) : NULL;
		struct derive_shape shape = { .name = r->name,
					      .n_dims = r->n_dims };
		const size_t had = s->cap_places;
		int rc = 0;

		if (rsh_derive_shape_of(s, r->name) ||
		    r->dtype == RSH_DTYPE_STR)
			continue;
		memcpy(shape.dims, rsh_record_dims(index, r),
		       r->n_dims * sizeof(*shape.dims));
		/* If a stage holds the parameter without listing it, its layout
		 * is that of the other stages, as in a conversion. */
		if (p && !item)
			item = rsh_param_source_stage(p)->item;
		if (item)
			rc = make_whole(&shape, item, names, err);
		if (rc)
			return rc;
		if (rsh_room(s->v, s->cap, s->n + 1) ||
		    rsh_room(s->places, s->cap_places, (size_t)r->name + 1))
			return rsh_error_nomem(err);
		memset(s->places + had, 0,
		       (s->cap_places - had) * sizeof(*s->places));
		s->v[s->n++] = shape;
		s->places[r->name] = (uint32_t)s->n;
	}
	return 0;
}
