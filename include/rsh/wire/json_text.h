/* SPDX-License-Identifier: Apache-2.0 */
/* wire/json_text.h - writes JSON byte for byte as serde_json and Python's json
 * do.  (jansson escapes differently: it uses upper-case digits and escapes
 * DEL.) */
#pragma once

#include <stdbool.h>
#include <stddef.h>

/* This is a text that grows.  If all bytes of the struct are zero, it is empty.
 * After a failure, nothing more is added and `failed` is true.  A NUL follows
 * the text. */
struct rsh_json_text {
	char *data; /* from malloc; freed by rsh_json_text_clear() */
	size_t len;
	size_t cap;
	bool failed;
};

void rsh_json_text_put(struct rsh_json_text *t, const char *s, size_t len);
void rsh_json_text_puts(struct rsh_json_text *t, const char *s);
void rsh_json_text_printf(struct rsh_json_text *t, const char *fmt, ...)
	__attribute__((format(printf, 2, 3)));
void rsh_json_text_clear(struct rsh_json_text *t);

enum rsh_json_escapes {
	RSH_ESCAPES_SERDE,  /* only what JSON requires; the rest is UTF-8 */
	RSH_ESCAPES_PYTHON, /* everything but printable ASCII */
};

/* Returns whether a text is UTF-8.  A NUL is accepted as a character. */
bool rsh_is_utf8(const char *s, size_t len);
/* Writes the string with its quotes.  If it is not UTF-8, returns false and
 * writes nothing. */
bool rsh_json_text_put_string(struct rsh_json_text *t, const char *s,
			      size_t len, enum rsh_json_escapes escapes);
