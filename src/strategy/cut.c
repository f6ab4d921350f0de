/* SPDX-License-Identifier: Apache-2.0 */
/* strategy/cut.c makes the cut of a layout: a grid, or boxes if its rows are
 * split manually. */
#include <errno.h>

#include "rsh/strategy/grid.h"
#include "rsh/strategy/strategy.h"
#include "rsh/util/mem.h"

int rsh_item_manual(const struct rsh_strategy_item *it,
		    const struct rsh_grid_sizes *sizes, struct rsh_grid **out,
		    struct rsh_error *err)
{
	struct rsh_grid *g;
	int rc;

	*out = NULL;
	if ((!it->n_rows && !it->n_offsets) || it->n_map != sizes->n_dims)
		return 0;
	for (uint32_t d = 0; d < sizes->n_dims; d++)
		if (!sizes->dims[d])
			return 0;
	rc = rsh_grid_new_unsized(it, &g, err);
	if (rc)
		return rc;
	rc = rsh_item_rows(it, sizes, g->split, err);
	if (rc > 0 && rsh_grid_shard(g) > 1)
		rc = rsh_error_set(err, EINVAL,
				   "its rows are split manually (manual_split) and by an optimizer shard");
	if (rc > 0)
		*out = g;
	else
		rsh_grid_free(g);
	return rc < 0 ? rc : 0;
}

int64_t rsh_item_rank_rows(const struct rsh_strategy_item *it,
			   const struct rsh_grid *g, uint32_t rank)
{
	uint32_t cell[RSH_MAX_DIMS];

	rsh_grid_cell(g, rank, cell);
	return it->rows[cell[0]];
}

/* Makes the cut of a layout whose rows are split manually. */
static int cut_manual(const struct rsh_strategy_item *it,
		      const struct rsh_grid *g, uint32_t n_dims,
		      const uint64_t *whole, struct rsh_cut **out,
		      struct rsh_error *err)
{
	const uint32_t n = rsh_grid_n_ranks(g);
	cleanup_free struct rsh_box *boxes = rsh_alloc_array(n, sizeof(*boxes));
	cleanup_free uint64_t *from = rsh_alloc_array(it->n_rows + (size_t)1,
						      sizeof(*from));
	uint32_t cell[RSH_MAX_DIMS];

	if (!boxes || !from)
		return rsh_error_nomem(err);
	from[0] = 0;
	for (uint32_t i = 0; i < it->n_rows; i++)
		from[i + 1] = from[i] + (uint64_t)it->rows[i];
	for (uint32_t r = 0; r < n; r++) {
		struct rsh_box *b = &boxes[r];

		rsh_grid_cell(g, r, cell);
		*b = (struct rsh_box){ .n_dims = n_dims };
		b->from[0] = from[cell[0]];
		b->size[0] = from[cell[0] + 1] - b->from[0];
		for (uint32_t d = 1; d < n_dims; d++) {
			b->size[d] = whole[d] / rsh_grid_split(g, d);
			b->from[d] = cell[d] * b->size[d];
		}
	}
	return rsh_cut_of_boxes(whole, n_dims, boxes, n, out, err);
}

int rsh_item_cut(const struct rsh_strategy_item *it,
		 const struct rsh_grid_sizes *sizes, enum rsh_grid_rule rule,
		 struct rsh_cut **out, uint64_t *whole, struct rsh_error *err)
{
	struct rsh_grid *g;
	int rc = rsh_item_manual(it, sizes, &g, err);

	if (rc)
		return rc;
	if (g) {
		whole[0] = 0;
		for (uint32_t i = 0; i < it->n_rows; i++)
			whole[0] += (uint64_t)it->rows[i];
		rc = rsh_item_check_shape(it, sizes->n_dims, 0, whole[0],
					  err) ?:
		     rsh_item_check_dims(it, sizes, g->split, 1, whole, err) ?:
		     cut_manual(it, g, sizes->n_dims, whole, out, err);
		rsh_grid_free(g);
		return rc;
	}
	rc = rsh_grid_new(it, sizes, rule, &g, err);
	if (rc)
		return rc;
	for (uint32_t d = 0; d < sizes->n_dims; d++)
		whole[d] = (uint64_t)sizes->dims[d] *
			   (sizes->local ? rsh_grid_split(g, d) : 1);
	*out = rsh_cut_of_grid(g);
	return *out ? 0 : rsh_error_nomem(err);
}
