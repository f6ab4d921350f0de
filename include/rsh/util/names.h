/* SPDX-License-Identifier: Apache-2.0 */
/* util/names.h - parameter names as small numbers.
 *
 * A thousand rank files repeat the same few thousand names.  The table stores
 * each name once; other code uses its id (0, 1, 2, ... in the order of first
 * appearance).
 *
 * Threads: any thread may call all functions but new() and free().  text() and
 * count() take no lock: a thread may call text() for an id that it got from
 * add() or find(), or from another thread with a happens-before (a join, the
 * publication of the tree).
 */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "rsh/util/mem.h"

#define RSH_NAME_NONE UINT32_MAX

struct rsh_names;

struct rsh_names *rsh_names_new(void); /* NULL: out of memory */
void rsh_names_free(struct rsh_names *t);
RSH_GUARD(rsh_names_guard_, struct rsh_names, rsh_names_free)
#define cleanup_names __attribute__((cleanup(rsh_names_guard_)))

/* Returns the id of the `len` bytes at `s` (without a NUL), which are added if
 * they are new.  RSH_NAME_NONE means out of memory or too many names. */
uint32_t rsh_names_add(struct rsh_names *t, const char *s, size_t len);
/* Returns the id, or RSH_NAME_NONE if the name was never added. */
uint32_t rsh_names_find(struct rsh_names *t, const char *s, size_t len);
/* Returns the NUL-terminated text of an id.  The table owns it and never moves
 * it. */
const char *rsh_names_text(const struct rsh_names *t, uint32_t id);
uint32_t rsh_names_count(const struct rsh_names *t);
