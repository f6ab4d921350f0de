/* SPDX-License-Identifier: Apache-2.0 */
/* wire/source_map.h - a JSON file that names each rank's checkpoint, as
 * transform_checkpoint_by_rank takes it: {"0": "path", "1": "path", ...}. */
#ifndef RSH_WIRE_SOURCE_MAP_H
#define RSH_WIRE_SOURCE_MAP_H

#include <stddef.h>
#include <stdint.h>

#include "rsh/util/error.h"

struct rsh_source_map_entry {
	uint32_t rank;
	char *path; /* as written, not empty */
};

struct rsh_source_map {
	uint32_t n;
	struct rsh_source_map_entry *entries; /* in file order */
};

/* `path` is for messages.  0, or -EBADMSG with a sentence: not JSON, not an
 * object, a key that is no rank, a rank twice, a path that is no string. */
int rsh_source_map_parse(const void *data, size_t len, const char *path,
			 struct rsh_source_map **out, struct rsh_error *err);
void rsh_source_map_free(struct rsh_source_map *m);

#endif
