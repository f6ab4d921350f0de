/* SPDX-License-Identifier: Apache-2.0 */
/* wire/json_edit.h - changes some members of a JSON object in its text.  The
 * rest of the text stays byte for byte, in its order.
 *
 * Members are those of the object and, one level down, of the objects in it.
 * If a key occurs twice, the last one is used, as in Python; changes are made
 * to all of them.  The parser accepts what Python accepts, also NaN and
 * Infinity.
 *
 * One thread edits at a time. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "rsh/util/error.h"

struct rsh_json_edit;

enum rsh_json_kind {
	RSH_JSON_NULL,
	RSH_JSON_BOOL,
	RSH_JSON_NUMBER, /* an integer >= 0 */
	RSH_JSON_STRING,
	RSH_JSON_OBJECT,
	RSH_JSON_OTHER
};
struct rsh_json_member {
	const char *key;
	enum rsh_json_kind kind;
	uint64_t number;    /* 0 or 1 for a bool */
	const char *string; /* the string, up to a NUL in it */
	uint64_t offset;    /* offset of its value in the text */
	size_t length;
};

/* Reads the `len` bytes at `text`, which must outlive *out.  `path` is for
 * messages.  Returns 0 and *out, which the caller frees, -ENOMEM, or -EBADMSG
 * with a sentence that names path and offset. */
int rsh_json_edit_open(const char *text, size_t len, const char *path,
		       struct rsh_json_edit **out, struct rsh_error *err);
void rsh_json_edit_free(struct rsh_json_edit *e);

/* Returns the original text. */
const char *rsh_json_edit_text(const struct rsh_json_edit *e);
/* Finds a member of the original text: in the object `in`, or at the top if
 * `in` is NULL.  Its value is the one that was set last; offset and length are
 * of the original one.  Returns NULL if there is none. */
const struct rsh_json_member *rsh_json_edit_find(const struct rsh_json_edit *e,
						 const char *in,
						 const char *key);
/* Returns the i-th member of the object at the top; NULL past the last. */
const struct rsh_json_member *rsh_json_edit_at(const struct rsh_json_edit *e,
					       uint32_t i);

/* Sets the value of a member; the value is JSON text.  A member that the object
 * at the top does not have is added at its end, with the spacing of the member
 * before it.  Returns 0 or -ENOMEM. */
int rsh_json_edit_set(struct rsh_json_edit *e, const char *in, const char *key,
		      const char *value);
/* Removes a member and its separator. */
void rsh_json_edit_drop(struct rsh_json_edit *e, const char *in,
			const char *key);
/* Returns whether a member was set or removed. */
bool rsh_json_edit_changed(const struct rsh_json_edit *e);
/* Writes the text with its changes.  Returns 0 and *out, which the caller
 * frees, or -ENOMEM. */
int rsh_json_edit_write(const struct rsh_json_edit *e, char **out, size_t *len);
