/* SPDX-License-Identifier: Apache-2.0 */
/* wire/name_map.h - a JSON object of strings: old parameter name -> new one, as
 * the converter's name_map argument. */
#ifndef RSH_WIRE_NAME_MAP_H
#define RSH_WIRE_NAME_MAP_H

#include <stddef.h>

#include "rsh/util/error.h"

struct rsh_name_map;

/* Parses the `len` bytes at `data`; `path` is for messages.  0 and *out, or
 * -EBADMSG with a sentence naming path and entry: not JSON, not an object of
 * strings, a key twice, an empty name. */
int rsh_name_map_parse(const void *data, size_t len, const char *path,
		       struct rsh_name_map **out, struct rsh_error *err);
void rsh_name_map_free(struct rsh_name_map *m);

/* What `name` becomes; NULL if the map does not mention it.  Owned by the map.
 * Any thread. */
const char *rsh_name_map_get(const struct rsh_name_map *m, const char *name);

#endif
