/* SPDX-License-Identifier: Apache-2.0 */
/* app/json.h makes the JSON in which a mount tells about itself, and in
 * which commands answer programs.  What is returned is the caller's, and NULL
 * if memory is out. */
#ifndef RSH_APP_JSON_H
#define RSH_APP_JSON_H

#include <stddef.h>
#include <stdint.h>

#include <jansson.h>

/* Returns the text of the value, which is dropped, as rsh_text_json() leaves it
 * (from malloc).  Returns NULL if memory is out, or if there was no value. */
char *rsh_json_dump(json_t *value, size_t flags);
/* Makes a string; one that is not UTF-8 is escaped as rsh_text_escape()
 * does. */
json_t *rsh_json_text(const char *s);
/* Makes a string as rsh_json_text() does, or null if `s` is NULL. */
json_t *rsh_json_optional(const char *s);
json_t *rsh_json_u64(uint64_t n);

#endif
