/* SPDX-License-Identifier: Apache-2.0 */
/* app/json.h makes the JSON of a mount's control directory and of commands.
 * The caller owns what is returned, which is NULL if memory is out. */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include <jansson.h>

/* Drops the value, and returns its text, escaped by rsh_text_json() (from
 * malloc).  Returns NULL if memory is out or `value` is NULL. */
char *rsh_json_dump(json_t *value, size_t flags);
/* Makes a string; text that is not UTF-8 is escaped as rsh_text_escape()
 * does. */
json_t *rsh_json_text(const char *s);
