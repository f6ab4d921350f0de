/* SPDX-License-Identifier: Apache-2.0 */
/* unit/memory_medium.h - a medium whose files lie in memory, to show that
 * nothing above store knows what they lie on.  There is one at a time. */
#ifndef UNIT_MEMORY_MEDIUM_H
#define UNIT_MEMORY_MEDIUM_H

#include "rsh/storage/store.h"

/* Files come in the order of their names; the bytes are copied. */
void memory_add(const char *name, const void *bytes, size_t n);
/* Adds a file that a test has written to a tree. */
void memory_add_from(const char *tree, const char *name);
/* Puts other bytes into a file, of the same size. */
void memory_replace(unsigned file);
/* Lets the next n reads fail. */
void memory_fail(unsigned n);
/* Lets looks at a file of this name fail; NULL: they do not. */
void memory_fail_look(const char *name);
/* Has reads wait until n of them are under way at a time, from when on none of
 * them waits; one that waits for 20 seconds fails. */
void memory_meet(unsigned n);
/* Says how many reads there were so far. */
unsigned memory_reads(void);
void memory_clear(void);

/* struct rsh_store_options.medium; whatever the path, it is this one. */
rsh_medium_open_fn memory_open;

#endif
