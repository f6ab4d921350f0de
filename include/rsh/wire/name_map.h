/* SPDX-License-Identifier: Apache-2.0 */
/* wire/name_map.h - a JSON object of strings, from old parameter name to new
 * one, like the converter's name_map argument.  A map does not change after it
 * is parsed, so any thread may read it. */
#pragma once

#include <stddef.h>

#include "rsh/util/error.h"

struct rsh_name_map;

/* Parses the `len` bytes at `data`; `path` is for messages.  Returns 0 and
 * *out, which the caller frees, or -EBADMSG with a sentence that names path and
 * entry: the text is not JSON or not an object of strings, a key occurs twice,
 * or a name is empty. */
int rsh_name_map_parse(const void *data, size_t len, const char *path,
		       struct rsh_name_map **out, struct rsh_error *err);
void rsh_name_map_free(struct rsh_name_map *m);

/* Returns the new name of `name`, owned by the map; NULL if the map does not
 * have `name`. */
const char *rsh_name_map_get(const struct rsh_name_map *m, const char *name);
/* Calls `each` for all old names, in no particular order. */
void rsh_name_map_each(const struct rsh_name_map *m,
		       void (*each)(void *ctx, const char *name), void *ctx);
