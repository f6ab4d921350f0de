/* SPDX-License-Identifier: Apache-2.0 */
/* daemon/json.h - the JSON in which a mount tells about itself, and commands
 * answer programs. */
#ifndef RSH_DAEMON_JSON_H
#define RSH_DAEMON_JSON_H

#include <stddef.h>
#include <stdint.h>

#include <jansson.h>

/* The text of the value, which is dropped, as rsh_text_json() leaves it (from
 * malloc); NULL: out of memory, or there was no value. */
char *rsh_json_dump(json_t *value, size_t flags);
/* A string; one that is not UTF-8 is escaped as rsh_text_escape() does. */
json_t *rsh_json_text(const char *s);
/* NULL stands for null. */
json_t *rsh_json_optional(const char *s);
json_t *rsh_json_u64(uint64_t n);

#endif
