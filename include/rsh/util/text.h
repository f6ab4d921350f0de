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
 * Here are also the readers of UTF-8 and of decimal numbers.  All functions are
 * pure; any thread may call them.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Escapes `s` into to[size], where size > 4.  A text that does not fit is cut
 * between two characters and ends in "...".  Returns `to`. */
char *rsh_text_put(char *to, size_t size, const char *s);

/* Returns `s` escaped.  The caller frees it; NULL means out of memory. */
char *rsh_text_escape(const char *s);

/* Returns a copy of a JSON text in which those characters are written as
 * \uNNNN, which a parser reads as the same; no backslash is doubled.  The
 * caller frees it; NULL means out of memory. */
char *rsh_text_json(const char *json);

/* Returns a formatted text from malloc; NULL means out of memory. */
char *rsh_text_format(const char *fmt, ...)
	__attribute__((format(printf, 1, 2)));

/* These return whether a text is one of words, or begins with one of them. */
bool rsh_is_word_of(const char *text, bool begins, const char *const *words);
#define rsh_is_any(text, ...)         \
	rsh_is_word_of(text, false, \
		       (const char *const[]){ __VA_ARGS__, NULL })
#define rsh_begins_any(text, ...)    \
	rsh_is_word_of(text, true, \
		       (const char *const[]){ __VA_ARGS__, NULL })

/* Returns the place of the n characters at `text` in a list of words with a
 * character of `between` between two of them, or -1.  The list may be NULL. */
int rsh_word_place(const char *list, const char *between, const char *text,
		   size_t n);

/* Appends to text[size] at *at and cuts what does not fit.  *at grows by the
 * full length. */
void rsh_text_add(char *text, size_t size, size_t *at, const char *fmt, ...)
	__attribute__((format(printf, 4, 5)));

/* Writes n bytes as hexadecimal digits and a NUL.  Returns the address of the
 * NUL. */
char *rsh_text_hex(char *to, const uint8_t *bytes, size_t n);

/* Decodes the character at the first of `avail` bytes, at least one.  Returns
 * its number of bytes, or 0 if they are not UTF-8. */
size_t rsh_utf8_decode(const char *s, size_t avail, uint32_t *out);

/* Parses a number of n digits; returns false if n is 0, another character is
 * among them, or the number is greater than `max`. */
bool rsh_digits_read(const char *digits, size_t n, uint64_t max, uint64_t *out);
static inline bool rsh_number_read(const char *digits, size_t n, uint64_t *out)
{
	return rsh_digits_read(digits, n, UINT64_MAX, out);
}
/* Reads the number that is all that follows a prefix in the n characters at
 * `name`. */
bool rsh_number_after(const char *prefix, const char *name, size_t n,
		      uint64_t *out);
/* Returns how many of the first n characters of s are leading digits.  A NUL
 * ends them. */
size_t rsh_count_digits(const char *s, size_t n);
