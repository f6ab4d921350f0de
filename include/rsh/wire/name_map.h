/* SPDX-License-Identifier: Apache-2.0 */
/* wire/name_map.h - a JSON object of strings, old parameter name -> new one, as
 * the converter's name_map argument.  A map does not change once it is parsed,
 * so any thread may read it. */
#ifndef RSH_WIRE_NAME_MAP_H
#define RSH_WIRE_NAME_MAP_H

#include <stddef.h>

#include "rsh/util/error.h"

struct rsh_name_map;

/* Parses the `len` bytes at `data`; `path` is for messages.  Returns 0 and
 * *out, which the caller frees, or -EBADMSG with a sentence that names path and
 * entry: it is not JSON, no object of strings, has a key twice or an empty
 * name. */
int rsh_name_map_parse(const void *data, size_t len, const char *path,
		       struct rsh_name_map **out, struct rsh_error *err);
void rsh_name_map_free(struct rsh_name_map *m);

/* Returns what `name` becomes, which the map owns; NULL if it has no such
 * name. */
const char *rsh_name_map_get(const struct rsh_name_map *m, const char *name);
/* Calls `each` for all old names, in no order. */
void rsh_name_map_each(const struct rsh_name_map *m,
		       void (*each)(void *ctx, const char *name), void *ctx);

#endif
