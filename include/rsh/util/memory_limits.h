/* SPDX-License-Identifier: Apache-2.0 */
/* util/memory_limits.h - how much memory this process may still take, where
 * somebody has set a limit.  `ulimit -v` and `-d` limit what it maps, control
 * groups what is resident.  No function fails: what cannot be found out counts
 * as no limit.
 *
 * Threads: any thread may ask; rsh_memory_save_addresses() has its own rule. */
#ifndef RSH_UTIL_MEMORY_LIMITS_H
#define RSH_UTIL_MEMORY_LIMITS_H

#include <stdint.h>

/* This value means that nobody has set a limit. */
#define RSH_MEMORY_UNLIMITED UINT64_MAX

/* Returns how many bytes can still be mapped, which it finds out by trying. */
uint64_t rsh_memory_left_to_map(void);

/* Returns how many bytes the control groups of this process, of either version,
 * still let be resident; pages of files count as free.  It reads /proc and
 * /sys. */
uint64_t rsh_memory_left_resident(void);

/* Saves address space where it is limited: threads get small stacks and share
 * one arena of malloc, since each would else map 64 MiB of its own.  It is
 * called before any thread is started. */
void rsh_memory_save_addresses(void);

#endif
