/* SPDX-License-Identifier: Apache-2.0 */
/* wire/source_map.h - a JSON file that names each rank's checkpoint, in the
 * form that transform_checkpoint_by_rank accepts: {"0": "path", "1": "path",
 * ...}.  A map does not change after it is parsed, so any thread may read
 * it. */
#pragma once

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

/* Parses the `len` bytes at `data`; `path` is for messages.  Returns 0 and
 * *out, which the caller frees, -ENOMEM, or -EBADMSG with a sentence: the text
 * is not JSON or not an object, a key is not a rank, a rank occurs twice, or a
 * path is empty or not a string. */
int rsh_source_map_parse(const void *data, size_t len, const char *path,
			 struct rsh_source_map **out, struct rsh_error *err);
void rsh_source_map_free(struct rsh_source_map *m);
