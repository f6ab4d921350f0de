/* SPDX-License-Identifier: Apache-2.0 */
/* app/cli/text.h writes text for people: it cuts it to a width, and writes
 * sizes. */
#ifndef RSH_APP_CLI_TEXT_H
#define RSH_APP_CLI_TEXT_H

#include <stddef.h>
#include <stdint.h>

#include "rsh/util/text.h"

/* Returns how many columns of a terminal UTF-8 text takes: those of Chinese,
 * Japanese and Korean take two each, accents none. */
size_t rsh_text_width(const char *s);
/* Returns how many bytes from the beginning of `s` take `width` columns at
 * most. */
size_t rsh_text_fitting(const char *s, size_t width);
/* Cuts `s` in place to `width` columns, at least 4, by taking out its middle, of
 * which "..." is left. */
void rsh_text_shorten(char *s, size_t width);

/* Writes bytes as "1.5 GiB"; returns text. */
const char *rsh_text_bytes(uint64_t bytes, char *text, size_t size);
/* Writes seconds as "250 ms", "12.5 s" or "3.1 h"; returns text. */
const char *rsh_text_seconds(double seconds, char *text, size_t size);

#endif
