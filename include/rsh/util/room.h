/* SPDX-License-Identifier: Apache-2.0 */
/* util/room.h - how much memory this process may still take, where somebody has
 * set a limit: ulimit -v and -d bound what it maps, control groups what is
 * resident.
 *
 * Threads: any. */
#ifndef RSH_UTIL_ROOM_H
#define RSH_UTIL_ROOM_H

#include <stdint.h>

/* Nobody has set a limit. */
#define RSH_ROOM_ENDLESS UINT64_MAX

/* Bytes that can still be mapped; found out by trying. */
uint64_t rsh_room_to_map(void);

/* Bytes that the control groups of this process, of either version, still let be
 * resident; pages of files count as free.  Reads /proc and /sys. */
uint64_t rsh_room_resident(void);

/* Before any thread is started: where mappings are limited, threads get small
 * stacks and share what malloc maps, of which each would else have 64 MiB. */
void rsh_room_save(void);

#endif
