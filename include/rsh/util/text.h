/* SPDX-License-Identifier: Apache-2.0 */
/* util/text.h - text that others chose, for people and terminals.
 *
 * File and parameter names are anybody's bytes.  Sentences hold them as they
 * are; where something is shown, in the log, in errors, tables and attributes,
 * it is escaped once: control characters, characters that are not seen or turn
 * the direction of writing, line separators, and bytes that are not UTF-8
 * become "\xNN", one a byte, and a backslash is doubled.  Thus no name begins
 * a line or drives a terminal, and the bytes can be had back.
 */
#ifndef RSH_UTIL_TEXT_H
#define RSH_UTIL_TEXT_H

#include <stddef.h>

/* Escapes into to[size], size > 4; what does not fit ends in "...", never
 * within a character or an escape.  Returns `to`. */
char *rsh_text_put(char *to, size_t size, const char *s);

/* The whole of it, from malloc; NULL: out of memory. */
char *rsh_text_escape(const char *s);

/* Of a JSON text, in which strings are exact: a copy in which the characters
 * above stand as \uNNNN, which means the same to a parser.  From malloc; NULL:
 * out of memory. */
char *rsh_text_json(const char *json);

#endif
