/* SPDX-License-Identifier: Apache-2.0 */
/* util/text.h - text that others chose, made safe for people and terminals.
 *
 * File and parameter names may contain any bytes.  Sentences contain them
 * unchanged.  Text is escaped once, where it is shown (log, errors, tables,
 * attributes): control characters, invisible characters, characters that change
 * the writing direction, line separators, and bytes that are not UTF-8 become
 * "\xNN", one for each byte, and a backslash is doubled.  So a name can neither
 * begin a new line nor control a terminal, and the original bytes can be
 * restored.
 *
 * All functions are pure; any thread may call them.
 */
#ifndef RSH_UTIL_TEXT_H
#define RSH_UTIL_TEXT_H

#include <stddef.h>

/* Escapes `s` into to[size], where size > 4.  A text that does not fit is cut
 * between two characters and ends in "...".  Returns `to`. */
char *rsh_text_put(char *to, size_t size, const char *s);

/* Returns `s` escaped.  The caller frees it; NULL means out of memory. */
char *rsh_text_escape(const char *s);

/* Returns a copy of a JSON text in which those characters are written as
 * \uNNNN, which a parser reads as the same; no backslash is doubled.  The
 * caller frees it; NULL means out of memory. */
char *rsh_text_json(const char *json);

/* Appends to text[size] at *at and cuts what does not fit.  *at grows by the
 * full length. */
void rsh_text_add(char *text, size_t size, size_t *at, const char *fmt, ...)
	__attribute__((format(printf, 4, 5)));

#endif
