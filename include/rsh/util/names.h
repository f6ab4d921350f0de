/* SPDX-License-Identifier: Apache-2.0 */
/* util/names.h - parameter names as small numbers.
 *
 * A thousand rank files repeat the same few thousand names; they are stored
 * once and everything above refers to a name by its id (0, 1, 2, ... in the
 * order of first appearance).
 *
 * Threads: add() from one thread at a time or under the table's own mutex -
 * it has one, so add() and find() may be called from any thread.  text() and
 * count() take no lock: they may be called once the ids in question were
 * handed out with a happens-before (thread join, publication of the tree).
 */
#ifndef RSH_UTIL_NAMES_H
#define RSH_UTIL_NAMES_H

#include <stddef.h>
#include <stdint.h>

#define RSH_NAME_NONE UINT32_MAX

struct rsh_names;

struct rsh_names *rsh_names_new(void); /* NULL: out of memory */
void rsh_names_free(struct rsh_names *t);

/* The id of the `len` bytes at `s` (no NUL inside), added if new.
 * RSH_NAME_NONE when memory is out. */
uint32_t rsh_names_add(struct rsh_names *t, const char *s, size_t len);
/* The id, or RSH_NAME_NONE if it was never added. */
uint32_t rsh_names_find(struct rsh_names *t, const char *s, size_t len);
/* NUL-terminated, owned by the table, at a fixed address for its life. */
const char *rsh_names_text(const struct rsh_names *t, uint32_t id);
uint32_t rsh_names_count(const struct rsh_names *t);

#endif
