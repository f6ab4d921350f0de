/* SPDX-License-Identifier: Apache-2.0 */
/* wire/safetensors_index.c reads and writes the JSON file that maps the weights
 * of a model to its parts. */
#include "rsh/wire/safetensors.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include <jansson.h>

#include "rsh/util/mem.h"
#include "rsh/wire/json_load.h"
#include "rsh/wire/json_text.h"

/* Writes the path of a part without "." and repeated slashes.  Returns its
 * length; 0: it is not a path of a file below the directory of the map. */
static size_t part_path(const char *file, char *to)
{
	size_t n = 0, k;

	if (*file == '/')
		return 0;
	for (;; file += k + 1) {
		k = strcspn(file, "/");
		if (k == 2 && file[0] == '.' && file[1] == '.')
			return 0;
		if (!file[k])
			break;
		if (k == 0 || (k == 1 && *file == '.'))
			continue;
		memcpy(to + n, file, k + 1);
		n += k + 1;
	}
	if (k == 0 || (k == 1 && *file == '.'))
		return 0;
	memcpy(to + n, file, k);
	return n + k;
}

static int add_weight(struct rsh_weight_map *map, struct rsh_weight *w,
		      const char *name, const json_t *value, const char *path,
		      struct rsh_error *err)
{
	const char *file = json_string_value(value);
	cleanup_free char *part = NULL;
	size_t n;

	if (!file)
		return rsh_error_set(err, EBADMSG,
				     "%s: the file of \"%s\" is not a string",
				     path, name);
	part = rsh_alloc_array(strlen(file) + 1, 1);
	if (!part)
		return rsh_error_nomem(err);
	n = part_path(file, part);
	if (n == 0)
		return rsh_error_set(err, EBADMSG,
				     "%s: \"%s\" is said to be in \"%s\", which is not a file below the directory of the map",
				     path, name, file);
	w->name = rsh_arena_strdup(&map->arena_, name);
	w->file = rsh_names_add(map->file_names_, part, n);
	if (!w->name || w->file == RSH_NAME_NONE)
		return rsh_error_nomem(err);
	return 0;
}

static int read_weights(struct rsh_weight_map *map, json_t *weights,
			const char *path, struct rsh_error *err)
{
	size_t n = json_object_size(weights);
	struct rsh_weight *w;
	const char **files;
	const char *name;
	json_t *value;
	int rc;

	if (!n || n > UINT32_MAX)
		return rsh_error_set(err, EBADMSG, "%s: it names no weight",
				     path);
	w = rsh_arena_array(&map->arena_, struct rsh_weight, n);
	map->file_names_ = rsh_names_new();
	if (!w || !map->file_names_)
		return rsh_error_nomem(err);
	map->weights = w;
	json_object_foreach(weights, name, value) {
		rc = add_weight(map, &w[map->n_weights++], name, value, path,
				err);
		if (rc)
			return rc;
	}
	map->n_files = rsh_names_count(map->file_names_);
	files = rsh_arena_array(&map->arena_, const char *, map->n_files);
	if (!files)
		return rsh_error_nomem(err);
	for (uint32_t i = 0; i < map->n_files; i++)
		files[i] = rsh_names_text(map->file_names_, i);
	map->files = files;
	return 0;
}

