/* SPDX-License-Identifier: Apache-2.0 */
/* util/areas.c cuts buffers from slabs in huge pages, from the fullest slab
 * first, so that the other slabs become empty and can be freed. */
#include "config.h"

#include "rsh/util/areas.h"

#include <stdbool.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#define SLAB_AREAS 8
#define HUGE_PAGE ((size_t)2 * 1024 * 1024)

struct rsh_area_slab {
	TAILQ_ENTRY(rsh_area_slab) next;
	uint8_t *map;  /* SLAB_AREAS areas and room to align them */
	uint8_t *mem;  /* the first area */
	unsigned n_free;
	uint8_t free[SLAB_AREAS]; /* numbers; the last was returned last */
};

static size_t whole_pages(size_t bytes)
{
	const size_t page = (size_t)sysconf(_SC_PAGESIZE);

	return (bytes + page - 1) / page * page;
}

void rsh_areas_init(struct rsh_areas *a, size_t bytes)
{
	a->bytes = whole_pages(bytes);
	a->n_slabs = 0;
	TAILQ_INIT(&a->slabs);
}

static size_t map_bytes(size_t area)
{
	return SLAB_AREAS * area + HUGE_PAGE;
}

/* Besides the slabs in use and one that is partly used, one may be empty. */
uint64_t rsh_areas_maps(size_t bytes, unsigned n_areas)
{
	return ((uint64_t)n_areas / SLAB_AREAS + 2) *
	       map_bytes(whole_pages(bytes));
}

static struct rsh_area_slab *slab_new(struct rsh_areas *a)
{
	struct rsh_area_slab *s = malloc(sizeof(*s));
	size_t before;

	if (!s)
		return NULL;
	s->map = mmap(NULL, map_bytes(a->bytes), PROT_READ | PROT_WRITE,
		      MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (s->map == MAP_FAILED) {
		free(s);
		return NULL;
	}
	before = -(uintptr_t)s->map % HUGE_PAGE;
	s->mem = s->map + before;
	/* The rest of the map is left out: it would be one more huge page. */
	madvise(s->mem, SLAB_AREAS * a->bytes / HUGE_PAGE * HUGE_PAGE,
		MADV_HUGEPAGE);
	for (unsigned i = 0; i < SLAB_AREAS; i++)
		s->free[i] = (uint8_t)(SLAB_AREAS - 1 - i);
	s->n_free = SLAB_AREAS;
	TAILQ_INSERT_HEAD(&a->slabs, s, next);
	a->n_slabs++;
	return s;
}

static void slab_free(struct rsh_areas *a, struct rsh_area_slab *s)
{
	TAILQ_REMOVE(&a->slabs, s, next);
	a->n_slabs--;
	munmap(s->map, map_bytes(a->bytes));
	free(s);
}

void rsh_areas_destroy(struct rsh_areas *a)
{
	struct rsh_area_slab *s;

	while ((s = TAILQ_FIRST(&a->slabs)))
		slab_free(a, s);
}

void *rsh_area_take(struct rsh_areas *a)
{
	struct rsh_area_slab *s, *best = NULL;

	TAILQ_FOREACH(s, &a->slabs, next)
		if (s->n_free && (!best || s->n_free < best->n_free))
			best = s;
	if (!best)
		best = slab_new(a);
	return best ? best->mem + best->free[--best->n_free] * a->bytes : NULL;
}

void rsh_area_return(struct rsh_areas *a, void *area)
{
	struct rsh_area_slab *s, *of = NULL;
	uint8_t *const at = area;
	bool another_is_empty = false;

	TAILQ_FOREACH(s, &a->slabs, next)
		if (at >= s->mem && at < s->mem + SLAB_AREAS * a->bytes)
			of = s;
		else
			another_is_empty |= s->n_free == SLAB_AREAS;
	if (!of)
		abort();
	of->free[of->n_free++] = (uint8_t)((size_t)(at - of->mem) / a->bytes);
	if (of->n_free == SLAB_AREAS && another_is_empty)
		slab_free(a, of);
}
