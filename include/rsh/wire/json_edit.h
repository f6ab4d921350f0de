/* SPDX-License-Identifier: Apache-2.0 */
/* wire/json_edit.h - a JSON object of which some members are changed in its
 * text: all that is not changed stays byte for byte, in its order.
 *
 * Members are those of the object and of the objects in it, one level down.
 * Where a key is there twice the last one counts, as for Python, and changes
 * are made to all of them.  What Python reads is read: also NaN and Infinity.
 *
 * One thread edits.
 */
#ifndef RSH_WIRE_JSON_EDIT_H
#define RSH_WIRE_JSON_EDIT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "rsh/util/error.h"

struct rsh_json_edit;

enum rsh_json_kind {
	RSH_JSON_NULL,
	RSH_JSON_BOOL,
	RSH_JSON_NUMBER, /* a whole one from 0 on */
	RSH_JSON_STRING,
	RSH_JSON_OBJECT,
	RSH_JSON_OTHER
};
struct rsh_json_member {
	const char *key;
	enum rsh_json_kind kind;
	uint64_t number;    /* of a bool 0 or 1 */
	const char *string; /* of a string, up to a NUL in it */
	uint64_t offset;    /* of its value in the text */
	size_t length;
};

/* Reads the `len` bytes at `text`, which have to outlive *out; `path` is for
 * messages.  Returns 0 and *out, which the caller frees, -ENOMEM, or -EBADMSG
 * with a sentence that names path and offset. */
int rsh_json_edit_open(const char *text, size_t len, const char *path,
		       struct rsh_json_edit **out, struct rsh_error *err);
void rsh_json_edit_free(struct rsh_json_edit *e);

/* Gives the text that was read. */
const char *rsh_json_edit_text(const struct rsh_json_edit *e);
/* Finds a member as the text has it, of the object `in`, or of that at the top
 * (NULL); NULL: there is none. */
const struct rsh_json_member *rsh_json_edit_find(const struct rsh_json_edit *e,
						 const char *in,
						 const char *key);
/* Gives the i-th member of the object at the top; NULL past the last. */
const struct rsh_json_member *rsh_json_edit_at(const struct rsh_json_edit *e,
					       uint32_t i);

/* Gives a member another value, which is JSON; one that the object at the top
 * lacks is added at its end, spaced as the member before it.  0 or -ENOMEM. */
int rsh_json_edit_set(struct rsh_json_edit *e, const char *in, const char *key,
		      const char *value);
/* Leaves a member out, with what keeps it from its neighbour. */
void rsh_json_edit_drop(struct rsh_json_edit *e, const char *in,
			const char *key);
/* Was anything set or left out? */
bool rsh_json_edit_changed(const struct rsh_json_edit *e);
/* Writes the text with its changes.  0 and *out, which the caller frees, or
 * -ENOMEM. */
int rsh_json_edit_write(const struct rsh_json_edit *e, char **out,
			size_t *len);

#endif
