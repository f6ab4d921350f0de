/* SPDX-License-Identifier: Apache-2.0 */
/* wire/json_scan_i.h - reads a JSON text as a stream through a window, for
 * files of hundreds of megabytes.  Only this directory includes it.
 *
 * After a failure everything returns false, rc is the error, and the first
 * sentence is kept.  So a reader needs to check rc only once, at the end of a
 * list or an object. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "rsh/util/error.h"
#include "rsh/wire/ckpt.h"

struct json_scan {
	const struct rsh_byte_source *src;
	struct rsh_error *err;
	int rc;
	const char *name; /* the current parameter, for messages; or NULL */
	bool fresh;       /* nothing of the list or object was read so far */
	unsigned depth;   /* number of open lists and objects */
	uint64_t next;    /* file offset of the end of the window */
	char *p, *end;    /* the unread bytes; a NUL follows them */
	char *window;
};

/* This is a string with its escapes replaced, and without a NUL in it. It is in
 * the window and valid until the next value is read. */
struct json_string {
	char *s;
	size_t len;
};

/* Begins at the start of the file.  Returns false if it is out of memory. */
bool rsh_json_open(struct json_scan *s, const struct rsh_byte_source *src,
		   struct rsh_error *err);
void rsh_json_close(struct json_scan *s);
uint64_t rsh_json_offset(const struct json_scan *s);
/* Moves the scan to a value whose offset is known. */
void rsh_json_seek(struct json_scan *s, uint64_t offset);

/* Sets -EBADMSG and the sentence "PATH: [parameter "NAME" is] damaged at offset
 * N: ..", unless an error is already set.  Returns false. */
bool rsh_json_fail(struct json_scan *s, const char *fmt, ...)
	__attribute__((format(printf, 2, 3)));
/* Ends the scan with the error `rc`, whose sentence is already set.  Returns
 * false. */
bool rsh_json_stop(struct json_scan *s, int rc);
/* Sets -ENOMEM.  Returns false. */
bool rsh_json_nomem(struct json_scan *s);

/* Enters an object ('{') or a list ('['). */
bool rsh_json_begin(struct json_scan *s, char bracket);
/* Moves to the next key of an object and past its colon, or to the next element
 * of a list.  Returns false at the end of the object or list, which is then
 * left, and after a failure. */
bool rsh_json_key(struct json_scan *s, struct json_string *key);
bool rsh_json_element(struct json_scan *s);

bool rsh_json_string(struct json_scan *s, struct json_string *out);
/* Reads an integer from lo to hi. */
bool rsh_json_int(struct json_scan *s, int64_t lo, int64_t hi, int64_t *out);
/* Skips a word ("null", "true") if it is next. */
bool rsh_json_word(struct json_scan *s, const char *word);
/* Returns the first character of the next value; 0 after a failure. */
int rsh_json_peek(struct json_scan *s);
/* Skips a value, also one that is not JSON but that Python writes (NaN). */
void rsh_json_skip(struct json_scan *s);
/* Skips `len` bytes if they are next.  They are a whole value without blanks
 * around it. */
bool rsh_json_same(struct json_scan *s, const char *text, size_t len);
/* Returns the text from that offset on, or NULL if it is no longer in the
 * window. */
const char *rsh_json_since(const struct json_scan *s, uint64_t offset,
			   size_t *len);
/* Checks that only blanks are left in the file. */
bool rsh_json_finish(struct json_scan *s);

/* Reads n hexadecimal digits. */
bool rsh_json_hex(const char *p, const char *end, size_t n, uint32_t *out);
/* Writes a character as UTF-8.  Returns the number of bytes, at most four. */
size_t rsh_utf8_put(char *to, uint32_t c);

static inline bool rsh_json_is(const struct json_string *s, const char *word,
			       size_t len)
{
	return s->len == len && !__builtin_memcmp(s->s, word, len);
}
#define JSON_IS(string, literal) \
	rsh_json_is(string, literal, sizeof(literal) - 1)
