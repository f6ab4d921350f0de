/* SPDX-License-Identifier: Apache-2.0 */
/* wire/json_load.h - loads a small JSON file as a tree of jansson. */
#pragma once

#include <stdbool.h>
#include <stddef.h>

#include "rsh/util/error.h"
#include "rsh/wire/bytes.h"

struct json_t;
struct json_error_t;

/* Parses as json_loadb() does, and also what Python writes and JSON does not
 * have: NaN, Infinity and -Infinity, integers of more than 64 bits, and real
 * numbers that are too large.  Such a value becomes a string. */
struct json_t *rsh_json_parse(const struct rsh_memory *text, size_t flags,
			      struct json_error_t *where);

/* Parses a JSON object in the same way. `flags` are those of json_loadb();
 * `path` and `what` ("a strategy file") are for messages.  Returns 0 and *out,
 * which the caller releases with json_decref(); -ENOMEM; or -EBADMSG with a
 * sentence that says where the text is not JSON, or that it is not an
 * object. */
int rsh_json_load(const struct rsh_memory *text, size_t flags, const char *path,
		  const char *what, struct json_t **out, struct rsh_error *err);

/* Sets *ended to whether the file has the end of its outermost object or array.
 * It may still not be JSON.  A saver that writes a file in place has not ended
 * before.  Returns 0 or -errno with a sentence. */
int rsh_json_is_ended(const struct rsh_byte_source *src, bool *ended,
		      struct rsh_error *err);

/* Calls json_decref() at the end of a scope. */
void rsh_json_unref(struct json_t **j);
#define cleanup_json __attribute__((cleanup(rsh_json_unref)))
