/* SPDX-License-Identifier: Apache-2.0 */
/* wire/json_scan_i.h - a JSON text read as a stream through a window, for files
 * of hundreds of megabytes.  Only this room includes it.
 *
 * A scan that has failed stays so: everything returns false from then on, rc
 * says why, and the first sentence is kept.  So a reader looks at rc once, at
 * the end of a list or an object. */
#ifndef RSH_WIRE_JSON_SCAN_I_H
#define RSH_WIRE_JSON_SCAN_I_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "rsh/util/error.h"
#include "rsh/wire/ckpt.h"

struct json_scan {
	const struct rsh_byte_source *src;
	struct rsh_error *err;
	int rc;
	const char *name; /* of the current parameter, for messages; or NULL */
	bool fresh;       /* nothing of the list or object was read so far */
	unsigned depth;   /* of open lists and objects */
	uint64_t next;    /* offset of what follows the window */
	char *p, *end;    /* what is to be read; a NUL follows it */
	char *window;
};

/* A string without its escapes, and without a NUL. It is in the window until
 * the next value is read. */
struct json_string {
	char *s;
	size_t len;
};

/* Begins at the start of the file.  Returns false if it is out of memory. */
bool rsh_json_open(struct json_scan *s, const struct rsh_byte_source *src,
		   struct rsh_error *err);
void rsh_json_close(struct json_scan *s);
uint64_t rsh_json_offset(const struct json_scan *s);
/* Goes to a value whose offset was taken. */
void rsh_json_seek(struct json_scan *s, uint64_t offset);

/* Sets the sentence "PATH: [parameter "NAME" is] damaged at offset N: .." and
 * -EBADMSG, unless there is one; returns false. */
bool rsh_json_fail(struct json_scan *s, const char *fmt, ...)
	__attribute__((format(printf, 2, 3)));
/* Ends the scan for a reason whose sentence was set; returns false. */
bool rsh_json_stop(struct json_scan *s, int rc);
/* Sets -ENOMEM; returns false. */
bool rsh_json_nomem(struct json_scan *s);

/* Goes into an object ('{') or a list ('['). */
bool rsh_json_begin(struct json_scan *s, char bracket);
/* Goes to the next key of an object and beyond its colon, or to the next
 * element of a list; false means that it was left, or a failure. */
bool rsh_json_key(struct json_scan *s, struct json_string *key);
bool rsh_json_element(struct json_scan *s);

bool rsh_json_string(struct json_scan *s, struct json_string *out);
/* Reads an integer of lo .. hi. */
bool rsh_json_int(struct json_scan *s, int64_t lo, int64_t hi, int64_t *out);
/* Skips a word ("null", "true") if it is next. */
bool rsh_json_word(struct json_scan *s, const char *word);
/* Tells which character begins the value here, 0 after a failure. */
int rsh_json_peek(struct json_scan *s);
/* Skips a value, also one that only Python writes (NaN). */
void rsh_json_skip(struct json_scan *s);
/* Skips `len` bytes, a whole value without blanks around it, if exactly these
 * are next. */
bool rsh_json_same(struct json_scan *s, const char *text, size_t len);
/* Returns the text since that offset, NULL if it is not in the window any
 * more. */
const char *rsh_json_since(const struct json_scan *s, uint64_t offset,
			   size_t *len);
/* There is nothing but blanks up to the end of the file. */
bool rsh_json_finish(struct json_scan *s);

/* Writes a character as UTF-8, at most four bytes; returns how many. */
size_t rsh_utf8_put(char *to, uint32_t c);

static inline bool rsh_json_is(const struct json_string *s, const char *word,
			       size_t len)
{
	return s->len == len && !__builtin_memcmp(s->s, word, len);
}
#define JSON_IS(string, literal) \
	rsh_json_is(string, literal, sizeof(literal) - 1)

#endif
