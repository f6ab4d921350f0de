/* SPDX-License-Identifier: Apache-2.0 */
/* wire/json_load.c parses JSON objects with jansson. */
#include "rsh/wire/json_load.h"

#include <errno.h>

#include <jansson.h>

int rsh_json_load(const struct rsh_memory *text, size_t flags, const char *path,
		  const char *what, json_t **out, struct rsh_error *err)
{
	json_error_t where;
	json_t *root = json_loadb(text->data, text->len, flags, &where);

	if (json_is_object(root)) {
		*out = root;
		return 0;
	}
	if (root) {
		json_decref(root);
		return rsh_error_set(err, EBADMSG, "%s: not %s: the JSON is not "
				     "an object", path, what);
	}
	if (json_error_code(&where) == json_error_out_of_memory)
		return rsh_error_nomem(err);
	return rsh_error_set(err, EBADMSG, "%s: not JSON: %s (line %d, column "
			     "%d)", path, where.text, where.line, where.column);
}

bool rsh_json_is_ended(const struct rsh_memory *text)
{
	const char *p = (const char *)text->data;
	bool quoted = false;
	size_t depth = 0;

	for (size_t i = 0; i < text->len; i++) {
		if (quoted && p[i] == '\\')
			i++;
		else if (p[i] == '"')
			quoted = !quoted;
		else if (!quoted && (p[i] == '{' || p[i] == '['))
			depth++;
		else if (!quoted && (p[i] == '}' || p[i] == ']') &&
			 (depth == 0 || --depth == 0))
			return true;
	}
	return false;
}

void rsh_json_unref(json_t **j)
{
	json_decref(*j);
}
