/* SPDX-License-Identifier: Apache-2.0 */
/* wire/strategy_json.c reads the JSON form of strategy files and passes it to
 * the builder. */
#include "strategy_build_i.h"

#include <errno.h>
#include <string.h>

#include <jansson.h>

#include "rsh/wire/json_load.h"

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

static bool push_map_entry(struct raw_item *raw, const json_t *v)
{
	struct raw_list *entry;
	const json_t *axis;
	size_t i;

	if (json_is_integer(v)) {
		rsh_raw_item_push_axis(raw, json_integer_value(v));
		return true;
	}
	if (!json_is_array(v))
		return false;
	raw->nested = true;
	entry = rsh_raw_item_push_map(raw);
	json_array_foreach(v, i, axis) {
		if (!json_is_integer(axis))
			return false;
		rsh_raw_list_push(entry, json_integer_value(axis));
	}
	return true;
}

/* MindSpore writes a flat list.  A list of lists has the same meaning as
 * several TensorMap messages in the protobuf form. */
static bool get_map(const json_t *layout, struct raw_item *raw)
{
	const json_t *map = json_object_get(layout, "tensor_map");
	const json_t *v;
	size_t i;

	if (!map)
		return true;
	if (!json_is_array(map))
		return false;
	raw->has_map = true;
	json_array_foreach(map, i, v)
		if (!push_map_entry(raw, v))
			return false;
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

int rsh_strategy_read_json(const char *data, size_t len, const char *path,
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
