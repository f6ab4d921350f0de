/* SPDX-License-Identifier: Apache-2.0 */
/* wire/name_map.c reads a JSON object of strings, and looks names up in it. */
#include "config.h"

#include "rsh/wire/name_map.h"

#include <errno.h>
#include <stdint.h>

#include <jansson.h>

#include "rsh/wire/json_load.h"

int rsh_name_map_parse(const void *data, size_t len, const char *path,
		       struct rsh_name_map **out, struct rsh_error *err)
{
	json_t *root, *value;
	const char *key;
	int rc = rsh_json_load(&(struct rsh_memory){ data, len },
			       JSON_REJECT_DUPLICATES, path,
			       "a map from old to new parameter names", &root,
			       err);

	if (rc)
		return rc;
	json_object_foreach(root, key, value)
		if (!json_is_string(value) || !*key ||
		    !*json_string_value(value)) {
			rc = rsh_error_set(err, EBADMSG, "%s: \"%s\": old and "
					   "new name have to be "
					   "strings that are not empty", path, key);
			json_decref(root);
			return rc;
		}
	*out = (struct rsh_name_map *)root;
	return 0;
}

void rsh_name_map_free(struct rsh_name_map *m)
{
	json_decref((json_t *)m);
}

const char *rsh_name_map_get(const struct rsh_name_map *m, const char *name)
{
	return json_string_value(json_object_get((const json_t *)m, name));
}

void rsh_name_map_each(const struct rsh_name_map *m,
		       void (*each)(void *ctx, const char *name), void *ctx)
{
	const char *key;
	json_t *value;

	json_object_foreach((json_t *)(uintptr_t)m, key, value)
		each(ctx, key);
}
