/* SPDX-License-Identifier: Apache-2.0 */
/* util/memory_limits.h - how much more memory this process may use.  `ulimit
 * -v` and `-d` limit mapped memory, control groups limit resident memory.  No
 * function fails: an unknown limit counts as no limit.
 *
 * Threads: any thread may call these, except rsh_memory_save_addresses(). */
#pragma once

#include <stdint.h>

#define RSH_MEMORY_UNLIMITED UINT64_MAX

/* Returns the machine's memory in bytes. */
uint64_t rsh_physical_memory(void);

/* Returns how many bytes can still be mapped; it tries to map them. */
uint64_t rsh_memory_left_to_map(void);

/* Returns how many more bytes the control groups of this process (v1 or v2)
 * allow to be resident; the page cache counts as free.  It reads /proc and
 * /sys. */
uint64_t rsh_memory_left_resident(void);

/* Lets threads share two arenas of malloc.  If the address space is limited
 * they share one, since each maps 64 MiB, and get small stacks.  Call it before
 * any thread is started. */
void rsh_memory_save_addresses(void);
