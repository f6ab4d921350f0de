/* SPDX-License-Identifier: Apache-2.0 */
/* wire/strategy_parse.c detects the format of a strategy file and calls its
 * reader. */
#include "rsh/wire/strategy_file.h"

#include <errno.h>
#include <string.h>

#include <jansson.h>
#define XXH_INLINE_ALL
#include <xxhash.h>

#include "node_strategy.pb-c.h"
#include "rsh/util/mem.h"
#include "rsh/util/names.h"
#include "rsh/wire/bytes.h"
#include "rsh/wire/ckpt.h"
#include "rsh/wire/json_load.h"
#include "strategy_build_i.h"

/* ---- the JSON form ---- */

static int bad_json(const char *path, const char *item, const char *key,
		    const char *what, struct rsh_error *err)
{
	return rsh_error_set(err, EBADMSG, "%s: \"%s\" of \"%s\" is not %s",
			     path, key, item, what);
}

/* Reads a list of numbers; a missing list is empty. */
static bool get_list(const json_t *layout, const char *key,
		     struct raw_list *out)
{
	const json_t *list = json_object_get(layout, key);
	const json_t *v;
	size_t i;

	if (!list)
		return true;
	if (!json_is_array(list))
		return false;
	json_array_foreach(list, i, v) {
		if (!json_is_integer(v))
			return false;
		rsh_raw_list_push(out, json_integer_value(v));
	}
	return true;
}

/* Reads the rows of a table that is split manually.  Returns 0, -EBADMSG if a
 * number is not an integer, or -ENOMEM. */
static int get_rows(const json_t *layout, struct rsh_arena *a,
		    struct raw_item *raw)
{
	const json_t *list = json_object_get(layout, "param_split_shape");
	const json_t *places = json_object_get(layout, "indices_offset");
	int64_t *rows = rsh_arena_array(a, int64_t, json_array_size(list));
	int64_t *offsets = rsh_arena_array(a, int64_t, json_array_size(places));
	const json_t *v;
	size_t i;

	if (!rows || !offsets)
		return -ENOMEM;
	if (list && !json_is_array(list))
		return -EBADMSG;
	json_array_foreach(list, i, v) {
		if (!json_is_integer(v))
			return -EBADMSG;
		rows[i] = json_integer_value(v);
	}
	/* What is not a number is no offset of a row. */
	json_array_foreach(places, i, v)
		offsets[i] = json_is_integer(v) ? json_integer_value(v) : -1;
	raw->rows = rows;
	raw->n_rows = json_array_size(list);
	raw->offsets = offsets;
	raw->n_offsets = json_array_size(places);
	return 0;
}

static bool get_number(const json_t *layout, const char *key, int64_t *out)
{
	const json_t *v = json_object_get(layout, key);

	if (v)
		*out = json_integer_value(v);
	return !v || json_is_integer(v);
}

/* MindSpore writes a flat list.  A list of lists has the same meaning as
 * several TensorMap messages in the protobuf form. */
static bool get_map(const json_t *layout, struct raw_item *raw)
{
	const json_t *map = json_object_get(layout, "tensor_map");
	const json_t *v, *axis;
	size_t i, k;

	if (!map)
		return true;
	if (!json_is_array(map))
		return false;
	raw->has_map = true;
	json_array_foreach(map, i, v)
	{
		struct raw_list *entry = rsh_raw_item_push_map(raw);

		if (json_is_integer(v)) {
			rsh_raw_list_push(entry, json_integer_value(v));
			continue;
		}
		if (!json_is_array(v))
			return false;
		raw->nested = true;
		json_array_foreach(v, k, axis)
		{
			if (!json_is_integer(axis))
				return false;
			rsh_raw_list_push(entry, json_integer_value(axis));
		}
	}
	return true;
}

static int json_read_item(const char *path, const char *name, size_t name_len,
			  const json_t *layout, struct strategy_builder *b,
			  struct rsh_error *err)
{
	static const char list[] = "a list of integers";
	static const char number[] = "an integer";
	struct raw_item raw;
	int rc;