static int weight_map_read_root(struct rsh_weight_map *map, json_t *root,
				const char *path, struct rsh_error *err)
{
	json_t *weights = json_object_get(root, "weight_map");
	const json_t *v;
	json_int_t size;

	v = json_object_get(json_object_get(root, "metadata"),
			    "delta_encoding");
	if (v)
		return rsh_error_set(err, ENOTSUP, "%s: the weights are a "
				     "delta of version %s (delta_encoding %s), "
				     "not a model: the engine that pulls them, "
				     "such as SGLang, applies it to that "
				     "version", path,
				     json_string_value(json_object_get(
					json_object_get(root, "metadata"),
					"base_version")) ?: "?",
				     json_string_value(v) ?: "?");
	/* In the flat form, a string would be the file of a weight with that
	 * name. */
	if (!weights || json_is_string(weights))
		return read_weights(map, root, path, err);
	if (!json_is_object(weights))
		return rsh_error_set(err, EBADMSG,
				     "%s: \"weight_map\" is not an object",
				     path);
	/* The size is only printed, so another value is not an error: some
	 * tools have written a float. */
	v = json_object_get(json_object_get(root, "metadata"), "total_size");
	size = json_integer_value(v);
	map->has_total_size = json_is_integer(v) && size >= 0;
	if (map->has_total_size)
		map->total_size = (uint64_t)size;
	return read_weights(map, weights, path, err);
}

int rsh_weight_map_parse(const void *data, size_t len, const char *path,
			 struct rsh_weight_map *out, struct rsh_error *err)
{
	cleanup_json json_t *root = NULL;
	int rc = rsh_json_load(&(struct rsh_memory){ data, len },
			       JSON_REJECT_DUPLICATES, path,
			       "a map of weights", &root, err);

	*out = (struct rsh_weight_map){ .n_weights = 0 };
	if (rc)
		return rc;
	rc = weight_map_read_root(out, root, path, err);
	if (rc)
		rsh_weight_map_clear(out);
	return rc;
}

void rsh_weight_map_clear(struct rsh_weight_map *map)
{
	rsh_arena_clear(&map->arena_);
	rsh_names_free(map->file_names_);
	*map = (struct rsh_weight_map){ .n_weights = 0 };
}

/* ---- writing ---- */

RSH_ORDER(compare_weights, struct rsh_weight, strcmp(x->name, y->name))

static int put_weights(struct rsh_json_text *t, const struct rsh_weight_map *map,
		       struct rsh_error *err)
{
	cleanup_free struct rsh_weight *sorted =
		rsh_alloc_array(map->n_weights, sizeof(*sorted));

	if (!sorted)
		return rsh_error_nomem(err);
	if (map->n_weights)
		memcpy(sorted, map->weights, map->n_weights * sizeof(*sorted));
	rsh_sort(sorted, map->n_weights, compare_weights);
	for (uint32_t i = 0; i < map->n_weights; i++) {
		const char *name = sorted[i].name;
		const char *file = map->files[sorted[i].file];

		rsh_json_text_puts(t, i ? ",\n    " : "\n    ");
		if (!rsh_json_text_put_string(t, name, strlen(name),
					      RSH_ESCAPES_PYTHON))
			return rsh_error_set(err, EINVAL,
					     "the name of parameter \"%s\" is "
					     "not UTF-8",
					     name);
		rsh_json_text_puts(t, ": ");
		if (!rsh_json_text_put_string(t, file, strlen(file),
					      RSH_ESCAPES_PYTHON))
			return rsh_error_set(err, EINVAL,
					     "the file name \"%s\" is not UTF-8",
					     file);
	}
	if (map->n_weights)
		rsh_json_text_puts(t, "\n  ");
	return 0;
}

int rsh_weight_map_format(const struct rsh_weight_map *map, char **out,
			  size_t *out_len, struct rsh_error *err)
{
	struct rsh_json_text t = { 0 };
	int rc;

	rsh_json_text_puts(&t, "{\n  \"metadata\": {");
	if (map->has_total_size)
		rsh_json_text_printf(&t, "\n    \"total_size\": %llu\n  ",
				     (unsigned long long)map->total_size);
	rsh_json_text_puts(&t, "},\n  \"weight_map\": {");
	rc = put_weights(&t, map, err);
	rsh_json_text_puts(&t, "}\n}\n");
	if (!rc && t.failed)
		rc = rsh_error_nomem(err);
	if (rc) {
		rsh_json_text_clear(&t);
		return rc;
	}
	*out = t.data;
	*out_len = t.len;
	return 0;
}
