/* SPDX-License-Identifier: Apache-2.0 */
/* app/cli/text.h formats text for terminals: it cuts text to a width, and
 * formats sizes. */
#ifndef RSH_APP_CLI_TEXT_H
#define RSH_APP_CLI_TEXT_H

#include <stddef.h>
#include <stdint.h>

#include "rsh/util/text.h"

/* Returns how many columns of a terminal UTF-8 text takes: a Chinese, Japanese
 * or Korean character takes two, a combining accent none. */
size_t rsh_text_width(const char *s);
/* Returns how many bytes at the beginning of `s` take at most `width`
 * columns. */
size_t rsh_text_fitting(const char *s, size_t width);
/* Cuts `s` in place to `width` columns, at least 4, and replaces its middle by
 * "...". */
void rsh_text_shorten(char *s, size_t width);

/* Formats bytes as "1.5 GiB"; returns text. */
const char *rsh_text_bytes(uint64_t bytes, char *text, size_t size);
/* Formats seconds as "250 ms", "12.5 s" or "3.1 h"; returns text. */
const char *rsh_text_seconds(double seconds, char *text, size_t size);

#endif