	rsh_raw_item_reset(&raw);
	raw.name = name;
	raw.name_len = name_len;
	if (!json_is_object(layout))
		return bad_json(path, "parallel_layout_item", name,
				"an object", err);
	if (!get_list(layout, "dev_matrix", &raw.mesh))
		return bad_json(path, name, "dev_matrix", list, err);
	if (!get_map(layout, &raw))
		return bad_json(path, name, "tensor_map", list, err);
	if (!get_list(layout, "tensor_shape", &raw.shape))
		return bad_json(path, name, "tensor_shape", list, err);
	rc = get_rows(layout, &b->arena, &raw);
	if (rc == -ENOMEM)
		return rsh_error_nomem(err);
	if (rc)
		return bad_json(path, name, "param_split_shape", list, err);
	if (!get_number(layout, "opt_weight_shard_step", &raw.opt_step))
		return bad_json(path, name, "opt_weight_shard_step", number,
				err);
	if (!get_number(layout, "opt_weight_shard_size", &raw.opt_size))
		return bad_json(path, name, "opt_weight_shard_size", number,
				err);
	return rsh_strategy_builder_item(b, &raw, err);
}

/* Finds a section of the file; *out is NULL if there is none. */
static int get_section(const char *path, const json_t *root, const char *key,
		       json_t **out, struct rsh_error *err)
{
	*out = json_object_get(root, key);
	if (*out && !json_is_object(*out))
		return rsh_error_set(err, EBADMSG,
				     "%s: \"%s\" is not an object", path, key);
	return 0;
}

static int read_json(const char *data, size_t len, const char *path,
		     struct strategy_builder *b, struct rsh_error *err)
{
	cleanup_json json_t *root = NULL;
	json_t *strategies, *layouts, *value;
	const char *name;
	int64_t stage = 0;
	void *first;
	int rc = rsh_json_load(&(struct rsh_memory){ data, len },
			       0, path, "a strategy file", &root, err) ?:
		 get_section(path, root, "parallel_strategy_item",
			     &strategies, err) ?:
		 get_section(path, root, "parallel_layout_item", &layouts, err);

	if (rc)
		return rc;
	first = json_object_iter(strategies);
	if (first && !get_number(json_object_iter_value(first), "stage", &stage))
		return bad_json(path, json_object_iter_key(first), "stage",
				"an integer", err);
	if (first)
		rc = rsh_strategy_builder_stage(b, stage, err);
	if (rc)
		return rc;
	json_object_foreach(strategies, name, value) {
		json_t *s = json_object_get(value, "parallel_strategy");

		rc = rsh_strategy_builder_op(b, name, strlen(name),
					     json_array_size(s) > 0, err);
		if (rc)
			return rc;
	}
	/* jansson iterates over an object in the order of insertion, which is
	 * that of the file. */
	json_object_foreach(layouts, name, value) {
		rc = json_read_item(path, name, strlen(name), value, b, err);
		if (rc)
			return rc;
	}
	return 0;
}

/* ---- the protobuf form ---- */

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
		for (size_t k = 0; k < l->param_split_shape[i]->n_dim; k++)
			rows[raw->n_rows++] = l->param_split_shape[i]->dim[k];
	for (size_t i = 0; i < l->n_indices_offset; i++)
		for (size_t k = 0; k < l->indices_offset[i]->n_dim; k++)
			offsets[raw->n_offsets++] =
				l->indices_offset[i]->dim[k];
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
		struct raw_list *entry =
			raw.nested ? rsh_raw_item_push_map(&raw) : NULL;

		for (size_t k = 0; k < m->n_dim; k++)
			rsh_raw_list_push(entry ?: rsh_raw_item_push_map(&raw),
					  m->dim[k]);
	}
	return rsh_strategy_builder_item(b, &raw, err);
}

