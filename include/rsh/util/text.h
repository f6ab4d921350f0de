/* SPDX-License-Identifier: Apache-2.0 */
/* util/text.h - text that others chose, made safe for people and terminals.
 *
 * File and parameter names may hold any bytes.  Sentences hold them as they
 * are.  Where something is shown, in the log, in errors, tables and attributes,
 * it is escaped once: control characters, characters that are not seen or turn
 * the direction of writing, line separators, and bytes that are not UTF-8
 * become "\xNN", one for each byte, and a backslash is doubled.  Thus no name
 * begins a line or drives a terminal, and the bytes can be had back.
 *
 * All functions are pure; any thread may call them.
 */
#ifndef RSH_UTIL_TEXT_H
#define RSH_UTIL_TEXT_H

#include <stddef.h>

/* Escapes `s` into to[size], where size > 4.  A text that does not fit is cut
 * and ends in "...", never within a character or an escape.  Returns `to`. */
char *rsh_text_put(char *to, size_t size, const char *s);

/* Returns the whole of `s` escaped.  The caller frees it; NULL means out of
 * memory. */
char *rsh_text_escape(const char *s);

/* Returns a copy of a JSON text in which the characters named above stand as
 * \uNNNN, which means the same to a parser; no backslash is doubled.  The
 * caller frees it; NULL means out of memory. */
char *rsh_text_json(const char *json);

/* Appends to the bounded text[size], of which *at bytes are taken, and cuts what
 * does not fit, which *at counts, too. */
void rsh_text_add(char *text, size_t size, size_t *at, const char *fmt, ...)
	__attribute__((format(printf, 4, 5)));

#endif
