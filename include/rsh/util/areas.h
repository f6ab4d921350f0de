/* SPDX-License-Identifier: Apache-2.0 */
/* util/areas.h - a pool of buffers of one size that the kernel copies from or
 * to.
 *
 * They are cut from slabs that lie in huge pages where the kernel has any.  The
 * kernel walks the page table for each page of a buffer that it is given, and
 * the processor for each page that it touches; huge pages are fewer.  Replies
 * of 1 MiB from huge pages cost the server 0.93 of the time, and readers of
 * contiguous runs got 1.08 times the rate (medians of 25 turns).  Where the
 * kernel has no huge pages, everything works the same.
 *
 * Threads: the caller sees to it that one thread at a time uses a pool.
 */
#ifndef RSH_UTIL_AREAS_H
#define RSH_UTIL_AREAS_H

#include <stddef.h>
#include <stdint.h>
#include <sys/queue.h>

struct rsh_area_slab;
TAILQ_HEAD(rsh_area_slabs, rsh_area_slab);

struct rsh_areas {
	size_t bytes;                /* size of one area, whole pages */
	struct rsh_area_slabs slabs;
	unsigned n_slabs;
};

/* Makes an empty pool of areas of `bytes` bytes, or more: whole pages. */
void rsh_areas_init(struct rsh_areas *a, size_t bytes);
/* Returns how much address space n_areas areas of `bytes` take at most. */
uint64_t rsh_areas_maps(size_t bytes, unsigned n_areas);
/* Gives back all memory; the caller has returned all areas before. */
void rsh_areas_destroy(struct rsh_areas *a);

/* Returns an area that begins with a page; NULL means out of memory.  Of a slab
 * it is the area that was returned last, which may still be in the processor's
 * caches.  Its content is whatever was left there. */
void *rsh_area_take(struct rsh_areas *a);
/* Gives an area back to the pool, which keeps its memory for the next user.  Of
 * slabs that nobody uses one is kept. */
void rsh_area_return(struct rsh_areas *a, void *area);

#endif
