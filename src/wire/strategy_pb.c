/* SPDX-License-Identifier: Apache-2.0 */
/* wire/strategy_pb.c reads the protobuf form of strategy files and passes it to
 * the builder. */
#include "strategy_build_i.h"

#include <errno.h>
#include <string.h>

#include "node_strategy.pb-c.h"

/* Appends numbers to a list, which has room for them. */
static void pb_append(int64_t *list, size_t *n, const int64_t *v, size_t count)
{
	if (count)
		memcpy(list + *n, v, count * sizeof(*v));
	*n += count;
}

/* Reads the rows of a table that is split manually.  There is one message of
 * each kind; more are joined. */
static bool pb_read_rows(const Rsh__Pb__ParallelLayouts *l,
			 struct rsh_arena *a, struct raw_item *raw)
{
	int64_t *rows, *offsets;
	size_t n_rows = 0, n_offsets = 0;

	for (size_t i = 0; i < l->n_indices_offset; i++)
		n_offsets += l->indices_offset[i]->n_dim;
	for (size_t i = 0; i < l->n_param_split_shape; i++)
		n_rows += l->param_split_shape[i]->n_dim;
	rows = rsh_arena_array(a, int64_t, n_rows);
	offsets = rsh_arena_array(a, int64_t, n_offsets);
	if (!rows || !offsets)
		return false;
	for (size_t i = 0; i < l->n_param_split_shape; i++)
		pb_append(rows, &raw->n_rows, l->param_split_shape[i]->dim,
			  l->param_split_shape[i]->n_dim);
	for (size_t i = 0; i < l->n_indices_offset; i++)
		pb_append(offsets, &raw->n_offsets, l->indices_offset[i]->dim,
			  l->indices_offset[i]->n_dim);
	raw->rows = rows;
	raw->offsets = offsets;
	return true;
}

static int pb_read_item(const Rsh__Pb__ParallelLayoutItem *item,
			struct strategy_builder *b, struct rsh_error *err)
{
	const Rsh__Pb__ParallelLayouts *l = item->parallel_layouts;
	struct raw_item raw;

	rsh_raw_item_reset(&raw);
	raw.name = (const char *)item->param_name.data;
	raw.name_len = item->param_name.len;
	if (!l)
		return rsh_strategy_builder_item(b, &raw, err);
	/* There is one device matrix; MindSpore also reads only the first. */
	if (l->n_dev_matrix)
		for (size_t i = 0; i < l->dev_matrix[0]->n_dim; i++)
			rsh_raw_list_push(&raw.mesh, l->dev_matrix[0]->dim[i]);
	raw.opt_step = l->opt_weight_shard_step;
	raw.opt_size = l->opt_weight_shard_size;
	if (!pb_read_rows(l, &b->arena, &raw))
		return rsh_error_nomem(err);
	/* A single message is a flat map: each number is a dimension.  If there
	 * are several messages, each is a dimension. */
	raw.has_map = l->n_tensor_map > 0;
	raw.nested = l->n_tensor_map > 1;
	for (size_t i = 0; i < l->n_tensor_map; i++) {
		const Rsh__Pb__TensorMap *m = l->tensor_map[i];
		struct raw_list *entry = NULL;

		if (raw.nested)
			entry = rsh_raw_item_push_map(&raw);
		for (size_t k = 0; k < m->n_dim; k++)
			if (entry)
				rsh_raw_list_push(entry, m->dim[k]);
			else
				rsh_raw_item_push_axis(&raw, m->dim[k]);
	}
	return rsh_strategy_builder_item(b, &raw, err);
}

int rsh_strategy_read_pb(const uint8_t *data, size_t len, const char *path,
			 struct strategy_builder *b, struct rsh_error *err)
{
	Rsh__Pb__ParallelStrategyMap *map =
		rsh__pb__parallel_strategy_map__unpack(NULL, len, data);
	int rc = 0;

	if (!map)
		return rsh_error_set(
			err, EBADMSG,
			"%s: not a strategy file in protobuf form, or damaged (one in JSON form has to be named *.json)",
			path);
	for (size_t i = 0; !rc && i < map->n_parallel_strategy_item; i++) {
		const Rsh__Pb__ParallelStrategyItem *op =
			map->parallel_strategy_item[i];
		const Rsh__Pb__ParallelStrategys *s = op->parallel_strategys;

		if (i == 0)
			rc = rsh_strategy_builder_stage(b, s ? s->stage : 0,
							err);
		rc = rc ?: rsh_strategy_builder_op(
			      b, (const char *)op->node_name.data,
			      op->node_name.len,
			      s && s->n_parallel_strategy, err);
	}
	for (size_t i = 0; !rc && i < map->n_parallel_layout_item; i++)
		rc = pb_read_item(map->parallel_layout_item[i], b, err);
	rsh__pb__parallel_strategy_map__free_unpacked(map, NULL);
	return rc;
}