/* These are the readers.  They fill b from the bytes of a file. */
static int read_pb(const uint8_t *data, size_t len, const char *path,
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

/* The strategy files of the largest jobs have a few megabytes. */
#define MAX_FILE_BYTES ((size_t)256 * 1024 * 1024)

/* Both kinds of file are named *.ckpt and are easily confused. */
static bool is_checkpoint(const void *data, size_t len, const char *path)
{
	struct rsh_memory bytes = { data, len };
	const struct rsh_byte_source src = {
		rsh_memory_pread, &bytes, len, path,
	};
	cleanup_names struct rsh_names *names = rsh_names_new();
	struct rsh_ckpt_index *index = NULL;
	bool is;

	if (!names)
		return false;
	is = !rsh_ckpt_scan(&src, names, &index, NULL);
	rsh_ckpt_index_free(index);
	return is;
}

int rsh_strategy_parse_all(const struct rsh_memory *text, const char *path,
			   rsh_strategy_report_fn *report, void *ctx,
			   struct rsh_strategy_file **out,
			   struct rsh_error *err)
{
	const size_t len = text->len, n = strlen(path);
	struct strategy_builder *b;
	const bool json = n >= 5 && !strcmp(path + n - 5, ".json");
	int rc;

	if (!len)
		return rsh_error_set(err, EBADMSG,
				     "%s: the strategy file is empty", path);
	if (len > MAX_FILE_BYTES)
		return rsh_error_set(err, EBADMSG,
				     "%s: not a strategy file: it has %zu bytes",
				     path, len);
	b = rsh_strategy_builder_new(path, json);
	if (!b)
		return rsh_error_nomem(err);
	b->report = report;
	b->report_ctx = ctx;
	rc = json ? read_json(text->data, len, path, b, err) :
		    read_pb(text->data, len, path, b, err);
	/* A checkpoint can be parsed as a protobuf strategy whose fields are
	 * all unknown. */
	if (rc != -ENOMEM && b->n_items + b->n_reported == 0) {
		if (is_checkpoint(text->data, len, path))
			rc = rsh_error_set(err, EBADMSG,
					   "%s: this is a checkpoint, not a "
					   "strategy file",
					   path);
		else if (!rc)
			rc = rsh_error_set(err, EBADMSG,
					   "%s: not a strategy file: it holds "
					   "no parameter layout",
					   path);
	}
	rc = rc ?: rsh_strategy_builder_finish(b, out, err);
	if (!rc)
		(*out)->content_hash = XXH3_64bits(text->data, len);
	rsh_strategy_builder_free(b);
	return rc;
}

int rsh_strategy_parse(const void *data, size_t len, const char *path,
		       struct rsh_strategy_file **out, struct rsh_error *err)
{
	return rsh_strategy_parse_all(&(struct rsh_memory){ data, len }, path,
				      NULL, NULL, out, err);
}

/* ---- group_info.pb ---- */

int rsh_group_info_parse(const void *data, size_t len, const char *path,
			 uint32_t **ranks, uint32_t *n, struct rsh_error *err)
{
	Rsh__Pb__ParallelGroupMap *map =
		len ? rsh__pb__parallel_group_map__unpack(NULL, len, data) :
		      NULL;
	const Rsh__Pb__ParallelGroupRanks *list;
	uint32_t *copy;

	if (!map)
		return rsh_error_set(err, EBADMSG, "%s: %s", path,
				     len ? "not a file of group information, "
					   "or damaged" :
					   "the group information is empty");
	list = map->ckpt_restore_rank_list;
	*n = list ? (uint32_t)list->n_dim : 0;
	copy = rsh_alloc_array(*n, sizeof(*copy));
	if (copy && *n)
		memcpy(copy, list->dim, *n * sizeof(*copy));
	rsh__pb__parallel_group_map__free_unpacked(map, NULL);
	if (!copy)
		return rsh_error_nomem(err);
	*ranks = copy;
	return 0;
}
